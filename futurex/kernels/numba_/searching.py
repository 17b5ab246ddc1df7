"""What kernels of searches are written with: numbers looked for side by side, in whole tables or by halves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from futurex.kernels.numba_.code import Code

Dtype = np.dtype[Any]

ABREAST = 16
"""Numbers that are looked for side by side."""
TABLES = 4
"""Counts that lie apart, so that equal neighbours do not wait for each other."""
HELD = {np.dtype("f4"): "float", np.dtype("f8"): "double", np.dtype("i4"): "i32", np.dtype("i8"): "i64"}
"""Dtypes of tables, and their types in LLVM."""


class Searching:
    """Writes the body of a kernel whose tables hold ``dtype``, and which looks for numbers of ``source``; ``short``:
    the tables are."""

    def __init__(self, dtype: Dtype, source: Dtype, short: bool = False) -> None:
        self.code, self.short = Code(), short
        self.dtype, self.source = dtype, source
        self.element, self.floating, self.align = HELD[dtype], dtype.kind == "f", dtype.itemsize

    def side_by_side(self, body: Callable[[list[str]], None]) -> None:
        """The body for so many places at a time, and for each that is left."""
        code = self.code
        count = code.do("sub i64 %high, %low")
        whole = code.add("%low", code.do(f"and i64 {count}, -{ABREAST}"))
        with code.loop("%low", whole, str(ABREAST)) as (place, _):
            body([code.add(place, str(k)) for k in range(ABREAST)])
        with code.loop(whole, "%high") as (place, _):
            body([place])

    def kind(self, element: str, lanes: int) -> str:
        """The type of so many of these side by side."""
        return f"<{lanes} x {element}>" if lanes > 1 else element

    def spread(self, element: str, value: str, lanes: int) -> str:
        """The same in all lanes."""
        return self.code.spread(self.kind(element, lanes), value)

    def taken(self, place: str, lanes: int = 1) -> str:
        """A number, or neighbours from there on, as the table has them."""
        code, source, size = self.code, self.source, self.source.itemsize
        element = HELD[source] if source.kind == "f" else f"i{8 * size}"
        kind, held = self.kind(element, lanes), self.kind(self.element, lanes)
        value = code.do(f"load {kind}, ptr {code.at(element, '%x', place)}, align {size}")
        if source == self.dtype:
            return value
        sign = "u" if source.kind == "u" else "s"
        word = "fpext" if source.kind == "f" else f"{sign}itofp" if self.floating else {"u": "zext", "s": "sext"}[sign]
        return code.do(f"{word} {kind} {value} to {held}")

    def count(self, slot: str, k: int) -> None:
        """One more in this slot of the ticket's tables, for the k-th of neighbours."""
        code = self.code
        table = code.add(code.multiply("%ticket", str(TABLES)), str(k % TABLES))
        at = code.at("i64", "%tables", code.add(code.multiply(table, "%slots"), slot))
        code.run(f"store i64 {code.add(code.do(f'load i64, ptr {at}, align 8'), '1')}, ptr {at}, align 8")

    def searched(self, at: Sequence[str], left: bool) -> list[tuple[str, str]]:
        """The numbers, each with how many entries of the table are smaller, or not larger; none, where it is none."""
        word = f"{'fcmp o' if self.floating else 'icmp s'}{'lt' if left else 'le'}"
        return self._compared(at, word) if self.short else self._halved(at, f"{word} {self.element}")

    def _compared(self, at: Sequence[str], word: str) -> list[tuple[str, str]]:
        """By a look at all entries, at each for all of the numbers."""
        code, lanes, index = self.code, len(at), f"i{8 * self.align}"
        kind, places, truth = (self.kind(each, lanes) for each in (self.element, index, "i1"))
        keys = self.taken(at[0], lanes)
        with code.loop("0", "%n", carried=[(places, "zeroinitializer" if lanes > 1 else "0")]) as (number, held):
            entry = self.spread(self.element, self._entry("%table", number), lanes)
            before = code.do(f"{word} {kind} {entry}, {keys}")
            held[0] = code.do(f"sub {places} {held[0]}, {code.do(f'sext {truth} {before} to {places}')}")
        pairs = [(self.lane(kind, keys, k), self.lane(places, held[0], k)) for k in range(lanes)]
        return pairs if index == "i64" else [(key, code.do(f"zext {index} {found} to i64")) for key, found in pairs]

    def _halved(self, at: Sequence[str], word: str) -> list[tuple[str, str]]:
        """By halves of what is left of the table."""
        code, keys = self.code, [self.taken(each) for each in at]
        begun = [("i64", "%n"), *(("i64", "0") for _ in keys)]
        with code.loop("0", "%rounds", carried=begun) as (_, held):
            rest, *places = held
            half = code.do(f"lshr i64 {rest}, 1")
            middle = code.at(self.element, "%table", code.do(f"sub i64 {half}, 1"))
            for k, (place, key) in enumerate(zip(places, keys, strict=True), 1):
                before = code.do(f"{word} {self._entry(middle, place)}, {key}")
                # hidden: LLVM would make a branch of it, which is guessed
                mask = code.hidden("i64", code.do(f"sext i1 {before} to i64"))
                held[k] = code.add(place, code.do(f"and i64 {mask}, {half}"))
            held[0] = code.do(f"sub i64 {rest}, {half}")
        found = []
        for place, key in zip(held[1:], keys, strict=True):
            before = code.do(f"{word} {self._entry('%table', place)}, {key}")
            found.append((key, code.add(place, code.do(f"zext i1 {before} to i64"))))
        return found

    def _entry(self, table: str, place: str) -> str:
        return self.code.do(f"load {self.element}, ptr {self.code.at(self.element, table, place)}, align {self.align}")

    def lane(self, kind: str, value: str, k: int) -> str:
        """One of these side by side."""
        return self.code.do(f"extractelement {kind} {value}, i64 {k}") if kind.startswith("<") else value
