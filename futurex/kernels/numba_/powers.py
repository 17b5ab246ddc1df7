"""power and hypot for generated loops: e to the y log x, with the logarithm in two words; integers by squaring.

The logarithm is that of the ratio ``s = (m - 1) / (m + 1)``, ``2 s + s^3 (2/3 + s^2 q(s^2))``, of which all but q is
computed in two words (T. J. Dekker, 1971): its error is multiplied by up to 745 before it reaches the result. The
scheme is that of SLEEF's ``xpow`` (N. Shibata and F. Petrogalli, 2020); q is a fit in 75 digits. Single precision is
computed in double, by one polynomial each for logarithm and power. A single exponent is treated as NumPy's loops
treat it: 2 is a square, 0.5 a root, to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.kernels.numba_.exponentials import power_of_e
from futurex.kernels.numba_.logarithms import Words, split, times_ln2
from futurex.kernels.numba_.real import DOUBLE, FLOAT, Real, format_of, narrow, wide
from futurex.kernels.numba_.scalar import Body, register_type
from futurex.tree.node import Node

Dtype = np.dtype[Any]

_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
# (log((1 + s) / (1 - s)) - 2 s - 2/3 s^3) / s^5 in s^2
_CURVE = (
    0.39999999999999999817, 0.28571428571429368498, 0.22222222221654500622, 0.18181818335706719581,
    0.15384594928984110151, 0.13334806517305499939, 0.11706187519978793862, 0.11723689023649227335,
)  # fmt: skip
# of single precision: log2(1 + f) / f for f from -1/4 to 1/2, within 2^-33; 2^r for r from -1/2 to 1/2, within 2^-29
_LOG2 = (
    1.4426950409945483, -0.7213475168575499, 0.48089828222429826, -0.36067435913422496, 0.2885460234843045,
    -0.24042822761873384, 0.20582040568340054, -0.18031446170795967, 0.16465675684136818, -0.15287115631168702,
    0.11550635267788859, -0.04495671877083548,
)  # fmt: skip
_EXP2 = (
    1.0000000005541032, 0.6931472057363331, 0.24022646891194166, 0.055503287785143435, 0.009618488897953099,
    0.0013399930789647324, 0.0001534582738150001,
)  # fmt: skip
_FAR = 200.0  # of y log2 x: infinite in single precision, or zero
_BEYOND = 800.0  # of y log x: infinite, or zero
_LARGE, _SMALL = 2.0**500, 2.0**-500
SCALED_BY = 600


def power(x: Real, y: Real) -> Real:
    """x to the y, with C's special values, which are NumPy's."""
    size = abs(x)
    if x.format is DOUBLE:
        value = power_of_e(*_product(y, _logarithm(size)))
        return _signed(x, y, size, _ends(x, y, size, value))
    value = _in_double(size, y)
    if not x.has_lanes:
        return _signed(x, y, size, _ends(x, y, size, value))
    one = x.body.emit(f"or i1 {size.compare('oeq', 1.0)}, {y.compare('oeq', 0.0)}")
    return _signed(x, y, size, x.const(1.0).choose(one, value))


def _in_double(size: Real, y: Real) -> Real:
    """The power of numbers of single precision. Where exponents of zero and infinity are infinite, these and infinite y
    give what they should, but for one to the y and x to the zero."""
    e, m = split(size)
    f = wide(m - 1.0)
    logarithm = f.fma(f.in_pairs(*_LOG2), wide(e))
    product = (wide(y) * logarithm).at_most(_FAR).at_least(-_FAR)
    n, bits = product.nearest(1.0)
    grown = (product - n).in_pairs(*_EXP2)
    return narrow(grown.scaled(n) if size.has_lanes else grown * bits.power_of_two())


def float_power(x: Real, y: Real) -> Real:
    return power(x, y)


def hypot(x: Real, y: Real) -> Real:
    """The root of a sum of squares of which neither overflows; infinite where one operand is, whatever the other."""
    a, b = abs(x), abs(y)
    if x.format is FLOAT:
        p, q = wide(a), wide(b)
        value = narrow(p.fma(p, q * q).root())
    else:
        scale, back = to_middle(a.choose(a.compare("ogt", b), b))
        p, q = a * scale, b * scale
        value = p.fma(p, q * q).root() * back
    either = x.body.emit(f"or i1 {a.compare('oeq', math.inf)}, {b.compare('oeq', math.inf)}")
    return x.const(math.inf).choose(either, value)


def to_middle(size: Real, power: float = 1.0) -> tuple[Real, Real]:
    """What takes a double to where its square is a normal number (two to :data:`SCALED_BY`, one, or one over that), and
    a power of what takes it back."""
    large, small = size.compare("ogt", _LARGE), size.compare("olt", _SMALL)

    def chosen(exponent: float) -> Real:
        return size.const(2.0**-exponent).choose(large, size.const(2.0**exponent).choose(small, 1.0))

    return chosen(SCALED_BY), chosen(-SCALED_BY * power)


def power_of(body: Body, dtype: Dtype, exponent: Node, operands: Sequence[str]) -> str:
    """The register of a power; what is known of its exponent before the run makes it cheaper or exact."""
    if dtype.kind != "f":
        return _by_squaring(body, dtype, operands[0], int(exponent.value))
    x, y = (Real(body, format_of(dtype), operand) for operand in operands)
    if exponent.size != 1:
        return power(x, y).name
    if exponent.op == "const":
        value = float(exponent.value)
        return (_KNOWN[value](x) if value in _KNOWN else power(x, y)).name
    result = power(x, y)
    for value in _LIKE_NUMPY:
        result = _KNOWN[value](x).choose(y.compare("oeq", value), result)
    return result.name


_LIKE_NUMPY = (-1.0, 0.0, 0.5, 1.0, 2.0)
_KNOWN = {
    -2.0: lambda x: (1.0 / x) * (1.0 / x),
    -1.0: lambda x: 1.0 / x,
    0.0: lambda x: x.const(1.0),
    0.5: lambda x: x.root(),
    1.0: lambda x: x,
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
    4.0: lambda x: (x * x) * (x * x),
}


def _by_squaring(body: Body, dtype: Dtype, x: str, exponent: int) -> str:
    """Modulo two to the number of bits, as NumPy's integers are: in which order does not matter."""
    kind, result = register_type(dtype), ""
    while exponent:
        if exponent & 1:
            result = body.emit(f"mul {kind} {result}, {x}") if result else x
        exponent >>= 1
        if exponent:
            x = body.emit(f"mul {kind} {x}, {x}")
    return result or "1"


def _sum(x: Real, y: Real) -> Words:
    """Of numbers of which the first is not the smaller one."""
    total = x + y
    return total, (x - total) + y


def _times(x: Words, y: Words) -> Words:
    high = x[0] * y[0]
    return high, x[0].fma(y[0], -high) + x[0].fma(y[1], x[1] * y[0])


def _logarithm(x: Real) -> Words:
    """log x in two words, for x that is neither zero nor infinite."""
    e, m = split(x)
    f = m - 1.0
    divisor = f + 2.0
    lost = f - (divisor - 2.0)
    inverse = 1.0 / divisor
    ratio = f * inverse  # what it lacks of the quotient goes into the second word
    s = ratio, ((-ratio).fma(divisor, f) - ratio * lost) * inverse
    square = _times(s, s)
    curve = square[0] * square[0].polynomial(*_CURVE)
    high, low = _TWO_THIRDS
    third, rest = _sum(x.const(high), curve)
    cube = _times(s, square)
    part = _times(cube, (third, rest + low))
    whole, small = times_ln2(e)
    # |whole| is zero or larger than the others by far
    total, first = _sum(whole, s[0] * 2.0)
    total, second = _sum(total, part[0])
    return _sum(total, second + (first + ((part[1] + s[1] * 2.0) + small)))


def _product(y: Real, words: Words) -> Words:
    """y times two words; zero in the second one where the first is beyond all powers."""
    high = y * words[0]
    rest = y.fma(words[0], -high) + y * words[1]
    near = abs(high).compare("olt", _BEYOND)
    return high.at_most(_BEYOND).at_least(-_BEYOND), rest.choose(near, 0.0)


def _ends(x: Real, y: Real, size: Real, value: Real) -> Real:
    """Where one of both is zero, one, infinite or no number."""
    body = x.body
    grows = body.emit(f"icmp eq i1 {size.compare('ogt', 1.0)}, {y.compare('ogt', 0.0)}")
    end = x.const(math.inf).choose(grows, 0.0)
    infinite = body.emit(f"or i1 {size.compare('oeq', math.inf)}, {abs(y).compare('oeq', math.inf)}")
    value = end.choose(body.emit(f"or i1 {size.compare('oeq', 0.0)}, {infinite}"), value)
    value = x.const(math.nan).choose(body.emit(f"fcmp uno {x.format.kind} {x.name}, {y.name}"), value)
    one = body.emit(f"or i1 {size.compare('oeq', 1.0)}, {y.compare('oeq', 0.0)}")
    return x.const(1.0).choose(one, value)


def _signed(x: Real, y: Real, size: Real, value: Real) -> Real:
    """The power of x from that of its size: the sign of odd powers, and no number for others than whole ones of what is
    below zero."""
    body = x.body
    half = y * 0.5
    whole = y.compare("oeq", y.rounded())
    odd = body.emit(f"and i1 {whole}, {half.compare('une', half.rounded())}")
    value = value.with_sign_of(x).choose(odd, value)
    finite = body.emit(f"and i1 {size.compare('olt', math.inf)}, {x.compare('olt', 0.0)}")
    fraction = body.emit(f"xor i1 {whole}, true")
    return x.const(math.nan).choose(body.emit(f"and i1 {finite}, {fraction}"), value)
