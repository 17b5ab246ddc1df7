"""Scalars in generated code: constants, conversions, arithmetic of NumPy scalars and of Python numbers."""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from futurex.kernels.loops.function import Function
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.numba_ import complexes
from futurex.kernels.numba_.real import Real, format_of
from futurex.kernels.numba_.scalar import OPERATIONS, joined, operate, part_of, parts, register_type
from futurex.ops.fusion import COMPLEX, SUPPORTED

Dtype = np.dtype[Any]
_INT, _FLOAT, _BOOL, _COMPLEX = np.dtype(np.int64), np.dtype(np.float64), np.dtype(bool), np.dtype(complex)
NUMBERS = SUPPORTED | COMPLEX
"""What values may be; complex ones are two registers."""
_EXACT = 1 << 53
_COMPARISONS = frozenset(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"))
_LOGIC = frozenset(("logical_and", "logical_or", "logical_xor", "logical_not"))
_BITS = frozenset(("bitwise_and", "bitwise_or", "bitwise_xor"))
_CHECKED = {"add": "sadd", "subtract": "ssub", "multiply": "smul"}


@dataclass(frozen=True)
class Scalar:
    """One value in a register; ``weak``: a Python number. ``known``: the value where it is a constant."""

    register: str
    dtype: Dtype
    weak: bool
    known: Any = None


def supported(dtype: Dtype) -> Dtype:
    if dtype not in NUMBERS or not dtype.isnative:
        raise Unsupported(f"values of dtype {dtype}")
    return dtype


def constant(value: Any, dtype: Dtype, weak: bool) -> Scalar:
    """A literal; floats are spelled by their bits. A Python int has to fit 64 bits."""
    supported(dtype)
    if weak and dtype == _INT and not np.iinfo(_INT).min <= value <= np.iinfo(_INT).max:
        raise Unsupported("an integer of more than 64 bits")
    if dtype.kind == "c":
        own = part_of(dtype)
        text = joined(*(constant(part, own, weak).register for part in (value.real, value.imag)))
    elif dtype.kind == "f":
        text = f"0x{struct.unpack('>Q', struct.pack('>d', float(value)))[0]:016X}"
    elif dtype.kind == "b":
        text = "true" if value else "false"
    else:
        text = str(int(value))
    return Scalar(text, dtype, weak, value)


def converted(function: Function, value: Scalar, target: Dtype) -> str:
    """The value as an operand of a loop of dtype ``target``, as NumPy converts it; fails where NumPy would object."""
    source = value.dtype
    if source.kind == "c" and target.kind not in "cb":
        raise Unsupported("a complex number as a real one")
    if source.kind == "f" and target.kind in "iu":
        return truncated(function, value, target)
    if value.weak and source == _INT and target.kind in "iu":
        _fits(function, value, np.iinfo(target).min, np.iinfo(target).max, target)
    if value.weak and source == _INT and target in (np.dtype(np.float32), np.dtype(np.complex64)):
        _fits(function, value, -_EXACT, _EXACT, target)
    return function.cast(value.register, source, target)


def element(function: Function, value: Scalar, target: Dtype) -> str:
    """A number as it is written into one element: fails where its value does not fit, whose number it may be."""
    if value.dtype.kind in "iu" and target.kind in "iu" and np.can_cast(value.dtype, _INT):
        value = replace(value, register=function.cast(value.register, value.dtype, _INT), dtype=_INT, weak=True)
    elif value.dtype.kind != "f":
        raise Unsupported(f"an element of {target} that is {value.dtype}")
    return converted(function, value, target)


def _fits(function: Function, value: Scalar, low: int, high: int, target: Dtype) -> None:
    if value.known is not None:
        if not low <= value.known <= high:
            raise Unsupported(f"{value.known} as {target}")
        return
    least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    if low > least:
        function.fail_if(function.emit(f"icmp slt i64 {value.register}, {low}"))
    if high < most:
        function.fail_if(function.emit(f"icmp sgt i64 {value.register}, {high}"))


def truncated(function: Function, value: Scalar, target: Dtype) -> str:
    """A float as an integer, where the result is in range: elsewhere it differs from machine to machine."""
    wide = function.cast(value.register, value.dtype, _FLOAT)
    if target.itemsize == 8 and target.kind == "u":
        raise Unsupported("floats to uint64")
    limits = np.iinfo(target)
    low = function.emit(f"fcmp ole double {wide}, {constant(float(limits.min) - 1.0, _FLOAT, True).register}")
    if target.itemsize == 8:
        low = function.emit(f"fcmp olt double {wide}, {constant(float(limits.min), _FLOAT, True).register}")
    high = function.emit(f"fcmp oge double {wide}, {constant(float(limits.max) + 1.0, _FLOAT, True).register}")
    outside = function.emit(f"or i1 {low}, {high}")
    function.fail_if(function.emit(f"or i1 {outside}, {function.emit(f'fcmp uno double {wide}, {wide}')}"))
    word = "fptoui" if target.kind == "u" else "fptosi"
    return function.emit(f"{word} double {wide} to {register_type(target)}")


def in_loop(function: Function, name: str, operands: Sequence[Scalar], inputs: Sequence[Dtype], output: Dtype) -> str:
    """A ufunc on scalars by NumPy's loop for these dtypes."""
    registers = [converted(function, value, dtype) for value, dtype in zip(operands, inputs, strict=True)]
    if name == "cast":
        if inputs[0].kind == "f" and output.kind in "iu":  # one whose result is known for every number
            return function.cast(registers[0], inputs[0], output)
        return registers[0] if operands[0].dtype != inputs[0] else converted(function, operands[0], output)
    if inputs[-1].kind == "c":
        if not complexes.known():
            raise Unsupported("NumPy's own products of complex numbers")
        return complexes.operate(function, name, inputs[-1], registers)
    return operate(function, name, inputs[-1], registers)


def product(function: Function, operands: Sequence[Scalar], dtype: Dtype) -> str:
    """``x * y`` of complex scalars: every product and sum rounded, by NumPy and Python alike."""
    _refuse_mixed(operands)
    (a, b), (c, d) = (parts(converted(function, value, dtype)) for value in operands)
    kind = register_type(part_of(dtype))

    def of_two(word: str, x: str, y: str) -> str:
        return function.emit(f"{word} {kind} {x}, {y}")

    real = of_two("fsub", of_two("fmul", a, c), of_two("fmul", b, d))
    return joined(real, of_two("fadd", of_two("fmul", a, d), of_two("fmul", b, c)))


def quotient(function: Function, operands: Sequence[Scalar]) -> str:
    """``x / y`` of Python's complex numbers, by the ratio of the divisor's parts; it raises where both are zero. And
    of ints, which floats may not hold."""
    if all(value.dtype == _INT for value in operands):
        for value in operands:
            _fits(function, value, -_EXACT, _EXACT, _FLOAT)
        return python_number(function, "divide", operands, _FLOAT)
    _refuse_mixed(operands)
    form = format_of(_FLOAT)
    (a, b), (c, d) = (
        [Real(function, form, part) for part in parts(converted(function, value, _COMPLEX))] for value in operands
    )
    size, other = abs(c), abs(d)
    function.fail_if(function.emit(f"and i1 {size.compare('oeq', 0.0)}, {other.compare('oeq', 0.0)}"))
    first = size.compare("oge", other)
    small, large = d.choose(first, c), c.choose(first, d)
    ratio = small / large
    scale = large + small * ratio
    real = a.choose(first, b) + b.choose(first, a) * ratio
    imag = (b - a * ratio).choose(first, b * ratio - a)
    return joined((real / scale).name, (imag / scale).name)


def absolute(function: Function, value: Scalar) -> str:
    """``abs(z)`` of a complex scalar by the C library's ``hypot``, as NumPy and Python take it."""
    own, (real, imag) = part_of(value.dtype), parts(value.register)
    kind, name = register_type(own), "hypot" if own == _FLOAT else "hypotf"
    function.declare(f"declare {kind} @{name}({kind}, {kind})")
    found = function.emit(f"call {kind} @{name}({kind} {real}, {kind} {imag})")
    if value.weak:  # Python raises OverflowError
        huge, given = operate(function, "isinf", own, [found]), operate(function, "isfinite", own, [real])
        both = function.emit(f"and i1 {given}, {operate(function, 'isfinite', own, [imag])}")
        function.fail_if(function.emit(f"and i1 {huge}, {both}"))
    return found


def by_numpy(name: str, operands: Sequence[Scalar], dtype: Dtype) -> bool:
    """Is an operation of Python numbers computed by a loop of NumPy that has no form here? Functions of ints are, whose
    results are floats: of a loop's counter, most often."""
    if dtype == _FLOAT and name != "divide" and all(value.dtype == _INT for value in operands):
        return True
    return name not in OPERATIONS and any(value.dtype in (_FLOAT, _COMPLEX) for value in operands)


def python_number(function: Function, name: str, operands: Sequence[Scalar], dtype: Dtype) -> str:
    """An operation of Python numbers alone; what Python numbers can do and 64 bits cannot fails."""
    if "c" in {value.dtype.kind for value in operands} | {dtype.kind}:
        return _python_complex(function, name, operands, dtype)
    if name == "where":
        chosen = [converted(function, value, dtype) for value in operands[1:]]
        return function.select(converted(function, operands[0], _BOOL), register_type(dtype), *chosen)
    if name in _LOGIC:
        return operate(function, name, _BOOL, [converted(function, value, _BOOL) for value in operands])
    kinds = {value.dtype.kind for value in operands}
    common = _FLOAT if "f" in kinds or name == "divide" else _INT if "i" in kinds else _BOOL
    if dtype == _BOOL and name in _BITS and kinds == {"b"}:
        return operate(function, name, _BOOL, [value.register for value in operands])
    if name not in OPERATIONS or (common == _BOOL and name not in _COMPARISONS and name != "divide"):
        raise Unsupported(f"{name} of Python numbers")
    if name not in _COMPARISONS and dtype != common:
        raise Unsupported(f"{name} of Python numbers with a result of dtype {dtype}")
    if name in _COMPARISONS and kinds == {"i", "f"}:
        for value in operands:  # Python compares an int and a float exactly
            if value.dtype.kind == "i":
                _fits(function, value, -_EXACT, _EXACT, common)
    registers = [function.cast(value.register, value.dtype, common) for value in operands]
    kind = register_type(common)
    if name in ("divide", "floor_divide", "remainder"):
        is_zero = f"fcmp oeq {kind} {registers[1]}, 0.0" if common == _FLOAT else f"icmp eq {kind} {registers[1]}, 0"
        function.fail_if(function.emit(is_zero))
    if common == _INT and name in _CHECKED:
        return _moved(function, name, *registers) or checked(function, _CHECKED[name], *registers)
    if common == _INT and name in ("negative", "absolute", "floor_divide"):
        function.fail_if(function.emit(f"icmp eq i64 {registers[0]}, {np.iinfo(np.int64).min}"))
    return operate(function, name, common, registers)


def _refuse_mixed(operands: Sequence[Scalar]) -> None:
    """Python computes with a real and a complex number in a way of its own from 3.14 on."""
    if sys.version_info >= (3, 14) and all(value.weak for value in operands):
        raise Unsupported("complex Python numbers")


_OF_COMPLEX = frozenset(
    ("add", "subtract", "negative", "positive", "conjugate", "real", "imag", "equal", "not_equal", "where")
)


def _python_complex(function: Function, name: str, operands: Sequence[Scalar], dtype: Dtype) -> str:
    """An operation of which an operand or the result is complex; real ones are converted first, as Python does."""
    kinds = {value.dtype.kind for value in operands}
    if name not in _OF_COMPLEX or ("c" not in kinds and name != "where"):
        raise Unsupported(f"{name} of complex Python numbers")
    for value in operands if name in ("equal", "not_equal") else ():
        if value.dtype.kind == "i":  # Python compares an int exactly
            _fits(function, value, -_EXACT, _EXACT, _COMPLEX)
    if name in ("add", "subtract"):
        _refuse_mixed(operands)
    types = [_BOOL, dtype, dtype] if name == "where" else [_COMPLEX] * len(operands)
    registers = [converted(function, value, kind) for value, kind in zip(operands, types, strict=True)]
    return complexes.operate(function, name, _COMPLEX, registers)


def _moved(function: Function, name: str, x: str, y: str) -> str | None:
    """A number in a known range plus or minus a literal, where 64 bits are enough."""
    known = function.ranges.get(x)
    if known is None or y[0] == "%" or name not in ("add", "subtract"):
        return None
    shift = int(y) if name == "add" else -int(y)
    found = range(known.start + shift, known.stop + shift)
    if not np.iinfo(np.int64).min <= found.start < found.stop <= np.iinfo(np.int64).max:
        return None
    register = function.emit(f"add nsw i64 {x}, {shift}")
    function.ranges[register] = found
    return register


def checked(function: Function, word: str, x: str, y: str) -> str:
    """64-bit arithmetic that fails where Python's integers would grow."""
    call = f"@llvm.{word}.with.overflow.i64"
    function.declare(f"declare {{i64, i1}} {call}(i64, i64)")
    pair = function.emit(f"call {{i64, i1}} {call}(i64 {x}, i64 {y})")
    function.fail_if(function.emit(f"extractvalue {{i64, i1}} {pair}, 1"))
    return function.emit(f"extractvalue {{i64, i1}} {pair}, 0")


def python_scalar(function: Function, value: Scalar, kind: str) -> Scalar:
    """``float(x)``, ``int(x)`` and ``bool(x)``."""
    target = {"f": _FLOAT, "i": _INT, "u": _INT, "b": _BOOL, "c": _COMPLEX}[kind]
    if target == _INT and value.dtype == np.dtype(np.uint64):
        function.fail_if(function.emit(f"icmp slt i64 {value.register}, 0"))
        return Scalar(value.register, _INT, True)
    return Scalar(converted(function, Scalar(value.register, value.dtype, False), target), target, True)
