"""Operations on complex numbers in generated loops: NumPy's formulas, rounding for rounding.

NumPy's vector loops make a product of two roundings and two fused multiply-adds where the processor has those, and
take the absolute value from the ratio of the parts; division is R. L. Smith's (1962), in plain roundings. Which
product it is, NumPy itself is asked once: it chooses its loops by the processor and by settings of its own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from futurex.kernels.numba_.compiler import has_fma
from futurex.kernels.numba_.real import Real, format_of
from futurex.kernels.numba_.scalar import OPERATIONS, Body, joined, part_of, parts

Dtype = np.dtype[Any]
Complex = tuple[Real, Real]


def known() -> bool:
    """Can generated loops give the bits that NumPy's give here?"""
    return _fuses() and has_fma()


@functools.cache
def _fuses() -> bool:
    """Does NumPy make products by fused multiply-adds, of both precisions, and absolute values?

    The parts of the products are what one rounding of ``x y`` loses, which two roundings would make zero.
    """
    for dtype in (np.complex64, np.complex128):
        z = np.full(3, (1 + np.finfo(dtype).eps) * (1 + 1j), dtype)
        product = np.multiply(z, np.conjugate(z))
        if not (product.imag != 0).all():
            return False
    return True


def operate(body: Body, name: str, dtype: Dtype, operands: Sequence[str]) -> str:
    """The op ``name`` on operands of a complex dtype (for ``where`` the first one is a bool); returns its registers."""
    if name == "where":
        condition, *values = operands
        pairs = zip(*map(parts, values), strict=True)
        own = part_of(dtype)
        return joined(*(OPERATIONS["where"](body, own, condition, x, y) for x, y in pairs))
    if name in _TESTS:
        combine, test = _TESTS[name]
        first, second = (
            OPERATIONS[test](body, part_of(dtype), *each) for each in zip(*map(parts, operands), strict=True)
        )
        return body.emit(f"{combine} i1 {first}, {second}")
    return computed(_FORMULAS[name], body, dtype, operands)


def computed(formula: Callable[..., Real | Complex], body: Body, dtype: Dtype, operands: Sequence[str]) -> str:
    """The registers of what a formula gives of operands of a complex dtype."""
    found = formula(*(_real(body, dtype, each) for each in operands))
    return joined(found[0].name, found[1].name) if isinstance(found, tuple) else found.name


def _real(body: Body, dtype: Dtype, value: str) -> Complex:
    real, imag = (Real(body, format_of(part_of(dtype)), each) for each in parts(value))
    return real, imag


def _multiply(x: Complex, y: Complex) -> Complex:
    (a, b), (c, d) = x, y
    return a.fma(c, -(b * d)), a.fma(d, b * c)


def _divide(x: Complex, y: Complex) -> Complex:
    """By the ratio of the divisor's smaller part to its larger one; by zero, each part for itself."""
    (a, b), (c, d) = x, y
    size, other = abs(c), abs(d)
    first = size.compare("oge", other)
    ratio = d.choose(first, c) / c.choose(first, d)
    scale = 1.0 / (c.choose(first, d) + d.choose(first, c) * ratio)
    e, f = a.choose(first, b), b.choose(first, a)
    real = (e + f * ratio) * scale
    straight = (b - a * ratio) * scale
    crossed = (b * ratio - a) * scale
    body = a.body
    zero = body.emit(f"and i1 {size.compare('oeq', 0.0)}, {other.compare('oeq', 0.0)}")
    return (a / size).choose(zero, real), (b / size).choose(zero, straight.choose(first, crossed))


def whole_power(x: Complex, exponent: int) -> Complex:
    """By squares, as NumPy's loop has it for exponents below a hundred: its products are of plain roundings."""
    a, b = x
    one, zero = a.const(1.0), a.const(0.0)
    if exponent == 0:
        return one, zero
    if 1 <= exponent <= 3:
        found = x
        for _ in range(exponent - 1):
            found = _plainly(x, found)
    else:
        found, square, left = (one, zero), x, abs(exponent)
        while left:
            if left & 1:
                found = _plainly(found, square)
            left >>= 1
            if left:
                square = _plainly(square, square)
        found = found if exponent > 0 else _divide((one, zero), found)
    none = a.body.emit(f"and i1 {a.compare('oeq', 0.0)}, {b.compare('oeq', 0.0)}")
    end = zero if exponent > 0 else a.const(math.nan)
    return end.choose(none, found[0]), end.choose(none, found[1])


def _plainly(x: Complex, y: Complex) -> Complex:
    (a, b), (c, d) = x, y
    return a * c - b * d, a * d + b * c


def _absolute(x: Complex) -> Real:
    """The larger part times the root of one plus the square of the ratio; infinite where one part is, though the other
    be NaN."""
    a, b = map(abs, x)
    body = a.body
    larger, smaller = a.choose(a.compare("ogt", b), b), b.choose(a.compare("ogt", b), a)
    ratio = (smaller / larger).choose(larger.compare("one", 0.0), 0.0)
    size = ratio.fma(ratio, 1.0).root() * larger
    either = body.emit(f"or i1 {a.compare('oeq', math.inf)}, {b.compare('oeq', math.inf)}")
    odd = body.emit(f"fcmp uno {a.format.kind} {a.name}, {b.name}")
    return a.const(math.inf).choose(either, a.const(math.nan).choose(odd, size))


def _reciprocal(x: Complex) -> Complex:
    """By the ratio of the smaller part to the larger one."""
    a, b = x
    first = abs(b).compare("ole", abs(a))
    ratio = b.choose(first, a) / a.choose(first, b)
    whole = a.choose(first, b) + b.choose(first, a) * ratio
    return a.const(1.0).choose(first, ratio) / whole, -(ratio.choose(first, 1.0) / whole)


_FORMULAS: dict[str, Callable[..., Real | Complex]] = {
    "add": lambda x, y: (x[0] + y[0], x[1] + y[1]),
    "subtract": lambda x, y: (x[0] - y[0], x[1] - y[1]),
    "multiply": _multiply,
    "divide": _divide,
    "square": lambda x: _multiply(x, x),
    "negative": lambda x: (-x[0], -x[1]),
    "positive": lambda x: x,
    "conjugate": lambda x: (x[0], -x[1]),
    "absolute": _absolute,
    "reciprocal": _reciprocal,
    "real": lambda x: x[0],
    "imag": lambda x: x[1],
}
_TESTS = {
    "equal": ("and", "equal"), "not_equal": ("or", "not_equal"), "isnan": ("or", "isnan"), "isinf": ("or", "isinf"),
    "isfinite": ("and", "isfinite"),
}  # fmt: skip
