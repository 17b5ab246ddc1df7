"""What places pick along one axis is machine code, and means what NumPy's indexing means."""

import numpy as np
import pytest

import futurex as fx

RNG = np.random.default_rng(5)
WIDE = RNG.standard_normal((130, 90, 7))
LONG = RNG.standard_normal(20_000)


def run(f, *args):
    """The result, and by which backends it was computed."""
    g = fx.futurize(f)
    plan = g.trace(*args).plan
    plan.prepare(wait=True)
    (result,) = plan.run(list(args))
    return result, {each.node.op: each.kernel.backend for each in plan.instructions}, plan


def places(extent, *shape, dtype="i8"):
    return RNG.integers(-extent, extent, shape).astype(dtype)


CASES = {
    "one axis": (lambda x, i: x[i], LONG, places(20_000, 30_000)),
    "places of 32 bits": (lambda x, i: x[i], LONG, places(20_000, 30_000, dtype="i4")),
    "places of 16 bits": (lambda x, i: x[i], LONG, places(20_000, 30_000, dtype="i2")),
    "a table for bytes": (lambda x, i: x[i], RNG.integers(0, 256, 256).astype("u1"), places(256, 300, 400, dtype="u1")),
    "a short table for bytes": (lambda x, i: np.take(x, i), LONG[:200], places(200, 30_000).astype("u1") % 200),
    "without signs": (lambda x, i: x[i], LONG, places(20_000, 30_000).astype("u4") % 20_000),
    "64 bits without signs": (lambda x, i: x[i], LONG, places(20_000, 30_000).astype("u8")),
    "places in two dimensions": (lambda x, i: x[i], LONG, places(20_000, 150, 200)),
    "rows": (lambda x, i: x[i], WIDE, places(130, 300)),
    "the middle": (lambda x, i: x[:, i], WIDE, places(90, 4, 20)),
    "the last axis": (lambda x, i: x[:, :, i], WIDE, places(7, 11)),
    "bytes": (lambda x, i: x[i], RNG.integers(0, 256, 5000).astype("u1"), places(5000, 100_000)),
    "truth": (lambda x, i: x[i], LONG > 0, places(20_000, 100_000)),
    "half precision": (lambda x, i: x[i], LONG.astype("f2"), places(20_000, 60_000)),
    "complex numbers": (lambda x, i: x[i], LONG * 1j + 1, places(20_000, 30_000)),
}


@pytest.mark.parametrize("name", CASES)
def test_it_picks_what_numpy_picks(name):
    f, x, i = CASES[name]
    result, backends, _ = run(f, x, i)
    expected = f(x, i)
    assert backends == {"gather": "numba"}
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    assert result.tobytes() == expected.tobytes()


@pytest.mark.parametrize("length", [2, 3, 4, 5, 7, 12, 16, 17, 31, 128, 129])
@pytest.mark.parametrize("dtype", ["?", "f2", "f4", "f8", "c16"])
def test_rows_of_every_length(dtype, length):
    """Short ones have their length in the text of the kernel: no byte beyond the last row is written."""
    x = (RNG.standard_normal((60, length)) * 3).astype(dtype)
    count = 80_000 // (length * x.itemsize) + 1
    for f, shape in ((lambda x, i: x[i], x.shape), (lambda x, i: x[:, i], (5, 12, length))):
        table = x.reshape(shape)
        i = places(table.shape[len(shape) - 2], count)
        result, backends, _ = run(f, table, i)
        assert backends == {"gather": "numba"}
        assert result.tobytes() == f(table, i).tobytes()


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("kind", ["i8", "i4", "u1", "u8"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c16", "?"])
def test_places_for_each_element_along_an_axis(dtype, kind, axis):
    x = WIDE.astype(dtype)
    extents = list(x.shape)
    extents[axis] += 3
    i = places(7, *extents, dtype="i8")
    i = (i % 7 if kind[0] == "u" else i).astype(kind)
    expected = np.take_along_axis(x, i, axis)
    result, backends, _ = run(lambda x, i: np.take_along_axis(x, i, axis), x, i)
    assert backends == {"take_along_axis": "numba"}
    assert (result.dtype, result.tobytes()) == (expected.dtype, expected.tobytes())


@pytest.mark.parametrize("beyond", [90, -91])
def test_such_a_place_that_is_outside_raises_what_numpy_raises(beyond):
    wrong = places(90, 130, 90, 7)
    wrong[70, 60, 5] = beyond
    g = fx.futurize(lambda x, i: np.take_along_axis(x, i, 1))
    for _ in range(3):
        with pytest.raises(IndexError, match=f"index {beyond} is out of bounds for axis 1 with size 90"):
            g(WIDE, wrong).result()


def test_places_that_are_broadcast_along_another_axis_are_left_to_numpy():
    i = places(90, 130, 2000, 1)
    result, backends, _ = run(lambda x, i: np.take_along_axis(x, i, 1), WIDE, i)
    assert backends == {"take_along_axis": "numpy"}
    assert np.array_equal(result, np.take_along_axis(WIDE, i, 1))


@pytest.mark.parametrize("name", ["one axis", "places of 32 bits", "rows", "the middle"])
@pytest.mark.parametrize("beyond", [lambda extent: extent, lambda extent: -extent - 1])
def test_a_place_that_is_outside_raises_what_numpy_raises(name, beyond):
    f, x, i = CASES[name]
    wrong = i.copy()
    axis = {"the middle": 1}.get(name, 0)
    wrong.flat[wrong.size // 3] = beyond(x.shape[axis])
    g = fx.futurize(f)
    for k in (i, wrong, i, wrong):  # the second time by the code, and after a call that went well
        try:
            expected = f(x, k)
        except IndexError as error:
            with pytest.raises(IndexError, match=str(error)):
                g(x, k).result()
        else:
            assert np.array_equal(g(x, k), expected)


@pytest.mark.parametrize(
    ("f", "x", "i"),
    [
        (lambda x, i: x[i], LONG, places(20_000, 100)),  # little
        (lambda x, i: x[i, 1:4], WIDE, places(130, 3000)),
        (lambda x, i: x[i, :, i], WIDE, places(7, 1000)),
    ],
)
def test_the_rest_is_numpys(f, x, i):
    result, backends, _ = run(f, x, i)
    assert backends["gather"] == "numpy"
    assert np.array_equal(result, f(x, i))


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "u4"])
def test_numbers_of_a_type_are_places_or_raise(dtype):
    x, most = RNG.standard_normal(100), np.iinfo(dtype).max
    g = fx.futurize(lambda x, i: x[i])
    good = places(100, 30_000, dtype="i1").astype(dtype) % np.array(100, dtype)
    wrong = np.where(good == 5, most, good).astype(dtype)
    for k in (good, wrong, good, wrong):
        try:
            expected = x[k]
        except IndexError as error:
            with pytest.raises(IndexError, match=str(error)):
                g(x, k).result()
        else:
            assert np.array_equal(g(x, k), expected)


def test_what_follows_is_written_over_it():
    """The result of the whole is the only array that a run makes."""
    f, i = (lambda x, i: x[i] * 2.5), places(20_000, 150_000)
    result, backends, plan = run(f, LONG, i)
    assert backends == {"gather": "numba", "fused": "numba"}
    assert (plan.memory.arena, plan.memory.unplanned) == (0, 0)
    assert plan.memory.outputs == result.nbytes
    assert np.array_equal(result, f(LONG, i))


def test_picks_from_nothing():
    g = fx.futurize(lambda x, i: x[:, i])
    x, i = np.zeros((0, 9)), places(9, 20_000)
    assert g(x, i).result().shape == (0, 20_000)
