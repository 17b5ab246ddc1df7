"""Floating-point values in generated code, with Python's operators: formulas are written as on paper.

Every operator is one rounding; a fused multiply-add is one where the formula says ``fma``. Comparisons give booleans
for ``choose``: there are no branches, so that LLVM's vectoriser takes the loop around.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.numba_.compiler import has_scale
from futurex.kernels.numba_.lanes import EXPONENT, MANTISSA, SCALED, Instruction

if TYPE_CHECKING:
    from futurex.kernels.numba_.scalar import Body

Dtype = np.dtype[Any]


@dataclass(frozen=True)
class Format:
    """One IEEE format: its IR types and what algorithms ask about it."""

    kind: str
    bits: str
    width: int
    digits: int  # of the significand, the hidden one included
    bias: int

    @property
    def magic(self) -> float:
        """Added to a number of less than ``digits - 2`` bits, it leaves its nearest integer in the low bits."""
        return 1.5 * 2.0 ** (self.digits - 1)

    @property
    def magic_bits(self) -> int:
        return 0x4B400000 if self.width == 32 else 0x4338000000000000

    @property
    def fraction(self) -> int:
        return self.digits - 1


FLOAT = Format("float", "i32", 32, 24, 127)
DOUBLE = Format("double", "i64", 64, 53, 1023)


def format_of(dtype: Dtype) -> Format:
    return FLOAT if dtype.itemsize == 4 else DOUBLE


@dataclass(frozen=True)
class Real:
    """A register of type float or double."""

    body: Body
    format: Format
    name: str

    def literal(self, value: float) -> str:
        """A constant of this format, exact to the last bit."""
        held = np.float32(value) if self.format is FLOAT else np.float64(value)
        return f"0x{struct.unpack('<Q', struct.pack('<d', float(held)))[0]:016X}"

    def const(self, value: float) -> Real:
        return Real(self.body, self.format, self.literal(value))

    def by_library(self, name: str) -> Real:
        """The function of C's library of this name."""
        return Real(self.body, self.format, self.body.library(name, self.format.kind, self.name))

    def _name(self, other: Real | float) -> str:
        return other.name if isinstance(other, Real) else self.literal(other)

    def _made(self, instruction: str) -> Real:
        return Real(self.body, self.format, self.body.emit(instruction))

    def _binary(self, word: str, x: str, y: str) -> Real:
        return self._made(f"{word} {self.format.kind} {x}, {y}")

    def __add__(self, other: Real | float) -> Real:
        return self._binary("fadd", self.name, self._name(other))

    def __sub__(self, other: Real | float) -> Real:
        return self._binary("fsub", self.name, self._name(other))

    def __rsub__(self, other: float) -> Real:
        return self._binary("fsub", self._name(other), self.name)

    def __mul__(self, other: Real | float) -> Real:
        return self._binary("fmul", self.name, self._name(other))

    def __truediv__(self, other: Real | float) -> Real:
        return self._binary("fdiv", self.name, self._name(other))

    def __rtruediv__(self, other: float) -> Real:
        return self._binary("fdiv", self._name(other), self.name)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Real:
        return self._made(f"fneg {self.format.kind} {self.name}")

    def __abs__(self) -> Real:
        return self._call("fabs", self.name)

    def _call(self, name: str, *operands: str) -> Real:
        kind = self.format.kind
        function = f"@llvm.{name}.f{self.format.width}"
        self.body.intrinsics.add(f"declare {kind} {function}({', '.join([kind] * len(operands))})")
        return self._made(f"call {kind} {function}({', '.join(f'{kind} {each}' for each in operands)})")

    def fma(self, factor: Real | float, term: Real | float) -> Real:
        """``self * factor + term`` in one rounding."""
        return self._call("fma", self.name, self._name(factor), self._name(term))

    def root(self) -> Real:
        return self._call("sqrt", self.name)

    def rounded(self) -> Real:
        """The nearest integer, of two the even one."""
        return self._call("rint", self.name)

    def floored(self) -> Real:
        """The next lower integer."""
        return self._call("floor", self.name)

    def truncated(self) -> Real:
        """The next integer towards zero."""
        return self._call("trunc", self.name)

    def with_sign_of(self, other: Real) -> Real:
        return self._call("copysign", self.name, other.name)

    def compare(self, relation: str, other: Real | float) -> str:
        """A boolean; ``relation`` is LLVM's word for it (``olt``: less, and neither is NaN)."""
        return self.body.emit(f"fcmp {relation} {self.format.kind} {self.name}, {self._name(other)}")

    def choose(self, condition: str, otherwise: Real | float) -> Real:
        """``self`` where the condition holds."""
        kind = self.format.kind
        return self._made(f"select i1 {condition}, {kind} {self.name}, {kind} {self._name(otherwise)}")

    def at_most(self, limit: float) -> Real:
        """The smaller of both; NaN stays."""
        return self.const(limit).choose(self.compare("ogt", limit), self)

    def at_least(self, limit: float) -> Real:
        """The larger of both; NaN stays."""
        return self.const(limit).choose(self.compare("olt", limit), self)

    def polynomial(self, *coefficients: float) -> Real:
        """The constant term first: the first two by Horner's scheme, which rounds best, the others in pairs.

        Pairs (G. Estrin, 1960) wait for one another half as often, and a loop of such chains is bound by their length.
        """
        last = self.in_pairs(*coefficients[2:]) if len(coefficients) > 2 else None
        for each in reversed(coefficients[:2]):
            last = self.const(each) if last is None else last.fma(self, each)
        assert last is not None
        return last

    def in_pairs(self, *coefficients: float) -> Real:
        """The polynomial all in pairs: for those whose rounding does not count."""
        return self._paired([self.const(each) for each in coefficients])

    def _paired(self, terms: list[Real]) -> Real:
        if len(terms) <= 2:
            return terms[0] if len(terms) == 1 else terms[1].fma(self, terms[0])
        pairs = [self._paired(terms[k : k + 2]) for k in range(0, len(terms), 2)]
        return (self * self)._paired(pairs)

    @property
    def has_lanes(self) -> bool:
        """Has the processor the instructions of :mod:`.lanes`, which the next three are, two in single precision?"""
        return has_scale()

    def exponent(self) -> Real:
        """Of a number of either sign, subnormal ones included; of zero minus infinity, of infinity itself."""
        return self._done(EXPONENT)

    def mantissa(self) -> Real:
        """From 3/4 to 3/2: NaN for numbers below zero, one for zero and infinity."""
        return self._done(MANTISSA)

    def scaled(self, n: Real) -> Real:
        """Times two to the power of n, rounded down to an integer; all is rounded once."""
        return self._done(SCALED[self.format.kind], n)

    def _done(self, instruction: Instruction, *others: Real) -> Real:
        return Real(self.body, self.format, called(self.body, instruction, self.name, *(each.name for each in others)))

    def as_bits(self) -> Bits:
        held = self.body.emit(f"bitcast {self.format.kind} {self.name} to {self.format.bits}")
        return Bits(self.body, self.format, held)

    def nearest(self, factor: float) -> tuple[Real, Bits]:
        """The nearest integer to a small number times a factor, as a float and as an integer."""
        shifted = self.fma(factor, self.format.magic)
        return shifted - self.format.magic, shifted.as_bits().op("sub", self.format.magic_bits)


def wide(x: Real) -> Real:
    """A number of single precision as a double."""
    return Real(x.body, DOUBLE, x.body.emit(f"fpext float {x.name} to double"))


def narrow(x: Real) -> Real:
    """A double rounded to single precision."""
    return Real(x.body, FLOAT, x.body.emit(f"fptrunc double {x.name} to float"))


@dataclass(frozen=True)
class Bits:
    """An integer register as wide as a format's numbers."""

    body: Body
    format: Format
    name: str

    def op(self, word: str, other: Bits | int) -> Bits:
        name = other.name if isinstance(other, Bits) else str(other)
        return Bits(self.body, self.format, self.body.emit(f"{word} {self.format.bits} {self.name}, {name}"))

    def compare(self, relation: str, other: int) -> str:
        return self.body.emit(f"icmp {relation} {self.format.bits} {self.name}, {other}")

    def as_real(self) -> Real:
        held = self.body.emit(f"bitcast {self.format.bits} {self.name} to {self.format.kind}")
        return Real(self.body, self.format, held)

    def __neg__(self) -> Bits:
        return Bits(self.body, self.format, self.body.emit(f"sub {self.format.bits} 0, {self.name}"))

    def scale(self, x: Real) -> Real:
        """x times two to the power of this small signed integer, rounded once.

        Without an instruction for that, in two steps: neither leaves the normal numbers before the last rounding.
        """
        if has_scale():
            name = self.name if self.format.width == 32 else self.body.emit(f"trunc i64 {self.name} to i32")
            kind, function = self.format.kind, f"@llvm.ldexp.f{self.format.width}.i32"
            self.body.intrinsics.add(f"declare {kind} {function}({kind}, i32)")
            return Real(self.body, self.format, self.body.emit(f"call {kind} {function}({kind} {x.name}, i32 {name})"))
        offset = 4096
        counted = self.op("add", offset)
        half = counted.op("lshr", 1)
        rest = counted.op("sub", half)
        first, second = (each.op("sub", offset // 2).power_of_two() for each in (half, rest))
        return x * first * second

    def lower(self, x: Real) -> Real:
        """:meth:`scale` of x between 1/2 and 2 by at most 100, or 900 in double precision: one step is two to a power
        that is as much larger as makes it normal, the other takes that back, and rounds."""
        if has_scale():
            return self.scale(x)
        lifted = self.format.digits + 4
        return x * self.op("add", lifted).power_of_two() * 2.0**-lifted

    def pick(self, table: Instruction) -> Real:
        """The number of a table in a register that the last four bits say."""
        return Real(self.body, self.format, called(self.body, table, self.name))

    def polynomial(self, tables: Sequence[Instruction], x: Real) -> Real:
        """The polynomial in x whose terms are picked, the constant first."""
        *terms, value = (self.pick(each) for each in tables)
        for each in reversed(terms):
            value = value.fma(x, each)
        return value

    def power_of_two(self) -> Real:
        """Two to the power of the low bits, which must give a normal number."""
        return self.op("add", self.format.bias).op("shl", self.format.fraction).as_real()

    def to_real(self) -> Real:
        """A small signed integer as a float."""
        if self.format.width == 32:
            return Real(self.body, self.format, self.body.emit(f"sitofp i32 {self.name} to float"))
        # which is an instruction of few processors for 64 bits
        return self.op("add", self.format.magic_bits).as_real() - self.format.magic


def called(body: Body, instruction: Instruction, *operands: str) -> str:
    """The register of what an instruction gives."""
    body.intrinsics.add(instruction.declaration)
    result, *kinds = instruction.kinds
    passed = ", ".join(f"{kind} {each}" for kind, each in zip(kinds, operands, strict=True))
    return body.emit(f"call {result} @{instruction.name}({passed})")
