"""Functions of ``cmath`` in generated code: the steps that Python takes, rounding by rounding, by the C library that it
calls. Numbers that are not finite, or so large or small that Python takes other steps, fail: the run is made another
way, as where Python raises.
"""

from __future__ import annotations

import math
import platform
import sys
from collections.abc import Callable, Sequence

import numpy as np

from futurex.kernels.loops.function import Function
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.values import Scalar, constant, converted
from futurex.kernels.numba_.scalar import joined, operate, parts

_FLOAT, _COMPLEX, _BOOL = np.dtype(np.float64), np.dtype(complex), np.dtype(bool)
_LARGE = math.log(sys.float_info.max / 4.0)
"""Beyond it exponentials are scaled."""
_NEAR_ONE = 0.71, 1.73
_CONTRACTS = platform.machine().lower() not in ("x86_64", "amd64")
"""May Python's own code have been compiled to fused multiply-adds?"""


def called(f: Function, name: str, operands: Sequence[Scalar]) -> str:
    """What a function makes of one complex number, or ``rect`` of two floats."""
    if name == "rect":
        return _rect(f, *(converted(f, value, _FLOAT) for value in operands))
    real, imag = parts(converted(f, operands[0], _COMPLEX))
    if name in _TESTS:
        word, both = _TESTS[name]
        one, other = (operate(f, both, _FLOAT, [part]) for part in (real, imag))
        return f.emit(f"{word} i1 {one}, {other}")
    if name not in _FUNCTIONS:
        raise Unsupported(f"cmath.{name}")
    _check_finite(f, real, imag)
    return _FUNCTIONS[name](f, real, imag)


_TESTS = {"isnan": ("or", "isnan"), "isinf": ("or", "isinf"), "isfinite": ("and", "isfinite")}


def _check_finite(f: Function, *values: str) -> None:
    for each in values:
        f.fail_if(f.emit(f"xor i1 {operate(f, 'isfinite', _FLOAT, [each])}, true"))


def _number(value: float) -> str:
    return constant(value, _FLOAT, True).register


def _library(f: Function, name: str, *operands: str) -> str:
    f.declare(f"declare double @{name}({', '.join(['double'] * len(operands))})")
    return f.emit(f"call double @{name}({', '.join(f'double {each}' for each in operands)})")


def _times(f: Function, x: str, y: str) -> str:
    return f.emit(f"fmul double {x}, {y}")


def _over(f: Function, x: str, y: str) -> str:
    return f.emit(f"fdiv double {x}, {y}")


def _size(f: Function, x: str) -> str:
    return operate(f, "absolute", _FLOAT, [x])


def _with_sign(f: Function, x: str, y: str) -> str:
    f.declare("declare double @llvm.copysign.f64(double, double)")
    return f.emit(f"call double @llvm.copysign.f64(double {x}, double {y})")


def _choice(f: Function, test: str, x: str, y: str) -> str:
    return f.emit(f"select i1 {test}, double {x}, double {y}")


def _negative(f: Function, x: str) -> str:
    return f.emit(f"fneg double {x}")


def _check_ordinary(f: Function, real: str, imag: str) -> None:
    """Fails for numbers both of whose parts are below the normal ones, or one of which is very large."""
    sizes = _size(f, real), _size(f, imag)
    small = [f.emit(f"fcmp olt double {each}, {_number(sys.float_info.min)}") for each in sizes]
    large = [f.emit(f"fcmp ogt double {each}, {_number(sys.float_info.max / 4.0)}") for each in sizes]
    f.fail_if(f.emit(f"and i1 {small[0]}, {small[1]}"))
    f.fail_if(f.emit(f"or i1 {large[0]}, {large[1]}"))


def _exp(f: Function, real: str, imag: str) -> str:
    f.fail_if(f.emit(f"fcmp ogt double {real}, {_number(_LARGE)}"))
    size = _library(f, "exp", real)
    return joined(*(_times(f, size, _library(f, name, imag)) for name in ("cos", "sin")))


def _sqrt(f: Function, real: str, imag: str) -> str:
    zero = f.emit(f"fcmp oeq double {real}, 0.0")
    zero = f.emit(f"and i1 {zero}, {f.emit(f'fcmp oeq double {imag}, 0.0')}")
    across, up = _size(f, real), _size(f, imag)
    small = [f.emit(f"fcmp olt double {each}, {_number(sys.float_info.min)}") for each in (across, up)]
    tiny = f.emit(f"and i1 {small[0]}, {small[1]}")
    f.fail_if(f.emit(f"and i1 {tiny}, {f.emit(f'xor i1 {zero}, true')}"))
    eighth = _over(f, across, _number(8.0))
    length = _library(f, "hypot", eighth, _over(f, up, _number(8.0)))
    root = operate(f, "sqrt", _FLOAT, [f.emit(f"fadd double {eighth}, {length}")])
    root = _times(f, _number(2.0), root)
    other = _over(f, up, _times(f, _number(2.0), root))
    right = f.emit(f"fcmp oge double {real}, 0.0")
    x = _choice(f, right, root, other)
    y = _with_sign(f, _choice(f, right, other, root), imag)
    return joined(_choice(f, zero, _number(0.0), x), _choice(f, zero, imag, y))


def _log(f: Function, real: str, imag: str) -> str:
    if _CONTRACTS:
        raise Unsupported("cmath.log")
    _check_ordinary(f, real, imag)
    across, up = _size(f, real), _size(f, imag)
    length = _library(f, "hypot", across, up)
    wider = f.emit(f"fcmp ogt double {across}, {up}")
    most, least = _choice(f, wider, across, up), _choice(f, wider, up, across)
    below = f.emit(f"fsub double {most}, {_number(1.0)}")
    above = f.emit(f"fadd double {most}, {_number(1.0)}")
    beside = f.emit(f"fadd double {_times(f, below, above)}, {_times(f, least, least)}")
    exact = f.emit(f"fcmp oeq double {beside}, 0.0")  # log1p may lose the sign of a zero
    near = _over(f, _choice(f, exact, beside, _library(f, "log1p", beside)), _number(2.0))
    low, high = (f.emit(f"fcmp {word} double {length}, {_number(bound)}")
                 for word, bound in zip(("oge", "ole"), _NEAR_ONE, strict=True))  # fmt: skip
    size = _choice(f, f.emit(f"and i1 {low}, {high}"), near, _library(f, "log", length))
    return joined(size, _library(f, "atan2", imag, real))


def _log10(f: Function, real: str, imag: str) -> str:
    ten = _number(math.log(10.0))
    return joined(*(_over(f, part, ten) for part in parts(_log(f, real, imag))))


def _cosh(f: Function, real: str, imag: str) -> str:
    return _hyperbolic(f, real, imag, "cosh", "sinh")


def _sinh(f: Function, real: str, imag: str) -> str:
    return _hyperbolic(f, real, imag, "sinh", "cosh")


def _hyperbolic(f: Function, real: str, imag: str, first: str, second: str) -> str:
    f.fail_if(f.emit(f"fcmp ogt double {_size(f, real)}, {_number(_LARGE)}"))
    x = _times(f, _library(f, "cos", imag), _library(f, first, real))
    return joined(x, _times(f, _library(f, "sin", imag), _library(f, second, real)))


def _cos(f: Function, real: str, imag: str) -> str:
    return _cosh(f, _negative(f, imag), real)


def _sin(f: Function, real: str, imag: str) -> str:
    x, y = parts(_sinh(f, _negative(f, imag), real))
    return joined(y, _negative(f, x))


def _angle(f: Function, real: str, imag: str) -> str:
    return _library(f, "atan2", imag, real)


def _phase(f: Function, real: str, imag: str) -> str:
    """Python raises where the C library says that the angle is no normal number."""
    found = _angle(f, real, imag)
    small = f.emit(f"fcmp olt double {_size(f, found)}, {_number(sys.float_info.min)}")
    f.fail_if(f.emit(f"and i1 {small}, {f.emit(f'fcmp une double {imag}, 0.0')}"))
    return found


def _radius(f: Function, real: str, imag: str) -> str:
    found = _library(f, "hypot", real, imag)
    _check_finite(f, found)
    return found


_FUNCTIONS: dict[str, Callable[[Function, str, str], str]] = {
    "exp": _exp, "sqrt": _sqrt, "log": _log, "log10": _log10, "cosh": _cosh, "sinh": _sinh, "cos": _cos, "sin": _sin,
    "phase": _phase, "radius": _radius, "angle": _angle,
}  # fmt: skip


def _rect(f: Function, radius: str, angle: str) -> str:
    _check_finite(f, radius, angle)
    x, y = (_times(f, radius, _library(f, name, angle)) for name in ("cos", "sin"))
    none = f.emit(f"fcmp oeq double {angle}, 0.0")
    return joined(_choice(f, none, radius, x), _choice(f, none, _times(f, radius, angle), y))
