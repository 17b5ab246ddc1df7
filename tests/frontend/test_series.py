"""``numpy.polynomial``: series are traced through NumPy's source, and have its bits and derivatives."""

import numpy as np
import pytest
from numpy.polynomial import chebyshev, hermite, hermite_e, laguerre, legendre, polynomial

import futurex as fx

RNG = np.random.default_rng(0)
X, TABLE, SERIES = RNG.normal(size=60), RNG.normal(size=(6, 10)), np.array([1.0, 2.0, -3.0, 0.5])
PLANE = RNG.normal(size=(4, 3))
VALUES = {
    "polyval": polynomial.polyval, "chebval": chebyshev.chebval, "legval": legendre.legval, "hermval": hermite.hermval,
    "hermeval": hermite_e.hermeval, "lagval": laguerre.lagval,
}  # fmt: skip
VANDERS = {
    "polyvander": polynomial.polyvander, "chebvander": chebyshev.chebvander, "legvander": legendre.legvander,
    "hermvander": hermite.hermvander, "hermevander": hermite_e.hermevander, "lagvander": laguerre.lagvander,
}  # fmt: skip
CASES = {
    **{f"{name} of a list": lambda x, c, f=f: f(x, [1, 2, 3, 4]) for name, f in VALUES.items()},
    **{f"{name} of an array": lambda x, c, f=f: f(TABLE * x[0], c) for name, f in VALUES.items()},
    **{f"{name} of two numbers": lambda x, c, f=f: f(x, [1, 2]) for name, f in VALUES.items()},
    **{f"{name} of a number": lambda x, c, f=f: f(x[0], c) for name, f in VALUES.items()},
    **{name: lambda x, c, f=f: f(x, 3) for name, f in VANDERS.items()},
    "several series": lambda x, c: polynomial.polyval(x, PLANE),
    "each its own": lambda x, c: polynomial.polyval(x[:3], PLANE, tensor=False),
    "two variables": lambda x, c: polynomial.polyval2d(x, x[::-1], PLANE),
    "single precision": lambda x, c: polynomial.polyval(x.astype(np.float32), [1, 2]),
    "a derivative": lambda x, c: polynomial.polyval(x, polynomial.polyder(c, 2)),
    "an integral": lambda x, c: polynomial.polyint(c, 1, k=[2.0], lbnd=-1),
    "a sum": lambda x, c: polynomial.polyadd(c, x[:6]),
    "a product": lambda x, c: polynomial.polymul(c, x[:3]),
    "roots": lambda x, c: polynomial.polyfromroots(x[:5]),
    "sums of other series": lambda x, c: (chebyshev.chebadd(c, x[:6]), legendre.legsub(c, x[:3])),
}


@pytest.mark.parametrize("case", CASES)
def test_bits_are_numpys(case):
    function = CASES[case]
    assert fx.lower(function, X, SERIES).graph.nodes
    f, expected = fx.futurize(function), function(X, SERIES)
    for _ in range(3):
        found = f(X, SERIES)
        pairs = [each if isinstance(each, tuple) else (each,) for each in (found, expected)]
        for one, other in zip(*pairs, strict=True):
            assert (np.asarray(one).dtype, np.shape(one)) == (np.asarray(other).dtype, np.shape(other))
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", VALUES)
def test_slopes(name):
    value = VALUES[name]
    dx, dc = fx.grad(lambda x, c: value(x, c).sum(), argnums=(0, 1))(X, SERIES)
    step = 1e-6
    along = (value(X + step, SERIES) - value(X - step, SERIES)) / (2 * step)
    np.testing.assert_allclose(dx, along, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(dc, [value(X, each).sum() for each in np.eye(4)], rtol=1e-12)


def test_errors_are_numpys():
    with pytest.raises(TypeError):
        polynomial.polyder(SERIES, 1.5)
    with pytest.raises(TypeError):
        fx.futurize(lambda c: polynomial.polyder(c, 1.5))(SERIES)
