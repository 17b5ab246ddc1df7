"""sin, cos and tan for generated loops, for arguments up to a bound; whoever uses them must see to larger ones.

``x = n pi / 2 + r`` by Cody and Waite's subtraction in three steps, and polynomials on a quarter turn (minimax fits in
60 digits) as in fdlibm's ``k_sin.c`` and ``k_cos.c`` (Sun Microsystems, 1993).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from futurex.kernels.numba_.real import DOUBLE, FLOAT, Bits, Format, Real


@dataclass(frozen=True)
class _Constants:
    """pi / 2 in three words; (sin x - x) / x^3 and (cos x - 1 + x^2 / 2) / x^4 in x^2; how far subtraction holds."""

    words: tuple[float, float, float]
    sin: tuple[float, ...]
    cos: tuple[float, ...]
    bound: float


_OF: dict[Format, _Constants] = {
    FLOAT: _Constants(
        (1.57079637050628662109375, -4.371138828673792886547744e-8, -1.7151245100058818686848e-15),
        (-0.1666666666374136766, 0.0083333318306294283635, -0.00019840063040804116852, 2.7246868722877944544e-6),
        (0.041666666664226133516, -0.0013888887635227974877, 0.000024800580601354642352, -2.7298407652795174721e-7),
        1e5,
    ),
    DOUBLE: _Constants(
        (1.5707963267948966192, 6.1232339957367658861e-17, -1.4973849048591698329e-33),
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


def _both(x: Real) -> tuple[Bits, Real, Real]:
    """The number of quarter turns, and sine and cosine of the rest."""
    own = _OF[x.format]
    n, turns = (x * (2 / math.pi)).nearest()
    first, second, third = own.words
    top = n.fma(-first, x)
    part = n * second
    r = top - part
    lost = n.fma(-third, ((top - r) - part) - n.fma(second, -part))
    z = r * r
    sine = r + (z * r).fma(z.polynomial(*own.sin), lost)
    half = z * 0.5
    whole = 1.0 - half
    tail = (1.0 - whole) - half
    cosine = whole + ((z * z).fma(z.polynomial(*own.cos), tail) - r * lost)
    return turns, sine, cosine


def _turned(turns: Bits, even: Real, odd: Real) -> Real:
    """``even`` after an even number of quarter turns; every second pair of turns changes the sign."""
    value = odd.choose(turns.op("and", 1).compare("ne", 0), even)
    sign = turns.op("and", 2).op("shl", value.format.width - 2)
    return value.as_bits().op("xor", sign).as_real()


def sin(x: Real) -> Real:
    turns, sine, cosine = _both(x)
    return x.choose(x.compare("oeq", 0.0), _turned(turns, sine, cosine))


def cos(x: Real) -> Real:
    turns, sine, cosine = _both(x)
    return _turned(turns.op("add", 1), sine, cosine)


def tan(x: Real) -> Real:
    turns, sine, cosine = _both(x)
    odd = turns.op("and", 1).compare("ne", 0)
    above, below = cosine.choose(odd, sine), sine.choose(odd, cosine)
    value = above / below
    return x.choose(x.compare("oeq", 0.0), (-value).choose(odd, value))
