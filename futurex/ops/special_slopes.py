"""Derivatives of more functions of ``scipy.special``, of which some have parameters that they are not taken by.

A parameter is marked by ``stop_gradient`` where a slope reads the function for another one, so that the slope has a
derivative in its turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.ops.elementwise import where
from futurex.ops.special import BY_LAST, SAMPLES, SLOPES, gamma_density, near_zero, psi, special
from futurex.tree.node import Node, apply, item

_DEGREE = math.pi / 180.0


def _exp(x: Node) -> Node:
    return apply("exp", x)


def _log(x: Node) -> Node:
    return apply("log", x)


def _fixed(parameter: Any) -> Node:
    return apply("stop_gradient", parameter)


def _shifted(name: str, by: float, order: Node, *rest: Node) -> Node:
    """A function of another order than the one that was called."""
    return special(name, _fixed(order + by), *rest)


def _below(order: Node, slope: Callable[[Node], Node]) -> Node:
    """What is made of the order below, and nothing of order zero."""
    none = apply("equal", order, 0)
    return where(none, 0.0, slope(_fixed(where(none, order, order - 1))))


def _relative_exponential_slope(u: Node) -> Node:
    """How much ``(exp(u) - 1) / u`` changes. At infinity SciPy's series would have no end."""
    return special("hyp1f1", 2.0, 3.0, apply("maximum", apply("minimum", u, 1e3), -1e30)) * 0.5


def _power_slopes(log: Node, shape: Node, out: Node) -> tuple[Node, Node]:
    """Of ``(exp(shape log) - 1) / shape``: by the logarithm, and by the shape, also where that is zero."""
    none = apply("equal", log, -math.inf)  # of zero
    inside = where(none, 0.0, log)
    by_shape = inside * inside * _relative_exponential_slope(shape * inside)
    return _exp(shape * log), where(none, -out / where(none, shape, 1.0), by_shape)


def _power_less_one(out: Node, x: Node, y: Node) -> tuple[Node, Node]:
    none = apply("equal", x, 0)
    constant = apply("logical_and", none, apply("equal", y, 0))
    by_exponent = where(none, 0.0, (out + 1.0) * _log(where(none, 1.0, x)))
    return where(constant, 0.0, y * apply("power", x, where(constant, 1.0, y - 1.0))), by_exponent


def _boxcox(out: Node, x: Node, shape: Node) -> tuple[Node, Node]:
    return apply("power", x, shape - 1.0), _power_slopes(_log(x), shape, out)[1]


def _boxcox1p(out: Node, x: Node, shape: Node) -> tuple[Node, Node]:
    log = apply("log1p", x)
    return _exp((shape - 1.0) * log), _power_slopes(log, shape, out)[1]


def _inverse_boxcox(out: Node, y: Node, shape: Node) -> tuple[Node, Node]:
    by_x, by_shape = _boxcox(y, out, shape)
    return 1.0 / by_x, -by_shape / by_x


def _inverse_boxcox1p(out: Node, y: Node, shape: Node) -> tuple[Node, Node]:
    by_x, by_shape = _boxcox1p(y, out, shape)
    return 1.0 / by_x, -by_shape / by_x


def _beta_density(a: Node, b: Node, x: Node) -> Node:
    a, b = _fixed(a), _fixed(b)
    return _exp(special("xlogy", a - 1.0, x) + special("xlog1py", b - 1.0, -x) - special("betaln", a, b))


def _student_density(df: Node, t: Node) -> Node:
    df = _fixed(df)
    scale = special("gammaln", (df + 1.0) * 0.5) - special("gammaln", df * 0.5) - 0.5 * _log(df * math.pi)
    return _exp(scale - (df + 1.0) * 0.5 * apply("log1p", t * t / df))


def _ratio_density(first: Node, second: Node, x: Node) -> Node:
    """Of the F distribution."""
    first, second = _fixed(first), _fixed(second)
    whole = second + first * x
    return _beta_density(first * 0.5, second * 0.5, first * x / whole) * first * second / (whole * whole)


def _gamma_scaled(sign: float) -> Callable[..., tuple[Any, ...]]:
    def slopes(out: Node, rate: Node, shape: Node, x: Node) -> tuple[Any, ...]:
        density = gamma_density(shape, rate * x) * sign
        return density * x, None, density * rate

    return slopes


def _exponential_integral(out: Node, n: Node, x: Node) -> tuple[Any, ...]:
    first, none = apply("equal", n, 1), apply("equal", n, 0)
    zeroth = _exp(-x) / x
    rest = special("expn", _fixed(apply("maximum", n - 1, 1)), x)
    return None, -where(none, zeroth * (1.0 + 1.0 / x), where(first, zeroth, rest))


def _owens_t(out: Node, h: Node, a: Node) -> tuple[Node, Node]:
    by_h = _exp(h * h * -0.5) * special("erf", a * h * math.sqrt(0.5)) * (-0.5 / math.sqrt(2.0 * math.pi))
    square = 1.0 + a * a
    return by_h, _exp(h * h * square * -0.5) / (square * (2.0 * math.pi))


def _jacobi_functions(out: Any, u: Node, m: Node) -> tuple[Any, ...]:
    sn, cn, dn = (item(out, k) for k in range(3))
    return (cn * dn, -sn * dn, -_fixed(m) * sn * cn, dn), None


def _near(m: Node, first: float, otherwise: Callable[[Node], Node]) -> Node:
    """``otherwise(m)``, and a power series where ``m`` is small: a difference of what is nearly equal there."""
    small = apply("less", apply("absolute", m), 0.02)
    inside = where(small, m, 0.0)
    factors = [math.pi / 8.0]
    for k in range(8):
        factors.append(factors[-1] * (first + k) * (1.5 + k) / ((2.0 + k) * (1.0 + k)))
    series = inside * factors[-1] + factors[-2]
    for each in reversed(factors[:-2]):
        series = series * inside + each
    return where(small, series, otherwise(where(small, 0.5, m)))


def _first_kind_slope(m: Node, rest: Node, integral: Node) -> Node:
    return _near(m, 1.5, lambda m: (special("ellipe", m) / rest - integral) / (2.0 * m))


def _airy(out: Any, x: Node) -> tuple[Any, ...]:
    return ((item(out, 1), x * item(out, 0), item(out, 3), x * item(out, 2)),)


def _between(name: str, behind: float) -> Callable[..., tuple[Any, ...]]:
    """Bessel functions change by half of those of the orders around them."""
    return lambda out, order, x: (None, (_shifted(name, -1, order, x) + behind * _shifted(name, 1, order, x)) * 0.5)


def _is_pole(x: Node) -> Node:
    """Is it one of 0, -1, -2 and so on, where the gamma function has no value, and its inverse is zero?"""
    return apply("logical_and", apply("less_equal", x, 0), apply("equal", x, apply("floor", x)))


def _inverse_gamma_slope(out: Node, x: Node) -> Node:
    """Near and between the poles by reflection, whose parts have values there."""
    between = apply("logical_and", apply("less", x, 0.5), apply("less", -170.0, x))
    inner = where(between, x, 0.0)
    reflected = apply("cos", inner * math.pi) * special("gamma", 1.0 - inner) - out * psi(1.0 - inner)
    return where(between, reflected, -out * psi(where(between, 1.0, apply("minimum", x, 1e30))))


def _slope_at_pole(x: Node) -> Node:
    return _inverse_gamma_slope(special("rgamma", x), x)


def _binomial(out: Node, n: Node, k: Node) -> tuple[Node, Node]:
    first, second = k + 1.0, n - k + 1.0

    def falls(x: Node, rest: Node) -> Node:
        """What the inverse of ``gamma(x)`` makes it change by; where that is zero, times ``rest``."""
        pole = _is_pole(x)
        return where(pole, rest * _slope_at_pole(where(pole, x, 0.0)), -out * psi(where(pole, 1.0, x)))

    by_first, by_second = falls(first, special("poch", second, k)), falls(second, special("poch", first, n - k))
    return out * psi(n + 1.0) + by_second, by_first - by_second


def _rising(out: Node, x: Node, m: Node) -> tuple[Node, Node]:
    end, pole = x + m, _is_pole(x)
    both = apply("logical_and", pole, _is_pole(end))
    start = where(pole, x, 0.0)
    at_pole = where(
        both, out * (psi(1.0 - where(both, end, 0.0)) - psi(1.0 - start)),
        special("gamma", where(both, 1.0, end)) * _slope_at_pole(start),
    )  # fmt: skip
    return where(pole, at_pole, out * (psi(end) - psi(where(pole, 1.0, x)))), out * psi(end)


def _lambert(out: Node) -> Node:
    last = apply("equal", out, math.inf)
    inner = where(last, 0.0, out)
    return where(last, 1.0, inner / (1.0 + inner))


def _but_at_infinity(x: Node, otherwise: Callable[[Node], Node]) -> Node:
    """``otherwise(x)``, which comes to nothing."""
    last = apply("equal", apply("absolute", x), math.inf)
    return where(last, 0.0, otherwise(where(last, 1.0, x)))


def _logarithm_by_distance(y: Node) -> Node:
    """The slope of ``spence`` at ``1 + y``; at one it has a slope and a curvature of its own."""
    return -near_zero(y, 1.0 - y * 0.5 + y * y * (1.0 / 3.0), lambda y: apply("log1p", y) / y)


SLOPES.update({
    "sici": lambda out, x: ((
        near_zero(x, 1.0, lambda x: _but_at_infinity(x, lambda x: apply("sin", x) / x)),
        _but_at_infinity(x, lambda x: apply("cos", x) / x),
    ),),
    "shichi": lambda out, x: ((near_zero(x, 1.0, lambda x: apply("sinh", x) / x), apply("cosh", x) / x),),
    "fresnel": lambda out, x: ((apply("sin", x * x * (math.pi / 2)), apply("cos", x * x * (math.pi / 2))),),
    "airy": _airy,
    "ellipj": _jacobi_functions,
    "erfi": lambda out, x: (_exp(x * x) * (2.0 / math.sqrt(math.pi)),),
    "exprel": lambda out, x: (_relative_exponential_slope(x),),
    "expi": lambda out, x: (_exp(x) / x,),
    "exp1": lambda out, x: (-_exp(-x) / x,),
    "expn": _exponential_integral,
    "spence": lambda out, x: (_logarithm_by_distance(x - 1.0),),
    "cosm1": lambda out, x: (-apply("sin", x),),
    "sindg": lambda out, x: (special("cosdg", x) * _DEGREE,),
    "cosdg": lambda out, x: (special("sindg", x) * -_DEGREE,),
    "tandg": lambda out, x: ((1.0 + out * out) * _DEGREE,),
    "cotdg": lambda out, x: ((1.0 + out * out) * -_DEGREE,),
    "powm1": _power_less_one,
    "boxcox": _boxcox,
    "boxcox1p": _boxcox1p,
    "inv_boxcox": _inverse_boxcox,
    "inv_boxcox1p": _inverse_boxcox1p,
    "rgamma": lambda out, x: (_inverse_gamma_slope(out, x),),
    "poch": _rising,
    "binom": _binomial,
    "betainc": lambda out, a, b, x: (None, None, _beta_density(a, b, x)),
    "betaincc": lambda out, a, b, x: (None, None, -_beta_density(a, b, x)),
    "betaincinv": lambda out, a, b, y: (None, None, 1.0 / _beta_density(a, b, out)),
    "betainccinv": lambda out, a, b, y: (None, None, -1.0 / _beta_density(a, b, out)),
    "gammaincinv": lambda out, a, y: (None, 1.0 / gamma_density(a, out)),
    "gammainccinv": lambda out, a, y: (None, -1.0 / gamma_density(a, out)),
    "chdtr": lambda out, v, x: (None, gamma_density(v * 0.5, x * 0.5) * 0.5),
    "chdtrc": lambda out, v, x: (None, gamma_density(v * 0.5, x * 0.5) * -0.5),
    "chdtri": lambda out, v, y: (None, -2.0 / gamma_density(v * 0.5, out * 0.5)),
    "gdtr": _gamma_scaled(1.0),
    "gdtrc": _gamma_scaled(-1.0),
    "fdtr": lambda out, a, b, x: (None, None, _ratio_density(a, b, x)),
    "fdtrc": lambda out, a, b, x: (None, None, -_ratio_density(a, b, x)),
    "stdtr": lambda out, df, t: (None, _student_density(df, t)),
    "stdtrit": lambda out, df, y: (None, 1.0 / _student_density(df, out)),
    "owens_t": _owens_t,
    "hyp0f1": lambda out, v, x: (None, _shifted("hyp0f1", 1.0, v, x) / _fixed(v)),
    "hyp1f1": lambda out, a, b, x: (
        None, None, special("hyp1f1", _fixed(a + 1.0), _fixed(b + 1.0), x) * _fixed(a) / _fixed(b),
    ),
    "hyp2f1": lambda out, a, b, c, x: (
        None, None, None,
        special("hyp2f1", *(_fixed(each + 1.0) for each in (a, b, c)), x) * (_fixed(a) * _fixed(b) / _fixed(c)),
    ),
    "ellipk": lambda out, m: (_first_kind_slope(m, 1.0 - m, out),),
    "ellipe": lambda out, m: (-_near(m, 0.5, lambda m: (special("ellipk", m) - out) / (2.0 * m)),),
    "ellipkm1": lambda out, p: (-_first_kind_slope(1.0 - p, p, out),),
    "ellipkinc": lambda out, x, m: (1.0 / apply("sqrt", 1.0 - _fixed(m) * apply("square", apply("sin", x))), None),
    "ellipeinc": lambda out, x, m: (apply("sqrt", 1.0 - _fixed(m) * apply("square", apply("sin", x))), None),
    "jv": _between("jv", -1.0),
    "jn": _between("jv", -1.0),
    "jve": _between("jve", -1.0),
    "yv": _between("yv", -1.0),
    "yve": _between("yve", -1.0),
    "iv": _between("iv", 1.0),
    "yn": lambda out, n, x: (None, (_shifted("yv", -1.0, n, x) - _shifted("yv", 1.0, n, x)) * 0.5),
    "kv": lambda out, v, x: (None, (_shifted("kv", -1.0, v, x) + _shifted("kv", 1.0, v, x)) * -0.5),
    "kn": lambda out, n, x: (None, (_shifted("kv", -1.0, n, x) + _shifted("kv", 1.0, n, x)) * -0.5),
    "ive": lambda out, v, x: (
        None, (_shifted("ive", -1.0, v, x) + _shifted("ive", 1.0, v, x)) * 0.5 - apply("sign", x) * out,
    ),
    "kve": lambda out, v, x: (None, (_shifted("kve", -1.0, v, x) + _shifted("kve", 1.0, v, x)) * -0.5 + out),
    "k0e": lambda out, x: (out - special("k1e", x),),
    "k1e": lambda out, x: (out - special("k0e", x) - out / x,),
    "eval_legendre": lambda out, n, x: (
        None, _below(n, lambda below: (_fixed(n) + 1.0) * 0.5 * special("eval_jacobi", below, 1.0, 1.0, x)),
    ),
    "eval_jacobi": lambda out, n, a, b, x: (
        None, None, None,
        _below(n, lambda below: (_fixed(n) + _fixed(a) + _fixed(b) + 1.0) * 0.5
               * special("eval_jacobi", below, _fixed(a + 1.0), _fixed(b + 1.0), x)),
    ),
    "eval_chebyt": lambda out, n, x: (None, _below(n, lambda below: _fixed(n) * special("eval_chebyu", below, x))),
    "eval_chebyu": lambda out, n, x: (
        None, _below(n, lambda below: 2.0 * special("eval_gegenbauer", below, 2.0, x)),
    ),
    "eval_gegenbauer": lambda out, n, a, x: (
        None, None,
        _below(n, lambda below: 2.0 * _fixed(a) * special("eval_gegenbauer", below, _fixed(a + 1.0), x)),
    ),
    "eval_hermite": lambda out, n, x: (
        None, _below(n, lambda below: 2.0 * _fixed(n) * special("eval_hermite", below, x)),
    ),
    "eval_hermitenorm": lambda out, n, x: (
        None, _below(n, lambda below: _fixed(n) * special("eval_hermitenorm", below, x)),
    ),
    "eval_laguerre": lambda out, n, x: (
        None, _below(n, lambda below: -special("eval_genlaguerre", below, 1.0, x)),
    ),
    "eval_genlaguerre": lambda out, n, a, x: (
        None, None, _below(n, lambda below: -special("eval_genlaguerre", below, _fixed(a + 1.0), x)),
    ),
    "wrightomega": lambda out, x: (_lambert(out),),
})  # fmt: skip

BY_LAST.update((
    "betainc", "betaincc", "betaincinv", "betainccinv", "gammaincinv", "gammainccinv", "chdtr", "chdtrc", "chdtri",
    "fdtr", "fdtrc", "stdtr", "stdtrit", "hyp0f1", "hyp1f1", "hyp2f1", "jv", "jve", "yv", "yve", "iv", "kv", "ive",
    "kve",
))  # fmt: skip
_ORTHOGONAL = ("legendre", "chebyt", "chebyu", "hermite", "hermitenorm", "laguerre")
SAMPLES.update({
    **dict.fromkeys(("gdtr", "gdtrc"), lambda x: (x, 2, x[0] + 1.0)),
    "expn": lambda x: (np.array([0, 1, 2, 5]), x + 0.3),
    **dict.fromkeys(("ellipj", "ellipkinc", "ellipeinc"), lambda x: (x, 0)),
    **dict.fromkeys(("jn", "yn", "kn"), lambda x: (2, x + 1.0)),
    "stdtrit": lambda x: (3, x),
    "binom": lambda x: (x + 3.0, x[0] + 1.0),
    "cotdg": lambda x: (x * 60.0,),
    **{f"eval_{name}": lambda x: (np.array([0, 1, 2, 5]), x) for name in _ORTHOGONAL},
    "eval_gegenbauer": lambda x: (np.array([0, 1, 2, 5]), 2, x),
    "eval_genlaguerre": lambda x: (np.array([0, 1, 2, 5]), 2, x),
    "eval_jacobi": lambda x: (np.array([0, 1, 2, 5]), 1, 2, x),
})
