"""exp, exp2, expm1, tanh, sinh, cosh and the logistic function for generated loops: polynomials without branches.

``x = n log 2 + r`` with ``|r| <= log(2) / 2``: two to the n is a shift of bits, the exponential of r a polynomial
(minimax fits in 60 digits). The scheme is that of fdlibm's ``e_exp.c``, ``s_expm1.c`` and ``s_tanh.c`` (Sun
Microsystems, 1993); with fused multiply-adds, and in steps that do not overflow or round twice at the ends.
"""

from __future__ import annotations

from collections.abc import Sequence
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
"""tanh has 32 parts, eight from each power of two to the next of 1.625 x + 1; the last one ends at 9.23."""
_CENTRES = table(
    "centres",
    [0.6923084, 0.8461553, 0.9999986, 1.1538452, 1.3076887, 1.461538, 1.615385, 1.7692358, 2.000006, 2.3076954,
     2.615391, 2.9230776, 3.2307725, 3.538468, 3.8461444, 4.1538405, 4.615424, 5.230854, 5.8469234, 6.4610395,
     7.0755205, 7.692099, 8.311507, 8.919262, 0.0, 0.11538476, 0.19230795, 0.26923117, 0.34614843, 0.42307708,
     0.4999994, 0.576924],
)  # fmt: skip
"""Of parts from 0.615 on, and last of the first eight: where tanh is within a hundredth of a unit of a number of single
precision, which nothing is lost by, as S. Gal chose the places of tables (1986)."""
_BENDS = [
    table(f"tanh_{k}", terms)
    for k, terms in enumerate((
        (0.5994629, 0.68905556, 0.7615936, 0.8190239, 0.8636894, 0.8979509, 0.92395186, 0.9435256, 0.964028, 0.9803974,
         0.98935825, 0.9942347, 0.9968801, 0.9983127, 0.99908775, 0.9995069, 0.9998041, 0.9999428, 0.9999833,
         0.9999951, 0.99999857, 0.9999996, 0.9999999, 0.99999994, 0.0, 0.114875406, 0.18997183, 0.2629093, 0.33295536,
         0.39951953, 0.4621167, 0.52042615),
        (0.64064485, 0.5252031, 0.41997573, 0.32920015, 0.25404072, 0.19368425, 0.14631295, 0.10975939, 0.070649184,
         0.03882028, 0.021169856, 0.011497157, 0.0062299003, 0.0033716543, 0.001823627, 0.0009859551, 0.00039166355,
         0.00011439986, 3.337059e-5, 9.773953e-6, 2.8598301e-6, 8.3327274e-7, 2.414205e-7, 7.157506e-8, 1.0, 0.9868036,
         0.96391064, 0.9308787, 0.8891407, 0.8403841, 0.7864482, 0.7291566),
        (-0.38404202, -0.3618941, -0.31985065, -0.269623, -0.2194123, -0.17391887, -0.13518606, -0.10356114,
         -0.06810848, -0.038059685, -0.020944798, -0.0114309685, -0.0062104613, -0.0033659919, -0.0018219297,
         -0.0009854394, -0.0003916388, -0.0001144172, -3.3386026e-5, -9.747914e-6, -2.8160289e-6, -7.850197e-7,
         -3.6339353e-7, 1.8706864e-6, 1.0259137e-5, -0.1133582, -0.18311545, -0.24473582, -0.29604355, -0.33574873,
         -0.36343074, -0.37947178),
        (0.016218865, 0.073843926, 0.10326145, 0.11088218, 0.10472186, 0.09157668, 0.07614071, 0.06115198, 0.042249303,
         0.02448366, 0.013735298, 0.007574105, 0.0041379253, 0.0022493647, 0.0012193625, 0.00066004443, 0.00026717392,
         7.804558e-5, 2.2736185e-5, 6.6203984e-6, 1.9275267e-6, 5.610023e-7, 1.6255633e-7, 4.8684704e-8, -0.33417216,
         -0.31571847, -0.28634346, -0.24586295, -0.19776887, -0.14597312, -0.094248876, -0.04562101),
        (0.11790117, 0.06957836, 0.027854215, -0.0009318323, -0.017285326, -0.024241088, -0.025260078, -0.023105938,
         -0.017899146, -0.011236839, -0.0065619643, -0.0036949927, -0.0020426787, -0.0011161359, -0.0006081925,
         -0.00033005647, -0.00013306297, -3.8836344e-5, -1.12627695e-5, -3.506012e-6, -1.3720223e-6, -7.72728e-7,
         1.1684484e-6, -2.0007898e-5, 0.019268598, 0.07304988, 0.11514108, 0.14545943, 0.16414714, 0.16949697,
         0.16455065, 0.1501978),
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


def within(x: Real, halvings: int = 0) -> Real:
    """e^x, halved so often, for x that neither overflows nor underflows the reduction."""
    grown, n, bits = _factors(x, closely=False)
    if x.has_lanes:
        return grown.scaled(n - halvings if halvings else n)
    return (bits.op("sub", halvings) if halvings else bits).scale(grown)


def _below(x: Real, *, closely: bool = False) -> Real:
    """e^x for x up to some fifty; ``closely``: rounded once, for who rounds it again."""
    grown, n, bits = _factors(x.at_least(_OF[x.format].low), closely=closely)
    return grown.scaled(n) if x.has_lanes else bits.lower(grown)


def times_power(x: Real, factors: Sequence[Real]) -> list[Real]:
    """Factors up to one times e^x, also where e^x itself overflows; infinite x is as good as any beyond all numbers."""
    far = 200.0 if x.format is FLOAT else 1500.0
    lifted = x.format.width  # so that what a subnormal factor is multiplied by makes a normal number of it
    grown, n, bits = _factors(x.at_most(far).at_least(-far), closely=False)
    grown = grown * 2.0**lifted
    if x.has_lanes:
        n = n - lifted
        return [(grown * each).scaled(n) for each in factors]
    bits = bits.op("sub", lifted)
    half = bits.op("ashr", 1)
    rest = bits.op("sub", half)
    return [rest.scale(half.scale(grown * each)) for each in factors]


def _factors(x: Real, *, closely: bool) -> tuple[Real, Real, Bits]:
    """e^x as a number near one, and the power of two that it is to be multiplied by."""
    if _in_lanes(x):
        own = _OF[x.format]
        n, bits = _in_sixteenths(x, LOG2_E)
        r = n.fma(-own.ln2_low, n.fma(-own.ln2_high, x))
        power, rest = bits.pick(_POWERS), _shortly(r)
        return power.fma(rest + bits.pick(_LOST) if closely else rest, power), n, bits
    n, bits, r = _reduced(x)
    return _grown(r), n, bits


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


def decayed(x: Real) -> Real:
    """e^x for x that is not above zero."""
    return _below(x)


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
    """A polynomial for each part, without a division: the last two bits of an exponent and the first three behind it
    say which part it is."""
    size = abs(x).at_most(9.2)  # where it is one
    bits = size.fma(_ENDS, 1.0).as_bits().op("lshr", FLOAT.fraction - 3)
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
    """e^x / (e^x + 1), in which neither end loses digits; where x is so large that the quotient is one, x is held."""
    grown = _below(x.at_most(_OF[x.format].flat), closely=True)
    return grown / (grown + 1.0)
