"""log, log2, log10 and log1p for generated loops: polynomials without branches.

``x = 2^e m`` with m from 3/4 to 3/2 (in double precision from the root of 1/2 to that of 2), ``f = m - 1``; log m is
f - f^2/2 + ... in two words of which the first is rounded once, so that each base costs one rounding more. The scheme
is that of fdlibm's ``e_log.c`` and ``s_log1p.c`` (Sun Microsystems, 1993) and FreeBSD's ``e_log2.c``; the polynomials
are minimax fits in 60 digits.
"""

from __future__ import annotations

import math

from futurex.kernels.numba_.exponentials import exp, exp2
from futurex.kernels.numba_.real import DOUBLE, FLOAT, Bits, Real

Words = tuple[Real, Real]
# (log(1 + f) - f) / f^2
_FLOAT = (
    -0.5000005960464478, 0.3333354592323303, -0.2499348670244217, 0.19977223873138428, -0.16822484135627747,
    0.1498214155435562, -0.12065333873033524, 0.05412769690155983,
)  # fmt: skip
# (log((1 + s) / (1 - s)) - 2 s) / s^3 in s^2
_DOUBLE = (
    0.66666666666666697077, 0.39999999999898890514, 0.28571428626253837606, 0.22222211089379496214,
    0.18182892432536871201, 0.15331611722055007885, 0.14617807153417324964,
)  # fmt: skip
# Two words each; what is multiplied by an exponent has a first word that ends in zeros, so that the product is exact.
_LN2 = {
    FLOAT: (0.693145751953125, 1.4286068203094172321e-6),
    DOUBLE: (float.fromhex("0x1.62e42feep-1"), 1.9082149292705878161e-10),
}
_LOG10_2 = {
    FLOAT: (0.301025390625, 4.6050389811952137389e-6),
    DOUBLE: (float.fromhex("0x1.34413508p-2"), 1.1451100898021838691e-10),
}
_INVERSE = {
    2: {FLOAT: (1.4426950216293335, 1.9259629911266174681e-8), DOUBLE: (1.4426950408889634, 2.035527374093103205e-17)},
    10: {
        FLOAT: (0.4342944920063019, -1.0103050052231683581e-8), DOUBLE: (0.4342944819032518, 1.0983196502167651099e-17)
    },
}  # fmt: skip


def _exponent(x: Real) -> tuple[Bits, Bits]:
    """The exponent e of a normal number, and the bits that are left without it."""
    root = x.const(0.75 if x.format is FLOAT else math.sqrt(0.5)).as_bits()
    bits = x.as_bits().op("sub", root)
    return bits.op("ashr", x.format.fraction), bits.op("and", (1 << x.format.fraction) - 1).op("add", root)


def split(x: Real) -> tuple[Real, Real]:
    """The exponent e as a float, and the mantissa m, of a positive number, subnormal ones included."""
    if x.format is FLOAT and x.has_lanes:
        e, m = x.exponent(), x.mantissa()
        return (e + 1.0).choose(m.compare("olt", 1.0), e), m
    digits = x.format.digits + 1
    subnormal = x.compare("olt", 2.0 ** (1 - x.format.bias))
    exponent, mantissa = _exponent((x * 2.0**digits).choose(subnormal, x))
    e = exponent.to_real()
    return (e - float(digits)).choose(subnormal, e), mantissa.as_real()


def times_ln2(e: Real) -> tuple[Real, Real]:
    """e log 2 in two words, of which the first is exact."""
    first, second = _LN2[e.format]
    return e * first, e * second


def _natural(e: Real, f: Real, more: Real | None = None) -> Real:
    """e log 2 + log(1 + f), and a little more."""
    if f.format is FLOAT:
        square = f * f
        if more is None:
            return e.fma(math.log(2), square.fma(_curve(f, square), f))
        return e.fma(math.log(2), f) + square.fma(_curve(f, square), more)
    first, second = _LN2[f.format]
    high, low = _log_of(f)
    low = low if more is None else low + more
    whole = e * first
    total = whole + high
    return total + ((whole - total) + high + (e.fma(second, low)))


def _curve(f: Real, square: Real) -> Real:
    """(log(1 + f) - f) / f^2 in single precision: pairs one after the other, which takes an instruction less than
    pairs of pairs."""
    last: Real | None = None
    for k in range(len(_FLOAT) - 2, -1, -2):
        pair = f.fma(_FLOAT[k + 1], f.const(_FLOAT[k]))
        last = pair if last is None else square.fma(last, pair)
    assert last is not None
    return last


def _log_of(f: Real) -> tuple[Real, Real]:
    """log(1 + f) in two words."""
    half = f * 0.5
    square = half * f
    lost = half.fma(f, -square)
    high = f - square
    if f.format is FLOAT:
        curve = (f * f) * f.in_pairs(_FLOAT[0] + 0.5, *_FLOAT[1:])
    else:
        s = f / (f + 2.0)
        z = s * s
        curve = s * z.fma(z.polynomial(*_DOUBLE), square)
    return high, ((f - high) - square) + (curve - lost)


def _ends(x: Real, value: Real) -> Real:
    """What no formula gives: log 0 = -inf, log inf = inf, and NaN below zero."""
    value = x.choose(x.compare("oeq", math.inf), value)
    value = x.const(-math.inf).choose(x.compare("oeq", 0.0), value)
    return value.choose(x.compare("oge", 0.0), math.nan)


def log(x: Real) -> Real:
    e, m = split(x)
    value = _natural(e, m - 1.0)
    return value if x.format is FLOAT and x.has_lanes else _ends(x, value)  # where e and m give the ends, too


def log1p(x: Real) -> Real:
    """With the exponent e of 1 + x as rounded: log(1 + f) for f = 2^-e x - (1 - 2^-e), which rounds once.

    After SLEEF's ``xlog1pf`` (N. Shibata and F. Petrogalli, 2020).
    """
    u = x + 1.0
    exponent, _ = _exponent(u)
    f = (-exponent).scale(x) - (1.0 - (-exponent).scale(x.const(1.0)))
    return _ends(u, _natural(exponent.to_real(), f)).with_sign_of(x)


def log_of_words(x: Real, low: Real, doubled: str | None = None) -> Real:
    """log(1 + x + low) where x is not negative and low within its rounding errors; where ``doubled`` holds, log 2x of
    an x beside which one is nothing."""
    u = x + 1.0
    exponent, _ = _exponent(u)
    one = (-exponent).scale(x.const(1.0))
    f = (-exponent).scale(x) - (1.0 - one)
    e = exponent.to_real()
    return _ends(u, _natural(e if doubled is None else (e + 1.0).choose(doubled, e), f, low * one))


def log_of_three(x: Real, low: Words, shift: Real) -> Real:
    """log(x + low), where low is within the rounding errors of x, and as many log 2 more. Beside one, low may be all
    that is left: there the sum is made of what x is more than one."""
    e, m = split(x)
    f, near = m - 1.0, e.compare("oeq", 0.0)
    total, rest = sum_of_two(f, low[0])
    return _ends(x, _natural(e + shift, total.choose(near, f), (rest + low[1]).choose(near, low[0] / x)))


def sum_of_two(x: Real, y: Real) -> Words:
    """In two words, whichever is larger (D. E. Knuth, 1969)."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def logaddexp(x: Real, y: Real) -> Real:
    """log(e^x + e^y) as NumPy has it: the larger operand, plus log1p(e^-d) of how far the other lies below."""
    top = x.choose(x.compare("ogt", y), y)
    apart = -abs(x - y)
    value = top + log1p(exp(apart))
    return (x + math.log(2)).choose(x.compare("oeq", y), value)


def logaddexp2(x: Real, y: Real) -> Real:
    """The same to the base of two."""
    top = x.choose(x.compare("ogt", y), y)
    apart = -abs(x - y)
    value = log1p(exp2(apart)).fma(1 / math.log(2), top)
    return (x + 1.0).choose(x.compare("oeq", y), value)


def _base(x: Real, base: int) -> Real:
    e, m = split(x)
    high, low = _log_of(m - 1.0)
    first, second = _INVERSE[base][x.format]
    top = high * first
    rest = high.fma(first, -top) + high.fma(second, low * first)
    if base == 10:
        whole, part = _LOG10_2[x.format]
        rest = e.fma(part, rest)
        e = e * whole
    total = e + top
    return _ends(x, total + (((e - total) + top) + rest))


def log2(x: Real) -> Real:
    return _base(x, 2)


def log10(x: Real) -> Real:
    return _base(x, 10)
