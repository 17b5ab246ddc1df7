"""sin, cos and tan for generated loops, for arguments up to a bound; whoever uses them must see to larger ones.

``x = n pi + r`` by Cody and Waite's subtraction in three steps, of which the first is exact: x and n times the first
word are multiples of a number that leaves less than the digits of a float of their difference. The sine of r is one
polynomial on half a turn (a minimax fit in 60 digits). The tangent takes quarter turns, as in fdlibm's ``k_sin.c`` and
``k_cos.c`` (Sun Microsystems, 1993).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from futurex.kernels.numba_.real import DOUBLE, FLOAT, Bits, Format, Real


@dataclass(frozen=True)
class _Constants:
    """pi in three words; (sin x - x) / x^3 in x^2 on half a turn, and on a quarter turn, there (cos x - 1 + x^2 / 2) /
    x^4 as well; how far subtraction holds."""

    words: tuple[float, float, float]
    sin: tuple[float, ...]
    short_sin: tuple[float, ...]
    cos: tuple[float, ...]
    bound: float


_OF: dict[Format, _Constants] = {
    FLOAT: _Constants(
        (3.1415927410125732, -8.742277657347586e-08, -3.4302490200117637e-15),
        (-0.16666659545348332634, 0.0083330660939213901556, -0.00019809590475415624306, 2.6057508566774525423e-6),
        (-0.1666666666374136766, 0.0083333318306294283635, -0.00019840063040804116852, 2.7246868722877944544e-6),
        (0.041666666664226133516, -0.0013888887635227974877, 0.000024800580601354642352, -2.7298407652795174721e-7),
        1e5,
    ),
    DOUBLE: _Constants(
        (3.141592653589793, 1.2246467991473532e-16, -2.9947698097183397e-33),
        (-0.16666666666666665568, 0.0083333333333331940911, -0.00019841269841209140579, 2.7557319211123611856e-6,
         -2.5052106871530785408e-8, 1.6058939640885172739e-10, -7.6429897680309865784e-13, 2.7211565258672975112e-15),
        (-0.16666666666666664498, 0.0083333333333308270041, -0.00019841269836575709034, 2.7557316008171551075e-6,
         -2.5051112272573243662e-8, 1.5916726193889337421e-10),
        (0.04166666666666666531, -0.0013888888888887321242, 0.000024801587298651291568, -2.7557317212686590119e-7,
         2.0876134024090146233e-9, -1.1381754653662936764e-11),
        1e9,
    ),
}  # fmt: skip


def beyond(x: Real) -> str:
    """True for a finite argument that is too large for these formulas."""
    size = abs(x)
    above = size.compare("ogt", _OF[x.format].bound)
    return x.body.emit(f"and i1 {above}, {size.compare('olt', math.inf)}")


def _less(x: Real, n: Real) -> Real:
    """x minus n pi."""
    for word in _OF[x.format].words:
        x = n.fma(-word, x)
    return x


def _sine(r: Real, turns: Bits) -> Real:
    """The sine of r on half a turn; every second turn changes the sign."""
    z = r * r
    value = (z * r).fma(z.polynomial(*_OF[r.format].sin), r)
    return value.as_bits().op("xor", turns.op("shl", r.format.width - 1)).as_real()


def _everywhere(name: str, x: Real, found: Real) -> Real:
    """What a formula gives, and the library's function of larger arguments where code has it: each element is what it
    is, whoever computes it together with which others."""
    if not x.body.by_library:
        return found
    large = beyond(x)
    return x.choose(large, x.const(0.0)).by_library(name).choose(large, found)


def sin(x: Real) -> Real:
    n, turns = x.nearest(1 / math.pi)
    return _everywhere("sin", x, x.choose(x.compare("oeq", 0.0), _sine(_less(x, n), turns)))


def cos(x: Real) -> Real:
    """A sine half-way between the multiples of pi, counted from the next one."""
    n, turns = (abs(x) + math.pi / 2).nearest(1 / math.pi)
    return _everywhere("cos", x, _sine(_less(abs(x), n - 0.5), turns))


def tan(x: Real) -> Real:
    """What the rest loses when it is rounded enters both polynomials: the quotient has an error of its own."""
    own = _OF[x.format]
    n, turns = x.nearest(2 / math.pi)
    first, second, third = (word / 2 for word in own.words)
    top = n.fma(-first, x)
    part = n * second
    r = top - part
    lost = n.fma(-third, ((top - r) - part) - n.fma(second, -part))
    z = r * r
    sine = r + (z * r).fma(z.polynomial(*own.short_sin), lost)
    half = z * 0.5
    whole = 1.0 - half
    tail = (1.0 - whole) - half
    cosine = whole + ((z * z).fma(z.polynomial(*own.cos), tail) - r * lost)
    odd = turns.op("and", 1).compare("ne", 0)
    above, below = cosine.choose(odd, sine), sine.choose(odd, cosine)
    value = above / below
    return _everywhere("tan", x, x.choose(x.compare("oeq", 0.0), (-value).choose(odd, value)))
