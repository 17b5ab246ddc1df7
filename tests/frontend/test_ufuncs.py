"""Every ufunc of NumPy, its options and its methods, on every dtype: equal bits or equal exceptions, and staged."""

import functools
import warnings

import numpy as np
import pytest
from compare import agree, outcome

import futurex as fx
from futurex.passes.pipeline import optimise

UFUNCS = {
    name: getattr(np, name)
    for name in dir(np)
    if isinstance(getattr(np, name), np.ufunc) and getattr(np, name).__name__ == name and name != "isnat"
}
BINARY = sorted(name for name, ufunc in UFUNCS.items() if ufunc.nin == 2 and ufunc.nout == 1 and not ufunc.signature)
DTYPES = "?bhilBHILefdFD"
SOME = "?bBidD"
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, np.inf, -np.inf, np.nan, 1e-300, 3e38, 7.0]
TWICE = np.array([1, 0, 1])


def values(code, shape, seed=0):
    """Zeros of both signs, infinities, NaN, extremes of integers: what loops differ in."""
    dtype, rng = np.dtype(code), np.random.default_rng(seed)
    n = int(np.prod(shape))
    if dtype.kind == "b":
        return (rng.random(shape) < 0.5).astype(dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        pool = np.array([0, 1, 2, 3, 7, limits.max, limits.min, limits.min + 1], dtype)
        return rng.choice(pool, n).reshape(shape)
    pool = rng.choice(SPECIAL, n) if n > 2 else rng.normal(size=n)
    if dtype.kind == "c":
        pool = pool + 1j * rng.permutation(pool)
    with np.errstate(all="ignore"):
        return pool.astype(dtype).reshape(shape)


def agrees(function, *args, staged=True, exact=True):
    """Plain and futurized give the same bits, or raise the same; what NumPy accepts is staged.

    Where operands overlap results, NumPy computes transcendental functions by another loop than its own results need.
    """
    expected = outcome(function, args)
    futurized = fx.futurize(function)
    actual = outcome(futurized, args)
    assert actual == expected or (not exact and agree(actual, expected)), (
        f"{futurized.explain()}\n{actual}\nis not\n{expected}\nfor {args}"
    )
    if staged and expected[0][0] == "value":
        assert "runs as plain NumPy" not in futurized.explain(), futurized.explain()


def operands(ufunc, code, shape):
    """One argument for every input; the second of ``ldexp`` is a small integer."""
    args = [values(code, shape, seed) for seed in range(ufunc.nin)]
    if ufunc is np.ldexp:
        args[1] = values("i", shape) % 5
    if ufunc is np.power and np.dtype(code).kind == "i":
        args[1] = abs(args[1] % 5)  # what NumPy has written when it refuses a negative one is anything
    return args


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(UFUNCS))
def test_calls(name):
    ufunc = UFUNCS[name]
    shape = (3, 3) if ufunc.signature else (3, 20)
    for code in DTYPES:
        args = operands(ufunc, code, shape)
        agrees(lambda *xs: ufunc(*xs), *args)
        agrees(lambda *xs: ufunc(*(x[0] for x in xs)), *args)
        agrees(lambda *xs: ufunc(*(x[:0] for x in xs)), *args)
        if not ufunc.signature:
            agrees(lambda *xs: (ufunc(*(x[1, 1] for x in xs)), ufunc(*(x[:, 1] for x in xs))), *args)
            agrees(lambda *xs: ufunc(*xs[:-1], 2), *args)
            agrees(lambda *xs: ufunc(*xs[:-1], 1.5), *args)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(name for name, ufunc in UFUNCS.items() if not ufunc.signature))
def test_options(name):
    ufunc = UFUNCS[name]
    mask = np.array([True, False, True, False])

    def into(out, *xs):
        outs = (out, None)[: ufunc.nout] if ufunc.nout > 1 else out
        return ufunc(*xs, out=outs), out

    def masked(out, mask, *xs):
        outs = tuple(out * 1 for _ in range(ufunc.nout))
        return ufunc(*xs, out=outs, where=mask), outs, out

    for code in SOME:
        args = operands(ufunc, code, (3, 4))
        for target in "?ifdD":
            agrees(into, np.zeros((3, 4), target), *args)
        alone = ufunc.nout == 1
        agrees(lambda x, *xs: (ufunc(x, *xs, *(x,) * ufunc.nout), x), *args, staged=alone, exact=False)
        agrees(
            lambda x, *xs: (ufunc(x[1:], *(y[:-1] for y in xs), out=(x[:-1],) * ufunc.nout), x),
            *args,
            staged=alone,
            exact=False,
        )
        agrees(masked, args[0], mask, *args)
        agrees(masked, np.zeros((3, 4)), mask, *args)
        agrees(lambda *xs: ufunc(*xs, dtype="f4"), *args)
        agrees(lambda *xs: ufunc(*xs, dtype="f8", casting="unsafe"), *args)
        agrees(lambda *xs: ufunc(*xs, casting="no"), *args)
        agrees(lambda *xs: ufunc(*xs, order="F").shape if ufunc.nout == 1 else 0, *args)
        agrees(lambda *xs: (ufunc(*(x[0, 0] for x in xs), out=...), ufunc(*xs, subok=False)), *args)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BINARY)
def test_methods(name):
    ufunc = UFUNCS[name]

    def reduce(x, mask):
        return (
            ufunc.reduce(x), ufunc.reduce(x, axis=1, keepdims=True), ufunc.reduce(x[0], axis=None), ufunc.reduce(x, -1)
        )  # fmt: skip

    def at(x, y):
        ufunc.at(x, TWICE, y)
        return x

    for code in SOME:
        x, y = operands(ufunc, code, (3, 4))
        mask = y.astype(bool)
        agrees(reduce, x, mask)
        agrees(lambda x: ufunc.reduce(x, axis=(0, 1)), x)
        agrees(lambda x: ufunc.reduce(x[:0], axis=0), x)
        agrees(lambda x, m: ufunc.reduce(x, axis=1, where=m, initial=1), x, mask)
        agrees(lambda x, m: ufunc.reduce(x, where=m), x, mask)
        agrees(lambda x: ufunc.reduce(x, initial=None), x)
        agrees(lambda x: ufunc.reduce(x, dtype="f4"), x)
        agrees(lambda x, o: (ufunc.reduce(x, axis=1, out=o), o), x, np.zeros(3, "f4"))
        agrees(lambda x: (ufunc.accumulate(x), ufunc.accumulate(x, 1)), x)
        agrees(lambda x, o: (ufunc.accumulate(x, out=o), o), x, np.zeros((3, 4), "f4"))
        agrees(lambda x: (ufunc.reduceat(x, [0, 2, 1]), ufunc.reduceat(x, [1, 3], axis=1)), x)
        agrees(lambda x, y: (ufunc.outer(x[0], y), ufunc.outer(x[0, 0], y[0])), x, y)
        agrees(at, x, y)
        agrees(lambda x: (ufunc.at(x, (slice(None), [0, 0]), 1), x), x)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(name for name, ufunc in UFUNCS.items() if ufunc.nin == 1 and ufunc.nout == 1))
def test_unary_at(name):
    ufunc = UFUNCS[name]
    for code in SOME:
        agrees(lambda x: (ufunc.at(x, [0, 0, 2]), x), values(code, (4,)))


@pytest.mark.filterwarnings("ignore")
def test_a_mask_without_out_computes_what_it_selects():
    x, mask = values("d", (3, 4)), values("?", (3, 4))
    got = np.asarray(fx.futurize(lambda x, m: np.sqrt(x, where=m))(x, mask))
    assert got.dtype == float
    np.testing.assert_array_equal(got[mask], np.sqrt(x)[mask])


def test_vecdot_takes_axis_and_keepdims():
    x, y = np.arange(12.0).reshape(3, 4), np.ones((3, 4)) * 2
    agrees(lambda x, y: (np.vecdot(x, y, axis=0), np.vecdot(x, y, keepdims=True)), x, y)
    agrees(lambda x, y: np.matmul(x, y.T, out=np.zeros((3, 3))), x, y)


@functools.cache
def slopes():
    """Functions with masks, starts and running extremes, and points of them without ties."""
    x, m = np.linspace(-1.3, 2.2, 12).reshape(3, 4), np.arange(12).reshape(3, 4) % 3 > 0
    many = np.sin(np.arange(300.0)).reshape(100, 3)

    def grouped(ufunc, x):
        found = np.full((2, 4), 0.3)
        ufunc.at(found, [0, 1, 0], x)
        return found

    return [
        (lambda x: np.sqrt(x, where=x > 0, out=np.zeros((3, 4))).sum(), x),
        (lambda x: np.divide(1.0, x, where=m, out=x * 1).sum(), x),
        (lambda x: (np.add.reduce(x, where=m) ** 2).sum(), x),
        (lambda x: (np.multiply.reduce(x, where=m, initial=2.0, axis=1) ** 2).sum(), x),
        (lambda x: (np.max(x, axis=0, where=m, initial=-0.2) ** 2).sum(), x),
        (lambda x: (np.maximum.accumulate(np.sin(3 * x), axis=1) ** 2).sum(), x),
        (lambda x: (np.cumprod(x) ** 2).sum(), x),
        (lambda x: (np.add.reduceat(x, [2, 0, 1], axis=1) ** 2).sum(), x),
        (lambda x: (np.maximum.reduceat(np.sin(3 * x), [2, 0, 1], axis=1) ** 2).sum(), x),
        (lambda x: (np.minimum.reduceat(np.sin(many @ x), np.arange(5, 95)) ** 2).sum(), x),
        (lambda x: (np.add.reduceat(np.sin(many @ x), np.arange(5, 95)) ** 2).sum(), x),
        (lambda x: (grouped(np.logaddexp, x) * grouped(np.logaddexp2, x * x)).sum(), x),
        (lambda x: (grouped(np.maximum, np.sin(3 * x)) * grouped(np.minimum, x * x)).sum(), x),
        (lambda x: (grouped(np.multiply, x) * grouped(np.divide, x + 3)).sum(), x),
        (lambda x: (np.multiply.reduceat(x, [2, 0, 1], axis=1) ** 2).sum(), x),
        (lambda x: (np.logaddexp.reduceat(np.sin(many @ x), np.arange(5, 95)) ** 2).sum(), x),
        (lambda x: (np.multiply.reduceat(x[x > 0], [0, 2]) ** 2).sum() + np.add.reduceat(x[x > 0], [0, 2])[1], x),
        (lambda x: (np.logaddexp.accumulate(x, axis=1) * np.logaddexp2.accumulate(x)).sum(), x),
        (lambda x: (np.subtract.accumulate(x) * np.divide.accumulate(x * x + 1, axis=1)).sum(), x),
        (lambda x: np.divide.reduce(x[0] + 3) + np.subtract.reduce(x, axis=1)[1] ** 2, x),
        (lambda x: (np.modf(x)[0] * np.frexp(x)[0]).sum() + (np.divmod(x, 0.7)[1] ** 2).sum(), x),
        (lambda x: np.logaddexp.reduce(x.ravel()) + np.hypot.reduce(x[0]), x),
        (lambda x: (np.vecdot(x, x * x) * np.matvec(x, x[0])).sum(), x),
    ]


@pytest.mark.parametrize("number", range(len(slopes())))
def test_derivatives(number):
    function, x = slopes()[number]
    gradient = np.asarray(fx.grad(function)(x))
    step = 1e-6
    for place in np.ndindex(x.shape):
        ahead, behind = x.copy(), x.copy()
        ahead[place] += step
        behind[place] -= step
        with np.errstate(all="ignore"):
            slope = (function(ahead) - function(behind)) / (2 * step)
        assert abs(gradient[place] - slope) <= 1e-5 * max(1.0, abs(slope)), (place, gradient[place], slope)


@pytest.mark.parametrize("ufunc", [np.maximum, np.minimum])
def test_extremes_of_groups_share_their_gradient(ufunc):
    sign = 1.0 if ufunc is np.maximum else -1.0

    def at(x, start):
        start = start.copy()
        ufunc.at(start, [0, 1, 0, 0], x)
        return (start * np.array([6.0, 5.0, 4.0])).sum()

    x, start = sign * np.array([2.0, 1.0, 2.0, 0.0]), sign * np.array([2.0, 0.5, 7.0])
    dx, dstart = fx.grad(at, argnums=(0, 1))(x, start)
    np.testing.assert_array_equal(dx, [2.0, 5.0, 2.0, 0.0])
    np.testing.assert_array_equal(dstart, [2.0, 0.0, 4.0])
    dx = fx.grad(lambda x: (ufunc.reduceat(x, [0, 3]) * np.array([6.0, 5.0])).sum())(x)
    np.testing.assert_array_equal(dx, [3.0, 0.0, 3.0, 5.0])


def test_weights_at_positions_that_the_run_knows_have_derivatives():
    def softmax(x, groups):
        e = np.exp(x)
        return e / np.bincount(groups, weights=e, minlength=3)[groups]

    x, groups, up = np.linspace(-1.0, 1.0, 6), np.array([0, 2, 0, 2, 2, 0]), np.arange(6.0)
    p = softmax(x, groups)
    wanted = p * (up - np.bincount(groups, p * up)[groups])
    loss = lambda x, groups: (softmax(x, groups) * up).sum()  # noqa: E731
    np.testing.assert_allclose(fx.grad(loss)(x, groups), wanted, rtol=1e-12)
    np.testing.assert_allclose(fx.jvp(lambda x: loss(x, groups), (x,), (up,))[1], wanted @ up, rtol=1e-12)


def test_a_group_that_nothing_came_to_has_the_slope_of_what_was_there():
    def f(start, x):
        start = start.copy()
        np.logaddexp.at(start, [0, 0], x)
        return start.sum()

    dstart, dx = fx.grad(f, argnums=(0, 1))(np.array([-np.inf, -np.inf]), np.array([1.0, 1.0]))
    np.testing.assert_allclose(dstart, [0.0, 1.0])
    np.testing.assert_allclose(dx, [0.5, 0.5])


def test_parts_of_a_long_axis_need_no_mask_of_their_number_times_its_length():
    x, starts = np.linspace(0.0, 9.0, 200_000), np.arange(1, 200_000, 2)
    for ufunc in (np.add, np.maximum):
        gradient = np.asarray(fx.grad(lambda x, ufunc=ufunc: ufunc.reduceat(x, starts).sum())(x))
        np.testing.assert_array_equal(gradient[:5], [0, 1, 1, 1, 1] if ufunc is np.add else [0, 0, 1, 0, 1])


def test_parts_of_what_a_mask_picked_have_derivatives():
    x = np.linspace(-1.0, 2.0, 30)
    for ufunc in (np.add, np.maximum):
        slope = fx.grad(lambda x, starts, ufunc=ufunc: ufunc.reduceat(x[x > 0], starts).sum())
        gradient = np.asarray(slope(x, np.array([0, 5])))
        assert gradient.sum() == (20 if ufunc is np.add else 2)
        fixed = fx.grad(lambda x, ufunc=ufunc: ufunc.reduceat(x[x > 0], [0, 5]).sum())
        np.testing.assert_array_equal(fixed(x), gradient)
    staged = fx.futurize(lambda x: np.add.reduceat(x[x > 0], [0, 5]), escape="error")
    np.testing.assert_array_equal(staged(x), staged.plain(x))
    with pytest.raises(IndexError, match=r"index 5 out-of-bounds in add.reduceat \[0, 3\)"):
        staged(x[:13]).result()


def test_running_sums_of_exponentials_far_apart_have_derivatives():
    """Factors between neighbours do not overflow where their products from the beginning would."""
    x = np.array([-2000.0, 0.0, 900.0, 900.0, -np.inf, 1800.0])
    for weights, expected in (([1, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]), ([0, 0, 0, 0, 1, 0], [0, 0, 0.5, 0.5, 0, 0])):
        found = fx.grad(lambda x, w: (np.logaddexp.accumulate(x) * w).sum())(x, np.array(weights, float))
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("ufunc", [np.logaddexp, np.logaddexp2])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", [(2, 2), (5, 3), (40, 30), (3, 5000)])
def test_sums_in_logarithms_are_added_up_at_once(ufunc, dtype, shape):
    """As exactly as the type allows, also where one element is all of the sum, or several are as large."""
    rng = np.random.default_rng(5)
    x = (rng.normal(size=shape) * 8).astype(dtype)
    x[0], x[1, :2], x[-1, 0] = -30.0, 0.0, -np.inf
    for axis in (0, 1, -1, None):
        for keepdims in (False, True):
            f = fx.futurize(lambda x, axis=axis, keepdims=keepdims: ufunc.reduce(x, axis=axis, keepdims=keepdims))
            exact = ufunc.reduce(x.astype(np.longdouble), axis=axis, keepdims=keepdims)
            top = abs(x.max(axis=axis, keepdims=keepdims))
            for _ in range(3):
                found = np.asarray(f(x))
                assert (found.dtype, found.shape) == (np.dtype(dtype), np.shape(exact))
                assert (abs(found - exact) <= 4 * np.finfo(dtype).eps * np.maximum(abs(exact), top)).all()
    graph = optimise(fx.lower(lambda x: ufunc.reduce(x, axis=1), x).graph)
    assert all(node.op != "ufunc_reduce" for node in graph.nodes)


@pytest.mark.parametrize("count", [3, 300])
def test_ends_of_sums_in_logarithms(count):
    x = np.zeros((7, count))
    x[0], x[1], x[2, 0], x[3, 1], x[4, 0], x[4, 2] = -np.inf, np.inf, np.inf, np.nan, np.inf, -np.inf
    x[5, 1:], x[6, 0] = -np.inf, -np.inf
    f = fx.futurize(lambda x: np.logaddexp.reduce(x, axis=1))
    for _ in range(4):
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(f(x), np.logaddexp.reduce(x, axis=1), rtol=1e-13)
    np.testing.assert_allclose(fx.grad(lambda x: np.logaddexp.reduce(x))(x[6]), (np.arange(count) > 0) / (count - 1))


@pytest.mark.parametrize("ends", [[np.nan, 1.0, 2.0, 3.0], [np.inf, 1.0, 2.0, np.inf], [-np.inf] * 4])
def test_sums_in_logarithms_warn_as_numpy_does_at_most(ends):
    """Of NaN, not of the infinity less itself, nor of the logarithm of how many are as large as NaN."""
    x = np.array(ends)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if np.isnan(x).any():
            warnings.filterwarnings("ignore", "invalid value")
        f, wanted = fx.futurize(lambda x: np.logaddexp.reduce(x)), np.logaddexp.reduce(x)
        for _ in range(3):
            np.testing.assert_array_equal(np.asarray(f(x)), wanted)


def test_sums_in_logarithms_inside_a_loop():
    def filtered(a, moves, seen):
        for row in seen:
            a = np.logaddexp.reduce(a[:, None] + moves, axis=0) + row
        return np.logaddexp.reduce(a)

    rng = np.random.default_rng(6)
    a, moves, seen = rng.normal(size=4), rng.normal(size=(4, 4)), rng.normal(size=(50, 4))
    f = fx.futurize(filtered)
    for _ in range(4):
        np.testing.assert_allclose(f(a, moves, seen), filtered(a, moves, seen), rtol=1e-12)
    step = 1e-6
    slope = fx.grad(filtered)(a, moves, seen)
    for k in range(4):
        apart = step * (np.arange(4) == k)
        wanted = (filtered(a + apart, moves, seen) - filtered(a - apart, moves, seen)) / (2 * step)
        np.testing.assert_allclose(slope[k], wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"])
@pytest.mark.parametrize("dtype", [np.uint64, np.int8, np.float32])
def test_masks_beside_ints_that_the_type_does_not_hold(name, dtype):
    """NumPy's own call with a mask ends the process."""
    ufunc, a = getattr(np, name), np.arange(6).astype(dtype)

    @fx.futurize
    def marked(a, number):
        out = np.zeros(6, bool)
        return ufunc(a, number, out=out, where=a > 2)

    @fx.futurize
    def at(a, number):
        ufunc.at(a, a > 2, number)
        return a

    for number in (-1, 300, 4):
        expected = ufunc(a, number)
        assert np.array_equal(marked(a, number), expected & (a > 2))
        assert np.array_equal(at(a.copy(), number), np.where(a > 2, expected.astype(dtype), a))
