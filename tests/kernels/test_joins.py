"""Joins of arrays, and what reads them, are written block by block: NumPy's bits, whatever the shapes."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.kernels.numba_ import past
from futurex.passes import blocks, joins

A = np.random.default_rng(4).standard_normal((300, 400)) * 9
DTYPES = ["f4", "f8", "f2", "i2", "i8", "u4", "?", "F", "D"]


def plan_of(f, *args):
    plan = fx.futurize(f).trace(*args).plan
    plan.prepare(wait=True)
    return plan


def ops(plan):
    return [each.node.op for each in plan.instructions if each.node.op != "load"]


def same(result, expected):
    return (result.dtype, result.shape, result.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())


def rows(a):
    return np.concatenate([a, a + a])


def columns(a):
    return np.concatenate([a + a, a, a[:, :7]], 1)


def stacked(a):
    return np.stack([a, a * a, a], 1)


def rolled(a):
    return np.roll(a, 1, 0) * np.roll(a, (-3, 2), (1, 0))


def padded(a):
    return np.pad(a, ((1, 2), (0, 3)), constant_values=1)


def around(a):
    u = np.pad(a, 1)
    return u[:-2, 1:-1] * u[2:, 1:-1] + a * u[1:-1, :-2]


def chosen(a):
    return np.where(np.roll(a, 401, 1) == a, a, np.roll(a, -1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("f", [rows, columns, stacked, rolled, padded, around], ids=lambda f: f.__name__)
def test_one_node_writes_all_blocks(f, dtype):
    a = A.astype(dtype)
    plan = plan_of(f, a)
    assert ops(plan) == ["fused_join"]
    assert {each.kernel.backend for each in plan.instructions if each.node.op == "fused_join"} == {"numba"}
    assert same(plan.run([a])[0], f(a))


@pytest.mark.parametrize("f", [rows, columns, stacked, rolled, padded, around, chosen], ids=lambda f: f.__name__)
def test_calls_whose_arrays_move(f):
    plan = plan_of(f, A)
    kept = []
    for k in range(9):
        a = A * (k + 1) if k % 3 else A
        kept.append((plan.run([a])[0], f(a), a))
    assert all(same(result, expected) for result, expected, _ in kept)
    assert not any(np.may_share_memory(result, a) for result, _, a in kept)


@pytest.mark.parametrize(
    "f",
    [
        lambda a: np.stack([a[:, 0] * a[:, 1], a[:, 1] + 1, a[:, 2]], -1),
        lambda a: np.stack([a * 2, a + 1], -1),
        lambda a: np.stack([a * 2, a + 1], -1) * 3,
        lambda a: np.concatenate([(a[:, 0] * 2)[:, None], a * 2], 1),
        lambda a: np.concatenate([a + 1, (a[:, 0] - a[:, 1])[:, None]], 1),
        lambda a: np.column_stack([a[:, 0] * 2, a[:, 1] + 1]),
        lambda a: np.dstack([a[None] * 2, a[None] + 1]),
    ],
)
@pytest.mark.parametrize("rows", [70000, 2000])
def test_parts_whose_elements_lie_apart(f, rows):
    a = np.random.default_rng(5).standard_normal((rows, 100 if rows == 2000 else 3))
    assert same(plan_of(f, a).run([a])[0], f(a))


@pytest.mark.parametrize(
    "a",
    [A[:, ::-1], np.asfortranarray(A), A[::2], A[:, 1:], A[::-1]],
    ids=["turned", "columns", "rows", "inside", "back"],
)
def test_arguments_that_lie_otherwise(a):
    for f in (rows, stacked, rolled, around):
        plan = plan_of(f, np.ascontiguousarray(a))
        assert same(plan.run([a])[0], np.ascontiguousarray(f(a)))
        assert same(np.ascontiguousarray(fx.futurize(f)(a)), np.ascontiguousarray(f(a)))


def test_without_generated_kernels(monkeypatch):
    monkeypatch.setenv("FUTUREX_BACKENDS", "numpy")
    for f in (rows, columns, stacked, rolled, padded, around):
        plan = plan_of(f, A)
        assert {each.kernel.backend for each in plan.instructions} == {"numpy"}
        assert same(plan.run([A])[0], f(A))


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "D"])
def test_blocks_of_what_no_cache_holds_go_past_it(dtype, monkeypatch):
    def f(a):
        return np.concatenate([a[:3], a + a, a])

    a = A.astype(dtype)
    a = a[:, :399].copy()  # blocks begin within a line
    monkeypatch.setattr(past, "last_cache", lambda: f(a).nbytes)
    plan = plan_of(f, a)
    (made,) = [each for each in plan.instructions if each.node.op == "fused_join"]
    assert all("!nontemporal" in kernel.call.text for kernel in made.kernel.call.kernels)
    for _ in range(3):
        assert same(plan.run([a])[0], f(a))


def test_a_kernel_keeps_no_array_as_large_as_its_result():
    """Not even one whose pages nobody touches: it would count as memory that nothing predicts."""
    x = np.ones((1000, 500))
    domain = tracemalloc.DomainFilter(inclusive=True, domain=np.lib.tracemalloc_domain)
    for f in (rows, columns):
        tracemalloc.start()
        try:
            plan = plan_of(f, x)
            kept = sum(each.size for each in tracemalloc.take_snapshot().filter_traces([domain]).traces)
        finally:
            tracemalloc.stop()
        assert "fused_join" in ops(plan)
        assert kept < x.nbytes


def test_a_join_that_is_given_back_is_made_once_and_read():
    def f(a):
        u = np.concatenate([a, a * 2])
        return u, u[1:] + u[:-1]

    plan = plan_of(f, A)
    assert ops(plan) == ["fused_join", "fused"]
    assert all(map(same, plan.run([A]), f(A)))


def test_what_several_read_is_computed_once():
    def f(a):
        u = a * 2
        return np.roll(u, 1, 0) + np.roll(u, -1, 0)

    plan = plan_of(f, A)
    assert ops(plan) == ["fused", "fused_join"]
    assert same(plan.run([A])[0], f(A))


def test_many_parts_and_narrow_ones_stay_numpys():
    def many(a):
        return np.concatenate([a[k : k + 1] for k in range(300)])

    def narrow(a):
        return np.stack([a] * 9, -1)

    for f in (many, narrow):
        plan = plan_of(f, A)
        assert "concatenate" in ops(plan)
        assert same(plan.run([A])[0], f(A))


def test_a_long_way_through_blocks_ends_somewhere():
    def f(a):
        for _ in range(300):
            a = a + 1
        u = np.roll(a, 1, 0)
        for _ in range(300):
            u = u * 0.5
        return u

    assert same(plan_of(f, A).run([A])[0], f(A))


def test_a_gradient_is_that_of_the_program():
    def f(a):
        return (np.roll(a, 1, 0) * np.pad(a, 1)[2:, 1:-1] * np.concatenate([a[:7], a[7:] * 3])).sum()

    got = fx.grad(f)(A).result()
    up = np.concatenate([A[1:], np.zeros_like(A[:1])])
    scale = np.concatenate([np.full_like(A[:7], 1.0), np.full_like(A[7:], 3.0)])
    rolled = np.roll(A, 1, 0)
    first = np.roll(up * scale * A, -1, 0)
    second = np.concatenate([np.zeros_like(A[:1]), (rolled * scale * A)[:-1]])
    np.testing.assert_allclose(got, first + second + rolled * up * scale, rtol=1e-12, atol=1e-9)


@st.composite
def programs(draw):
    """A join of parts of drawn extents, empty ones among them, sliced, and read with what lies beside it."""
    ndim = draw(st.integers(1, 3))
    axis = draw(st.integers(0, ndim - 1))
    shape = [draw(st.integers(1, 6)) for _ in range(ndim)]
    extents = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any))
    dtypes = [draw(st.sampled_from(["f4", "f8", "i4", "?", "F"])) for _ in extents]
    arrays = [
        (np.arange(np.prod(s := [*shape[:axis], extent, *shape[axis + 1 :]])).reshape(s) % 7 - 2).astype(dtype)
        for extent, dtype in zip(extents, dtypes, strict=True)
    ]
    shifts = draw(st.lists(st.tuples(st.integers(-9, 9), st.integers(0, ndim - 1)), max_size=2))
    widths = [tuple(draw(st.lists(st.integers(0, 2), min_size=2, max_size=2))) for _ in range(ndim)]
    cuts = tuple(slice(draw(st.integers(0, 2)), draw(st.sampled_from([None, -1, 3]))) for _ in range(ndim))
    way, beside = draw(st.integers(0, 5)), draw(st.integers(0, ndim))

    def f(*parts):
        u = np.concatenate([part * part if k % 2 else part for k, part in enumerate(parts)], axis)
        for by, k in shifts:
            u = np.roll(u, by, k)
        if way == 0:
            return u
        if way == 1:
            return u * u + u
        v = np.pad(u, widths, constant_values=1)
        if way == 2:
            return v
        if way == 3:
            return v[cuts] * v[cuts]
        if way == 4:
            return np.stack([u, u + u], beside), v
        return np.pad(u, 1)[(slice(None, -2),) * ndim] * u

    return f, arrays


@settings(max_examples=60, deadline=None)
@given(programs())
def test_any_join_is_numpys(program):
    f, arrays = program
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joins, "FEWEST_ELEMENTS", 1)
        patch.setattr(joins, "LEAST_BLOCK", 1)
        patch.setattr(blocks, "LEAST_ROW", 0)
        results = plan_of(f, *arrays).run(arrays)
    expected = f(*arrays)
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert all(map(same, results, expected))


# -- columns ---------------------------------------------------------------------------------------------------------


def in_columns(a):
    return np.stack([a, a + a, a * a], -1)


def picked(a):
    return np.stack([a[..., 2], a[..., 0] * a[..., 1], a[..., 1]], -1)


def beside(a):
    return np.concatenate([a[:, :3], a[:, 5:7], a[:, 1:2] + a[:, 2:3]], 1)


def with_ones(a):
    return np.hstack([a[:, :3], np.ones((len(a), 1), a.dtype)])


def along_rows(a):
    return np.stack([a + a[0], a * a[:, :1]], -1)


def written(a):
    out = np.zeros((*a.shape, 3), a.dtype)
    out[..., 2] = a
    out[..., 0] = a + a
    out[..., 1] = out[..., 2] * a
    out[..., 0] = out[..., 0] * a
    return out


def added(a):
    out = np.zeros((*a.shape, 2), a.dtype)
    out[..., 0] += a
    out[..., 1] = a * a
    return out


COLUMNS = [in_columns, picked, beside, with_ones, along_rows, written, added]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("f", COLUMNS, ids=lambda f: f.__name__)
def test_columns_are_written_side_by_side(f, dtype):
    a = A.reshape(-1, 8).astype(dtype)
    plan = plan_of(f, a)
    expected = f(a)
    for _ in range(3):
        assert same(plan.run([a])[0], expected)
    if f is not beside:  # of which a part is computed
        assert ops(plan) == ["fused_join"]
        assert {each.kernel.backend for each in plan.instructions if each.node.op == "fused_join"} == {"numba"}


@pytest.mark.parametrize("count", range(2, 11))
@pytest.mark.parametrize("rows", [16384, 16385, 17001])
def test_any_number_of_columns(rows, count):
    a = np.random.default_rng(1).standard_normal(rows)

    def powers(a):
        return np.stack([a * k + 1 for k in range(1, count + 1)], -1)

    plan = plan_of(powers, a)
    assert same(plan.run([a])[0], powers(a))
    assert ("fused_join" in ops(plan)) == (count <= blocks.MOST_COLUMNS)


def test_equal_columns_and_several_of_one():
    a = A[0].repeat(60)

    def f(a):
        return np.stack([a + 1, a + 1], -1), np.stack([a, a], -1), np.stack([a, a + 1, a], -1)

    for found, expected in zip(fx.futurize(f)(a), f(a), strict=True):
        assert same(np.asarray(found), expected)


def test_cross_products_and_quaternions():
    rng = np.random.default_rng(2)
    p, q = rng.standard_normal((2, 20_000, 4))
    p[3], q[5] = np.nan, np.inf

    def cross(p, q):
        return np.cross(p[:, :3], q[:, :3])

    def rotated(p, q):
        out = np.empty_like(p)
        out[..., 0] = p[..., 0] * q[..., 0] - p[..., 1] * q[..., 1] - p[..., 2] * q[..., 2]
        out[..., 1] = p[..., 0] * q[..., 1] + p[..., 1] * q[..., 0]
        out[..., 2] = p[..., 3] * q[..., 2]
        out[..., 3] = out[..., 0] + out[..., 1]
        return out

    for f in (cross, rotated):
        plan = plan_of(f, p, q)
        assert ops(plan)[-1] == "fused_join"
        assert "store" not in ops(plan)
        with np.errstate(invalid="ignore"):
            assert same(plan.run([p, q])[0], f(p, q))


def test_columns_that_are_read_while_they_are_written():
    a = A.ravel()

    def f(a):
        out = np.zeros((len(a), 2))
        out[:, 0] = a
        before = out.copy()
        out[:, 1] = a * 2
        out[:, 0] = before[:, 0] + out[:, 1]
        return out, before

    for found, expected in zip(fx.futurize(f)(a), f(a), strict=True):
        assert same(np.asarray(found), expected)


def test_derivatives_through_columns():
    a = A[:50].copy()

    def f(a):
        out = np.zeros((*a.shape, 2))
        out[..., 0] = a * a
        out[..., 1] = out[..., 0] * a
        return (np.stack([out[..., 1], a], -1) * out).sum()

    step = 1e-6 * np.random.default_rng(0).standard_normal(a.shape)
    slope = (fx.grad(f)(a) * step).sum()
    np.testing.assert_allclose(np.asarray(slope), (f(a + step) - f(a - step)) / 2, rtol=1e-6)
