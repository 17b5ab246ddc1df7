"""arctan, arctan2, arcsin, arccos and the error function for generated loops: polynomials without branches.

The reductions are those of Cephes (S. Moshier): a reciprocal for arctangents above one, half angles for arcsines above
one half. The error function is 1 - e^p(x), or with AVX-512 in single precision a polynomial for each quarter from
zero to 3.75, whose terms are picked from registers. All are minimax fits in 40 digits.
"""

from __future__ import annotations

from dataclasses import dataclass

from futurex.kernels.numba_.exponentials import lessened
from futurex.kernels.numba_.lanes import table
from futurex.kernels.numba_.real import DOUBLE, FLOAT, Format, Real


@dataclass(frozen=True)
class _Constants:
    """(arctan x - x) / x^3 in x^2 up to 1; (arcsin x - x) / x^3 in x^2 up to 1/2; log(1 - erf x) / x up to where erf
    has become one, which follows; what pi / 2 loses when it is rounded."""

    arctan: tuple[float, ...]
    arcsin: tuple[float, ...]
    erf: tuple[float, ...]
    erf_end: float
    quarter: tuple[float, float]


_OF: dict[Format, _Constants] = {
    FLOAT: _Constants(
        (-0.3333329907274999442, 0.19998547666683584074, -0.14264233810938937558, 0.10952138186044191793,
         -0.084032937592311774732, 0.057954630802894480584, -0.031174626095209056923, 0.010912739094432300232,
         -0.001793174486866682346),
        (0.16666659973661540742, 0.0750050535264836095, 0.044516712034934627029, 0.031809890109069564138,
         0.014429898718028191468, 0.037529322508074113634),
        (-1.1283791716099775413, -0.63661938199790217401, -0.10277783096817434603, 0.01915306794994529772,
         0.00016038462610544216272, -0.0016670125335934211178, 0.00063282708680403221358, -0.0001176381698454104854,
         9.2558862846565556602e-6),
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
        (-1.1283791670955125739, -0.6366197723675813501, -0.10277260330193901419, 0.019128447008990654547,
         0.00020919464129822386982, -0.0016962059425941167318, 0.0005901231253438296408, -0.000025869271308641169363,
         -0.000064518108547028469516, 0.000029779717554250603564, -3.4983985653230017179e-6, -2.7179410352142307604e-6,
         1.6215213319788537345e-6, -2.3747881352646125461e-7, -2.0318738774426984815e-7, 1.7760717329647706464e-7,
         -8.1591250465634397167e-8, 2.6666842155834991115e-8, -6.6569528352270433596e-9, 1.294692392041906515e-9,
         -1.9580241144965562384e-10, 2.2639731920590755554e-11, -1.9356605108183563337e-12, 1.1534274427669853538e-13,
         -4.2756235577806312043e-15, 7.4197212539741465049e-17),
        6.0, (1.5707963267948966192, 6.1232339957367658861e-17),
    ),
}  # fmt: skip
# erf(c + t) in t for c = 0, 1/4, ... 15/4 and t up to 1/8, the constant terms first
_QUARTERS = [
    table(f"erf_{k}", terms)
    for k, terms in enumerate((
        (0.0, 0.276326388, 0.520499885, 0.711155653, 0.842700779, 0.92290014, 0.966105163, 0.986671686, 0.995322287,
         0.998537302, 0.999593019, 0.999899387, 0.999977887, 0.999995708, 0.999999285, 0.999999881),
        (1.12837923, 1.06001425, 0.87878263, 0.642931104, 0.415107489, 0.236521125, 0.118930288, 0.0527749956,
         0.0206669867, 0.00714231934, 0.00217828411, 0.000586277223, 0.000139253054, 2.91890246e-5, 5.39942675e-6,
         8.81432186e-7),
        (-1.43629823e-5, -0.264999002, -0.439388365, -0.482204229, -0.415101409, -0.295659661, -0.178405851,
         -0.0923646986, -0.0413449369, -0.0160790551, -0.0054312814, -0.00161664409, -0.000406383886, -0.000100390578,
         -3.26523623e-5, -5.92913125e-7),
        (-0.375572592, -0.309197664, -0.146480769, 0.0267739091, 0.138370946, 0.167533979, 0.138752267, 0.0901578516,
         0.048223, 0.0217245389, 0.00835006498, 0.0027603074, 0.000789051119, 0.000195787754, 4.22879311e-5,
         7.96750737e-6),
        (-0.006870877, 0.126092881, 0.182123452, 0.150634289, 0.0688731298, -0.00531199807, -0.0436450727,
         -0.0474314354, -0.0337483324, -0.018573029, -0.00957263634, -0.00300859171, -0.00177078089, 5.65977316e-5,
         0.00079543842, -0.00018460468),
        (0.139260694, 0.0811313763, 0.00835789368, -0.052085232, -0.0690501705, -0.0470023975, -0.0149385696,
         0.00650142599, 0.0130297709, 0.0106471842, 0.00612766109, 0.00277124182, 0.00102564669, 0.000317885686,
         8.35208266e-5, 1.87634032e-5),
    ))
]  # fmt: skip


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
    own = _OF[x.format]
    if x.format is FLOAT and x.has_lanes:
        return _erf_by_quarters(x)
    size = abs(x).at_most(own.erf_end)
    power = size.fma(size.in_pairs(own.erf[0] + 1.0, *own.erf[1:]), -size)
    return lessened(power).with_sign_of(x)


def _erf_by_quarters(x: Real) -> Real:
    quarters = 1.5 * 2.0**21  # added to a number it leaves quarters, which the last bits count
    size = abs(x).at_most(3.87)  # where it rounds to one, or nearly
    shifted = size + quarters
    t, bits = size - (shifted - quarters), shifted.as_bits()
    return bits.polynomial(_QUARTERS, t).with_sign_of(x)
