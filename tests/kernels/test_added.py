"""What is added to rows of a table at places is machine code, and has the bits of ``np.add.at``."""

import numpy as np
import pytest

import futurex as fx

RNG = np.random.default_rng(8)


def run(f, *args):
    """The result, and by which backends it was computed."""
    g = fx.futurize(f)
    plan = g.trace(*args).plan
    plan.prepare(wait=True)
    (result,) = plan.run(list(args))
    return result, {each.node.op: each.kernel.backend for each in plan.instructions}


def added(table, value, i):
    table = table.copy()
    np.add.at(table, i, value)
    return table


def added_in_the_middle(table, value, i):
    table = table.copy()
    np.add.at(table, (slice(None), i), value)
    return table


def added_at_both(table, value, i, j):
    table = table.copy()
    np.add.at(table, (i, j), value)
    return table


def added_behind_rows(table, value, i, j):
    table = table.copy()
    np.add.at(table, (slice(None), i, j), value)
    return table


def added_to_a_part(table, value, i):
    table = table.copy()
    np.add.at(table, (slice(1, None, 2), i), value)
    return table


def places(extent, *shape, dtype="i8"):
    return RNG.integers(-extent, extent, shape).astype(dtype)


def numbers(*shape, dtype="f4"):
    return (RNG.standard_normal(shape) * 100).astype(dtype)


CASES = {
    "rows": (added, numbers(50, 64), numbers(300, 64), places(50, 300)),
    "rows of an odd length": (added, numbers(50, 39), numbers(300, 39), places(50, 300)),
    **{
        f"rows of {n} of {dtype}": (added, numbers(50, n, dtype=dtype), numbers(300, n, dtype=dtype), places(50, 300))
        for n in (2, 4, 5, 16, 17, 33)
        for dtype in ("f4", "f8")
    },
    "short rows": (added, numbers(50, 3, dtype="f8"), numbers(300, 3, dtype="f8"), places(50, 300)),
    "numbers": (added, numbers(50), numbers(3000), places(50, 3000)),
    "places of 32 bits": (added, numbers(50, 20), numbers(300, 20), places(50, 300, dtype="i4")),
    "the last of each row, counted from behind": (
        added_at_both, numbers(7, 9), numbers(2000), abs(places(7, 2000)) % 7, places(9, 2000).clip(-1, 8)),
    "places in two dimensions": (added, numbers(50, 20), numbers(30, 7, 20), places(50, 30, 7)),
    "the middle": (added_in_the_middle, numbers(6, 9, 5), numbers(6, 40, 5), places(9, 40)),
    "the last axis": (added_in_the_middle, numbers(60, 9), numbers(60, 40), places(9, 40)),
    "integers": (added, places(99, 50, 20), places(99, 300, 20), places(50, 300)),
    "unsigned ones": (added, places(99, 50, 20).astype("u4"), places(99, 300, 20).astype("u4"), places(50, 300)),
    "two axes": (added_at_both, numbers(40, 30, dtype="f8"), numbers(2000, dtype="f8"), places(40, 2000),
                 places(30, 2000)),
    "a grid of places": (added_at_both, numbers(40, 30), numbers(120, 3, 3), places(40, 120, 3, 1),
                         places(30, 120, 1, 3)),
    "a row of places": (added_at_both, numbers(40, 30), numbers(30, 50), places(40, 30, 1), places(30, 50)),
    "rows at two axes": (added_at_both, numbers(9, 8, 20), numbers(300, 20), places(9, 300), places(8, 300)),
    "small places": (added_at_both, numbers(90, 120), numbers(1100), places(90, 1100, dtype="i1"),
                     places(120, 1100, dtype="i1")),
    "two axes behind": (added_behind_rows, numbers(4, 9, 8), numbers(4, 300), places(9, 300),
                        places(8, 300, dtype="i4")),
    "on two threads": (added, numbers(500, 64), numbers(9000, 64), places(500, 9000)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_adds_as_numpy_adds(name):
    f, *args = CASES[name]
    result, backends = run(f, *args)
    expected = f(*args)
    assert backends["scatter"] == "numba"
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    assert result.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", ["rows", "places of 32 bits", "the middle", "on two threads"])
@pytest.mark.parametrize("beyond", [lambda extent: extent, lambda extent: -extent - 1])
def test_a_place_that_is_outside_raises_what_numpy_raises(name, beyond):
    f, table, value, i = CASES[name]
    wrong = i.copy()
    wrong.flat[wrong.size // 3] = beyond(table.shape[1 if f is added_in_the_middle else 0])
    g = fx.futurize(f)
    for k in (i, wrong, i, wrong):
        try:
            expected = f(table, value, k)
        except IndexError as error:
            with pytest.raises(IndexError, match=str(error)):
                g(table, value, k).result()
        else:
            assert np.array_equal(g(table, value, k), expected)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("beyond", [0, 1])
@pytest.mark.parametrize("name", ["two axes", "a grid of places", "small places"])
def test_a_place_that_is_outside_along_one_of_two_axes(name, axis, beyond):
    f, table, value, *given = CASES[name]
    wrong = given[axis].copy()
    wrong.flat[5] = table.shape[axis] if beyond else -table.shape[axis] - 1
    wrongs = [*given]
    wrongs[axis] = wrong
    g = fx.futurize(f)
    for each in (given, wrongs, given, wrongs):
        try:
            expected = f(table, value, *each)
        except IndexError as error:
            with pytest.raises(IndexError, match=str(error)):
                g(table, value, *each).result()
        else:
            assert np.array_equal(g(table, value, *each), expected)


def test_the_gradient_of_pixels_that_were_picked():
    def picked(image, i, j):
        return (image[i, j] ** 3).sum()

    image, i, j = numbers(30, 40, dtype="f8") / 100, places(30, 50, 60), places(40, 50, 60)
    expected = np.zeros(image.shape)
    np.add.at(expected, (i, j), 3 * image[i, j] ** 2)
    gradient = fx.futurize(fx.grad(picked))
    for _ in range(3):
        np.testing.assert_allclose(gradient(image, i, j), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("f", "args"),
    [
        (added_at_both, (numbers(40, 30), numbers(500), places(40, 500), places(30, 500))),  # few
        (added, (numbers(5, 4), numbers(6, 4), places(5, 6))),  # little
        (added, (numbers(50, 20), numbers(300, 20), RNG.integers(0, 50, 300).astype("u8"))),
        (added, (numbers(50, 20), numbers(300, 20, dtype="f8"), places(50, 300))),  # added as doubles
        (added, (numbers(50, 20, dtype="f2"), numbers(300, 20, dtype="f2"), places(50, 300))),
        (added_to_a_part, (numbers(20, 50, 8), numbers(10, 300, 8), places(50, 300))),
    ],
)
def test_the_rest_is_numpys(f, args):
    result, backends = run(f, *args)
    assert backends["scatter"] == "numpy"
    assert np.array_equal(result, f(*args))


FEWER = {
    "one row": (added, numbers(50, 20), numbers(20), places(50, 300)),
    "one column": (added, numbers(50, 20), numbers(300, 1), places(50, 300)),
    "of a matrix of places": (added, numbers(50), numbers(40, 1), places(50, 40, 50)),
    "converted": (added, numbers(50, 20, dtype="f8"), numbers(300, 20), places(50, 300)),
    "integers": (added, numbers(50, dtype="i8"), numbers(2000, dtype="i4"), places(50, 2000)),
    "truths": (added, numbers(50, dtype="i8"), RNG.random(2000) < 0.5, places(50, 2000)),
    "at two axes": (added_at_both, numbers(9, 50, dtype="f8"), numbers(300, 1), places(9, 300, 8), places(50, 8)),
}


@pytest.mark.parametrize("name", FEWER)
def test_what_is_added_may_be_fewer_elements_or_narrower_ones(name):
    f, table, value, *given = FEWER[name]
    result, backends = run(f, table, value, *given)
    assert backends["scatter"] == "numba"
    table = table.copy()
    shape = table[tuple(given)].shape
    np.add.at(table, tuple(given), np.ascontiguousarray(np.broadcast_to(value, shape).astype(table.dtype)))
    assert result.tobytes() == table.tobytes()


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u4", "u8"])
@pytest.mark.parametrize("number", [1, True, -3, 0.1, 2.5, 2**24 + 1, 2**40, 1e39, np.nan, np.float32(0.1)])
@pytest.mark.parametrize("ufunc", [np.add, np.maximum])
def test_a_number_is_added_as_numpy_adds_it(number, dtype, ufunc):
    """Which takes Python's for doubles and integers of 64 bits, and what that gives back to the table."""
    table, i = np.full(50, 1.5).astype(dtype), places(50, 2000)

    def counted(table, i):
        table = table.copy()
        ufunc.at(table, i, number)
        return table

    try:
        with np.errstate(all="ignore"):
            expected = counted(table, i)
    except TypeError:
        with pytest.raises(TypeError):
            run(counted, table, i)
        return
    with np.errstate(all="ignore"):
        result, backends = run(counted, table, i)
    assert result.tobytes() == expected.tobytes()
    taken = dtype[0] == "f" or (dtype != "u8" and isinstance(number, int))
    assert backends["scatter" if ufunc is np.add else "ufunc_at"] == ("numba" if taken else "numpy")


def test_a_table_is_added_to_itself():
    def doubled(table, i):
        table = table.copy()
        np.add.at(table, i, table)
        return table

    table, i = numbers(80, 20), places(80, 80)
    result, _ = run(doubled, table, i)
    assert np.array_equal(result, doubled(table, i))


def test_the_gradient_of_rows_that_were_looked_up():
    def loss(table, i):
        return (table[i] ** 2).sum()

    table, i = numbers(50, 33), places(50, 400)
    gradient = np.zeros_like(table)
    np.add.at(gradient, i, table[i] * 2)
    result, backends = run(fx.grad(loss), table, i)
    assert backends["scatter"] == "numba"
    np.testing.assert_array_equal(result, gradient)


EXTREMES = {"largest": np.maximum, "smallest": np.minimum}


@pytest.mark.parametrize("ufunc", EXTREMES.values(), ids=EXTREMES)
@pytest.mark.parametrize("name", CASES)
def test_it_keeps_the_extremes_that_numpy_keeps(name, ufunc):
    """Of zeros the last one, and the first NaN."""
    f, table, value, *given = CASES[name]
    behind = f in (added_in_the_middle, added_behind_rows)

    def extreme(table, value, *i):
        table = table.copy()
        ufunc.at(table, (slice(None), *i) if behind else i, value)
        return table

    if table.dtype.kind == "f":
        odd = np.array([0.0, -0.0, np.nan, -np.nan, np.inf], table.dtype)
        value, table = (np.where(RNG.random(x.shape) < 0.1, RNG.choice(odd, x.shape), x) for x in (value, table))
        value = np.where(RNG.random(value.shape) < 0.3, np.copysign(value.dtype.type(0), value), value)
    expected = table.copy()
    with np.errstate(invalid="ignore"):
        ufunc.at(expected, (slice(None), *given) if behind else tuple(given), value)
    result, backends = run(extreme, table, value, *given)
    assert backends["ufunc_at"] == "numba"
    assert result.tobytes() == expected.tobytes()
    wrong = given[0].copy()
    wrong.flat[-1] = table.shape[behind]
    with pytest.raises(IndexError, match="is out of bounds"):
        fx.futurize(extreme)(table, value, wrong, *given[1:]).result()


@pytest.mark.parametrize("ufunc", EXTREMES.values(), ids=EXTREMES)
@pytest.mark.parametrize("kind", ["f4", "f8", "f2", "i1", "u8", "c8"])
def test_extremes_in_functions_that_are_compiled_whole_are_those_of_numpy(ufunc, kind):
    def softmax_of_segments(x, i, n):
        top = np.zeros((n, *x.shape[1:]), x.dtype)
        for k in range(2):
            ufunc.at(top, (i + k) % n, x)
        return top, x + top[i]

    x = RNG.integers(0, 90, (60, 3)).astype(kind)
    if x.dtype.kind == "f":
        x = RNG.choice(np.array([0.0, -0.0, 1, -1, np.nan, -np.inf], kind), x.shape)
    i = RNG.integers(0, 9, 60)
    g = fx.futurize(softmax_of_segments)
    with np.errstate(all="ignore"):
        expected = softmax_of_segments(x, i, 9)
        plan = g.trace(x, i, 9).plan
        plan.prepare(wait=True)
        if plan.whole is not None:
            plan.whole.decide()
        for found, one in zip(plan.run([x, i]), expected, strict=True):
            assert np.asarray(found).tobytes() == one.tobytes()
    if kind in ("f4", "f8", "i1", "u8"):
        assert plan.whole.taken
