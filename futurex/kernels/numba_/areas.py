"""arcsinh, arccosh and arctanh for generated loops: logarithms of one plus a small number, without branches.

The formulas are those of fdlibm's ``s_asinh.c``, ``e_acosh.c`` and ``e_atanh.c`` (Sun Microsystems, 1993), of which
each has several ways, by size. Here it is one: what the small number loses when it is rounded is a second word.
"""

from __future__ import annotations

import math

from futurex.kernels.numba_.logarithms import log_of_words
from futurex.kernels.numba_.real import Real


def _far(x: Real) -> str:
    """Is the square of x so large that one makes no difference, or no number any more?"""
    return x.compare("ogt", 2.0**x.format.digits)


def _sum(large: Real, small: Real) -> tuple[Real, Real]:
    """A sum of two numbers, the larger one first, in two words."""
    total = large + small
    return total, (large - total) + small


def arcsinh(x: Real) -> Real:
    """log(1 + t) with t = |x| + x^2 / (1 + sqrt(1 + x^2)), and log 2|x| far out."""
    size = abs(x)
    far = _far(size)
    near = x.const(0.0).choose(far, size)
    square = near * near
    high, low = _sum(near, square / ((square + 1.0).root() + 1.0))
    return log_of_words(size.choose(far, high), low, far).with_sign_of(x)


def arccosh(x: Real) -> Real:
    """log(1 + t) with t = d + sqrt(2 d + d^2) and d = x - 1, and log 2x far out."""
    far = _far(x)
    d = x.const(0.0).choose(far, x - 1.0)
    twice = d + d
    square = d.fma(d, twice)
    root = square.root()
    lost = (-root).fma(root, square) + d.fma(d, twice - square)  # of the square under the root
    high, low = _sum(root, d)
    low = (low + lost * 0.5 / root).choose(root.compare("ogt", 0.0), 0.0)
    value = log_of_words(x.choose(far, high), low, far)
    return value.choose(x.compare("oge", 1.0), math.nan)


def arctanh(x: Real) -> Real:
    """Half of log(1 + t) with t = 2 |x| / (1 - |x|)."""
    size = abs(x)
    twice, rest = size + size, 1.0 - size
    high = twice / rest
    lost = (1.0 - rest) - size
    low = (-high).fma(lost, (-high).fma(rest, twice)) / rest
    inside = size.compare("olt", 1.0)
    value = log_of_words(high, low.choose(inside, 0.0)) * 0.5
    return value.with_sign_of(x)
