"""Functions of complex numbers in generated loops, each part within units in its last place; C's special values."""

from __future__ import annotations

import math
from collections.abc import Callable

from futurex.kernels.numba_.complexes import Complex
from futurex.kernels.numba_.exponentials import times_power
from futurex.kernels.numba_.inverses import arctan2
from futurex.kernels.numba_.logarithms import log_of_three, sum_of_two
from futurex.kernels.numba_.powers import SCALED_BY, hypot, to_middle
from futurex.kernels.numba_.real import FLOAT, Real, narrow, wide
from futurex.kernels.numba_.trigonometry import cos, sin


def exp(x: Complex) -> Complex:
    """e^a (cos b + i sin b), in which only the product may overflow; C's special values (C99, G.6.3.1)."""
    a, b = x
    body = a.body
    real, imag = times_power(a, [cos(b), sin(b)])
    angle = body.emit(f"fcmp one {a.format.kind} {abs(b).name}, {a.literal(math.inf)}")  # else infinite, or no number
    imag = b.choose(b.compare("oeq", 0.0), imag)
    none = body.emit(f"and i1 {body.emit(f'xor i1 {angle}, true')}, {a.compare('oeq', -math.inf)}")
    infinite = body.emit(f"and i1 {body.emit(f'xor i1 {angle}, true')}, {a.compare('oeq', math.inf)}")
    zero = a.const(0.0)
    return zero.choose(none, a.choose(infinite, real)), zero.choose(none, imag)


def log(x: Complex) -> Complex:
    """The logarithm of the absolute value, and the angle."""
    size, other = map(abs, x)
    value = narrow(_log_of_size(wide(size), wide(other))) if size.format is FLOAT else _log_of_size(size, other)
    far = size.body.emit(f"or i1 {size.compare('oeq', math.inf)}, {other.compare('oeq', math.inf)}")
    return size.const(math.inf).choose(far, value), arctan2(x[1], x[0])


def _log_of_size(a: Real, b: Real) -> Real:
    """Half the logarithm of the sum of squares, all of whose digits count where it is near one."""
    first = a.compare("ogt", b)
    larger, smaller = a.choose(first, b), b.choose(first, a)
    scale, back = to_middle(larger)
    p, q = larger * scale, smaller * scale
    high, low = p * p, q * q
    total = high + low
    lost, less = sum_of_two(p.fma(p, -high), q.fma(q, -low))
    rest, more = sum_of_two((high - total) + low, lost)
    twice = 2.0 * SCALED_BY
    shift = a.const(twice).choose(back.compare("ogt", 1.0), a.const(-twice).choose(back.compare("olt", 1.0), 0.0))
    return log_of_three(total, (rest, more + less), shift) * 0.5


def log2(x: Complex) -> Complex:
    return _times(log(x), 1 / math.log(2))


def log10(x: Complex) -> Complex:
    return _times(log(x), 1 / math.log(10))


def _times(x: Complex, factor: float) -> Complex:
    return x[0] * factor, x[1] * factor


def sqrt(x: Complex) -> Complex:
    """Of both parts the larger is the root of half of absolute value and real part together, the other one the
    imaginary part over twice that; C's special values (C99, G.6.4.2)."""
    a, b = x
    size, other = map(abs, x)
    if a.format is FLOAT:
        root, rest = map(narrow, _root(wide(size), wide(other)))
    else:
        root, rest = _root(size, other)
    right = a.compare("oge", 0.0)
    real, imag = root.choose(right, rest), rest.choose(right, root).with_sign_of(b)
    none = a.body.emit(f"and i1 {size.compare('oeq', 0.0)}, {other.compare('oeq', 0.0)}")
    real, imag = a.const(0.0).choose(none, real), b.choose(none, imag)
    far = other.compare("oeq", math.inf)
    return a.const(math.inf).choose(far, real), b.choose(far, imag)


def _root(a: Real, b: Real) -> tuple[Real, Real]:
    scale, back = to_middle(a.choose(a.compare("ogt", b), b), 0.5)
    p, q = a * scale, b * scale
    root = ((p + p.fma(p, q * q).root()) * 0.5).root() * back
    root = a.const(math.inf).choose(a.compare("oeq", math.inf), root)
    return root, b / (root + root)


def sign(x: Complex) -> Complex:
    """Over the absolute value, with NumPy's values where that is zero, infinite or none."""
    a, b = x
    size = hypot(a, b)
    zero, far = size.compare("oeq", 0.0), size.compare("oeq", math.inf)
    one, other = (abs(each).compare("oeq", math.inf) for each in x)
    unit, nothing = a.const(1.0), a.const(0.0)
    real = unit.with_sign_of(a).choose(one, nothing).choose(far, nothing.choose(zero, a / size))
    imag = nothing.choose(one, unit.with_sign_of(b)).choose(far, nothing.choose(zero, b / size))
    both = a.body.emit(f"and i1 {one}, {other}")
    return a.const(math.nan).choose(both, real), a.const(math.nan).choose(both, imag)


FUNCTIONS: dict[str, Callable[[Complex], Complex]] = {
    f"complex_{function.__name__}": function for function in (exp, log, log2, log10, sqrt, sign)
}
