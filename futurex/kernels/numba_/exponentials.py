"""exp, exp2, expm1, tanh, sinh, cosh and the logistic function for generated loops: polynomials without branches.

``x = n log 2 + r`` with ``|r| <= log(2) / 2``: two to the n is a shift of bits, the exponential of r a polynomial
(minimax fits in 60 digits). The scheme is that of fdlibm's ``e_exp.c``, ``s_expm1.c`` and ``s_tanh.c`` (Sun
Microsystems, 1993); with fused multiply-adds, and in steps that do not overflow or round twice at the ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from futurex.kernels.numba_.lanes import table
from futurex.kernels.numba_.real import DOUBLE, FLOAT, Bits, Format, Real

LOG2_E = 1.4426950408889634074
LN2 = 0.69314718055994530942


@dataclass(frozen=True)
class _Constants:
    """log 2 in two parts, of which the first has zeros at its end; (e^r - 1 - r) / r^2; where exp and expm1 end."""

    ln2_high: float
    ln2_low: float
    exp: tuple[float, ...]
    low: float
    high: float
    tiny: float
    flat: float


_OF: dict[Format, _Constants] = {
    FLOAT: _Constants(
        0.693145751953125, 1.42860682030941723212e-6,
        (0.5, 0.16666576305560638271, 0.041666553762567638397, 0.0083632927530306023112, 0.00139263256181334621),
        -104.0, 88.8, 2.0**-25, 20.0,
    ),
    DOUBLE: _Constants(
        float.fromhex("0x1.62e42feep-1"), 1.90821492927058770002e-10,
        (0.5, 0.16666666666666667468, 0.041666666666623476764, 0.0083333333333300117609, 0.0013888888917538295848,
         0.00019841269863303223296, 0.000024801520792572692843, 2.7557268072890098263e-6, 2.762032742826823816e-7,
         2.5100569275813682631e-8),
        -746.0, 709.8, 2.0**-54, 40.0,
    ),
}  # fmt: skip


_SIXTEENTHS = 1.5 * 2.0**19
"""Added to a number of single precision it leaves sixteenths, of which the last four bits count those beyond one."""
_POWERS = table("powers", [2.0 ** (k / 16) for k in range(16)])
_LOST = table("lost", [2.0 ** (k / 16) / float(np.float32(2.0 ** (k / 16))) - 1.0 for k in range(16)])
"""What those lack, as a part of them, because they are rounded."""
_SHORT = (0.5000165104866028, 0.16667041182518005)
"""(e^r - 1 - r) / r^2 for r up to log(2) / 32."""
_ENDS = 1.625
"""tanh has sixteen parts, four from each power of two to the next of 1.625 x + 1; the last one ends at 9.23."""
_CENTRES = table(
    "centres",
    [0.7691595, 1.0766833, 1.3847867, 1.6920661, 2.1533668, 2.7689, 3.3840392, 4.0007777, 4.9243813, 6.1524158,
     7.383185, 8.618246, 0.0, 0.23077224, 0.38461548, 0.53861445],
)  # fmt: skip
"""Of parts from 0.615 on, and last of the first four: where tanh is within a hundredth of a unit of a number of single
precision, which nothing is lost by, as S. Gal chose the places of tables (1986)."""
_BENDS = [
    table(f"tanh_{k}", terms)
    for k, terms in enumerate((
        (0.64644045, 0.7919659, 0.8820186, 0.93440986, 0.97340345, 0.9921605, 0.99770284, 0.99933034, 0.9998944,
         0.99999094, 0.9999992, 0.99999994, 0.0, 0.22676101, 0.36670902, 0.49193844),
        (0.58211476, 0.37279, 0.22204313, 0.12687822, 0.052485682, 0.015617555, 0.0045890543, 0.0013388703,
         0.00021125113, 1.8120914e-5, 1.5456342e-6, 1.3067393e-7, 1.0, 0.94857943, 0.8655245, 0.75799656),
        (-0.37630278, -0.29524156, -0.19584872, -0.11855695, -0.051087514, -0.015493058, -0.0045777704, -0.0013377442,
         -0.00021060335, -1.8063221e-5, -1.4976022e-6, -2.5957473e-7, 8.7390134e-7, -0.2151002, -0.31739485,
         -0.3728873),
        (0.049211342, 0.10955448, 0.09872943, 0.06848856, 0.032238413, 0.010166896, 0.003037886, 0.0008906051,
         0.00014031993, 1.2043904e-5, 1.028803e-6, 7.218399e-8, -0.3333841, -0.26741576, -0.17210767, -0.06922758),
        (0.09366209, 0.012277912, -0.021446878, -0.024382161, -0.014427106, -0.004993102, -0.0015302843,
         -0.00045193548, -7.544285e-5, -6.485372e-6, -6.687617e-7, 3.1519164e-7, 0.00087505206, 0.1318608, 0.16839752,
         0.15806143),
        (-0.06320689, -0.037483603, -0.008995588, 0.0027620404, 0.00433833, 0.0018601478, 0.000599374, 0.00017998325,
         3.0201414e-5, 2.582811e-6, 2.1869315e-7, 9.62798e-8, 0.12829316, 0.08039387, 0.013889996, -0.03745107),
    ))
]  # fmt: skip
"""tanh(c + t) in t, minimax fits of which the constant terms come first."""


def _reduced(x: Real) -> tuple[Real, Bits, Real]:
    """n, as a number and as an integer, and r, of which the last step alone rounds."""
    own = _OF[x.format]
    n, bits = x.nearest(LOG2_E)
    return n, bits, n.fma(-own.ln2_low, n.fma(-own.ln2_high, x))


def _in_lanes(x: Real) -> bool:
    """Are sixteen powers of two in a register?"""
    return x.format is FLOAT and x.has_lanes


def _in_sixteenths(x: Real, factor: float) -> tuple[Real, Bits]:
    """The nearest sixteenth to x times a factor, and bits of which the last four count the sixteenths beyond one."""
    shifted = x.fma(factor, _SIXTEENTHS)
    return shifted - _SIXTEENTHS, shifted.as_bits()


def _shortly(r: Real) -> Real:
    """e^r - 1."""
    return (r * r).fma(r.polynomial(*_SHORT), r)


def _grown(r: Real) -> Real:
    """e^r: all but the one at once, so that one rounding counts."""
    return (r * r).fma(r.in_pairs(*_OF[r.format].exp), r) + 1.0


def within(x: Real, halvings: int = 0, *, closely: bool = False) -> Real:
    """e^x, halved so often, for x that neither overflows nor underflows the reduction; ``closely``: rounded once, for
    who rounds it again."""
    if _in_lanes(x):
        own = _OF[x.format]
        n, bits = _in_sixteenths(x, LOG2_E)
        r = n.fma(-own.ln2_low, n.fma(-own.ln2_high, x))
        power, rest = bits.pick(_POWERS), _shortly(r)
        grown = power.fma(rest + bits.pick(_LOST) if closely else rest, power)
    else:
        n, bits, r = _reduced(x)
        grown = _grown(r)
    if x.has_lanes:
        return grown.scaled(n - halvings if halvings else n)
    return (bits.op("sub", halvings) if halvings else bits).scale(grown)


def power_of_e(high: Real, low: Real) -> Real:
    """e to the sum of two words of which the second is within the rounding errors of a larger first one.

    What is added to one is known beyond its last place, so that one rounding counts: results that are numbers are met.
    """
    own = _OF[high.format]
    n, bits = high.nearest(LOG2_E)
    first, second = n.fma(-own.ln2_high, high), n.fma(-own.ln2_low, low)
    r = first + second
    rest = (first - r) + second
    curve = (r * r).fma(r.polynomial(*own.exp), rest.fma(r, rest))
    whole = r + 1.0
    return bits.scale(whole + ((r - (whole - 1.0)) + curve))


def exp(x: Real) -> Real:
    own = _OF[x.format]
    return within(x.at_most(own.high).at_least(own.low))


def exp2(x: Real) -> Real:
    """The integer part of x is the exponent as it stands."""
    held = x.at_most(1025.0 if x.format is DOUBLE else 129.0).at_least(-1080.0 if x.format is DOUBLE else -160.0)
    if _in_lanes(x):
        n, bits = _in_sixteenths(held, 1.0)
        power = bits.pick(_POWERS)
        return power.fma(_shortly((held - n) * LN2), power).scaled(n)
    n, bits = held.nearest(1.0)
    grown = _grown((held - n) * LN2)
    return grown.scaled(n) if x.has_lanes else bits.scale(grown)


def _half_expm1(x: Real) -> Real:
    """(e^x - 1) / 2 for x within the range of exp: halved, so that nothing overflows before the last step."""
    own = _OF[x.format]
    _, bits, r = _reduced(x)
    curve = (r * r) * r.in_pairs(*own.exp)
    power = bits.op("sub", 1).power_of_two()
    whole = power - 0.5  # exact, and so is the product with r below: together they round once
    part = power * r
    total = whole + part
    return total + (power.fma(curve, (whole - total) + part))


def expm1(x: Real) -> Real:
    own = _OF[x.format]
    grown = _half_expm1(x.at_most(own.high).at_least(-own.flat)) * 2.0
    return x.choose(abs(x).compare("olt", own.tiny), grown)


def lessened(x: Real) -> Real:
    """e^x - 1 for x from -100 to 0, where few powers of two are met and one rounded constant reduces."""
    n, bits = x.nearest(LOG2_E)
    r = n.fma(-LN2, x)
    curve = (r * r).fma(r.in_pairs(*_OF[x.format].exp), r)
    power = bits.power_of_two()
    return power.fma(curve, power - 1.0)


def tanh(x: Real) -> Real:
    """F / (F + 1) with F = (e^2|x| - 1) / 2, which near zero is |x|: one formula, in which all of a lane's work counts.

    Few powers of two are met, so one rounded constant reduces; F is small where what that loses would matter.
    """
    own = _OF[x.format]
    if _in_lanes(x):
        return _tanh_by_parts(x)
    size = abs(x).at_most(own.flat / 2.0)
    n, bits = size.nearest(2.0 * LOG2_E)
    h = n.fma(-LN2 / 2.0, size)
    curve = (h * h).fma(h.polynomial(*(each * 2.0 ** (k + 1) for k, each in enumerate(own.exp))), h)
    power = bits.power_of_two()
    grown = power.fma(curve, power.fma(0.5, -0.5))
    return (grown / (grown + 1.0)).with_sign_of(x)


def _tanh_by_parts(x: Real) -> Real:
    """A polynomial for each part, without a division: the last bits of an exponent and the first two behind it say
    which part it is."""
    size = abs(x).at_most(9.2)  # where it is one
    bits = size.fma(_ENDS, 1.0).as_bits().op("lshr", FLOAT.fraction - 2)
    return bits.polynomial(_BENDS, size - bits.pick(_CENTRES)).with_sign_of(x)


def sinh(x: Real) -> Real:
    """With h = (e^|x| - 1) / 2: h + h / (2h + 1); where 2h is infinite that is h."""
    own = _OF[x.format]
    size = abs(x)
    half = _half_expm1(size.at_most(own.high + 0.5))
    near = half + half / (half * 2.0 + 1.0)
    near = x.choose(size.compare("olt", own.tiny), near)
    return _beyond(size, near).with_sign_of(x)


def cosh(x: Real) -> Real:
    """1 + h^2 / (h + 1/2), which rounds once near one."""
    own = _OF[x.format]
    size = abs(x)
    half = _half_expm1(size.at_most(own.high))
    near = half + 0.5 + 0.25 / (half + 0.5)
    return _beyond(size, near)


def _beyond(size: Real, near: Real) -> Real:
    """Where e^|x| overflows although half of it does not, that half."""
    own = _OF[size.format]
    return within(size.at_most(own.high + 1.0), halvings=1).choose(size.compare("ogt", own.high), near)


def expit(x: Real) -> Real:
    """1 / (1 + e^-x), by e^-|x| so that neither end loses digits."""
    small = within((-abs(x)).at_least(_OF[x.format].low), closely=True)
    above = small.choose(x.compare("olt", 0.0), 1.0)
    return above / (small + 1.0)
