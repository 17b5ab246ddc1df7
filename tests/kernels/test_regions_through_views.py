"""What a region gives to a view of an array is written there at once: NumPy's bits, whatever lies where."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.ops.views import around

LONG = np.random.default_rng(8).standard_normal((300, 420))


def plan_of(f, *args):
    plan = fx.futurize(f).trace(*args).plan
    plan.prepare(wait=True)
    return plan


def backends(plan):
    return {each.node.op: each.kernel.backend for each in plan.instructions}


def stencil(a):
    u = a * 2
    u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return u


def of_an_argument(a):
    u = a.copy()
    u[2:-3] -= 3
    return u


def of_a_result(a):
    u = a * 2
    u[:, 5:] = u[:, 5:] * a[:, 5:] + 1
    return u


def twice(a):
    u = a + 1
    u[1:] *= 2
    u[:, 1:-1] -= u[:, 1:-1] * u[:, 1:-1]
    return u


def still_read(a):
    u = a * 2
    v = u.copy()
    v[1:-1] = v[1:-1] * 3 - u[2:]
    return u, v


def of_a_function(a):
    u = a * 2
    u[1:-1, 1:-1] = np.sin(u[1:-1, 1:-1] * 1e3) + np.exp(u[1:-1, 1:-1])
    return u


def in_a_row(a):
    u = np.concatenate([a, a])
    u[7, 3:] = 0
    u[5:305] = a / 3
    return u


@pytest.mark.parametrize(
    "f", [stencil, of_an_argument, of_a_result, twice, still_read, in_a_row], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_it_writes_what_numpy_writes(f, dtype):
    a = LONG.astype(dtype)
    before = a.copy()
    plan = plan_of(f, a)
    assert backends(plan)["fused_store"] == "numba"
    results, expected = plan.run([a]), f(a)
    for result, wanted in zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert (result.dtype, result.tobytes()) == (wanted.dtype, wanted.tobytes())
    assert np.array_equal(a, before)


def test_functions_within_their_units_and_beyond_the_bounds_of_a_formula():
    plan = plan_of(of_a_function, LONG)
    for a in (LONG, LONG * 1e9):  # for which NumPy computes the region
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(plan.run([a])[0], of_a_function(a), rtol=1e-12)


def test_what_is_read_where_it_is_written_is_written_over():
    """Neither the region nor the store has memory of its own."""
    memory = plan_of(of_a_result, LONG).memory
    assert (memory.arena, memory.unplanned, memory.outputs) == (0, 0, LONG.nbytes)
    assert plan_of(stencil, LONG).memory.arena == LONG.nbytes  # whose neighbours are read later


@pytest.mark.parametrize("a", [LONG[:, ::-1], np.asfortranarray(LONG), LONG[::2]], ids=["turned", "columns", "rows"])
def test_arguments_that_lie_otherwise(a):
    assert np.array_equal(plan_of(of_an_argument, np.ascontiguousarray(a)).run([a])[0], of_an_argument(a))
    assert np.array_equal(fx.futurize(of_an_argument)(a), of_an_argument(a))


def test_an_argument_that_is_given_away():
    f = fx.futurize(of_an_argument, donate=["a"])
    for _ in range(3):
        a = LONG.copy()
        assert np.array_equal(f(a), of_an_argument(LONG))


def test_without_generated_kernels(monkeypatch):
    monkeypatch.setenv("FUTUREX_BACKENDS", "numpy")
    for f in (stencil, of_an_argument, of_a_result, twice):
        plan = plan_of(f, LONG)
        assert set(backends(plan).values()) == {"numpy"}
        assert np.array_equal(plan.run([LONG])[0], f(LONG))


@pytest.mark.parametrize(
    "f",
    [
        lambda a: stored(a, np.s_[1:-1, ::2]),  # no neighbours
        lambda a: stored(a, np.s_[:, 1:9]),  # short rows
        lambda a: stored(a, np.s_[:100]),  # little
    ],
)
def test_the_rest_are_two(f):
    plan = plan_of(f, LONG)
    assert "fused_store" not in backends(plan)
    assert np.array_equal(plan.run([LONG])[0], f(LONG))


def stored(a, where):
    u = a * 2
    u[where] = u[where] * 2 - a[where]
    return u


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_part_of_any_array(data):
    """In the memory of the array or elsewhere, over what is read there or not."""
    shape = data.draw(st.sampled_from([(70_001,), (260, 300), (9, 100, 80), (2, 3, 120, 110)]))
    dtype = np.dtype(data.draw(st.sampled_from(["f8", "f4", "i8", "i4", "u1", "c16", "b1"])))

    def part(extent):
        cut = st.integers(0, max(extent // 40, 1))
        return slice(data.draw(cut), extent - data.draw(cut))

    where = tuple(part(extent) for extent in shape[: data.draw(st.integers(1, len(shape)))])
    other = tuple(slice(0, each.stop - each.start) for each in where)
    fresh, inside = data.draw(st.booleans()), data.draw(st.booleans())
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    a = rng.integers(0, 2, shape).astype(bool) if dtype.kind == "b" else (rng.standard_normal(shape) * 40).astype(dtype)

    def f(a):
        u = (a ^ a[0]) if fresh and dtype.kind == "b" else a * 2 if fresh else a.copy()
        v = u[where] if inside else u[other]
        u[where] = (v & ~a[where]) if dtype.kind == "b" else v * 3 - a[where]
        return u

    expected = f(a)
    (result,) = plan_of(f, a).run([a])
    assert (result.dtype, result.tobytes()) == (expected.dtype, expected.tobytes())


@given(data=st.data())
def test_around_a_view_lies_the_rest_once(data):
    shape = tuple(data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=3)))
    entries = []
    for extent in shape[: data.draw(st.integers(0, len(shape)))]:
        ends = st.none() | st.integers(-7, 7)
        places = [st.just(("i", data.draw(st.integers(-extent, extent - 1))))] if extent else []
        slices = st.builds(lambda a, b, step: ("s", a, b, step), ends, ends, st.sampled_from([None, 1]))
        entries.append(data.draw(st.one_of(slices, *places)))
    index = tuple(entry[1] if entry[0] == "i" else slice(*entry[1:]) for entry in entries)
    seen = np.zeros(shape, int)
    seen[index] += 1
    for block in around(shape, (("index", tuple(entries)),)):
        seen[block] += 1
    assert (seen == 1).all()


def test_views_of_others_leave_out_what_is_not_known():
    assert around((4,), (("index", (("s", None, None, 2),)),)) is None
    assert around((4,), (("index", (("s", None, None, -1),)),)) is None
    assert around((4, 4), (("transpose", (1, 0)),)) is None


def smoothed(u):
    for _ in range(3):
        u = u[1:-1, 1:-1] + 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return np.sum(u * u)


def of_pixels(u):
    return np.sum((u[1:, 1:] - u[:-1, :-1]) ** 2 * u[1:, :-1])


@pytest.mark.parametrize(("f", "wide"), [(smoothed, LONG), (of_pixels, LONG.reshape(300, 140, 3))])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_derivatives_of_slices_are_added_where_they_belong(f, wide, dtype):
    a = wide.astype(dtype)
    gradient = fx.grad(f)
    trace = gradient.trace(a)
    found = np.asarray(gradient(a))
    assert backends(trace.plan)["fused_store"] == "numba"
    assert not any(each.node.attrs.get("mode") == "add" for each in trace.plan.instructions)
    direction = np.random.default_rng(1).standard_normal(a.shape)
    step = 1e-20 * direction
    slope = f(wide + 1j * step).imag / 1e-20
    np.testing.assert_allclose(np.sum(found * direction), slope, rtol=2e-3 if dtype == "f4" else 1e-11)
    np.testing.assert_array_equal(np.asarray(gradient(a)), found)
    np.testing.assert_array_equal(a, wide.astype(dtype))
