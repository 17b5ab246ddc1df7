"""LLVM IR written by hand: instructions, counted loops, and the entry that gives each thread its share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

Do = Callable[[str], str]
"""Writes an instruction, and gives the register of its result."""
ENTRY = "define void @region(ptr %block, i64 %t, i64 %c)"
"""Every kernel's: with its block, and which ticket of how many it is to do (:mod:`futurex.kernels.numba_.team`)."""
WRITTEN_OUT = "; vectors and rounds are written out as they are to be\n"
"""How the text of a module begins in which LLVM has no loops to vectorise or to unroll: it takes half the time."""


class Code:
    """The body of one function; loops nest as ``with`` blocks. ``number``: of the function, for its notes."""

    def __init__(self, number: int = 0) -> None:
        self.lines: list[str] = ["entry:"]
        self._count = 0
        self._block = "entry"
        self.notes: list[str] = []
        self._first_note = 1000 * number

    def name(self) -> str:
        """A fresh register."""
        self._count += 1
        return f"%v{self._count}"

    def do(self, text: str) -> str:
        """An instruction with a result; returns its register."""
        register = self.name()
        self.lines.append(f"  {register} = {text}")
        return register

    def run(self, text: str) -> None:
        """An instruction without a result."""
        self.lines.append(f"  {text}")

    def at(self, kind: str, pointer: str, offset: str) -> str:
        """The address of element ``offset`` behind a pointer to elements of type ``kind``."""
        return self.do(f"getelementptr inbounds {kind}, ptr {pointer}, i64 {offset}")

    def add(self, *terms: str) -> str:
        """A sum of 64-bit integers."""
        total = terms[0]
        for term in terms[1:]:
            total = self.do(f"add nsw i64 {total}, {term}")
        return total

    def multiply(self, first: str, second: str) -> str:
        """A product of 64-bit integers."""
        return self.do(f"mul nsw i64 {first}, {second}")

    def least(self, first: str, second: str) -> str:
        """The smaller of two signed 64-bit integers."""
        return least(self.do, first, second)

    def most(self, first: str, second: str) -> str:
        """The larger of two signed 64-bit integers."""
        return self.do(f"select i1 {self.do(f'icmp sgt i64 {first}, {second}')}, i64 {first}, i64 {second}")

    def spread(self, kind: str, value: str) -> str:
        """A value in every lane of a vector; of a type that is none, itself."""
        return spread(self.do, kind, value) if kind.startswith("<") else value

    def beside(self, kind: str, values: Sequence[str]) -> str:
        """Values as the lanes of a vector; the one value for a type that is none."""
        if not kind.startswith("<"):
            return values[0]
        element, held = kind[1:-1].split(" x ")[1], "poison"
        for lane, value in enumerate(values):
            held = self.do(f"insertelement {kind} {held}, {element} {value}, i64 {lane}")
        return held

    def hidden(self, kind: str, value: str) -> str:
        """A value of which LLVM does not see where it comes from."""
        return self.do(f'call {kind} asm "", "=r,0"({kind} {value})')

    def label(self, name: str) -> None:
        """Where a branch that is written by hand leads."""
        self._start(name)

    def insert(self, lines: Sequence[str]) -> None:
        """Lines that end with a label, where the code goes on."""
        self.lines += lines[:-1]
        self._start(lines[-1].removesuffix(":"))

    @contextlib.contextmanager
    def loop(
        self, low: str, high: str, step: str = "1", carried: Sequence[tuple[str, str]] = (), lanes: int = 0,
        abreast: int = 1, hidden: bool = False,
    ) -> Iterator[tuple[str, list[str]]]:
        """``for i in range(low, high, step)`` with ``step`` above zero; ``lanes``: rounds that are to be one vector,
        and so many of these ``abreast``, whose instructions stand side by side; ``hidden``: LLVM does not see how the
        counter goes on. Otherwise it looks for the best way to count for each of the addresses in a loop, which takes
        it as long as all else where these are many.

        Gives the counter and a list of the carried values, ``(type, first)`` each; the body replaces the list's
        elements by their next values, and after the loop they are the last ones.
        """
        self._count += 1
        number, before = self._count, self._block
        counter = f"%i{number}"
        held = [f"%c{number}.{k}" for k in range(len(carried))]
        values = list(held)
        head = len(self.lines)
        self._start(f"body{number}")
        yield counter, values
        after = self.add(counter, step)
        if hidden:
            after = self.hidden("i64", after)
        self.run(f"br label %head{number}{self._note(lanes, abreast) if lanes else ''}")
        phis = [("i64", counter, low, after)]
        phis += [(kind, name, first, last) for (kind, first), name, last in zip(carried, held, values, strict=True)]
        self.lines[head:head] = [
            f"  br label %head{number}",
            f"head{number}:",
            *(f"  {name} = phi {kind} [ {a}, %{before} ], [ {b}, %{self._block} ]" for kind, name, a, b in phis),
            f"  %go{number} = icmp slt i64 {counter}, {high}",
            f"  br i1 %go{number}, label %body{number}, label %done{number}",
        ]
        self._start(f"done{number}")
        values[:] = held

    def _note(self, lanes: int, abreast: int) -> str:
        """What the vectoriser is told: left alone, it unrolls a short loop before it makes vectors."""
        words = [
            '"llvm.loop.vectorize.enable", i1 true', f'"llvm.loop.vectorize.width", i32 {lanes}',
            f'"llvm.loop.interleave.count", i32 {abreast}', '"llvm.loop.unroll.disable"',
        ]  # fmt: skip
        mark, lines = loop_note(self._first_note + len(self.notes), *words)
        self.notes += lines
        return mark

    def _start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self._block = label


def least(do: Do, first: str, second: str) -> str:
    """The lesser of two numbers; ``do`` writes an instruction."""
    return do(f"select i1 {do(f'icmp slt i64 {first}, {second}')}, i64 {first}, i64 {second}")


def spread(do: Do, vector: str, value: str) -> str:
    """A value in every lane; ``do`` writes an instruction."""
    lanes, element = vector[1:-1].split(" x ")
    one = do(f"insertelement {vector} poison, {element} {value}, i64 0")
    return do(f"shufflevector {vector} {one}, {vector} poison, <{lanes} x i32> zeroinitializer")


def loop_note(first: int, *words: str) -> tuple[str, list[str]]:
    """What the branch back to a loop's head ends with, and what it names, numbered from ``first`` on: LLVM is told
    these words of the loop."""
    ids = ", ".join(f"!{first + k}" for k in range(len(words) + 1))
    named = [f"!{first + k} = !{{!{word}}}" for k, word in enumerate(words, 1)]
    return f", !llvm.loop !{first}", [f"!{first} = distinct !{{{ids}}}", *named]


def module(
    parameters: Sequence[tuple[str, str]], code: Code, threaded: bool, declarations: Sequence[str] = (),
    before: Code | None = None,
) -> str:  # fmt: skip
    """A module with the kernel :data:`ENTRY`, whose body ``code`` runs from ``%low`` to ``%high`` for ``%ticket``;
    ``before``: another body, which runs before it and returns the round from which on it is to run.

    The block holds the parameters in slots of eight bytes; the first one is the extent that threads share.
    """
    lines = list(declarations)
    shown = ", ".join(f"{'ptr noalias' if kind == 'ptr' else kind} %{name}" for kind, name in parameters)
    lines.append(f"define internal void @part(i64 %low, i64 %high, i64 %ticket, {shown}) noinline {{")
    lines += [*code.lines, "  ret void", "}"]
    if before is not None:
        lines.append(f"define internal i64 @before(i64 %low, i64 %high, i64 %ticket, {shown}) noinline {{")
        lines += [*before.lines, "}"]
    lines += [f"{ENTRY} {{", "entry:"]
    for slot, (kind, name) in enumerate(parameters):
        lines.append(f"  %{name}.at = getelementptr i64, ptr %block, i64 {slot}")
        lines.append(f"  %{name} = load {kind}, ptr %{name}.at, align 8")
    extent, low, high = f"%{parameters[0][1]}", "0", f"%{parameters[0][1]}"
    if threaded:
        lines += share(extent)
        low, high = "%low", "%high"
    passed = ", ".join(f"{kind} %{name}" for kind, name in parameters)
    if before is not None:
        lines.append(f"  %begun = call i64 @before(i64 {low}, i64 {high}, i64 %t, {passed})")
        low = "%begun"
    lines += [f"  call void @part(i64 {low}, i64 {high}, i64 %t, {passed})", "  ret void", "}", *code.notes]
    return "\n".join(lines) + "\n"


def in_half_vectors(text: str) -> str:
    """The same module, whose work is done with vectors of 32 bytes, each in two parts if they are longer."""
    return text.replace(" noinline {", ' noinline "prefer-vector-width"="256" "min-legal-vector-width"="256" {', 1)


def share(extent: str, unit: int = 1) -> list[str]:
    """The part from %low to %high of ``extent`` rounds that is this ticket's; parts begin at multiples of ``unit``, a
    power of two."""
    own = [
        "  %t1 = add i64 %t, 1",
        f"  %lowc = mul i64 {extent}, %t",
        f"  %highc = mul i64 {extent}, %t1",
    ]
    if unit == 1:
        return [*own, "  %low = sdiv i64 %lowc, %c", "  %high = sdiv i64 %highc, %c"]
    return [
        *own,
        "  %lows = sdiv i64 %lowc, %c",
        "  %highs = sdiv i64 %highc, %c",
        f"  %low = and i64 %lows, -{unit}",
        f"  %begun = and i64 %highs, -{unit}",
        "  %final = icmp eq i64 %t1, %c",
        f"  %high = select i1 %final, i64 {extent}, i64 %begun",
    ]
