"""remainder, floor_divide and fmod of floats in generated loops, with NumPy's bits.

The rounded quotient's integer below is the true one's or, beside an integer, one more; what a fused multiply-add
leaves of the dividend is exact then, and one divisor corrects it. Where the quotient has more digits than the format,
or a number is infinite or none, the rest is NaN, and a function of whole vectors (:class:`.lanes.Seldom`) computes
these elements by the C library's ``fmod``, which is exact, too: a branch that loops hardly ever take.
"""

from __future__ import annotations

import math

from futurex.kernels.numba_.lanes import Seldom, seldom
from futurex.kernels.numba_.real import DOUBLE, Real, called


def fmod(x: Real, y: Real) -> Real:
    """What is left of x, with its sign, as in C."""
    quotient = x / y
    rest = _rest(x, y, quotient, quotient.truncated())
    signed = rest.with_sign_of(x)
    return (rest + y.with_sign_of(x)).choose(rest.compare("une", signed), signed)


def remainder(x: Real, y: Real) -> Real:
    """What is left of x, with the sign of y, as in Python. The sum is rounded, as NumPy's is, where x is small beside
    y and of the other sign."""
    quotient = x / y
    rest = _rest(x, y, quotient, quotient.floored())
    signed = rest.with_sign_of(y)
    return (rest + y).choose(rest.compare("une", signed), signed)


def floor_divide(x: Real, y: Real) -> Real:
    """The integer below the quotient. NumPy divides what is a multiple of y, and rounds to the nearest integer: below
    two to the digits less four the roundings are less than that notices."""
    quotient = x / y
    whole = quotient.floored()
    rest = (-whole).fma(y, x)
    lower = (whole - 1.0).choose(rest.compare("une", rest.with_sign_of(y)), whole)
    near = abs(quotient).compare("olt", 2.0 ** (x.format.digits - 4))
    known = x.body.emit(f"and i1 {near}, {rest.compare('ord', rest)}")
    return _looked_at(_WHOLE[x.format.kind], x, y, lower.choose(known, math.nan))


def _rest(x: Real, y: Real, quotient: Real, whole: Real) -> Real:
    """x less so many y, or what C's function leaves; of the other sign than wanted where it lacks one y."""
    near = abs(quotient).compare("olt", 2.0 ** (x.format.digits - 1))
    return _looked_at(_REST[x.format.kind], x, y, (-whole).fma(y, x).choose(near, math.nan))


def _looked_at(function: Seldom, x: Real, y: Real, value: Real) -> Real:
    return Real(x.body, x.format, called(x.body, function, x.name, y.name, value.name))


def _exactly(kind: str) -> list[str]:
    """``@fx_exactly_kind(a, b)``: C's ``fmod``. That of single precision is computed in double while the quotient has
    no more digits than doubles, which takes a third of the time."""
    head = f"define linkonce_odr {kind} @fx_exactly_{kind}({kind} %a, {kind} %b) noinline cold {{"
    if kind == DOUBLE.kind:
        return [head, "  %r = call double @fmod(double %a, double %b)", "  ret double %r", "}"]
    return [
        head,
        "  %x = fpext float %a to double",
        "  %y = fpext float %b to double",
        "  %quotient = fdiv double %x, %y",
        "  %whole = call double @llvm.trunc.f64(double %quotient)",
        "  %negated = fneg double %whole",
        "  %rest = call double @llvm.fma.f64(double %negated, double %y, double %x)",
        "  %size = call double @llvm.fabs.f64(double %quotient)",
        f"  %few = fcmp olt double %size, {2.0**52:e}",
        "  %known = fcmp ord double %rest, %rest",
        "  %near = and i1 %few, %known",
        "  br i1 %near, label %close, label %far",
        "close:",
        "  %signed = call double @llvm.copysign.f64(double %rest, double %x)",
        "  %back = call double @llvm.copysign.f64(double %y, double %x)",
        "  %more = fadd double %rest, %back",
        "  %same = fcmp oeq double %rest, %signed",
        "  %corrected = select i1 %same, double %signed, double %more",
        "  %found = fptrunc double %corrected to float",
        "  ret float %found",
        "far:",
        "  %left = call double @fmod(double %x, double %y)",
        "  %narrow = fptrunc double %left to float",
        "  ret float %narrow",
        "}",
    ]


def _whole(kind: str, width: int) -> list[str]:
    """NumPy's quotient by its own steps (``npy_divmod``)."""
    return [
        f"  %quotient = fdiv {kind} %a, %b",
        f"  %none = fcmp oeq {kind} %b, 0.0",
        "  br i1 %none, label %by.zero, label %by.some",
        "by.zero:",
        f"  ret {kind} %quotient",
        "by.some:",
        f"  %rest = call {kind} @fx_exactly_{kind}({kind} %a, {kind} %b)",
        f"  %multiple = fsub {kind} %a, %rest",
        f"  %divided = fdiv {kind} %multiple, %b",
        f"  %left = fcmp une {kind} %rest, 0.0",
        f"  %below = fcmp olt {kind} %rest, 0.0",
        f"  %minus = fcmp olt {kind} %b, 0.0",
        "  %signs = xor i1 %below, %minus",
        "  %off = and i1 %left, %signs",
        f"  %less = fsub {kind} %divided, 1.0",
        f"  %exact = select i1 %off, {kind} %less, {kind} %divided",
        f"  %floor = call {kind} @llvm.floor.f{width}({kind} %exact)",
        f"  %gap = fsub {kind} %exact, %floor",
        f"  %up = fcmp ogt {kind} %gap, 0.5",
        f"  %next = fadd {kind} %floor, 1.0",
        f"  %near = select i1 %up, {kind} %next, {kind} %floor",
        f"  %zero = call {kind} @llvm.copysign.f{width}({kind} 0.0, {kind} %quotient)",
        f"  %some = fcmp une {kind} %exact, 0.0",
        f"  %found = select i1 %some, {kind} %near, {kind} %zero",
        f"  ret {kind} %found",
    ]


_KINDS = {"float": 32, "double": 64}
_EXACTLY = {kind: tuple(_exactly(kind)) for kind in _KINDS}
_DECLARED = (
    "double @fmod(double, double)", "double @llvm.trunc.f64(double)", "double @llvm.fma.f64(double, double, double)",
    *(
        f"{kind} @llvm.{name}.f{width}({', '.join([kind] * count)})"
        for kind, width in _KINDS.items()
        for name, count in (("fabs", 1), ("floor", 1), ("copysign", 2))
    ),
)  # fmt: skip
_REST = {
    kind: seldom(
        f"rest_{kind}", kind, [f"  %r = call {kind} @fx_exactly_{kind}({kind} %a, {kind} %b)", f"  ret {kind} %r"],
        _EXACTLY[kind], _DECLARED,
    )
    for kind in _KINDS
}  # fmt: skip
_WHOLE = {
    kind: seldom(f"whole_{kind}", kind, _whole(kind, width), _EXACTLY[kind], _DECLARED)
    for kind, width in _KINDS.items()
}
