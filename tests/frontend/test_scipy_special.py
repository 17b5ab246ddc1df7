"""Functions of SciPy's ``special`` in staged code: equal bits, with derivatives where they have one."""

import numpy as np
import pytest
from compare import check

import futurex as fx
from futurex.ops.special import SLOPES

special = pytest.importorskip("scipy.special")

X, Y = np.linspace(0.1, 0.9, 12).reshape(3, 4), np.linspace(0.3, 0.7, 4)
ONE = sorted(name for name, slopes in SLOPES.items() if slopes.__code__.co_argcount == 2)
TWO = sorted(set(SLOPES) - {*ONE, "zeta"})


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
    check(lambda x, y: (function(x, y), function(x, 0.5), function(x[0, 0], y[1])), X, Y)


def test_zeta_takes_its_order_from_python():
    check(lambda x: special.zeta(2, x + 1), X)
    with pytest.raises(TypeError, match="no derivative"):
        fx.grad(lambda s, x: special.zeta(s, x).sum())(2.5, X + 1)


@pytest.mark.filterwarnings("ignore")
def test_any_other_ufunc_is_staged_too():
    check(lambda x: (special.erfcx(x), special.jv(2.0, x), special.ellipk(x), special.sici(x)), X)
    check(lambda x, o: (special.erf(x, out=o), o), X, np.zeros((3, 4)))
    with pytest.raises(TypeError, match="no derivative"):
        fx.grad(lambda x: special.ellipk(x).sum())(X)


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
