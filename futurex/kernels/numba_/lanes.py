"""What LLVM's vectoriser does not know: instructions of AVX-512 for exponents, mantissas, ends and tables in a
register, and branches that few vectors take, on all processors.

A generated loop is written for one element. It calls functions of numbers that are only declared, with the functions
of vectors that stand for them (LLVM's ``vector-function-abi-variant``). When the loop's vectors are made, definitions
are linked in, and of the calls only the instructions are left. What each does: Intel, Architectures Software
Developer's Manual, volume 2.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

_BITS = {"float": 32, "i32": 32, "double": 64}
_SUFFIX = {"float": "ps", "double": "pd"}
_WIDTHS = (2, 4, 8, 16)
OFFERS = "fx_offers"
_SELDOM = '!0 = !{!"branch_weights", i32 1, i32 4000}'
"""Of branches: that the first way is hardly taken, and nothing is to be made ready for it on the other one."""
_KNOWN: dict[str, Instruction] = {}


@dataclass(frozen=True)
class Instruction:
    """A function of whole registers: types of its result and operands, LLVM's call, ``%a`` and ``%b`` given, and what
    that calls."""

    name: str
    kinds: tuple[str, ...]
    call: str
    calls: tuple[str, ...]

    @property
    def _lanes(self) -> int:
        return 512 // _BITS[self.kinds[0]]

    def _head(self, width: int, named: str = "") -> str:
        """Result and name, and the types of operands, of the function of so many numbers."""
        result, *operands = (kind if width == 1 else f"<{width} x {kind}>" for kind in self.kinds)
        names = [f"{kind} %{letter}" if named else kind for kind, letter in zip(operands, "abc", strict=False)]
        return f"{result} @{self.name}{'' if width == 1 else f'_{width}'}({', '.join(names)})"

    @property
    def declaration(self) -> str:
        """Of the function of one number, for the loop."""
        letters = "v" * (len(self.kinds) - 1)
        stands = ",".join(f"_ZGV_LLVM_N{n}{letters}_{self.name}({self.name}_{n})" for n in _WIDTHS)
        return (
            f"declare {self._head(1)} memory(none) nounwind willreturn nosync nofree "
            f'"vector-function-abi-variant"="{stands}"'
        )

    def offered(self) -> list[str]:
        """The functions of vectors, declared."""
        return [f"declare {self._head(n)} memory(none) nounwind willreturn nosync nofree" for n in _WIDTHS]

    def defined(self) -> list[str]:
        """All of the functions; fewer numbers are the first of a register, more are two registers."""
        lines = []
        for width in (1, *_WIDTHS):
            body = self._of_one(width) if width == self._lanes else self._of_part(width)
            if width > self._lanes:
                body = self._of_two(width)
            lines += [f"define linkonce_odr {self._head(width, 'named')} alwaysinline {{", *body, "}"]
        return lines

    @property
    def shared(self) -> tuple[str, ...]:
        """A function, line by line, that others define, too."""
        return ()

    def _of_one(self, width: int) -> list[str]:
        return [f"  %r = {self.call}", f"  ret <{width} x {self.kinds[0]}> %r"]

    def _of_part(self, width: int) -> list[str]:
        whole, lines, passed = self._lanes, [], []
        for kind, letter in zip(self.kinds[1:], "ab", strict=False):
            if width == 1:
                lines.append(f"  %{letter}.w = insertelement <{whole} x {kind}> poison, {kind} %{letter}, i64 0")
            else:
                lines.append(_picked(f"%{letter}.w", kind, width, f"%{letter}", [k % width for k in range(whole)]))
            passed.append(f"<{whole} x {kind}> %{letter}.w")
        kind = self.kinds[0]
        lines.append(f"  %r.w = call <{whole} x {kind}> @{self.name}_{whole}({', '.join(passed)})")
        if width == 1:
            return [*lines, f"  %r = extractelement <{whole} x {kind}> %r.w, i64 0", f"  ret {kind} %r"]
        return [*lines, _picked("%r", kind, whole, "%r.w", range(width)), f"  ret <{width} x {kind}> %r"]

    def _of_two(self, width: int) -> list[str]:
        half, lines, kind = self._lanes, [], self.kinds[0]
        for part in range(2):
            passed = []
            for each, letter in zip(self.kinds[1:], "ab", strict=False):
                name = f"%{letter}.{part}"
                lines.append(_picked(name, each, width, f"%{letter}", range(part * half, part * half + half)))
                passed.append(f"<{half} x {each}> {name}")
            lines.append(f"  %r.{part} = call <{half} x {kind}> @{self.name}_{half}({', '.join(passed)})")
        lines.append(_picked("%r", kind, half, "%r.0", range(width), "%r.1"))
        return [*lines, f"  ret <{width} x {kind}> %r"]


def _picked(name: str, kind: str, width: int, source: str, places: Sequence[int], other: str = "poison") -> str:
    at, vector = ", ".join(f"i32 {k}" for k in places), f"<{width} x {kind}>"
    return f"  {name} = shufflevector {vector} {source}, {vector} {other}, <{len(places)} x i32> <{at}>"


def _add(name: str, kinds: tuple[str, ...], intrinsic: str, *passed: str) -> Instruction:
    """An instruction by LLVM's name for it and the operands that are passed, with their types."""
    result = f"<{512 // _BITS[kinds[0]]} x {kinds[0]}>"
    types = ", ".join(each[: each.index(">") + 1] if each[0] == "<" else each.split()[0] for each in passed)
    call = f"call {result} @{intrinsic}({', '.join(passed)})"
    found = _KNOWN[name] = Instruction(name, kinds, call, (f"{result} @{intrinsic}({types})",))
    return found


@dataclass(frozen=True)
class Seldom(Instruction):
    """A function of two numbers and what was made of them: that, or where it is NaN and neither number is, what the
    code ``call`` gives, which is entered for vectors that hold such an element."""

    helper: tuple[str, ...]

    @property
    def shared(self) -> tuple[str, ...]:
        return self.helper

    def defined(self) -> list[str]:
        kind, own = self.kinds[0], f"@{self.name}"
        lines = [
            f"define linkonce_odr {kind} {own}_one({kind} %a, {kind} %b, {kind} %c) noinline cold {{",
            f"  %odd = fcmp uno {kind} %c, %c",
            f"  %given = fcmp ord {kind} %a, %b",
            "  %seldom = and i1 %odd, %given",
            "  br i1 %seldom, label %compute, label %stay",
            "stay:",
            f"  ret {kind} %c",
            "compute:",
            self.call,
            "}",
        ]
        for width in (1, *_WIDTHS):
            whole = kind if width == 1 else f"<{width} x {kind}>"
            passed = ", ".join(f"{whole} %{letter}" for letter in "abc")
            rare = f"{own}_one" if width == 1 else f"{own}_{width}_each"
            lines += [
                f"define linkonce_odr {self._head(width, 'named')} alwaysinline {{",
                "entry:",
                f"  %odd = fcmp uno {whole} %c, %c",
                *self._any(width),
                "  br i1 %any, label %some, label %none, !prof !0",
                "some:",
                f"  %looked = call {whole} {rare}({passed})",
                "  br label %none",
                "none:",
                f"  %r = phi {whole} [ %c, %entry ], [ %looked, %some ]",
                f"  ret {whole} %r",
                "}",
            ]
            if width > 1:
                lines += self._each(width, whole, passed, rare)
        return lines

    def _any(self, width: int) -> list[str]:
        if width == 1:
            return ["  %any = or i1 %odd, false"]
        return [f"  %bits = bitcast <{width} x i1> %odd to i{width}", f"  %any = icmp ne i{width} %bits, 0"]

    def _each(self, width: int, whole: str, passed: str, name: str) -> list[str]:
        kind = self.kinds[0]
        return [
            f"define linkonce_odr {whole} {name}({passed}) noinline cold {{",
            "entry:",
            "  br label %next",
            "next:",
            "  %k = phi i64 [ 0, %entry ], [ %after, %next ]",
            f"  %held = phi {whole} [ %c, %entry ], [ %new, %next ]",
            *(f"  %{letter}.k = extractelement {whole} %{letter}, i64 %k" for letter in "abc"),
            f"  %r = call {kind} @{self.name}_one({', '.join(f'{kind} %{letter}.k' for letter in 'abc')})",
            f"  %new = insertelement {whole} %held, {kind} %r, i64 %k",
            "  %after = add nuw nsw i64 %k, 1",
            f"  %more = icmp ult i64 %after, {width}",
            "  br i1 %more, label %next, label %done",
            "done:",
            f"  ret {whole} %new",
            "}",
        ]


def seldom(name: str, kind: str, code: Sequence[str], shared: Sequence[str], calls: Sequence[str]) -> Seldom:
    """Such a function; ``code`` computes from ``%a`` and ``%b``, calls what is ``shared`` and what both ``calls``."""
    found = Seldom(f"fx_{name}", (kind,) * 4, "\n".join(code), tuple(calls), tuple(shared))
    _KNOWN[found.name] = found
    return found


def _masked(name: str, word: str, kind: str, *passed: str) -> Instruction:
    """One of those with a mask, of which all is set, and with a rounding of their own, which is that of the others."""
    operands = sum("%" in each for each in passed)
    lanes = 512 // _BITS[kind]
    intrinsic = f"llvm.x86.avx512.mask.{word}.{_SUFFIX[kind]}.512"
    every = f"<{lanes} x {kind}> zeroinitializer", f"i{lanes} -1", "i32 4"
    return _add(name, (kind,) * (operands + 1), intrinsic, *passed, *every)


_SINGLE, _DOUBLE = "<16 x float>", "<8 x double>"
EXPONENT = _masked("fx_exponent", "getexp", "float", f"{_SINGLE} %a")
"""As a number; of zero minus infinity, of infinity itself."""
MANTISSA = _masked("fx_mantissa", "getmant", "float", f"{_SINGLE} %a", f"i32 {0b1111}")
"""From 3/4 to 3/2; NaN for numbers below zero, one for zero and infinity."""
SCALED = {
    "float": _masked("fx_scaled_single", "scalef", "float", f"{_SINGLE} %a", f"{_SINGLE} %b"),
    "double": _masked("fx_scaled_double", "scalef", "double", f"{_DOUBLE} %a", f"{_DOUBLE} %b"),
}
"""Times two to the power of a number that is rounded down; all is rounded once."""


def table(name: str, values: Sequence[float]) -> Instruction:
    """Picks one of sixteen numbers of single precision by the last four bits of an integer, of 32 by the last five."""
    registers = [f"<16 x float> <{_listed(values[first : first + 16])}>" for first in range(0, len(values), 16)]
    if len(registers) == 1:
        return _add(f"fx_{name}", ("float", "i32"), "llvm.x86.avx512.permvar.sf.512", *registers, "<16 x i32> %a")
    low, high = registers
    return _add(f"fx_{name}", ("float", "i32"), "llvm.x86.avx512.vpermi2var.ps.512", low, "<16 x i32> %a", high)


def _listed(values: Sequence[float]) -> str:
    singles = struct.unpack("=16f", struct.pack("=16f", *values))
    return ", ".join(f"float 0x{word:016X}" for word in struct.unpack("=16Q", struct.pack("=16d", *singles)))


def used(text: str) -> list[Instruction]:
    """The instructions that a kernel's text declares."""
    return [_KNOWN[name] for name in sorted(set(re.findall(r"^declare \w+ @(fx_\w+)\(", text, re.MULTILINE)))]


def with_offers(text: str, instructions: Sequence[Instruction]) -> str:
    """The kernel's text with all that may stand for its calls, and :data:`OFFERS`, which keeps that until vectors are
    made."""
    names = [f"ptr @{each.name}_{n}" for each in instructions for n in _WIDTHS]
    offered = (line for each in instructions for line in each.offered())
    return "\n".join([text, *offered, f"@{OFFERS} = constant [{len(names)} x ptr] [{', '.join(names)}]", ""])


def definitions(instructions: Sequence[Instruction]) -> str:
    """What is linked in, as a text."""
    declared = dict.fromkeys(f"declare {name}" for each in instructions for name in each.calls)
    shared = dict.fromkeys(each.shared for each in instructions if each.shared)
    defined = (line for each in instructions for line in each.defined())
    helpers = (line for lines in shared for line in lines)
    return "\n".join([*declared, *helpers, *defined, *([_SELDOM] if shared else [])])
