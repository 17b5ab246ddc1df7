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
    assert abs(float(fx.grad(lambda k: special.boxcox(3.0, k).sum())(at)[0]) - np.log(3) ** 2 / 2) < 1e-14
    assert float(fx.grad(lambda k: special.boxcox(0.0, k).sum())(at + 2)[0]) == 0.25


def test_parameters_are_no_hindrance_where_nobody_differentiates_by_them():
    a, x = np.array([1.5, 2.5]), np.array([0.3, 0.6])
    found = fx.grad(lambda x, a: special.betainc(a, 2.0, x).sum())(x, a)
    np.testing.assert_allclose(found, fx.grad(lambda x: special.betainc(fx.stop_gradient(a), 2.0, x).sum())(x))
    with pytest.raises(TypeError, match=r"no derivative by scipy\.special\.betainc's operand 0"):
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
    check(lambda x: special.logsumexp(x, axis=1, b=2.0), X, staged="fragment")


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
