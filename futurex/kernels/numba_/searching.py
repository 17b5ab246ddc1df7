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
DECLARED = ("declare i64 @llvm.ctlz.i64(i64, i1)",)
"""What the text of a kernel declares that searches."""
HELD = {np.dtype("f4"): "float", np.dtype("f8"): "double", np.dtype("i4"): "i32", np.dtype("i8"): "i64"}
"""Dtypes of tables, and their types in LLVM."""


class Searching:
    """Writes the body of a kernel whose tables hold ``dtype``, and which looks for numbers of ``source``; ``short``:
    the tables are."""

    def __init__(self, dtype: Dtype, source: Dtype, short: bool = False) -> None:
        self.code, self.short = Code(), short
        self.dtype, self.source = dtype, source
        self.element, self.floating, self.align = HELD[dtype], dtype.kind == "f", dtype.itemsize
        self.last_found = [] if short else [self.code.do("alloca i64, align 8") for _ in range(2)]
        for slot, value in zip(self.last_found, ("0", "1"), strict=False):
            self.code.run(f"store i64 {value}, ptr {slot}, align 8")

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
        """By halves of what is left of the table, or of the neighbourhood of what was found last."""
        code, keys = self.code, [self.taken(each) for each in at]
        low, rest, rounds = ("0", "%n", "%rounds") if len(at) == 1 else self._neighbourhood(at, word)
        begun = [("i64", rest), *(("i64", low) for _ in keys)]
        with code.loop("0", rounds, carried=begun) as (_, held):
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
        if len(at) > 1:
            self._remember(found[0][1], found[-1][1])
        return found

    def _neighbourhood(self, at: Sequence[str], word: str) -> tuple[str, str, str]:
        """Where the table may have the numbers, how many entries that are, and how often they are halved: as many on
        both sides of what was found last as lay between those before it, if that is true of all of them."""
        code, lanes = self.code, len(at)
        last, span = (code.do(f"load i64, ptr {slot}, align 8") for slot in self.last_found)
        low = code.most(code.do(f"sub i64 {last}, {span}"), "0")
        high = code.least(code.add(last, span), "%n")
        keys, kind = self.taken(at[0], lanes), self.kind(self.element, lanes)
        operator, bits = word.removesuffix(self.element), f"i{lanes}"
        sides = []
        for place in (code.most(code.do(f"sub i64 {low}, 1"), "0"), code.least(high, code.do("sub i64 %n, 1"))):
            entry = self.spread(self.element, self._entry("%table", place), lanes)
            before = code.do(f"{operator} {kind} {entry}, {keys}")
            sides.append(code.do(f"bitcast {self.kind('i1', lanes)} {before} to {bits}"))
        below = code.do(f"icmp eq {bits} {sides[0]}, -1")
        above = code.do(f"icmp eq {bits} {sides[1]}, 0")
        below = code.do(f"or i1 {below}, {code.do(f'icmp eq i64 {low}, 0')}")
        above = code.do(f"or i1 {above}, {code.do(f'icmp eq i64 {high}, %n')}")
        near = code.do(f"and i1 {below}, {above}")
        entries = code.do(f"sub i64 {high}, {low}")
        empty = code.do(f"call i64 @llvm.ctlz.i64(i64 {code.do(f'sub i64 {entries}, 1')}, i1 false)")
        rounds = code.do(f"sub i64 64, {empty}")
        pairs = ((low, "0"), (entries, "%n"), (rounds, "%rounds"))
        low, entries, rounds = (code.do(f"select i1 {near}, i64 {yes}, i64 {no}") for yes, no in pairs)
        return low, entries, rounds

    def _remember(self, first: str, last: str) -> None:
        """What was found last, and how far from the first one of its neighbours."""
        code = self.code
        apart = code.do(f"sub i64 {last}, {first}")
        apart = code.most(apart, code.do(f"sub i64 0, {apart}"))
        for slot, value in zip(self.last_found, (last, code.add(apart, "2")), strict=True):
            code.run(f"store i64 {value}, ptr {slot}, align 8")

    def _entry(self, table: str, place: str) -> str:
        return self.code.do(f"load {self.element}, ptr {self.code.at(self.element, table, place)}, align {self.align}")

    def lane(self, kind: str, value: str, k: int) -> str:
        """One of these side by side."""
        return self.code.do(f"extractelement {kind} {value}, i64 {k}") if kind.startswith("<") else value
