"""Compiled running sums, products and extremes, and places of extremes, along any axis, with NumPy's bits and its rules
for NaN and zeros.

An array is rows (the axis is the last one) or columns. As many rows as a vector has elements are worked on at a time,
in squares of registers that are turned, so that one addition is of all these rows; columns are vectors, a range of them
whose totals stay in the nearest cache.
The order along the axis is NumPy's; the threads share what lies across it. What a sum converts first, it converts as it
reads it. Running extremes of a row are those of each vector, which do not wait for each other, and of all before it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.kernels.numba_ import compiler, nearest, pairwise, past
from futurex.kernels.numba_.channels import VECTOR, Writer, Written, splat, threads_for
from futurex.kernels.numba_.code import Code, module
from futurex.kernels.numba_.squares import turned
from futurex.kernels.threads import may_share
from futurex.tree.node import Node

Dtype = np.dtype[Any]

FEWEST_ELEMENTS = 4 * 1024
"""Smaller arrays stay with NumPy."""
_ROWS = 8
"""Rows that are added up at once where they fill no square, since an addition waits for the one before it."""
_CHAINS = 4
"""Vectors of a row that do not wait for each other."""
ROW_BLOCK = 4096
"""Elements of a row whose best one is looked for again, while they lie in the nearest cache."""
_NEXT, _SENT = 256, 256
"""Bytes ahead in each row of a square that are asked for; of each row that are sent past the caches at once."""
TILE = 1024
"""Columns of one task at most."""
SHORT = 64
"""Elements of a row below which as many rows as a vector holds are looked through at once."""
_TYPES = {
    np.dtype("f4"): ("float", "i32"), np.dtype("f8"): ("double", "i64"),
    np.dtype("i4"): ("i32", "i32"), np.dtype("i8"): ("i64", "i64"),
}  # fmt: skip
_TOTALS = _TYPES | {np.dtype("u8"): ("i64", "i64")}
_WORDS = {("add", "f"): "fadd", ("add", "i"): "add", ("multiply", "f"): "fmul", ("multiply", "i"): "mul"}
_EXTREMES = ("maximum", "minimum")
_MOST_PLACES = 2**31


def claim(node: Node, threads: int) -> Written | None:
    """The kernel of ``cumsum``, ``accumulate``, ``argmax`` or ``argmin``; None for what is not compiled."""
    source, axis = node.inputs[0], node.attrs["axis"]
    if not node.is_static or source.aval.weak or source.size < FEWEST_ELEMENTS:
        return None
    outer, count, inner = math.prod(source.shape[:axis]), source.shape[axis], math.prod(source.shape[axis + 1 :])
    place = node.op in ("argmax", "argmin")
    if count < 2 or count >= _MOST_PLACES:
        return None
    lanes = VECTOR // source.dtype.itemsize
    abreast = place and inner == 1 and count < SHORT and outer >= lanes and compiler.has_scale()
    if place:
        if source.dtype not in _TYPES or outer * inner < _ROWS or (inner == 1 and count < lanes and not abreast):
            return None
        what, held = node.op, source.dtype
    else:
        what, held = node.attrs.get("ufunc", "add"), node.dtype
        if (inner != 1 and outer * inner < _ROWS) or not _adds_up(node, what, source.dtype):
            return None
    # rows that begin a page apart have one place in the nearest cache together, a small one no room for whole squares
    register = VECTOR if compiler.has_scale() and not nearest.small() else VECTOR // 2
    threads, aside = threads_for(node, threads), not place and inner == 1 and past.outgrows([node], [source])
    if inner == 1:
        together = register // held.itemsize
        alone = what in _EXTREMES or (place and not abreast)
        geometry: tuple[int, ...] = (outer if alone else -(-outer // together), count, outer)
    else:
        tile = min(TILE, -(-inner // (16 * max(1, threads // outer))) * 16)
        geometry = (outer * -(-inner // tile), count, inner, tile, -(-inner // tile))
    chains = _CHAINS if not place or count >= _CHAINS * lanes else 1
    short, threaded = count if abreast else 0, may_share()
    text = _text(what, held, source.dtype, inner == 1, chains, register, short, aside, threaded)
    return Written(node, min(threads, geometry[0]), text, geometry)


def _adds_up(node: Node, what: str, source: Dtype) -> bool:
    """Is there a loop for totals of these dtypes? NumPy adds up what it has converted, as the kernel does."""
    dtype, kind = node.dtype, node.dtype.kind.replace("u", "i")
    asked = {node.attrs.get(name) or dtype for name in ("dtype", "out")}
    known = what in _EXTREMES or (what, kind) in _WORDS
    if asked != {dtype} or dtype not in _TOTALS or not known or not source.isnative:
        return False
    if what == "multiply" and source.kind == "b":
        return False
    wider = source.kind in "biu" if kind == "i" else source == np.dtype("f4")
    return source == dtype or (wider and source.itemsize < dtype.itemsize)


@functools.cache
def _text(
    what: str, dtype: Dtype, source: Dtype, rows: bool, chains: int, register: int, short: int, aside: bool,
    threaded: bool,
) -> str:  # fmt: skip
    """``register``: bytes of one; ``short``: elements of short rows whose places are looked for, else 0; ``aside``:
    totals of rows go past the caches."""
    writer = _Writer(dtype, source, chains, register, aside, short)
    if what in ("argmax", "argmin"):
        of_rows = writer.short_row_places if short else writer.row_places
        body: Callable[[str], None] = of_rows if rows else writer.column_places
    elif what in _EXTREMES:
        body = writer.row_extremes if rows else writer.column_totals
    else:
        body, what = (writer.row_totals if rows else writer.column_totals), _WORDS[what, dtype.kind.replace("u", "i")]
    body(what)
    numbers = ("tasks", "n", "rows") if rows else ("tasks", "n", "columns", "tile", "tiles")
    parameters = [*(("i64", name) for name in numbers), ("ptr", "y"), ("ptr", "x")]
    return module(parameters, writer.code, threaded, sorted(writer.declared))


class _Writer(Writer):
    def __init__(self, dtype: Dtype, source: Dtype, chains: int, register: int, aside: bool, short: int) -> None:
        self.code, self.aside, self.count = Code(), aside, short
        self.source, self.converts = source, source != dtype
        self.chains = chains
        self.floating, self.sign = dtype.kind == "f", "u" if dtype.kind == "u" else "s"
        self.side = register // dtype.itemsize
        self.element, self.index = _TOTALS[dtype]
        self.align, self.lanes, self.vectors = dtype.itemsize, VECTOR // dtype.itemsize, 4
        self.read = self.element if not self.converts else "float" if self.floating else f"i{8 * source.itemsize}"
        self.declared: set[str] = set()

    def taken(self, vectors: int, at: str) -> list[str]:
        """Elements of the operand as the totals' dtype."""
        if not self.converts:
            return self.load(vectors, "%x", at)
        element = self.read
        word = "fpext" if self.floating else "sext" if self.source.kind == "i" else "zext"
        kind, wide, found = self.kind(vectors, element), self.kind(vectors), []
        for k in range(max(vectors, 1)):
            place = self.code.at(element, "%x", self.code.add(at, str(k * self.lanes)) if k else at)
            narrow = self.code.do(f"load {kind}, ptr {place}, align {self.source.itemsize}")
            found.append(self.code.do(f"{word} {kind} {narrow} to {wide}"))
        return found

    def joined(self, word: str, kind: str, total: str, value: str) -> str:
        """One more element of what an instruction, or an extreme, makes of all."""
        code = self.code
        if word not in _EXTREMES:
            return code.do(f"{word} {kind} {total}, {value}")
        truth, relation = _truth(kind), "gt" if word == "maximum" else "lt"
        compared = f"fcmp o{relation}" if self.floating else f"icmp {self.sign}{relation}"
        wins = code.do(f"{compared} {kind} {total}, {value}")
        if self.floating:
            wins = code.do(f"or {truth} {wins}, {self._odd(kind, total)}")
        return code.do(f"select {truth} {wins}, {kind} {total}, {kind} {value}")

    # -- running totals ----------------------------------------------------------------------------------------------

    def row_totals(self, word: str) -> None:
        """Each row's totals; the rows of a task side by side."""
        code, self.lanes = self.code, self.side
        for k in range(self.side if self.aside else 0):
            code.run(f"%sent{k} = alloca [{_SENT} x i8], align {VECTOR}")
        with code.loop("%low", "%high") as (task, _):
            first = code.multiply(task, str(self.side))
            last = code.least(code.add(first, str(self.side)), "%rows")
            whole = code.do(f"icmp eq i64 {code.do(f'sub i64 {last}, {first}')}, {self.side}")
            with code.loop("0", code.do(f"zext i1 {whole} to i64")):
                self._in_squares(word, [code.add(first, str(k)) for k in range(self.side)])
            first = code.do(f"select i1 {whole}, i64 {last}, i64 {first}")
            rest = code.do(f"srem i64 {code.do(f'sub i64 {last}, {first}')}, {_ROWS}")
            alone = code.do(f"sub i64 {last}, {rest}")
            with code.loop(first, alone, str(_ROWS)) as (row, _):
                self._rows(word, [code.add(row, str(k)) for k in range(_ROWS)])
            with code.loop(alone, last) as (row, _):
                self._rows(word, [row])
        if self.aside:
            code.run(past.FENCE)

    def _in_squares(self, word: str, rows: list[str]) -> None:
        """As many columns of rows as there are rows, turned, added up one after the other, and turned back. A line of
        each row is read at once: rows that begin a page apart have one place in the nearest cache together, from which
        results drive them out. Results that go past the caches are a few lines of each row."""
        code, kind, line = self.code, self.kind(1), VECTOR // self.align
        neutral = {"fadd": "-0.0", "add": "0", "fmul": "1.0", "mul": "1"}[word]
        begins = [code.multiply(row, "%n") for row in rows]
        whole, done, total = code.do(f"and i64 %n, -{line}"), "0", splat(kind, neutral)
        if self.aside:
            span = _SENT // self.align
            sent = code.do(f"and i64 %n, -{span}")
            with code.loop("0", sent, str(span), [(kind, total)]) as (block, held):
                with code.loop("0", str(span), str(line), [(kind, held[0])]) as (place, inside):
                    targets = [code.at(self.element, f"%sent{k}", place) for k in range(self.side)]
                    inside[0] = self._line(word, begins, code.add(block, place), targets, inside[0])
                held[0] = inside[0]
                for k, begin in enumerate(begins):
                    target = f"getelementptr inbounds {self.element}, ptr %y, i64 {code.add(begin, block)}"
                    code.insert(past.sent(f".{k}", target, f"%sent{k}", _SENT))
            done, total = sent, held[0]
            self.declared.add(past.MARK)
        with code.loop(done, whole, str(line), [(kind, total)]) as (place, held):
            targets = [code.at(self.element, "%y", code.add(begin, place)) for begin in begins]
            held[0] = self._line(word, begins, place, targets, held[0])
        self.declared.add(pairwise.PREFETCH)
        each = [code.do(f"extractelement {kind} {held[0]}, i64 {k}") for k in range(self.side)]
        self._on(word, begins, whole, each)

    def _line(self, word: str, begins: list[str], place: str, targets: list[str], total: str) -> str:
        """Add up the columns of one line of each row, and store them at addresses; the totals behind it."""
        code, kind, side = self.code, self.kind(1), self.side
        lines = []
        for begin in begins:
            at = code.add(begin, place)
            ahead = code.at("i8", code.at(self.read, "%x", at), str(_NEXT))
            code.run(pairwise.prefetch(ahead, second=nearest.small()))
            lines.append(self.taken(VECTOR // (side * self.align), at))
        for n, square in enumerate(zip(*lines, strict=True)):
            columns = turned(code.do, square, self.element)
            for k, column in enumerate(columns):
                total = columns[k] = self.joined(word, kind, total, column)
            for target, values in zip(targets, turned(code.do, columns, self.element), strict=True):
                spot = code.at(self.element, target, str(n * side)) if n else target
                code.run(f"store {kind} {values}, ptr {spot}, align {self.align}")
        return total

    def _rows(self, word: str, rows: list[str]) -> None:
        begins = [self.code.multiply(row, "%n") for row in rows]
        totals = [self.taken(0, begin)[0] for begin in begins]
        for begin, total in zip(begins, totals, strict=True):
            self.store(0, [total], "%y", begin)
        self._on(word, begins, "1", totals)

    def _on(self, word: str, begins: list[str], first: str, totals: list[str]) -> None:
        """From column ``first`` on, with the totals of what lies before it."""
        code, kind = self.code, self.element
        with code.loop(first, "%n", carried=[(kind, total) for total in totals]) as (place, held):
            for k, begin in enumerate(begins):
                at = code.add(begin, place)
                held[k] = self.joined(word, kind, held[k], self.taken(0, at)[0])
                self.store(0, [held[k]], "%y", at)

    def row_extremes(self, word: str) -> None:
        """Each row's extremes so far: a vector is joined with itself, moved by one element, by two and so on, and then
        with the last one of the vectors before."""
        code, kind, lanes = self.code, self.kind(1), self.lanes
        worst = splat(kind, self._worst(word))
        last = splat(f"<{lanes} x i32>", str(lanes - 1))
        with code.loop("%low", "%high") as (row, _):
            begin, whole = code.multiply(row, "%n"), code.do(f"and i64 %n, -{lanes}")
            with code.loop("0", whole, str(lanes), [(kind, worst)]) as (place, held):
                at = code.add(begin, place)
                (found,) = self.taken(1, at)
                for step in (1 << k for k in range(lanes.bit_length() - 1)):
                    order = ", ".join(f"i32 {lanes + k - step if k >= step else k}" for k in range(lanes))
                    moved = code.do(f"shufflevector {kind} {worst}, {kind} {found}, <{lanes} x i32> <{order}>")
                    found = self.joined(word, kind, moved, found)
                self.store(1, [self.joined(word, kind, held[0], found)], "%y", at)
                final = code.do(f"shufflevector {kind} {found}, {kind} poison, <{lanes} x i32> {last}")
                held[0] = self.joined(word, kind, held[0], final)
            self._on(word, [begin], whole, [code.do(f"extractelement {kind} {held[0]}, i64 0")])

    def column_totals(self, word: str) -> None:
        """Each row of the result is the one before and the operand's."""
        code = self.code
        with code.loop("%low", "%high") as (task, _):
            begin, width = self._columns(task)
            for vectors, column in self.channels("0", width):
                at = code.add(begin, column)
                self.store(vectors, self.taken(vectors, at), "%y", at)
            with code.loop("1", "%n") as (row, _):
                here = code.add(begin, code.multiply(row, "%columns"))
                before = code.do(f"sub i64 {here}, %columns")
                for vectors, column in self.channels("0", width):
                    kind, at = self.kind(vectors), code.add(here, column)
                    totals = self.load(vectors, "%y", code.add(before, column))
                    pairs = zip(totals, self.taken(vectors, at), strict=True)
                    self.store(vectors, [self.joined(word, kind, x, y) for x, y in pairs], "%y", at)

    def _columns(self, task: str) -> tuple[str, str]:
        """Where the columns of a task begin in the first row, and how many they are."""
        code = self.code
        outer = code.do(f"udiv i64 {task}, %tiles")
        first = code.multiply(code.do(f"urem i64 {task}, %tiles"), "%tile")
        width = code.least("%tile", code.do(f"sub i64 %columns, {first}"))
        self.begin = code.add(code.multiply(outer, "%columns"), first)
        return code.add(code.multiply(code.multiply(outer, "%n"), "%columns"), first), width

    # -- places ------------------------------------------------------------------------------------------------------

    def column_places(self, op: str) -> None:
        """The best of each column so far and its place lie on the stack while the rows stream by."""
        code = self.code
        code.lines.append(f"  %best = alloca [{TILE} x {self.element}], align {VECTOR}")
        code.lines.append(f"  %place = alloca [{TILE} x {self.index}], align {VECTOR}")
        with code.loop("%low", "%high") as (task, _):
            begin, width = self._columns(task)
            for vectors, column in self.channels("0", width):
                self.store(vectors, self.load(vectors, "%x", code.add(begin, column)), "%best", column)
                zero = splat(self.kind(vectors, self.index), "0")
                self.store(vectors, [zero] * max(vectors, 1), "%place", column, self.index)
            with code.loop("1", "%n") as (row, _):
                here = code.add(begin, code.multiply(row, "%columns"))
                for vectors, column in self.channels("0", width):
                    kind, number = self.kind(vectors), self._spread(row, self.kind(vectors, self.index))
                    values = self.load(vectors, "%x", code.add(here, column))
                    held = self._frozen(kind, self.load(vectors, "%best", column))
                    places = self.load(vectors, "%place", column, self.index)
                    places = self._frozen(self.kind(vectors, self.index), places)
                    for k, (value, best, place) in enumerate(zip(values, held, places, strict=True)):
                        taken = self._better(op, kind, value, best)
                        held[k], places[k] = self._chosen(kind, taken, (value, number), (best, place))
                    self.store(vectors, held, "%best", column)
                    self.store(vectors, places, "%place", column, self.index)
            with code.loop("0", width) as (column, _):
                place = self.load(0, "%place", column, self.index)[0]
                self._number(place, code.add(self.begin, column))

    def _frozen(self, kind: str, values: list[str]) -> list[str]:
        """Where a part of them is stored again: as all of them (:func:`.places.total_at`)."""
        return [self.code.do(f"freeze {kind} {value}") for value in values]

    def short_row_places(self, op: str) -> None:
        """The best of as many rows as a vector holds, a lane each, in squares that are turned, and the first place in
        the square that has it. Rows with what is no number are looked through once more, element by element. The last
        rows are looked through twice."""
        code, kind, lanes = self.code, self.kind(1), self.lanes
        index, truth = self.kind(1, self.index), _truth(self.kind(1))
        worst = splat(kind, self._worst(op))
        name = f"@llvm.masked.load.v{lanes}{'f' if self.floating else 'i'}{8 * self.align}.p0"
        self.declared.add(f"declare {kind} {name}(ptr, i32, {truth}, {kind})")
        with code.loop("%low", "%high") as (task, _):
            first = code.least(code.multiply(task, str(lanes)), code.do(f"sub nsw i64 %rows, {lanes}"))
            begins = [code.multiply(code.add(first, str(k)), "%n") for k in range(lanes)]
            best, places, odd = "", "", []
            for begin in range(0, self.count, lanes):
                inside = f"<{', '.join(f'i1 {int(begin + k < self.count)}' for k in range(lanes))}>"
                pointers = [code.at(self.element, "%x", code.add(row, str(begin))) for row in begins]
                lines = [
                    code.do(f"call {kind} {name}(ptr {pointer}, i32 {self.align}, {truth} {inside}, {kind} {worst})")
                    for pointer in pointers
                ]
                columns = turned(code.do, lines, self.element)[: self.count - begin]
                odd += self._odds(kind, columns)
                here, there = self._first_best(op, kind, columns, begin)
                if begin:
                    taken = self._beyond(op, kind, here, best)
                    here, there = self._chosen(kind, taken, (here, there), (best, places))
                best, places = here, there
            wide = places if self.index == "i64" else code.do(f"sext {index} {places} to <{lanes} x i64>")
            code.run(f"store <{lanes} x i64> {wide}, ptr {code.at('i64', '%y', first)}, align 8")
            if odd:
                met = self._reduced(f"or.v{lanes}i1", "i1", truth, self._any(truth, odd))
                with code.loop("0", code.do(f"select i1 {met}, i64 {lanes}, i64 0")) as (k, _):
                    self._place_of_row(op, code.add(first, k))

    def _first_best(self, op: str, kind: str, columns: list[str], begin: int) -> tuple[str, str]:
        """The best of some columns in each lane, and the number of the first that has it, counted from ``begin``."""
        code, index, held = self.code, kind.replace(self.element, self.index), list(columns)
        while len(held) > 1:  # a tree: nothing waits for all before it
            pairs = [held[k : k + 2] for k in range(0, len(held), 2)]
            held = [pair[0] if len(pair) == 1 else self._best_of(op, kind, *pair) for pair in pairs]
        same = "fcmp oeq" if self.floating else "icmp eq"
        place = splat(index, str(begin + len(columns) - 1))
        for k in reversed(range(len(columns) - 1)):
            hit = code.do(f"{same} {kind} {columns[k]}, {held[0]}")
            place = code.do(f"select {_truth(kind)} {hit}, {index} {splat(index, str(begin + k))}, {index} {place}")
        return held[0], place

    def _place_of_row(self, op: str, row: str) -> None:
        """Element by element, with the rules for what is no number."""
        code, begin = self.code, self.code.multiply(row, "%n")
        start = code.do(f"load {self.element}, ptr {code.at(self.element, '%x', begin)}, align {self.align}")
        with code.loop("1", "%n", carried=[(self.element, start), (self.index, "0")]) as (place, held):
            here = code.at(self.element, "%x", code.add(begin, place))
            value = code.do(f"load {self.element}, ptr {here}, align {self.align}")
            taken = self._better(op, self.element, value, held[0])
            held[:] = self._chosen(self.element, taken, (value, self._spread(place, self.index)), (held[0], held[1]))
        self._number(held[1], row)

    def _worst(self, op: str) -> str:
        """What no element is worse than."""
        return ("0xFFF" if "max" in op else "0x7FF") + 13 * "0" if self.floating else self._least(op)

    def row_places(self, op: str) -> None:
        """The best of each row, in vectors that do not wait for each other, and the block where it stands; then its
        first place there."""
        code, kind, step = self.code, f"<{self.lanes} x {self.element}>", str(self.chains * self.lanes)
        worst = self._worst(op)
        count = code.least("%n", str(ROW_BLOCK))
        final, rest = code.do(f"sub i64 %n, {count}"), code.do(f"sub i64 {count}, {step}")
        with code.loop("%low", "%high") as (row, _):
            begin = code.multiply(row, "%n")
            first = code.at(self.element, "%x", begin)
            with code.loop("0", "%n", str(ROW_BLOCK), [(self.element, worst), ("ptr", first)]) as (at, found):
                here = code.add(begin, code.least(at, final))  # what was seen before is no better
                start = self._vectors(here)
                carried = [(kind, value) for value in start]
                carried += [(_truth(kind), each) for each in self._odds(kind, start)]
                with code.loop(step, rest, step, carried) as (place, held):
                    held[:] = self._step(op, kind, code.add(here, place), held)
                best = self._best(op, kind, self._step(op, kind, code.add(here, rest), held))
                pair = best, code.at(self.element, "%x", here)
                taken = self._better(op, self.element, best, found[0])
                found[:] = [
                    code.do(f"select i1 {taken}, {each} {x}, {each} {y}")
                    for each, x, y in zip((self.element, "ptr"), pair, found, strict=True)
                ]
            place = self._place_of(kind, found[1], count, found[0])
            bytes_before = code.do(
                f"sub i64 {code.do(f'ptrtoint ptr {found[1]} to i64')}, {code.do(f'ptrtoint ptr {first} to i64')}"
            )
            place = code.add(place, code.do(f"sdiv exact i64 {bytes_before}, {self.align}"))
            code.run(f"store i64 {place}, ptr {code.at('i64', '%y', row)}, align 8")

    def _least(self, op: str) -> str:
        """The integer that no other one is worse than."""
        limit = 2 ** (int(self.element[1:]) - 1)
        if self.sign == "u":
            return "0" if "max" in op else "-1"
        return str(-limit if "max" in op else limit - 1)

    def _vectors(self, at: str) -> list[str]:
        """So many neighbours side by side."""
        kind = f"<{self.lanes} x {self.element}>"
        places = [self.code.at(self.element, "%x", self.code.add(at, str(k * self.lanes))) for k in range(self.chains)]
        return [self.code.do(f"load {kind}, ptr {place}, align {self.align}") for place in places]

    def _odd(self, kind: str, value: str) -> str:
        """Which lanes are no numbers? Nothing for integers."""
        return self.code.do(f"fcmp uno {kind} {value}, {value}") if self.floating else ""

    def _step(self, op: str, kind: str, at: str, held: list[str]) -> list[str]:
        """The best of these vectors and those before, and behind them where something was no number. What comes later
        is asked for, unless the nearest cache is small: so near a processor foresees it."""
        code = self.code
        for byte in range(0, 0 if nearest.small() else self.chains * VECTOR, pairwise.LINE):
            ahead = code.at("i8", code.at(self.element, "%x", at), str(pairwise.ahead() + byte))
            code.run(pairwise.prefetch(ahead))
            self.declared.add(pairwise.PREFETCH)
        values, truth = self._vectors(at), _truth(kind)
        found = [self._best_of(op, kind, value, best) for value, best in zip(values, held, strict=False)]
        for each, before in zip(self._odds(kind, values), held[self.chains :], strict=True):
            found.append(code.do(f"or {truth} {before}, {each}"))
        return found

    def _best(self, op: str, kind: str, held: list[str]) -> str:
        """The best of all lanes; NaN where one was met."""
        code, element, truth = self.code, self.element, _truth(kind)
        best, odd = held[0], held[self.chains :]
        for value in held[1 : self.chains]:
            best = self._best_of(op, kind, value, best)
        name = f"{'f' if self.floating else 's'}{op[3:]}.v{self.lanes}{'f' if self.floating else 'i'}{8 * self.align}"
        value = self._reduced(name, element, kind, best)
        if not odd:
            return value
        met = self._reduced(f"or.v{self.lanes}i1", "i1", truth, self._any(truth, odd))
        return code.do(f"select i1 {met}, {element} 0x7FF8000000000000, {element} {value}")

    def _beyond(self, op: str, kind: str, value: str, best: str) -> str:
        """Is a value beyond the best one? What is no number is not."""
        relation = "gt" if op == "argmax" else "lt"
        return self.code.do(f"{'fcmp o' if self.floating else 'icmp s'}{relation} {kind} {value}, {best}")

    def _best_of(self, op: str, kind: str, value: str, best: str) -> str:
        """The value if it is beyond the best one, else that."""
        wins = self._beyond(op, kind, value, best)
        return self.code.do(f"select {_truth(kind)} {wins}, {kind} {value}, {kind} {best}")

    def _odds(self, kind: str, values: list[str]) -> list[str]:
        """Which lanes hold what is no number? Two vectors in one comparison; nothing for integers."""
        pairs = [(values[k], values[min(k + 1, len(values) - 1)]) for k in range(0, len(values), 2)]
        return [self.code.do(f"fcmp uno {kind} {x}, {y}") for x, y in pairs if self.floating]

    def _any(self, truth: str, conditions: list[str]) -> str:
        """In which lanes one of them holds."""
        found = conditions[0]
        for each in conditions[1:]:
            found = self.code.do(f"or {truth} {found}, {each}")
        return found

    def _place_of(self, kind: str, pointer: str, count: str, best: str) -> str:
        """The first place of a block that holds its best element, or what is no number where that is none."""
        self.declared.add(_search(kind, self.element, self.align, self.lanes, self.chains, self.floating))
        truth = _truth(kind)
        self.declared.add(f"declare i1 @llvm.vector.reduce.or.v{self.lanes}i1({truth})")
        return self.code.do(f"call i64 @place(ptr {pointer}, i64 {count}, {self.element} {best})")

    def _reduced(self, what: str, result: str, kind: str, vector: str) -> str:
        self.declared.add(f"declare {result} @llvm.vector.reduce.{what}({kind})")
        return self.code.do(f"call {result} @llvm.vector.reduce.{what}({kind} {vector})")

    def _spread(self, number: str, kind: str) -> str:
        """A 64-bit number as one of the places' type, or as a vector of it."""
        code = self.code
        value = number if self.index == "i64" else code.do(f"trunc i64 {number} to {self.index}")
        return code.spread(kind, value)

    def _number(self, place: str, at: str) -> None:
        wide = place if self.index == "i64" else self.code.do(f"sext {self.index} {place} to i64")
        self.code.run(f"store i64 {wide}, ptr {self.code.at('i64', '%y', at)}, align 8")

    def _better(self, op: str, kind: str, value: str, best: str) -> str:
        """Is the value beyond the best one so far, or the first that is no number?"""
        code, relation = self.code, "gt" if op == "argmax" else "lt"
        if not self.floating:
            return code.do(f"icmp s{relation} {kind} {value}, {best}")
        beyond = code.do(f"fcmp u{relation} {kind} {value}, {best}")
        truth = _truth(kind)
        return code.do(f"and {truth} {beyond}, {code.do(f'fcmp ord {kind} {best}, {best}')}")

    def _chosen(self, kind: str, taken: str, new: tuple[str, str], old: tuple[str, str]) -> list[str]:
        truth, index = _truth(kind), kind.replace(self.element, self.index)
        return [
            self.code.do(f"select {truth} {taken}, {each} {x}, {each} {y}")
            for each, x, y in zip((kind, index), new, old, strict=True)
        ]


def _search(kind: str, element: str, align: int, lanes: int, chains: int, floating: bool) -> str:
    """``@place(ptr, count, best)``: where the first such element stands, or the first that is no number where that is
    none."""
    trips = functools.partial(_trips, kind=kind, element=element, align=align, lanes=lanes, chains=chains)
    lines = [
        f"define internal i64 @place(ptr %p, i64 %n, {element} %best) {{",
        "entry:",
        f"  %one = insertelement {kind} poison, {element} %best, i64 0",
        f"  %wanted = shufflevector {kind} %one, {kind} poison, <{lanes} x i32> zeroinitializer",
        f"  %rest = sub i64 %n, {chains * lanes}",
    ]
    if floating:
        lines += [f"  %odd = fcmp uno {element} %best, %best", "  br i1 %odd, label %a.begin, label %b.begin"]
        lines += trips("a", f"fcmp uno {kind}", "zeroinitializer")
    else:
        lines.append("  br label %b.begin")
    lines += trips("b", f"fcmp oeq {kind}" if floating else f"icmp eq {kind}", "%wanted")
    return "\n".join([*lines, "}", "declare i64 @llvm.cttz.i64(i64, i1)"])


def _trips(
    name: str, test: str, wanted: str, kind: str, element: str, align: int, lanes: int, chains: int
) -> list[str]:
    """A loop to the first element that meets the test, so many vectors in one trip; what the last trip sees for a
    second time was none."""
    truth, hits, found, before = _truth(kind), [], [f"  %{name}.m0 = add i64 0, 0"], "zeroinitializer"
    for k in range(chains):
        hits += [
            f"  %{name}.at{k} = add i64 %{name}.from, {k * lanes}",
            f"  %{name}.p{k} = getelementptr inbounds {element}, ptr %p, i64 %{name}.at{k}",
            f"  %{name}.x{k} = load {kind}, ptr %{name}.p{k}, align {align}",
            f"  %{name}.hit{k} = {test} %{name}.x{k}, {wanted}",
            f"  %{name}.any{k} = or {truth} {before}, %{name}.hit{k}",
        ]
        found += [
            f"  %{name}.bits{k} = bitcast {truth} %{name}.hit{k} to i{lanes}",
            f"  %{name}.wide{k} = zext i{lanes} %{name}.bits{k} to i64",
            f"  %{name}.far{k} = shl i64 %{name}.wide{k}, {k * lanes}",
            f"  %{name}.m{k + 1} = or i64 %{name}.m{k}, %{name}.far{k}",
        ]
        before = f"%{name}.any{k}"
    return [
        f"{name}.begin:",
        f"  br label %{name}.head",
        f"{name}.head:",
        f"  %{name}.i = phi i64 [ 0, %{name}.begin ], [ %{name}.next, %{name}.on ]",
        f"  %{name}.ends = icmp sgt i64 %{name}.i, %rest",
        f"  %{name}.from = select i1 %{name}.ends, i64 %rest, i64 %{name}.i",
        *hits,
        f"  %{name}.met = call i1 @llvm.vector.reduce.or.v{lanes}i1({truth} {before})",
        f"  br i1 %{name}.met, label %{name}.found, label %{name}.on",
        f"{name}.on:",
        f"  %{name}.next = add i64 %{name}.i, {chains * lanes}",
        f"  %{name}.go = icmp slt i64 %{name}.next, %n",
        f"  br i1 %{name}.go, label %{name}.head, label %{name}.none",
        f"{name}.none:",  # only where somebody writes into the array meanwhile
        "  ret i64 0",
        f"{name}.found:",
        *found,
        f"  %{name}.first = call i64 @llvm.cttz.i64(i64 %{name}.m{chains}, i1 false)",
        f"  %{name}.place = add i64 %{name}.from, %{name}.first",
        f"  ret i64 %{name}.place",
    ]


def _truth(kind: str) -> str:
    return f"{kind.rpartition(' ')[0]} i1>" if kind.startswith("<") else "i1"
