"""Compiled running sums and products, and places of extremes, along any axis, with NumPy's bits and its rule for NaN.

An array is rows (the axis is the last one) or columns. Rows are worked on eight at a time, since an addition of a
running sum waits for the one before it; columns are vectors, a range of them whose totals stay in the nearest cache.
The order along the axis is NumPy's; the threads share what lies across it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.kernels.numba_.channels import VECTOR, Writer, Written, splat, threads_for
from futurex.kernels.numba_.code import Code, module
from futurex.kernels.threads import openmp
from futurex.tree.node import Node

Dtype = np.dtype[Any]

FEWEST_ELEMENTS = 16 * 1024
"""Smaller arrays stay with NumPy."""
ROWS = 8
"""Rows that are worked on at once."""
_CHAINS = 4
"""Vectors of a row that do not wait for each other."""
TILE = 1024
"""Columns of one task at most."""
_TYPES = {
    np.dtype("f4"): ("float", "i32"), np.dtype("f8"): ("double", "i64"),
    np.dtype("i4"): ("i32", "i32"), np.dtype("i8"): ("i64", "i64"),
}  # fmt: skip
_WORDS = {("add", "f"): "fadd", ("add", "i"): "add", ("multiply", "f"): "fmul", ("multiply", "i"): "mul"}
_MOST_PLACES = 2**31


def claim(node: Node, threads: int) -> Written | None:
    """The kernel of ``cumsum``, ``accumulate``, ``argmax`` or ``argmin``; None for what is not compiled."""
    source, axis = node.inputs[0], node.attrs["axis"]
    if not node.is_static or source.aval.weak or source.dtype not in _TYPES or source.size < FEWEST_ELEMENTS:
        return None
    outer, count, inner = math.prod(source.shape[:axis]), source.shape[axis], math.prod(source.shape[axis + 1 :])
    place = node.op in ("argmax", "argmin")
    if outer * inner < ROWS or count < 2 or count >= _MOST_PLACES:
        return None
    if place:
        if inner == 1 and count < 2 * _CHAINS * VECTOR // source.dtype.itemsize:
            return None
        what = node.op
    else:
        what = node.attrs.get("ufunc", "add")
        asked = {node.dtype, *(node.attrs.get(name) or source.dtype for name in ("dtype", "out"))}
        if asked != {source.dtype} or (what, source.dtype.kind) not in _WORDS:
            return None
    threads = threads_for(node, threads)
    if inner == 1:
        geometry: tuple[int, ...] = (outer if place else -(-outer // ROWS), count, outer)
    else:
        tile = min(TILE, -(-inner // (16 * max(1, threads // outer))) * 16)
        geometry = (outer * -(-inner // tile), count, inner, tile, -(-inner // tile))
    return Written(node, threads, _text(what, source.dtype, inner == 1, openmp() is not None), geometry)


@functools.cache
def _text(what: str, dtype: Dtype, rows: bool, threaded: bool) -> str:
    writer = _Writer(dtype)
    if what in ("argmax", "argmin"):
        body: Callable[[str], None] = writer.row_places if rows else writer.column_places
    else:
        body, what = (writer.row_totals if rows else writer.column_totals), _WORDS[what, dtype.kind]
    body(what)
    numbers = ("tasks", "n", "rows") if rows else ("tasks", "n", "columns", "tile", "tiles")
    parameters = [*(("i64", name) for name in numbers), ("ptr", "y"), ("ptr", "x")]
    return module(parameters, writer.code, threaded, sorted(writer.declared))


class _Writer(Writer):
    def __init__(self, dtype: Dtype) -> None:
        self.code = Code()
        self.floating = dtype.kind == "f"
        self.element, self.index = _TYPES[dtype]
        self.align, self.lanes, self.vectors = dtype.itemsize, VECTOR // dtype.itemsize, 4
        self.declared: set[str] = set()

    # -- running totals ----------------------------------------------------------------------------------------------

    def row_totals(self, word: str) -> None:
        """Each row's totals; the rows of a task side by side."""
        code = self.code
        with code.loop("%low", "%high") as (task, _):
            first = code.multiply(task, str(ROWS))
            many = code.do(f"sub i64 %rows, {first}")
            whole = code.do(f"icmp sge i64 {many}, {ROWS}")
            together = code.do(f"zext i1 {whole} to i64")
            with code.loop("0", together):
                self._rows(word, [code.add(first, str(k)) for k in range(ROWS)])
            start = code.do(f"select i1 {whole}, i64 %rows, i64 {first}")
            with code.loop(start, "%rows") as (row, _):
                self._rows(word, [row])

    def _rows(self, word: str, rows: list[str]) -> None:
        code, kind = self.code, self.element
        begins = [code.multiply(row, "%n") for row in rows]
        totals = [self.load(0, "%x", begin)[0] for begin in begins]
        for begin, total in zip(begins, totals, strict=True):
            self.store(0, [total], "%y", begin)
        with code.loop("1", "%n", carried=[(kind, total) for total in totals]) as (place, held):
            for k, begin in enumerate(begins):
                at = code.add(begin, place)
                held[k] = code.do(f"{word} {kind} {held[k]}, {self.load(0, '%x', at)[0]}")
                self.store(0, [held[k]], "%y", at)

    def column_totals(self, word: str) -> None:
        """Each row of the result is the one before and the operand's."""
        code = self.code
        with code.loop("%low", "%high") as (task, _):
            begin, width = self._columns(task)
            for vectors, column in self.channels("0", width):
                at = code.add(begin, column)
                self.store(vectors, self.load(vectors, "%x", at), "%y", at)
            with code.loop("1", "%n") as (row, _):
                here = code.add(begin, code.multiply(row, "%columns"))
                before = code.do(f"sub i64 {here}, %columns")
                for vectors, column in self.channels("0", width):
                    kind, at = self.kind(vectors), code.add(here, column)
                    pairs = zip(
                        self.load(vectors, "%y", code.add(before, column)), self.load(vectors, "%x", at), strict=True
                    )
                    self.store(vectors, [code.do(f"{word} {kind} {x}, {y}") for x, y in pairs], "%y", at)

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
                    held = self.load(vectors, "%best", column)
                    places = self.load(vectors, "%place", column, self.index)
                    for k, (value, best, place) in enumerate(zip(values, held, places, strict=True)):
                        taken = self._better(op, kind, value, best)
                        held[k], places[k] = self._chosen(kind, taken, (value, number), (best, place))
                    self.store(vectors, held, "%best", column)
                    self.store(vectors, places, "%place", column, self.index)
            with code.loop("0", width) as (column, _):
                place = self.load(0, "%place", column, self.index)[0]
                self._number(place, code.add(self.begin, column))

    def row_places(self, op: str) -> None:
        """Vectors with the place of each lane's best; then the best lane, of equal ones that of the first place."""
        code, lanes = self.code, _CHAINS * self.lanes
        kind, places = f"<{lanes} x {self.element}>", f"<{lanes} x {self.index}>"
        numbers = f"<{', '.join(f'{self.index} {k}' for k in range(lanes))}>"
        whole = code.multiply(code.do(f"udiv i64 %n, {lanes}"), str(lanes))
        with code.loop("%low", "%high") as (row, _):
            begin = code.multiply(row, "%n")
            start = code.do(f"load {kind}, ptr {code.at(self.element, '%x', begin)}, align {self.align}")
            with code.loop(str(lanes), whole, str(lanes), [(kind, start), (places, numbers)]) as (at, held):
                here = code.at(self.element, "%x", code.add(begin, at))
                value = code.do(f"load {kind}, ptr {here}, align {self.align}")
                number = code.do(f"add {places} {self._spread(at, places)}, {numbers}")
                taken = self._better(op, kind, value, held[0])
                held[:] = self._chosen(kind, taken, (value, number), (held[0], held[1]))
            found = self._best_lane(op, lanes, held[0], held[1])
            best = [(self.element, found[0]), (self.index, found[1])]
            with code.loop(whole, "%n", carried=best) as (at, last):
                value = self.load(0, "%x", code.add(begin, at))[0]
                taken = self._better(op, self.element, value, last[0])
                last[:] = self._chosen(self.element, taken, (value, self._spread(at, self.index)), (last[0], last[1]))
            self._number(last[1], row)

    def _best_lane(self, op: str, lanes: int, best: str, places: str) -> list[str]:
        """The best of a vector and the first of its places."""
        code, element, index = self.code, self.element, self.index
        kind, integers, truths = (f"<{lanes} x {each}>" for each in (element, index, "i1"))
        word = ("f" if self.floating else "s") + op[3:]
        value = self._reduced(f"{word}.v{lanes}{'f' if self.floating else 'i'}{8 * self.align}", element, kind, best)
        equal = "fcmp oeq" if self.floating else "icmp eq"
        hit = code.do(f"{equal} {kind} {best}, {self._filled(kind, element, value)}")
        if self.floating:
            odd = code.do(f"fcmp uno {kind} {best}, {best}")
            any_odd = self._reduced(f"or.v{lanes}i1", "i1", truths, odd)
            hit = code.do(f"select i1 {any_odd}, {truths} {odd}, {truths} {hit}")
            value = code.do(f"select i1 {any_odd}, {element} 0x7FF8000000000000, {element} {value}")
        last = self._filled(integers, index, str(2 ** (int(index[1:]) - 1) - 1))
        those = code.do(f"select {truths} {hit}, {integers} {places}, {integers} {last}")
        return [value, self._reduced(f"smin.v{lanes}{index}", index, integers, those)]

    def _reduced(self, what: str, result: str, kind: str, vector: str) -> str:
        self.declared.add(f"declare {result} @llvm.vector.reduce.{what}({kind})")
        return self.code.do(f"call {result} @llvm.vector.reduce.{what}({kind} {vector})")

    def _filled(self, kind: str, element: str, value: str) -> str:
        one = self.code.do(f"insertelement {kind} poison, {element} {value}, i64 0")
        count = kind[1:].partition(" ")[0]
        return self.code.do(f"shufflevector {kind} {one}, {kind} poison, <{count} x i32> zeroinitializer")

    def _spread(self, number: str, kind: str) -> str:
        """A 64-bit number as one of the places' type, or as a vector of it."""
        code = self.code
        value = number if self.index == "i64" else code.do(f"trunc i64 {number} to {self.index}")
        return self._filled(kind, self.index, value) if kind.startswith("<") else value

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


def _truth(kind: str) -> str:
    return f"{kind.rpartition(' ')[0]} i1>" if kind.startswith("<") else "i1"
