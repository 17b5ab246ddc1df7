"""Regions read views whose rows are dense where they lie: NumPy's bits, and no copies of operands."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.kernels.registry import fits
from futurex.ops.strides import lies_in_rows
from futurex.runtime.plan import compile_plan


def stencil(u, k):
    inner = u[1:-1, 1:-1]
    return inner + k * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * inner)


def stencil_in_space(u, k):
    return u[1:-1, 1:-1, 1:-1] * k - (u[2:, 1:-1, 1:-1] + u[:-2, 1:-1, 1:-1] + u[1:-1, 1:-1, 2:])


def limited(u, k):
    left, right = u[1:-1, 1:-1] - u[1:-1, :-2], u[1:-1, 2:] - u[1:-1, 1:-1]
    return np.where(left * right > 0, np.minimum(abs(left), abs(right)) * np.sign(left), 0) * k


def with_dense_operands(u, k):
    dense = u[1:-1] * 2
    return u[2:, 5:] * dense[:, 5:] + dense[:, :-5] - k


def beside_vectors(u, k):
    return u[3:, 2:-2] * u[0, 2:-2] + u[3:, :1] - u[:-3, 4:] * k


def turned_rows(u, k):
    return u[::-1, 3:] - u[:, 3:] * k + u[::-1, :-3]


def every_other_row(u, k):
    return u[::2, 1:] * k + u[::2, :-1]


def of_windows(u, k):
    windows = np.lib.stride_tricks.sliding_window_view(u, 3, axis=0)
    return np.moveaxis(windows, -1, 0) * k + u[2:]


def colours(u, k):
    return u[..., ::3] * k + u[..., 1::3] * 3 - u[..., 2::3] * u[..., ::3][..., ::-1]


def backwards(u, k):
    return u[:, ::-1] * k - u + u[::-1, ::-1] * 2


def pairs(u, k):
    return (u[::2, ::2] + u[1::2, ::2] + u[::2, 1::2] + u[1::2, 1::2]) * k


def columns_apart(u, k):
    return u[:, 2::8] * k - u[:, 7::8] + u[:, -1::-8]


def over_itself(u, k):
    v = u * k
    v[1:-1, 1:-1] = v[1:-1, 1:-1] + v[:-2, 1:-1] * 2 - v[1:-1, 2:]
    v[1:, 1:] += v[:-1, :-1]
    return v


FLAT = [
    stencil, limited, with_dense_operands, beside_vectors, turned_rows, every_other_row, of_windows, over_itself,
    colours, backwards, pairs, columns_apart,
]  # fmt: skip


def bases(rng, shape, dtype):
    """Arrays of one shape, laid out in different ways."""
    dense = (rng.standard_normal(shape) * 9).astype(dtype)
    wide = np.zeros((*shape[:-1], shape[-1] + 7), dtype)
    wide[..., 3:-4] = dense
    bytes_apart = np.zeros((*shape[:-1], (shape[-1] + 1) * dense.itemsize + 1), np.uint8)[..., 1:]
    unaligned = bytes_apart[..., : shape[-1] * dense.itemsize].view(dtype)
    unaligned[...] = dense
    return [dense, np.asfortranarray(dense), wide[..., 3:-4], dense[::-1].copy()[::-1], unaligned]


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "c16"])
@pytest.mark.parametrize("function", FLAT, ids=lambda function: function.__name__)
def test_views_of_any_base_give_numpys_bits(function, dtype):
    if dtype == "c16" and function is limited:  # which asks for signs
        dtype = "f2"
    futurized, rng = fx.futurize(function), np.random.default_rng(3)
    for shape in ((40, 192), (300, 720)):
        for base in bases(rng, shape, np.dtype(dtype)):
            before, k = base.copy(), np.dtype(dtype).type(3)
            expected = function(base, k)
            found = np.asarray(futurized(base, k))
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
            np.testing.assert_array_equal(base, before)


def test_three_dimensions_and_one_thread_give_the_same():
    rng = np.random.default_rng(4)
    futurized = fx.futurize(stencil_in_space)
    for base in bases(rng, (20, 30, 40), np.dtype(float)):
        np.testing.assert_array_equal(np.asarray(futurized(base, 0.5)), stencil_in_space(base, 0.5))


@pytest.mark.parametrize(
    "function", [stencil, limited, turned_rows, every_other_row, colours, backwards, pairs], ids=lambda f: f.__name__
)
def test_views_of_a_dense_base_are_not_copied(function):
    u = np.random.default_rng(5).standard_normal((300, 300))
    plan = compile_plan(fx.lower(function, u, 0.5).graph)
    regions = [each for each in plan.instructions if each.node.op == "fused"]
    assert regions
    for each in regions:
        views = [place for place, source in enumerate(each.node.inputs) if source.op == "load" and source.ndim]
        assert views
        assert set(views) == set(each.kernel.rows)
    assert plan.memory.unplanned == 0


def test_what_lies_in_rows():
    a = np.zeros((6, 8))
    assert lies_in_rows(a[:, 1:])
    assert lies_in_rows(a[::-2])
    assert not lies_in_rows(a[:, ::2])
    assert lies_in_rows(a[:, ::2], 2)
    assert lies_in_rows(a[1:, ::-3], -3)
    assert not lies_in_rows(a[:, ::2], 3)
    assert not lies_in_rows(a.T)
    assert not lies_in_rows(np.zeros(49, np.uint8)[1:].view(float)[None])
    records = np.zeros((4, 5), np.dtype([("x", "f8"), ("y", "i4")]))
    assert not lies_in_rows(records["x"])
    plan = compile_plan(fx.lower(stencil, np.zeros((40, 40)), 0.5).graph)
    [region] = [each for each in plan.instructions if each.node.op == "fused"]
    place = next(iter(region.kernel.rows))
    assert fits(region.kernel, place, a[:, 1:])
    assert not fits(region.kernel, place, a[:, ::2])


LARGE = np.random.default_rng(8).standard_normal((300, 400))
REDUCED = {
    "a view": (lambda a: a[1:-1, 1:-1].sum(), ["load", "sum"]),
    "rows of one": (lambda a: a[:, 10:300].max(1), ["load", "max"]),
    "columns of one": (lambda a: a[:, 10:300].sum(0), ["load", "sum"]),
    "every other": (lambda a: a[::2, ::2].sum(), ["load", "sum"]),
    "squares": (lambda a: (a[1:-1, 1:-1] ** 2).sum(), ["load", "fused", "fused_reduction"]),
    "differences": (
        lambda a: ((a[1:-1, 1:-1] - a[:-2, 1:-1]) ** 2).sum(),
        ["load", "load", "fused", "fused_reduction"],
    ),
    "rows of differences": (
        lambda a: np.abs(a[:, 1:] - a[:, :-1]).sum(1),
        ["load", "load", "fused", "fused_reduction"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCED)
def test_no_view_is_copied_to_be_reduced(name):
    """NumPy reduces it where it lies, with its bits; what is computed before is one array, whatever it reads."""
    f, instructions = REDUCED[name]
    plan = fx.futurize(f).trace(LARGE).plan
    plan.prepare(wait=True)
    (result,) = plan.run([LARGE])
    assert [each.node.op for each in plan.instructions] == instructions
    assert np.asarray(result).tobytes() == np.asarray(f(LARGE)).tobytes()
    views = {each.outs[0] for each in plan.instructions if each.node.op == "load"}
    for each in plan.instructions:
        copied = set(plan.low.loose(each.ins, each.kernel)).difference(each.kernel.rows)
        assert not views.intersection(each.ins[place] for place in copied)


SCATTERED = {
    "a matrix and its transpose": (lambda a: a + a.T, "numba"),
    "every tenth column": (lambda a: a[:, ::10] * 2.5, "numpy"),
    "pairs of columns": (lambda a: a[:, ::10] - a[:, 1::10], "numpy"),
    "every other column": (lambda a: a[:, ::2] * 2.5, "numba"),
    "two operations": (lambda a: (a[:, ::10] + a[:, 1::10]) * 0.5, "numpy"),
    "many operations on one view": (lambda a: (a.T * 2.5 + 1) * a - (a + 3) * 0.5, "numba"),
    "dense rows with gaps": (lambda a: a[:, 1:] - a[:, :-1], "numba"),
}


@pytest.mark.parametrize("name", SCATTERED)
def test_few_operations_on_what_lies_scattered_are_numpys(name):
    """A copy that brings it into rows takes longer than they do."""
    f, backend = SCATTERED[name]
    a = np.random.default_rng(9).standard_normal((300, 300))
    plan = fx.futurize(f).trace(a).plan
    plan.prepare(wait=True)
    (result,) = plan.run([a])
    assert {each.kernel.backend for each in plan.instructions if each.kernel.view is None} == {backend}
    assert result.tobytes() == f(a).tobytes()


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.sampled_from([-8, -3, -2, -1, 1, 2, 3, 4, 5, 7, 8, 9]), min_size=2, max_size=3),
    dtypes=st.lists(st.sampled_from("?BhiqefdFD"), min_size=3, max_size=3),
    dims=st.integers(1, 3), width=st.integers(130, 400), start=st.integers(0, 5), seed=st.integers(0, 99),
)  # fmt: skip
def test_rows_of_any_step_give_numpys_bits(steps, dtypes, dims, width, start, seed):
    """Beside each other and beside dense operands, of all types, more and fewer than vectors hold."""
    rng = np.random.default_rng(seed)
    shape = (3, 5, width)[3 - dims :]
    arrays = [(rng.standard_normal(shape) * 9).astype(np.int8).astype(each) for each in dtypes]
    count = min((width - start) // abs(step) for step in steps)

    def part(array, step):
        found = array[..., start : start + count * abs(step) : abs(step)]
        return found if step > 0 else found[..., ::-1]

    def f(*arrays):
        total = arrays[0][..., :count] + part(arrays[1], steps[0])
        for array, step in zip(arrays[1:], steps[1:], strict=False):
            total = total * part(array, step) + array[..., -count:]
        return total

    with np.errstate(all="ignore"):
        expected = f(*arrays)
    np.testing.assert_array_equal(np.asarray(fx.futurize(f)(*arrays)), expected, strict=True)
