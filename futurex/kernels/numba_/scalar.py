"""LLVM IR of one element: each operation as NumPy's loop of the same dtype computes it, bit for bit.

Booleans are ``i1`` in registers and bytes in memory; complex numbers are two registers, and have formulas of their own
(:mod:`.complexes`). Nothing is marked fast or contractible, so no product and sum become one rounding. Integer division
and shifts are guarded: LLVM leaves zero divisors, the one overflow and counts beyond the width undefined, NumPy not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.kernels.numba_ import neighbours, remainders
from futurex.kernels.numba_.real import Real, format_of
from futurex.ops import casts

Dtype = np.dtype[Any]
_SINGLE, _LARGE = np.dtype(np.float32), np.dtype(np.uint64)


def _power_of_two(exponent: int) -> str:
    """As IR, of either precision."""
    return f"0x{1023 + exponent << 52:016X}"


def register_type(dtype: Dtype) -> str:
    """The IR type of one value."""
    if dtype.kind == "f":
        return {2: "half", 4: "float", 8: "double"}[dtype.itemsize]
    return "i1" if dtype.kind == "b" else f"i{dtype.itemsize * 8}"


def memory_type(dtype: Dtype) -> str:
    """The IR type of one array element."""
    if dtype.kind == "c":
        part = register_type(part_of(dtype))
        return f"{{ {part}, {part} }}"
    return "i8" if dtype.kind == "b" else register_type(dtype)


def part_of(dtype: Dtype) -> Dtype:
    """The dtype of the parts of complex numbers."""
    return np.dtype(f"f{dtype.itemsize // 2}")


def joined(real: str, imag: str) -> str:
    """A complex value: the registers of its parts, side by side."""
    return f"{real} {imag}"


def parts(value: str) -> tuple[str, str]:
    """The registers of a complex value."""
    real, imag = value.split()
    return real, imag


class Body:
    """Collects instructions and names their results."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.intrinsics: set[str] = set()
        self.by_library = False
        """Do sines, cosines and tangents of large arguments come from C's library, one after the other?"""

    def emit(self, instruction: str) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {instruction}")
        return name

    def intrinsic(self, name: str, dtype: Dtype, value: str) -> str:
        kind = register_type(dtype)
        function = f"@llvm.{name}.f{dtype.itemsize * 8}"
        self.intrinsics.add(f"declare {kind} {function}({kind})")
        return self.emit(f"call {kind} {function}({kind} {value})")

    def library(self, name: str, kind: str, value: str) -> str:
        """What a function of C's library gives for a number, in single precision by its name for that."""
        function = f"@{name}f" if kind == "float" else f"@{name}"
        self.intrinsics.add(f"declare {kind} {function}({kind})")
        return self.emit(f"call {kind} {function}({kind} {value})")

    def cast(self, value: str, source: Dtype, target: Dtype) -> str:
        """NumPy's unsafe cast between booleans and numbers; floats to integers where :func:`casts.known`."""
        if source == target:
            return value
        if "c" in (source.kind, target.kind):
            return self._cast_complex(value, source, target)
        old, new = register_type(source), register_type(target)
        if target.kind == "b":
            return self.emit(f"fcmp une {old} {value}, 0.0" if source.kind == "f" else f"icmp ne {old} {value}, 0")
        if target.itemsize == 2 and target.kind == "f" and (source.kind in "iu" or source.itemsize == 8):
            return self._cast_to_half(value, source)
        if source.kind == "f" and target.kind != "f":
            return self._truncate(value, source, target)
        if source.kind == "f":
            return self.emit(f"{'fpext' if source.itemsize < target.itemsize else 'fptrunc'} {old} {value} to {new}")
        signed = source.kind == "i"
        if target.kind == "f":
            return self.emit(f"{'sitofp' if signed else 'uitofp'} {old} {value} to {new}")
        if old == new:
            return value
        narrower = source.kind != "b" and source.itemsize > target.itemsize
        return self.emit(f"{'trunc' if narrower else 'sext' if signed else 'zext'} {old} {value} to {new}")

    def _truncate(self, value: str, source: Dtype, target: Dtype) -> str:
        """By way of the registers of :mod:`futurex.ops.casts`; what is beyond these is the least of their numbers."""
        if source.itemsize == 2:
            value, source = self.cast(value, source, _SINGLE), _SINGLE
        kind, bits = register_type(source), casts.register_bits(target)
        if target == _LARGE:  # the upper half of the numbers by way of the lower one
            middle = _power_of_two(63)
            upper = self.emit(f"fcmp oge {kind} {value}, {middle}")
            value = self.select(upper, kind, self.emit(f"fsub {kind} {value}, {middle}"), value)
        limit = _power_of_two(bits - 1)
        inside = self.emit(f"fcmp olt {kind} {self.intrinsic('fabs', source, value)}, {limit}")
        held = self.select(inside, kind, value, self.emit(f"fneg {kind} {limit}"))
        whole = self.emit(f"fptosi {kind} {held} to i{bits}")
        if target == _LARGE:
            whole = self.emit(f"xor i64 {whole}, {self.select(upper, 'i64', str(-(1 << 63)), '0')}")
        return self.cast(whole, np.dtype(f"i{bits // 8}"), target)

    def _cast_to_half(self, value: str, source: Dtype) -> str:
        """By way of single precision, as NumPy converts integers. What a double loses on the way is put into the last
        bit (rounding to odd), so that it counts when the number is rounded to half precision, and once alone."""
        if source.kind != "f":
            word = "sitofp" if source.kind == "i" else "uitofp"
            single = self.emit(f"{word} {register_type(source)} {value} to float")
            return self.emit(f"fptrunc float {single} to half")
        single = self.emit(f"fptrunc double {value} to float")
        back = self.emit(f"fpext float {single} to double")
        sizes = [self.intrinsic("fabs", source, each) for each in (back, value)]
        above = self.emit(f"zext i1 {self.emit('fcmp ogt double {}, {}'.format(*sizes))} to i32")
        lost = self.emit(f"zext i1 {self.emit(f'fcmp one double {back}, {value}')} to i32")
        bits = self.emit(f"sub i32 {self.emit(f'bitcast float {single} to i32')}, {above}")
        odd = self.emit(f"bitcast i32 {self.emit(f'or i32 {bits}, {lost}')} to float")
        return self.emit(f"fptrunc float {odd} to half")

    def _cast_complex(self, value: str, source: Dtype, target: Dtype) -> str:
        if source.kind != "c":
            return joined(self.cast(value, source, part_of(target)), "0.0")
        own, (real, imag) = part_of(source), parts(value)
        if target.kind == "c":
            return joined(*(self.cast(each, own, part_of(target)) for each in (real, imag)))
        return self.emit(f"or i1 {self.cast(real, own, target)}, {self.cast(imag, own, target)}")  # a boolean

    def load(self, dtype: Dtype, pointer: str) -> str:
        if dtype.kind == "c":
            own = part_of(dtype)
            return joined(*(self.load(own, self._part(dtype, pointer, k)) for k in range(2)))
        kind = memory_type(dtype)
        value = self.emit(f"load {kind}, ptr {pointer}, align {dtype.itemsize}")
        return self.emit(f"icmp ne i8 {value}, 0") if dtype.kind == "b" else value

    def _part(self, dtype: Dtype, pointer: str, number: int) -> str:
        return self.emit(f"getelementptr inbounds {register_type(part_of(dtype))}, ptr {pointer}, i64 {number}")

    def store(self, dtype: Dtype, value: str, pointer: str) -> None:
        if dtype.kind == "c":
            for k, each in enumerate(parts(value)):
                self.store(part_of(dtype), each, self._part(dtype, pointer, k))
            return
        if dtype.kind == "b":
            value = self.emit(f"zext i1 {value} to i8")
        self.lines.append(f"store {memory_type(dtype)} {value}, ptr {pointer}, align {dtype.itemsize}")

    def select(self, condition: str, kind: str, x: str, y: str) -> str:
        return self.emit(f"select i1 {condition}, {kind} {x}, {kind} {y}")


def operate(body: Body, name: str, dtype: Dtype, operands: list[str]) -> str:
    """The op ``name`` on operands of the loop's dtype (for ``where`` the condition is a bool); returns its register."""
    return OPERATIONS[name](body, dtype, *operands)


def _arithmetic(integer: str, floating: str, boolean: str = "") -> Callable[..., str]:
    def build(body: Body, dtype: Dtype, x: str, y: str) -> str:
        word = {"f": floating, "b": boolean}.get(dtype.kind, integer)
        return body.emit(f"{word} {register_type(dtype)} {x}, {y}")

    return build


def _compare(integer: str, floating: str) -> Callable[..., str]:
    def build(body: Body, dtype: Dtype, x: str, y: str) -> str:
        if dtype.kind == "f":
            return body.emit(f"fcmp {floating} {register_type(dtype)} {x}, {y}")
        sign = "" if integer in ("eq", "ne") else "s" if dtype.kind == "i" else "u"
        return body.emit(f"icmp {sign}{integer} {register_type(dtype)} {x}, {y}")

    return build


def _extreme(integer: str, floating: str, ignores: bool = False) -> Callable[..., str]:
    """The first operand if it wins or is NaN, else the second: NumPy's answer on x86 for ties of zeros too.

    Its loop over halves takes the first of equal ones. ``ignores``: the first where the second is NaN instead.
    """

    def build(body: Body, dtype: Dtype, x: str, y: str) -> str:
        relation = floating.replace("t", "e") if dtype.itemsize == 2 else floating
        kind, first = register_type(dtype), _compare(integer, relation)(body, dtype, x, y)
        if dtype.kind == "f":
            odd = y if ignores else x
            first = body.emit(f"or i1 {first}, {body.emit(f'fcmp uno {kind} {odd}, {odd}')}")
        return body.select(first, kind, x, y)

    return build


def _negative(body: Body, dtype: Dtype, x: str) -> str:
    kind = register_type(dtype)
    return body.emit(f"fneg {kind} {x}" if dtype.kind == "f" else f"sub {kind} 0, {x}")


def _absolute(body: Body, dtype: Dtype, x: str) -> str:
    if dtype.kind == "f":
        return body.intrinsic("fabs", dtype, x)
    if dtype.kind != "i":
        return x
    kind = register_type(dtype)
    return body.select(body.emit(f"icmp slt {kind} {x}, 0"), kind, _negative(body, dtype, x), x)


def _sign(body: Body, dtype: Dtype, x: str) -> str:
    kind = register_type(dtype)
    zero, one, minus = ("0.0", "1.0", "-1.0") if dtype.kind == "f" else ("0", "1", "-1")
    result = zero
    if dtype.kind == "f":
        result = body.select(body.emit(f"fcmp uno {kind} {x}, {x}"), kind, x, zero)
    if dtype.kind != "u":
        result = body.select(_compare("lt", "olt")(body, dtype, x, zero), kind, minus, result)
    return body.select(_compare("gt", "ogt")(body, dtype, x, zero), kind, one, result)


def _rounding(name: str) -> Callable[..., str]:
    return lambda body, dtype, x: body.intrinsic(name, dtype, x) if dtype.kind == "f" else x


def _divide(body: Body, dtype: Dtype, x: str, y: str) -> str:
    return body.emit(f"fdiv {register_type(dtype)} {x}, {y}")


def _reciprocal(body: Body, dtype: Dtype, x: str) -> str:
    return body.emit(f"fdiv {register_type(dtype)} 1.0, {x}")


def _multiply(body: Body, dtype: Dtype, x: str, y: str) -> str:
    return _arithmetic("mul", "fmul", "and")(body, dtype, x, y)


def _invert(body: Body, dtype: Dtype, x: str) -> str:
    return body.emit(f"xor {register_type(dtype)} {x}, -1")


def _is_infinite(body: Body, dtype: Dtype, x: str) -> str:
    return body.emit(f"fcmp oeq {register_type(dtype)} {_absolute(body, dtype, x)}, 0x7FF0000000000000")


def _is_finite(body: Body, dtype: Dtype, x: str) -> str:
    return body.emit(f"fcmp one {register_type(dtype)} {_absolute(body, dtype, x)}, 0x7FF0000000000000")


def _is_nan(body: Body, dtype: Dtype, x: str) -> str:
    return body.emit(f"fcmp uno {register_type(dtype)} {x}, {x}")


def _where(body: Body, dtype: Dtype, condition: str, x: str, y: str) -> str:
    return body.select(condition, register_type(dtype), x, y)


def _safe_divisor(body: Body, dtype: Dtype, y: str) -> tuple[str, str, str]:
    """``y`` with the dangerous divisors replaced by one; whether it is zero; whether it is minus one."""
    kind = register_type(dtype)
    zero = body.emit(f"icmp eq {kind} {y}, 0")
    minus = body.emit(f"icmp eq {kind} {y}, -1") if dtype.kind == "i" else "false"
    unsafe = body.emit(f"or i1 {zero}, {minus}")
    return body.select(unsafe, kind, "1", y), zero, minus


def _is_off(body: Body, kind: str, remainder: str, divisor: str) -> str:
    """True where truncation and flooring differ: a remainder of the other sign than the divisor."""
    left = body.emit(f"icmp ne {kind} {remainder}, 0")
    other = body.emit(f"icmp slt {kind} {body.emit(f'xor {kind} {remainder}, {divisor}')}, 0")
    return body.emit(f"and i1 {left}, {other}")


def _floored(body: Body, dtype: Dtype, x: str, y: str) -> str | None:
    """The quotient of a signed integer and a positive number that the text says: ``~(~x // y)`` of what is negative,
    one multiplication."""
    if dtype.kind != "i" or not y.isdigit() or not int(y):
        return None
    kind = register_type(dtype)
    sign = body.emit(f"ashr {kind} {x}, {8 * dtype.itemsize - 1}")
    quotient = body.emit(f"udiv {kind} {body.emit(f'xor {kind} {x}, {sign}')}, {y}")
    return body.emit(f"xor {kind} {quotient}, {sign}")


def _of_floats(body: Body, dtype: Dtype, function: Callable[..., Real], *operands: str) -> str:
    """A function of floats; of halves in single precision, rounded."""
    held = _SINGLE if dtype.itemsize == 2 else dtype
    found = function(*(Real(body, format_of(held), body.cast(each, dtype, held)) for each in operands))
    return body.cast(found.name, held, dtype)


def _by_formula(function: Callable[..., Real]) -> Callable[..., str]:
    return lambda body, dtype, *operands: _of_floats(body, dtype, function, *operands)


def _sign_bit(body: Body, dtype: Dtype, x: str) -> str:
    bits = f"i{8 * dtype.itemsize}"
    return body.emit(f"icmp slt {bits} {body.emit(f'bitcast {register_type(dtype)} {x} to {bits}')}, 0")


def _bitwise_count(body: Body, dtype: Dtype, x: str) -> str:
    kind = register_type(dtype)
    body.intrinsics.add(f"declare {kind} @llvm.ctpop.{kind}({kind})")
    count = body.emit(f"call {kind} @llvm.ctpop.{kind}({kind} {_absolute(body, dtype, x)})")
    return body.cast(count, np.dtype(f"u{dtype.itemsize}"), np.dtype(np.uint8))


def _floor_divide(body: Body, dtype: Dtype, x: str, y: str) -> str:
    if dtype.kind == "f":
        return _of_floats(body, dtype, remainders.floor_divide, x, y)
    kind, floored = register_type(dtype), _floored(body, dtype, x, y)
    if floored is not None:
        return floored
    safe, zero, minus = _safe_divisor(body, dtype, y)
    if dtype.kind == "u":
        return body.select(zero, kind, "0", body.emit(f"udiv {kind} {x}, {safe}"))
    quotient = body.emit(f"sdiv {kind} {x}, {safe}")
    off = _is_off(body, kind, body.emit(f"srem {kind} {x}, {safe}"), safe)
    floored = body.select(off, kind, body.emit(f"sub {kind} {quotient}, 1"), quotient)
    negated = body.select(minus, kind, _negative(body, dtype, x), floored)
    return body.select(zero, kind, "0", negated)


def _remainder(body: Body, dtype: Dtype, x: str, y: str) -> str:
    if dtype.kind == "f":
        return _of_floats(body, dtype, remainders.remainder, x, y)
    kind, floored = register_type(dtype), _floored(body, dtype, x, y)
    if floored is not None:
        return body.emit(f"sub {kind} {x}, {body.emit(f'mul {kind} {floored}, {y}')}")
    safe, zero, _ = _safe_divisor(
        body, dtype, y
    )  # what divides by one leaves nothing: right for zero and minus one too
    if dtype.kind == "u":
        return body.select(zero, kind, "0", body.emit(f"urem {kind} {x}, {safe}"))
    remainder = body.emit(f"srem {kind} {x}, {safe}")
    off = _is_off(body, kind, remainder, safe)
    return body.select(off, kind, body.emit(f"add {kind} {remainder}, {safe}"), remainder)


def _fmod(body: Body, dtype: Dtype, x: str, y: str) -> str:
    """With the sign of the first operand."""
    if dtype.kind == "f":
        return _of_floats(body, dtype, remainders.fmod, x, y)
    kind = register_type(dtype)
    safe, zero, _ = _safe_divisor(body, dtype, y)
    if dtype.kind == "u":
        return body.select(zero, kind, "0", body.emit(f"urem {kind} {x}, {safe}"))
    return body.emit(f"srem {kind} {x}, {safe}")


def _left_shift(body: Body, dtype: Dtype, x: str, y: str) -> str:
    kind, inside, count = _shift_count(body, dtype, y, "0")
    shifted = body.emit(f"shl {kind} {x}, {count}")
    return shifted if inside == "true" else body.select(inside, kind, shifted, "0")


def _right_shift(body: Body, dtype: Dtype, x: str, y: str) -> str:
    """What is shifted out is the sign, for counts beyond the width, too."""
    if dtype.kind == "i":
        kind, _, count = _shift_count(body, dtype, y, str(8 * dtype.itemsize - 1))
        return body.emit(f"ashr {kind} {x}, {count}")
    kind, inside, count = _shift_count(body, dtype, y, "0")
    shifted = body.emit(f"lshr {kind} {x}, {count}")
    return shifted if inside == "true" else body.select(inside, kind, shifted, "0")


def _shift_count(body: Body, dtype: Dtype, y: str, other: str) -> tuple[str, str, str]:
    """The type; is the count below the width, and not negative? and the count, or ``other``: LLVM leaves others
    undefined, NumPy does not."""
    kind, width = register_type(dtype), 8 * dtype.itemsize
    if y.isdigit() and int(y) < width:
        return kind, "true", y
    inside = body.emit(f"icmp ult {kind} {y}, {width}")
    return kind, inside, body.select(inside, kind, y, other)


OPERATIONS: dict[str, Callable[..., str]] = {
    "add": _arithmetic("add", "fadd", "or"),
    "subtract": _arithmetic("sub", "fsub"),
    "multiply": _multiply,
    "divide": _divide,
    "floor_divide": _floor_divide,
    "remainder": _remainder,
    "fmod": _fmod,
    "negative": _negative,
    "positive": lambda body, dtype, x: x,
    "absolute": _absolute,
    "sign": _sign,
    "sqrt": lambda body, dtype, x: body.intrinsic("sqrt", dtype, x),
    "square": lambda body, dtype, x: _multiply(body, dtype, x, x),
    "reciprocal": _reciprocal,
    "floor": _rounding("floor"),
    "ceil": _rounding("ceil"),
    "trunc": _rounding("trunc"),
    "rint": _rounding("rint"),
    "maximum": _extreme("gt", "ogt"),
    "minimum": _extreme("lt", "olt"),
    "fmax": _extreme("gt", "ogt", ignores=True),
    "fmin": _extreme("lt", "olt", ignores=True),
    "fabs": _absolute,
    "signbit": _sign_bit,
    "copysign": _by_formula(Real.with_sign_of),
    "heaviside": _by_formula(neighbours.heaviside),
    "nextafter": _by_formula(neighbours.nextafter),
    "spacing": _by_formula(neighbours.spacing),
    **dict.fromkeys(("deg2rad", "radians"), _by_formula(neighbours.radians)),
    **dict.fromkeys(("rad2deg", "degrees"), _by_formula(neighbours.degrees)),
    "isnan": _is_nan,
    "isinf": _is_infinite,
    "isfinite": _is_finite,
    "equal": _compare("eq", "oeq"),
    "not_equal": _compare("ne", "une"),
    "less": _compare("lt", "olt"),
    "less_equal": _compare("le", "ole"),
    "greater": _compare("gt", "ogt"),
    "greater_equal": _compare("ge", "oge"),
    "logical_and": _arithmetic("and", "", "and"),
    "logical_or": _arithmetic("or", "", "or"),
    "logical_xor": _arithmetic("xor", "", "xor"),
    "logical_not": _invert,
    "bitwise_and": _arithmetic("and", "", "and"),
    "bitwise_or": _arithmetic("or", "", "or"),
    "bitwise_xor": _arithmetic("xor", "", "xor"),
    "invert": _invert,
    "bitwise_count": _bitwise_count,
    "left_shift": _left_shift,
    "right_shift": _right_shift,
    "where": _where,
    "conjugate": lambda body, dtype, x: x,
}
