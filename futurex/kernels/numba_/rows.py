"""Compiled ``row_products``: rows are read once for both products, while they lie in a core's nearest cache.

A few rows are multiplied with the vector; in the same trip those before them, of which the elementwise region has made
factors by then, are added up, times these: what comes from memory and what comes from the nearest cache takes no turns.
Long rows are read side by side; short ones one after the other, in the order of memory.
The matrix is cut into pieces, whose sums are added up at the end in their order: results do not depend on how many
threads there are.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.numba_ import nearest
from futurex.kernels.numba_.blocks import BlockKernel, call_region, finished, started
from futurex.kernels.numba_.code import Code, in_half_vectors, module
from futurex.kernels.numba_.compiler import Entry, compiled
from futurex.kernels.numba_.team import Share
from futurex.kernels.numba_.vectors import LANES, VECTOR, fetch, fma, load, spread, total
from futurex.tree.node import Node

_UNIT = 4
"""Rows by which pieces are cut, and the most of one trip."""
_NEAR = 40 * 1024
"""Bytes of rows that lie in a nearest cache that is not small: where twice a trip's are more, half as many make a trip.
A small one holds long rows in no way, and more of them at once cost less (5000 x 2000: 0.77 of the time)."""
_SHORT, _PAGE = 1536, 4096
"""Bytes of rows that are read one after the other, by four, and by two where the nearest cache is small, else half as
many: a processor foresees what follows within a page, but not several rows there at a time."""
_PIECES, _LEAST = 32, 16
"""Pieces: a long and a short one for each of sixteen threads; and rows of one, in the middle of their lengths."""
_AHEAD = 256
"""Bytes behind what is read now that are asked for. Few: a processor foresees rows that are read as they lie, and
beyond a row's end lie rows that are read already (2 KB: 1.1 times as long; nothing: 1.02 times)."""
_TAIL = f"@llvm.masked.load.v{LANES}f32.p0"
_NUMBERS = ("pieces", "rows", "columns", "wide", "stride")
_ARRAYS = ("x", "w", "z", "r")


class RowProducts(BlockKernel):
    """The kernel of one node. Each piece has room for its own sum of the rows."""

    ahead = 2

    def __init__(self, node: Node, threads: int, text: str) -> None:
        super().__init__(node, threads, text)
        rows, columns = node.inputs[0].shape
        pieces = max(1, min(max(_PIECES, self.threads), rows // _LEAST))
        self.share = Share(self.threads, pieces, self.share.brief)
        self.room = np.empty((pieces, -(-columns // LANES) * LANES), np.float32)
        self.adding = compiled(_adding())
        self.steps = np.array(self.strides(1), np.int64)
        self.fixed = (pieces, rows, columns, columns - columns % LANES, self.room.shape[1])

    @staticmethod
    def text_for(node: Node) -> str:
        return _text(*_way(node.inputs[0].shape[1] * node.inputs[0].dtype.itemsize, nearest.small()))

    @staticmethod
    def matrices(node: Node) -> Sequence[Node]:
        graph = node.attrs["graph"]
        return [*node.inputs[:2], graph.params[0], graph.outs[0]]

    def memory(self, out: tuple[Any, ...], inputs: tuple[Any, ...]) -> tuple[Any, Sequence[Any]]:
        return out[1], (*inputs[:2], *out[1:3])

    def after(self, out: tuple[Any, ...]) -> tuple[Entry, Sequence[int]]:
        columns, stride = self.fixed[2], self.fixed[4]
        return self.adding, (columns, len(self.room), stride, address_of(self.room), address_of(out[0]))


def _way(row: int, small: bool) -> tuple[int, bool, bool]:
    """How rows of so many bytes are read, with a small nearest cache or not: how many in a trip, whether one after the
    other, and whether by half vectors, of which fewer cross the end of a line where rows begin anywhere.

    >>> _way(4000, small=True), _way(4000, small=False), _way(1024, small=False)
    ((2, True, True), (4, False, False), (4, True, False))
    """
    if row <= _SHORT:
        return _UNIT, True, small
    if row <= _PAGE // (1 if small else 2):
        return _UNIT // 2, True, small
    return (_UNIT if small or 2 * _UNIT * row <= _NEAR else _UNIT // 2), False, False


@functools.cache
def _text(at_once: int, in_order: bool, halves: bool) -> str:
    """The kernel that takes so many rows in a trip, one after the other or side by side."""
    trip = _trip_in_order if in_order else _trip
    code = started(_ARRAYS)
    with code.loop("%low", "%high") as (piece, _):
        begin, end = _begin(code, piece), _begin(code, code.add(piece, "1"))
        final = code.do(f"icmp eq i64 {code.add(piece, '1')}, %pieces")
        end = code.do(f"select i1 {final}, i64 %rows, i64 {end}")
        sums = code.at("float", "%room", code.multiply(piece, "%stride"))
        with code.loop("0", "%stride", str(LANES)) as (column, _):
            code.run(f"store {VECTOR} zeroinitializer, ptr {code.at('float', sums, column)}, align 4")
        count = code.do(f"sub nsw i64 {end}, {begin}")
        full = code.do(f"sub nsw i64 {end}, {code.do(f'srem i64 {count}, {at_once}')}")
        first = code.least(code.add(begin, str(at_once)), full)
        with code.loop(begin, first, str(at_once)) as (row, _):
            trip(code, at_once, made=row)
            call_region(code, row, str(at_once))
        with code.loop(first, full, str(at_once)) as (row, _):
            trip(code, at_once, made=row, added=code.do(f"sub nsw i64 {row}, {at_once}"), sums=sums)
            call_region(code, row, str(at_once))
        last = code.most(code.do(f"sub nsw i64 {full}, {at_once}"), begin)
        with code.loop(last, full, str(at_once)) as (row, _):
            trip(code, at_once, added=row, sums=sums)
        with code.loop(full, end) as (row, _):
            trip(code, 1, made=row)
            call_region(code, row, "1")
            trip(code, 1, added=row, sums=sums)
    text = finished(code, _NUMBERS, _ARRAYS, [f"declare {VECTOR} {_TAIL}(ptr, i32, <{LANES} x i1>, {VECTOR})"])
    return in_half_vectors(text) if halves else text


def _begin(code: Code, piece: str) -> str:
    """The row that a piece begins with.

    Pieces are taken from both ends, so the last ones lie in the middle. Towards it they grow shorter, as much with
    each, so that who is done first waits for a short one: of p pieces, up to the middle, the first k have
    2 k (p - k) / p**2 of the rows.
    """
    left = code.do(f"sub nsw i64 %pieces, {piece}")
    area = code.multiply(code.multiply(piece, left), "2")
    rows = code.do(f"sdiv i64 {code.multiply('%rows', area)}, {code.multiply('%pieces', '%pieces')}")
    behind = code.do(f"icmp sgt i64 {piece}, {left}")
    place = code.do(f"select i1 {behind}, i64 {code.do(f'sub nsw i64 %rows, {rows}')}, i64 {rows}")
    return code.do(f"and i64 {place}, -{_UNIT}")


@functools.cache
def _adding() -> str:
    """The code that adds up the sums of all pieces, in their order."""
    code = Code()
    whole = code.do(f"and i64 %columns, -{LANES}")
    for kind, low, high, step in ((VECTOR, "0", whole, LANES), ("float", whole, "%columns", 1)):
        with code.loop(low, high, str(step)) as (column, _):
            first = load(code, kind, "%room", column)
            with code.loop("1", "%count", carried=[(kind, first)]) as (part, held):
                here = code.add(code.multiply(part, "%stride"), column)
                held[0] = code.do(f"fadd {kind} {held[0]}, {load(code, kind, '%room', here)}")
            code.run(f"store {kind} {held[0]}, ptr {code.at('float', '%out', column)}, align 4")
    numbers = [("i64", name) for name in ("columns", "count", "stride")]
    return module([*numbers, ("ptr", "room"), ("ptr", "out")], code, threaded=False)


def _trip(code: Code, count: int, made: str = "", added: str = "", sums: str = "") -> None:
    """One trip along ``count`` rows: z of those from ``made`` on, and those from ``added`` on, times their elements of
    r, added to ``sums``."""
    new, old = _starts(code, made, count), _starts(code, added, count)
    factors = [spread(code, load(code, "float", "%r", code.add(added, str(k)))) for k in range(len(old))]
    dots = [(VECTOR, "zeroinitializer")] * len(new)
    for low, high in (("0", "%wide"), ("%wide", "%columns")):
        tail = low != "0"
        with code.loop(low, high, str(LANES), dots) as (column, held):
            inside = _inside(code, column) if tail else ""
            if new:
                weight = _vector(code, "%w", column, inside)
            for k, start in enumerate(new):
                if not tail:
                    fetch(code, code.at("i8", code.at("float", start, column), str(_AHEAD)))
                held[k] = fma(code, VECTOR, _vector(code, start, column, inside), weight, held[k])
            if old:
                _add(code, old, factors, sums, column, inside)
        dots = [(VECTOR, each) for each in held]
    for k, (_, each) in enumerate(dots):
        code.run(f"store float {total(code, each)}, ptr {code.at('float', '%z', code.add(made, str(k)))}, align 4")


def _trip_in_order(code: Code, count: int, made: str = "", added: str = "", sums: str = "") -> None:
    """The same, one new row after the other: beside each of them a part of the columns of the old ones is added."""
    new, old = _starts(code, made, count), _starts(code, added, count)
    factors = [spread(code, load(code, "float", "%r", code.add(added, str(k)))) for k in range(len(old))]
    part = code.multiply(code.do(f"sdiv i64 %wide, {count * LANES}"), str(LANES))
    shared = code.multiply(part, str(count))
    for k in range(count):
        dots = [(VECTOR, "zeroinitializer")] * (count if new else 0)
        with code.loop("0", part, str(LANES), dots) as (column, held):
            for n in range(len(held)):
                place = code.add(code.multiply(column, str(count)), str(n * LANES))
                held[n] = fma(code, VECTOR, load(code, VECTOR, new[k], place), load(code, VECTOR, "%w", place), held[n])
            if old:
                _add(code, old, factors, sums, code.add(code.multiply(part, str(k)), column))
        if not new:
            continue
        dot, *others = held
        for each in others:
            dot = code.do(f"fadd {VECTOR} {dot}, {each}")
        for low, high in ((shared, "%wide"), ("%wide", "%columns")):
            with code.loop(low, high, str(LANES), [(VECTOR, dot)]) as (column, held):
                inside = _inside(code, column) if low == "%wide" else ""
                weight = _vector(code, "%w", column, inside)
                held[0] = fma(code, VECTOR, _vector(code, new[k], column, inside), weight, held[0])
            dot = held[0]
        code.run(f"store float {total(code, dot)}, ptr {code.at('float', '%z', code.add(made, str(k)))}, align 4")
    for low, high in ((shared, "%wide"), ("%wide", "%columns")) if old else ():
        with code.loop(low, high, str(LANES)) as (column, _):
            _add(code, old, factors, sums, column, _inside(code, column) if low == "%wide" else "")


def _starts(code: Code, first: str, count: int) -> list[str]:
    """Where ``count`` rows begin; no rows if there is no first one."""
    rows = [code.add(first, str(k)) for k in range(count if first else 0)]
    return [code.at("float", "%x", code.multiply(row, "%columns")) for row in rows]


def _add(code: Code, rows: list[str], factors: list[str], sums: str, column: str, inside: str = "") -> None:
    """Rows times their factors, added to the sums at a column."""
    value = load(code, VECTOR, sums, column)
    for start, factor in zip(rows, factors, strict=True):
        value = fma(code, VECTOR, _vector(code, start, column, inside), factor, value)
    code.run(f"store {VECTOR} {value}, ptr {code.at('float', sums, column)}, align 4")


def _inside(code: Code, column: str) -> str:
    """Which lanes of the vector at a column, which runs at most once, lie before the end of the row."""
    lanes = ", ".join(f"i64 {k}" for k in range(LANES))
    left = code.do(f"sub nsw i64 %columns, {column}")
    one = code.do(f"insertelement <{LANES} x i64> poison, i64 {left}, i64 0")
    whole = f"<{LANES} x i64> {one}, <{LANES} x i64> poison, <{LANES} x i32> zeroinitializer"
    return code.do(f"icmp slt <{LANES} x i64> <{lanes}>, {code.do(f'shufflevector {whole}')}")


def _vector(code: Code, pointer: str, column: str, inside: str) -> str:
    """What begins at a column; zeros where it is not ``inside``."""
    if not inside:
        return load(code, VECTOR, pointer, column)
    masked = f"ptr {code.at('float', pointer, column)}, i32 4, <{LANES} x i1> {inside}, {VECTOR} zeroinitializer"
    return code.do(f"call {VECTOR} {_TAIL}({masked})")
