"""Reductions of short rows are written out over columns: NumPy's bits, whatever stands around them."""

import numpy as np
import pytest
from compare import bits
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx
from futurex.passes import short_rows
from futurex.passes.pipeline import optimise

OPS = ("sum", "prod", "max", "min", "mean")
DTYPES = ("f8", "f4", "i8", "i4", "u1", "e", "?", "D")


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(short_rows, "LARGE_ELEMENTS", 64)


def values(rng, shape, dtype):
    x = rng.standard_normal(shape) * 9
    x[rng.random(shape) < 0.4] = 0
    x = np.where(rng.random(shape) < 0.5, x, -x)
    if dtype in ("f8", "f4") and rng.random() < 0.3:
        x[rng.random(shape) < 0.1] = np.nan
    return x.astype(np.int8 if np.dtype(dtype).kind in "iu" else dtype).astype(dtype)


def same(found, expected):
    found = np.asarray(found)
    np.testing.assert_array_equal(found, expected, strict=True)
    if expected.dtype.kind == "f":
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(expected[numbers]))


def reductions_left(f, *args):
    return [node.op for node in optimise(fx.lower(f, *args).graph).nodes if node.op in ("sum", "fused_reduction")]


@settings(max_examples=120, deadline=None)
@given(
    op=st.sampled_from(OPS), dtype=st.sampled_from(DTYPES), before=st.sampled_from([(), (1,), (3,), (2, 3)]),
    rows=st.integers(14, 70), last=st.integers(1, 8), keepdims=st.booleans(), also=st.integers(-1, 2),
    seed=st.integers(0, 999),
)  # fmt: skip
def test_bits_are_numpys(op, dtype, before, rows, last, keepdims, also, seed):
    rng = np.random.default_rng(seed)
    shape = (*before, rows, last)
    axes = (-1,) if also < 0 else tuple(sorted({also - len(shape) if also < len(shape) else -1, -1}))
    if dtype == "D" and op in ("max", "min"):
        dtype = "f8"
    x = values(rng, shape, dtype)

    def f(x):
        return getattr(np, op)(x, axis=axes, keepdims=keepdims)

    with np.errstate(all="ignore"):
        expected = f(x)
    same(fx.futurize(f)(x), np.asarray(expected))


def distances(p, q):
    return np.sqrt(((p - q) ** 2).sum(axis=1))


def lengths(p, q):
    return np.linalg.norm(p - q, axis=-1) + np.linalg.norm(p, axis=1, keepdims=True)[:, 0]


def weighted(p, q):
    return (p * np.array([0.3, -0.5, 0.2]) + q[:, :1] * p).sum(1) * p[:, 0]


def also_read_elsewhere(p, q):
    d = p * q
    return d.sum(1), d + 1, np.abs(d).max(axis=1)


def of_views(p, q):
    return (p[1:] - p[:-1]).sum(1), p[::2].min(1), np.maximum(p, q)[::-1].prod(1), p[:, ::-1].sum(1)


def centred(p, q):
    return p - p.mean(axis=1, keepdims=True) * q


def written_after(p, q):
    d = p + q
    s = d.sum(1)
    d[:, 0] = s
    return d, s


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8"])
@pytest.mark.parametrize(
    "function",
    [distances, lengths, weighted, also_read_elsewhere, of_views, centred, written_after],
    ids=lambda function: function.__name__,
)
def test_what_stands_around_them_is_numpys_too(function, dtype):
    rng = np.random.default_rng(1)
    futurized = fx.futurize(function)
    wide, other = values(rng, (2, 300, 5), dtype)
    dense = wide[:, :3].copy()
    for p, q in ((dense, other[:, 1:4].copy()), (wide[:, 1:4], other[::-1, ::2]), (dense, dense)):
        with np.errstate(all="ignore"):
            expected = function(p.copy(), q.copy())
        found = futurized(p, q)
        for each, wanted in zip(*((x if isinstance(x, tuple) else (x,)) for x in (found, expected)), strict=True):
            same(each, np.asarray(wanted))


@pytest.mark.parametrize("n", [2, 3, 4])
def test_blocks_of_a_matrix(n):
    a = values(np.random.default_rng(2), (8 * n, 32 * n), "f8")

    def pooled(a):
        blocks = a.reshape(8, n, 32, n)
        return blocks.mean(axis=(1, 3)), blocks.max(axis=(1, 3)), (blocks * blocks).sum((1, 3))

    for found, expected in zip(fx.futurize(pooled)(a), pooled(a), strict=True):
        same(found, expected)
    assert not reductions_left(pooled, a)


BLOCKS = {
    "channels": lambda x: x.reshape(20, 2, 30, 2, 3).sum((1, 3)),
    "kept": lambda x: x.reshape(20, 2, 30, 2, 3).mean(axis=(1, 3), keepdims=True),
    "many": lambda x: x.reshape(10, 4, 15, 4, 3).mean(axis=(1, 3)),
    "cut": lambda x: x[:36, 2:58].reshape(9, 4, 28, 2, 3).sum(axis=(1, 3)),
    "ones": lambda x: x.reshape(20, 2, 30, 1, 2, 1, 3).sum(axis=(1, 3, 4)),
    "three": lambda x: x.reshape(2, 10, 2, 30, 2, 3).sum(axis=(0, 2, 4)),
    "largest": lambda x: x.reshape(20, 2, 30, 2, 3).max(axis=(1, 3)),
    "products": lambda x: x.reshape(20, 2, 30, 2, 3).prod(axis=(1, 3)),
    "rows": lambda x: x[:, :, 0].reshape(20, 2, 30, 2).mean(axis=(1, 3)),
    "colours": lambda x: x.mean(axis=2),
    "computed": lambda x: (x * x + x).reshape(20, 2, 30, 2, 3).sum((1, 3)),
    "behind": lambda x: x.reshape(20, 2, 30, 2, 3, 1, 1).sum((1, 3, 5)),
    "behind, kept": lambda x: (x[..., None] * x[0, 0, :, None]).reshape(20, 2, 30, 2, 3, 1).mean((1, 3), keepdims=True),
}


@pytest.mark.parametrize("dtype", ["f8", "f4", "u1", "i2", "i4", "i8", "?", "u8"])
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_whose_channels_lie_side_by_side(name, dtype):
    x = values(np.random.default_rng(4), (40, 60, 3), dtype)
    f = BLOCKS[name]
    with np.errstate(all="ignore"):
        expected = f(x)
    same(fx.futurize(f)(x), expected)
    if dtype in ("f8", "u1") and name not in ("products", "three"):
        assert not reductions_left(f, x)


def normalised(x):
    return (x - x.mean(axis=(2, 4), keepdims=True)) / np.sqrt((x * x).sum(axis=(2, 4), keepdims=True))


def shared_by_the_largest(x):
    top = x.max(axis=(2, 4), keepdims=True)
    count = (x == top).sum(axis=(2, 4), keepdims=True, dtype=x.dtype)
    return np.where(x == top, top / count, 0).astype(x.dtype)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("function", [normalised, shared_by_the_largest], ids=lambda function: function.__name__)
def test_blocks_that_are_read_again_are_written_out_too(function, dtype):
    """No kernel for rows makes one trip of them, as their rows are not whole: pooling and its derivative."""
    x = values(np.random.default_rng(3), (5, 6, 2, 6, 2, 16), dtype)
    x[~np.isfinite(x)] = 1
    with np.errstate(all="ignore"):
        same(fx.futurize(function)(x), function(x))
    assert not reductions_left(function, x)


def test_sums_of_integers_that_are_doubles_are_exact_or_numpys():
    x = np.random.default_rng(5).integers(-(2**31), 2**31, (50, 40, 4))
    for dtype in ("i4", "u4", "i8"):
        y = x.astype(dtype) if dtype != "i8" else x << 31
        same(fx.futurize(lambda x: x.mean(-1))(y), y.mean(-1))
        same(fx.futurize(lambda x: x.mean(-1, dtype="f4"))(y), y.mean(-1, dtype="f4"))
    assert not reductions_left(lambda x: x.mean(-1), x.astype("i4"))
    assert reductions_left(lambda x: x.mean(-1), x)  # as many bits as a double lacks


def test_which_are_written_out():
    p = np.ones((100, 3))
    assert not reductions_left(distances, p, p)
    assert not reductions_left(lambda p: np.linalg.norm(p, axis=1), p)
    assert reductions_left(centred, p, p)  # one trip for rows that are read again
    assert reductions_left(lambda p: p.sum(1), np.ones((100, 8)))  # which NumPy adds up in pairs
    assert reductions_left(lambda p: p.sum(), p)
    assert reductions_left(lambda p: p.sum(2), np.ones((20, 5, 3)))  # columns of five


@pytest.mark.parametrize("axis", [0, 1])
def test_a_few_hundred_short_rows_are_no_loops_of_numpys(axis, monkeypatch):
    monkeypatch.undo()  # the sizes as they are
    x = values(np.random.default_rng(6), (500, 3), "f8")
    reductions = [np.sum, np.prod, np.any, np.all, np.mean, np.count_nonzero]
    for reduce in [*reductions, np.max, np.min]:

        def f(x, reduce=reduce):
            return reduce(x, axis=axis)

        assert not {"sum", "max", "min"} & {node.op for node in optimise(fx.lower(f, x).graph).nodes}
        with np.errstate(all="ignore"):
            same(fx.futurize(f)(x), f(x))
    assert reductions_left(lambda x: x.sum(), x) == ["sum"]  # one loop


def test_derivatives_are_those_of_the_reduction():
    p = np.random.default_rng(3).standard_normal((200, 3))
    found = fx.grad(lambda p: (np.sqrt((p**2).sum(1)) * np.arange(200)).sum())(p)
    np.testing.assert_allclose(found, np.arange(200)[:, None] * p / np.linalg.norm(p, axis=1)[:, None], rtol=1e-12)


@pytest.mark.parametrize("pool", [np.max, np.min, np.mean, np.sum])
def test_derivatives_of_pooled_blocks(pool):
    """As plain NumPy pools pictures: what the derivative meets again is the array itself, in blocks, too."""
    rng = np.random.default_rng(3)
    x, weights = rng.standard_normal((6, 8, 10, 16)), rng.standard_normal((6, 4, 5, 16))

    def loss(x):
        return (pool(x.reshape(6, 4, 2, 5, 2, 16), axis=(2, 4)) * weights).sum()

    assert not reductions_left(fx.grad(loss), x)
    moved = rng.standard_normal(x.shape)
    slope = np.asarray(fx.grad(loss)(x))
    assert (slope * moved).sum() == pytest.approx((loss(x + 1e-7 * moved) - loss(x - 1e-7 * moved)) / 2e-7, rel=1e-5)
    ties = np.ones_like(x)  # of which each gets its part, as of the largest ones of a row
    parts = np.repeat(np.repeat(weights, 2, 1), 2, 2) * {np.sum: 1.0}.get(pool, 0.25)
    np.testing.assert_allclose(fx.grad(loss)(ties), parts, rtol=1e-12)


WINDOWS = {
    "mean": lambda x: np.lib.stride_tricks.sliding_window_view(x, 5, axis=1).mean(-1),
    "down": lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, axis=0).sum(-1),
    "squares": lambda x: np.lib.stride_tricks.sliding_window_view(x, (3, 3)).sum((-1, -2)),
    "eights": lambda x: np.lib.stride_tricks.sliding_window_view(x, 21, axis=1).sum(-1, keepdims=True),
    "eight": lambda x: np.lib.stride_tricks.sliding_window_view(x, 8, axis=1).sum(2),
    "largest": lambda x: np.lib.stride_tricks.sliding_window_view(x[1:-1, 2:], (2, 5)).max((-2, -1)),
    "weighted": lambda x: np.square(np.lib.stride_tricks.sliding_window_view(x, 4, axis=1)).sum(-1),
    "product": lambda x: np.lib.stride_tricks.sliding_window_view(x, 9, axis=1).prod(-1),
}


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8"])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_the_array_begun_later(name, dtype):
    function = WINDOWS[name]
    x = (np.random.default_rng(0).normal(size=(150, 640)) * 10).astype(dtype)
    if dtype != "i8":
        x[3], x[7, 40] = -0.0, np.inf
    f = fx.futurize(function)
    with np.errstate(all="ignore"):
        expected = function(x)
        for _ in range(3):
            found = np.asarray(f(x))
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            assert bits(found) == bits(np.ascontiguousarray(expected))
    if (name, dtype) != ("mean", "i8"):  # integers are converted before
        assert {"sum", "prod", "max"}.isdisjoint(each.node.op for each in f.trace(x).plan.instructions)


def test_windows_of_what_lies_turned_are_numpys():
    def turned(x):
        return np.lib.stride_tricks.sliding_window_view(x.T, 5, axis=1).sum(-1)

    x = np.random.default_rng(0).normal(size=(300, 400))
    f = fx.futurize(turned)
    np.testing.assert_allclose(np.asarray(f(x)), turned(x), rtol=1e-12)
    assert any(each.node.op == "sum" for each in f.trace(x).plan.instructions)


def test_elements_behind_which_single_ones_stand_are_read_in_rows():
    """As in the derivative of what ``np.kron`` enlarges: no loop of one element, for which each would be a row."""
    x = np.ones((4, 64, 64, 8), np.float32)
    plan = fx.futurize(lambda x: x.reshape(4, 1, 32, 2, 32, 2, 8, 1).sum((3, 5))).trace(x).plan
    (region,) = (each.node for each in plan.instructions if each.node.op == "fused")
    assert region.shape == (4, 1, 32, 32, 8)
