"""arctan, arctan2, arcsin, arccos and the error function for generated loops: polynomials without branches.

The reductions are those of Cephes (S. Moshier): a reciprocal for arctangents above one, half angles for arcsines above
one half. The error function is x times a polynomial up to one, and 1 - e^p(x) above. All are minimax fits in 40 digits.
"""

from __future__ import annotations

from dataclasses import dataclass

from futurex.kernels.numba_.exponentials import within
from futurex.kernels.numba_.real import DOUBLE, FLOAT, Format, Real


@dataclass(frozen=True)
class _Constants:
    """(arctan x - x) / x^3 in x^2 up to 1; (arcsin x - x) / x^3 in x^2 up to 1/2; erf x / x in x^2 up to 1; the
    logarithm of 1 - erf x from 1 on; where erf has become one; what pi / 2 loses when it is rounded."""

    arctan: tuple[float, ...]
    arcsin: tuple[float, ...]
    erf_near: tuple[float, ...]
    erf_far: tuple[float, ...]
    erf_end: float
    quarter: tuple[float, float]


_OF: dict[Format, _Constants] = {
    FLOAT: _Constants(
        (-0.3333329907274999442, 0.19998547666683584074, -0.14264233810938937558, 0.10952138186044191793,
         -0.084032937592311774732, 0.057954630802894480584, -0.031174626095209056923, 0.010912739094432300232,
         -0.001793174486866682346),
        (0.16666659973661540742, 0.0750050535264836095, 0.044516712034934627029, 0.031809890109069564138,
         0.014429898718028191468, 0.037529322508074113634),
        (1.1283791670580019659, -0.3761263843434715152, 0.11283781968771346648, -0.026865399693584109301,
         0.0052209443529617528022, -0.00084828117637112923964, 0.00011256814621065327356, -9.6411093942810636371e-6),
        (0.00018846188336261794204, -1.1295802836251010157, -0.63321645172639698329, -0.10842204069969037567,
         0.025210302610693544344, -0.004205270981104070816, 0.00044146987389891998711, -0.000021697379304436088709),
        4.0, (1.57079637050628662109375, -4.371138828673792886547744e-8),
    ),
    DOUBLE: _Constants(
        (-0.3333333333333306768, 0.19999999999951395136, -0.14285714282571238825, 0.11111111006909270881,
         -0.090909070008685048348, 0.07692279813835080206, -0.066664038437763715786, 0.058805265064786698562,
         -0.052535125606118869775, 0.047223012786738726773, -0.042191224693895005252, 0.036640726687247054999,
         -0.02990192665388203439, 0.02198241155104191877, -0.013898194410629050991, 0.0071947807411919444147,
         -0.0028840069825224969474, 0.00083099107989162341554, -0.00015208727771787020642, 0.00001321750985004053036),
        (0.16666666666665402136, 0.075000000003387054256, 0.04464285682687005159, 0.030381959199381110227,
         0.022371756504700801782, 0.017359728748958899891, 0.013884992406722842688, 0.012170845074517212028,
         0.0065207578589511242755, 0.019548414468655700811, -0.016256467956045898016, 0.031934744788182534392),
        (1.1283791670955125737, -0.37612638903183747598, 0.11283791670954857184, -0.0268661706450728349,
         0.0052239776247802636873, -0.00085483269787064621623, 0.00012055331035558005925, -0.000014925593473777966639,
         1.6460972272474124241e-6, -1.6350019314121579832e-7, 1.4657839228677957898e-8, -1.1365505761099673452e-9,
         5.9449855411636647102e-11),
        (4.4542277676562476561e-8, -1.1283797067594516699, -0.6366166730962956269, -0.10278383058771586729,
         0.019157244686842229283, 0.00015355233262460079082, -0.0016121104032965103386, 0.00048827367296590054814,
         0.000074503415566668687197, -0.00014568148347581476119, 0.000083701431564237360189,
         -0.000032693483260837234258, 9.840602576271614809e-6, -2.3742868289384351527e-6, 4.6460098014742649511e-7,
         -7.3578397214385692138e-8, 9.3172057200983473909e-9, -9.2243458963056308204e-10, 6.8825192957131290859e-11,
         -3.6394351469714663296e-12, 1.2153623032673158798e-13, -1.9262039457194973347e-15),
        6.0, (1.5707963267948966192, 6.1232339957367658861e-17),
    ),
}  # fmt: skip


def _curve(t: Real, z: Real, coefficients: tuple[float, ...], lost: Real | float = 0.0) -> Real:
    """t + t z p(z) + lost, where z is the square of t."""
    return t + (t * z).fma(z.polynomial(*coefficients), lost)


def arctan(x: Real) -> Real:
    own, size = _OF[x.format], abs(x)
    above = size.compare("ogt", 1.0)
    t = (-1.0 / size).choose(above, size)
    first, second = (x.const(each).choose(above, 0.0) for each in own.quarter)
    return (first + _curve(t, t * t, own.arctan, second)).with_sign_of(x)


def arctan2(y: Real, x: Real) -> Real:
    """The arctangent of the smaller over the larger size, turned into its eighth of the circle."""
    own, across, up = _OF[x.format], abs(x), abs(y)
    steep = up.compare("ogt", across)
    low, high = across.choose(steep, up), up.choose(steep, across)
    ratio = low.const(1.0).choose(low.compare("oeq", high), low / high)
    ratio = low.choose(high.compare("oeq", 0.0), ratio)
    angle = _curve(ratio, ratio * ratio, own.arctan)
    first, second = own.quarter
    angle = (first - (angle - second)).choose(steep, angle)
    left = x.const(1.0).with_sign_of(x).compare("olt", 0.0)
    angle = (2 * first - (angle - 2 * second)).choose(left, angle)
    ordered = x.body.emit(f"fcmp ord {x.format.kind} {x.name}, {y.name}")
    return angle.choose(ordered, x + y).with_sign_of(y)


def _half_angle(x: Real) -> tuple[str, Real]:
    """Whether the size of x is above one half, and the arcsine of the size or of the root of (1 - size) / 2."""
    size = abs(x)
    above = size.compare("ogt", 0.5)
    half = (1.0 - size) * 0.5
    z = half.choose(above, x * x)
    return above, _curve(half.root().choose(above, size), z, _OF[x.format].arcsin)


def arcsin(x: Real) -> Real:
    above, angle = _half_angle(x)
    first, second = _OF[x.format].quarter
    return (first - (angle * 2.0 - second)).choose(above, angle).with_sign_of(x)


def arccos(x: Real) -> Real:
    above, angle = _half_angle(x)
    first, second = _OF[x.format].quarter
    twice = angle * 2.0
    far = (2 * first - (twice - 2 * second)).choose(x.compare("olt", 0.0), twice)
    return far.choose(above, first - (angle.with_sign_of(x) - second))


def erf(x: Real) -> Real:
    own, size = _OF[x.format], abs(x)
    z = x * x
    near = size.fma(z.polynomial(own.erf_near[0] - 1.0, *own.erf_near[1:]), size)
    held = size.at_most(own.erf_end)
    far = 1.0 - within(held.polynomial(*own.erf_far))
    return near.choose(size.compare("olt", 1.0), far).with_sign_of(x)
