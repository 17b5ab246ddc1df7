"""Functions of SciPy's ``special`` in staged code: equal bits, with derivatives where they have one."""

import numpy as np
import pytest
from compare import check

import futurex as fx
from futurex.ops.special import SLOPES

special = pytest.importorskip("scipy.special")

X, Y = np.linspace(0.1, 0.9, 12).reshape(3, 4), np.linspace(0.3, 0.7, 4)
ONE = sorted(name for name, slopes in SLOPES.items() if slopes.__code__.co_argcount == 2)
TWO = sorted(name for name, slopes in SLOPES.items() if slopes.__code__.co_argcount == 3 and name != "zeta")
MORE = sorted(set(SLOPES) - {*ONE, *TWO, "zeta"})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_argument(name):
    function = getattr(special, name)
    extremes = np.array([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan])
    check(lambda x: (function(x), function(x[0, 0]), function(x.astype("f4"))), X)
    check(lambda x: function(x), extremes)


@pytest.mark.parametrize("name", TWO)
def test_functions_of_two_arguments(name):
    function = getattr(special, name)
    x = np.arange(4) if name in ("eval_hermite", "eval_hermitenorm", "expn", "kn", "yn") else X
    check(lambda x, y: (function(x, y), function(x, 0.5), function(x[..., 0], y[1])), x, Y)


@pytest.mark.parametrize("name", MORE)
def test_functions_of_more_arguments(name):
    function = getattr(special, name)
    count = function.nin - 2
    check(lambda x, y: (function(x, *(2.0,) * count, y), function(x[0, 0], *(y[0],) * count, y[1])), X, Y)


SOME = {
    "betainc": lambda x: special.betainc(2.5, 1.5, x),
    "betaincc": lambda x: special.betaincc(2.5, 1.5, x) * x,
    "exprel": lambda x: special.exprel(x - 0.5),
    "boxcox": lambda x: special.boxcox(x, 0.3) + special.boxcox(2.0, x),
    "boxcox of no power": lambda x: special.boxcox(x + 1, x - x),
    "inv_boxcox": lambda x: special.inv_boxcox(x, 0.3) + special.inv_boxcox(2.0, x),
    "boxcox1p": lambda x: special.boxcox1p(x, x) + special.inv_boxcox1p(x, x),
    "sici": lambda x: special.sici(x)[0] ** 2 + special.sici(x)[1],
    "one of two": lambda x: special.shichi(x)[1] + special.fresnel(x)[0],
    "airy": lambda x: special.airy(x)[0] * special.airy(x)[3],
    "hyp1f1": lambda x: special.hyp1f1(0.7, 1.3, x),
    "hyp2f1": lambda x: special.hyp2f1(0.7, 1.3, 2.1, x),
    "elliptic": lambda x: special.ellipk(x) + special.ellipe(x) * special.ellipkm1(x),
    "elliptic near zero": lambda x: special.ellipk(x / 100) + special.ellipe(x / -100) * 3,
    "functions of Jacobi": lambda x: special.ellipj(x, 0.4)[2] + special.ellipj(x, 0.4)[3] ** 2,
    "Bessel": lambda x: special.jv(1.5, x) * special.kv(0.3, x) + special.iv(2, x) + special.yn(1, x),
    "polynomials": lambda x: special.eval_legendre(3, x) + special.eval_jacobi(4, 0.5, 0.7, x),
    "exponential integrals": lambda x: special.exp1(x) + special.expi(x) * special.expn(3, x) + special.expn(1, x),
    "distributions": lambda x: special.stdtr(3.0, x) + special.fdtr(3.0, 4.0, x) + special.chdtr(2.5, x),
    "their inverses": lambda x: special.stdtrit(3, x) * special.betaincinv(2.0, 3.0, x) + special.gammaincinv(2.5, x),
    "a parameter beside it": lambda x: special.gdtr(x, 2.0, x + 1) + special.owens_t(x, 1 - x) + special.poch(x, 1.5),
}


@pytest.mark.parametrize("name", SOME)
def test_first_and_second_derivatives(name):
    f, x, step = SOME[name], np.linspace(0.15, 0.85, 5), 1e-4
    first = fx.grad(lambda x: f(x).sum())
    ahead, behind = f(x + step), f(x - step)
    np.testing.assert_allclose(first(x), (ahead - behind) / (2 * step), rtol=2e-6, atol=1e-7)
    np.testing.assert_allclose(fx.jvp(f, (x,), (np.ones(5),))[1], first(x), rtol=1e-9)
    second = fx.grad(lambda x: first(x).sum())(x)
    np.testing.assert_allclose(second, (first(x + step) - first(x - step)) / (2 * step), rtol=2e-6, atol=1e-6)


def test_derivatives_at_the_ends():
    at = np.array([0.0])
    assert float(fx.grad(lambda x: special.exprel(x).sum())(at)[0]) == 0.5
    assert float(fx.grad(lambda x: special.sici(x)[0].sum())(at)[0]) == 1.0
    assert abs(float(fx.grad(lambda x: special.ellipk(x).sum())(at)[0]) - np.pi / 8) < 1e-15
    assert float(fx.grad(lambda x: special.spence(x).sum())(at + 1)[0]) == -1.0
    assert float(fx.hessian(lambda x: special.spence(x).sum())(at + 1)[0, 0]) == 0.5
    assert abs(float(fx.grad(lambda k: special.boxcox(3.0, k).sum())(at)[0]) - np.log(3) ** 2 / 2) < 1e-14
    assert float(fx.grad(lambda k: special.boxcox(0.0, k).sum())(at + 2)[0]) == 0.25


def test_derivatives_far_out():
    """Where what a slope is made of is infinite, or nearly alike."""

    def slope(name, *at, by=0):
        at = [np.array([each]) for each in at]
        return float(fx.grad(lambda *args: getattr(special, name)(*args).sum(), argnums=by)(*at)[0])

    assert slope("exprel", np.inf) == slope("boxcox", np.inf, 0.5, by=1) == np.inf  # and they end
    assert slope("exprel", -np.inf) < 1e-50
    for x in (19.0, 25.0, 1e4, 1e8):
        step = x / 1000
        for name in ("dawsn", "erfcx"):
            f = getattr(special, name)
            expected = (f(x - 2 * step) - 8 * f(x - step) + 8 * f(x + step) - f(x + 2 * step)) / (12 * step)
            np.testing.assert_allclose(slope(name, x), expected, rtol=1e-9)
        np.testing.assert_allclose(slope("dawsn", -x), slope("dawsn", x), rtol=1e-15)
        np.testing.assert_allclose(slope("log_ndtr", -x), x + 1 / x, rtol=1e-4)
    assert slope("dawsn", np.inf) == slope("erfcx", np.inf) == slope("log_ndtr", np.inf) == 0
    assert slope("log_ndtr", -np.inf) == np.inf
    assert slope("wrightomega", np.inf) == 1
    assert slope("gammainc", 2.0, np.inf, by=1) == slope("chdtrc", 3.0, np.inf, by=1) == 0
    assert float(fx.grad(lambda x: special.sici(x)[0].sum())(np.array([np.inf]))[0]) == 0


def test_derivatives_of_nothing():
    """What is zero for all values of an operand does not change with it."""
    nothing = np.zeros(1)
    assert float(fx.grad(lambda y: special.xlogy(nothing, y).sum())(nothing)[0]) == 0
    assert float(fx.grad(lambda y: special.xlog1py(nothing, y).sum())(nothing - 1)[0]) == 0
    assert float(fx.grad(lambda y: special.rel_entr(nothing, y).sum())(nothing)[0]) == 0
    assert float(fx.grad(lambda y: special.kl_div(nothing, y).sum())(nothing)[0]) == 1
    assert float(fx.grad(lambda x: special.powm1(x, nothing).sum())(nothing)[0]) == 0
    assert float(fx.grad(lambda y: special.powm1(nothing, y).sum())(nothing + 2)[0]) == 0
    mixed = fx.grad(lambda x: fx.grad(lambda y: special.xlogy(x, y).sum())(nothing + 4).sum())(nothing)
    assert float(mixed[0]) == 0.25


@pytest.mark.filterwarnings("ignore")
def test_derivatives_at_poles_of_the_gamma_function():
    at = np.array([0.0, -1.0, -2.0, -3.0, -30.0])
    slopes = fx.grad(lambda x: special.rgamma(x).sum())(at)
    np.testing.assert_allclose(slopes, (-1) ** -at * special.gamma(1 - at), rtol=1e-12)
    bends = fx.grad(lambda x: fx.grad(lambda x: special.rgamma(x).sum())(x).sum())(at)
    np.testing.assert_allclose(bends, -2 * (-1) ** -at * special.gamma(1 - at) * special.digamma(1 - at), rtol=1e-11)
    for x in (-0.5, -1.3, -2.999, 0.499, 0.501, 3.0, -150.5, -171.5):
        expected = -special.rgamma(x) * special.digamma(x)
        np.testing.assert_allclose(fx.grad(lambda x: special.rgamma(x).sum())(np.array([x])), expected, rtol=1e-10)
    for x, m, expected in ((0.0, 3.0, 2.0), (-2.0, 2.0, -3.0), (-1.0, 3.0, -1.0), (-2.0, 1.0, 1.0), (1.5, 2.0, 4.0)):
        found = fx.grad(lambda x, m: special.poch(x, m).sum())(np.array([x]), np.array([m]))
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    for n, k in ((3.0, 5.0), (3.0, 4.0), (0.5, 3.0), (5.0, 2.0), (4.0, -1.0), (4.0, 0.0)):
        for by in (0, 1):
            found = fx.grad(lambda n, k: special.binom(n, k).sum(), argnums=by)(np.array([n]), np.array([k]))
            step = np.array([1e-5, 0.0] if by == 0 else [0.0, 1e-5])
            expected = (special.binom(n + step[0], k + step[1]) - special.binom(n - step[0], k - step[1])) / 2e-5
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-8)


def test_parameters_are_no_hindrance_where_nobody_differentiates_by_them():
    a, x = np.array([1.5, 2.5]), np.array([0.3, 0.6])
    found = fx.grad(lambda x, a: special.betainc(a, 2.0, x).sum())(x, a)
    np.testing.assert_allclose(found, fx.grad(lambda x: special.betainc(fx.stop_gradient(a), 2.0, x).sum())(x))
    with pytest.raises(TypeError, match=r"by scipy\.special\.betainc's operand 0.*at test_scipy_special\.py:\d+: "):
        fx.grad(lambda x, a: special.betainc(a, 2.0, x).sum(), argnums=1)(x, a)


def test_zeta_takes_its_order_from_python():
    check(lambda x: special.zeta(2, x + 1), X)
    with pytest.raises(TypeError, match="no derivative"):
        fx.grad(lambda s, x: special.zeta(s, x).sum())(2.5, X + 1)


@pytest.mark.filterwarnings("ignore")
def test_any_other_ufunc_is_staged_too():
    check(lambda x: (special.erfcx(x), special.jv(2.0, x), special.ellipk(x), special.sici(x)), X)
    check(lambda x, o: (special.erf(x, out=o), o), X, np.zeros((3, 4)))
    with pytest.raises(TypeError, match="no derivative"):
        fx.grad(lambda x: special.struve(1.0, x).sum())(X)
    with pytest.raises(TypeError, match=r"no derivative by scipy\.special\.zeta's operand 0"):
        fx.grad(lambda x: special.zeta(x + 2.0).sum())(X)


def test_exponentials_over_axes():
    check(lambda x: (special.logsumexp(x), special.logsumexp(x, axis=1), special.logsumexp(x, 0, keepdims=True)), X)
    check(lambda x: (special.softmax(x, axis=1), special.softmax(x), special.log_softmax(x, axis=-1)), X)
    check(lambda x: special.logsumexp(x, axis=1, return_sign=True)[0], X, staged="fragment")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(3, 5), (300, 40)])
def test_exponentials_in_compiled_code(shape, axis, dtype):
    """What is small beside the largest is not lost, rows without a number and with an infinity are SciPy's."""

    def exponentials(x, scale):
        x = x * scale
        return special.logsumexp(x, axis=axis) * scale, special.softmax(x, axis) * scale

    x = np.random.default_rng(4).normal(size=shape).astype(dtype) * 8
    small = np.full(shape, -30, dtype)
    small[0, 1:3] = 0
    odd = x.copy()
    odd[0, 0], odd[1, 1], odd[2, 2], odd[1, 3] = np.nan, np.inf, -np.inf, np.inf
    alike = np.full(shape, -np.inf, dtype)
    f, scale = fx.futurize(exponentials), np.dtype(dtype).type(1.25)
    rtol = 1e-13 if dtype == "f8" else 1e-5
    for given in (x, small, odd, alike, np.full(shape, np.nan, dtype), np.full(shape, np.inf, dtype)) * 2:
        fx.precompile(f, given, scale)
        for found, expected in zip(f(given, scale), exponentials(given, scale), strict=True):
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            np.testing.assert_allclose(np.asarray(found), expected, rtol, 0 if expected.ndim == 1 else rtol / 100)
    if shape[0] > 100:
        assert "special_exponentials" not in {row.op for row in f.profile()}


def test_a_loop_with_sums_of_exponentials_is_compiled():
    def forwards(x, moves):
        state = x[0]
        for t in range(1, len(x)):
            state = special.logsumexp(state[:, None] + moves, axis=0) + x[t]
        return special.logsumexp(state)

    f, x, moves = fx.futurize(forwards), np.random.default_rng(5).normal(size=(40, 3)), X[:, :3]
    fx.precompile(f, x, moves)
    np.testing.assert_allclose(float(f(x, moves)), forwards(x, moves), rtol=1e-13)
    assert "is compiled whole" in f.explain()
    check(lambda x: special.log_softmax(x * 2, axis=1) * 2, np.random.default_rng(6).normal(size=(300, 4)) * 8)


def test_weights_of_a_sum_of_exponentials():
    signs, holes = np.array([1, -1, 1, 2]), np.where(X > 0.4, 0.5, 0.0)
    check(lambda x, y: special.logsumexp(x, axis=1, b=2.0) + special.logsumexp(x, axis=1, b=y), X, Y)
    check(lambda x, b: (special.logsumexp(x + 1, b=b), special.logsumexp(x, b=b > 0, axis=0, keepdims=True)), X, signs)
    check(lambda x, b: special.logsumexp(np.where(b == 0, np.inf, x), b=b), X, holes)
    check(lambda x, b: special.logsumexp(x, 0, b), X[0].astype("f4"), Y[:, None].astype("f4"))


def test_derivatives_by_weights():
    def weighted(x, b):
        return special.logsumexp(x, axis=1, b=b).sum()

    b, inner = np.array([1.0, 0.0, 0.7, 2.0]), np.array([[0.3], [0.2], [0.9]])
    shares = np.exp(X) / (b * np.exp(X)).sum(axis=1, keepdims=True)
    by_x, by_b = fx.grad(weighted, argnums=(0, 1))(X, b)
    np.testing.assert_allclose(by_x, b * shares)
    np.testing.assert_allclose(by_b, shares.sum(axis=0))
    mapped = fx.vmap(fx.grad(lambda x, b: special.logsumexp(x, b=b)), in_axes=(0, None))(X, b)
    np.testing.assert_allclose(mapped, b * shares)
    np.testing.assert_allclose(fx.jvp(weighted, (X, b), (inner + 0 * X, 0 * b))[1], inner.sum())
    np.testing.assert_allclose(fx.grad(weighted)(np.where(b == 0, np.inf, X), b), b * shares)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (special.logsumexp(x, axis=1) ** 2).sum(),
        lambda x: (special.softmax(x, axis=0) ** 2).sum(),
        lambda x: (special.log_softmax(x, axis=1)[:, 0] * special.erf(x[:, 1])).sum(),
        lambda x: (special.gammaln(x + 1) * special.expit(x) + special.xlogy(x, x + 1)).sum(),
    ],
)
def test_derivatives(function):
    gradient, step = np.asarray(fx.grad(function)(X)), 1e-6
    for place in np.ndindex(X.shape):
        ahead, behind = X.copy(), X.copy()
        ahead[place] += step
        behind[place] -= step
        slope = (function(ahead) - function(behind)) / (2 * step)
        assert abs(gradient[place] - slope) < 1e-6 * max(1.0, abs(slope))
