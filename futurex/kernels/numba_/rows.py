"""Compiled ``row_products``: rows are read once for both products, while they lie in a core's nearest cache.

A few rows are multiplied with the vector; in the same trip those before them, of which the elementwise region has made
factors by then, are added up, times these: what comes from memory and what comes from the nearest cache takes no turns.
In which order rows are read, and what is asked for ahead, is a matter of the processor (:class:`Way`).
The matrix is cut into pieces, whose sums are added up at the end in their order: results do not depend on how many
threads there are.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from futurex.kernels.addresses import address_of, on_lines
from futurex.kernels.numba_ import compiler, nearest
from futurex.kernels.numba_.blocks import BlockKernel, call_region, finished, started
from futurex.kernels.numba_.code import Code, in_half_vectors, module
from futurex.kernels.numba_.compiler import Entry, compiled
from futurex.kernels.numba_.team import Share
from futurex.kernels.numba_.vectors import DOUBLE, SINGLE, Kind, fetch, fma, load, spread, total
from futurex.tree.node import Node

_UNIT = 4
"""Rows by which pieces are cut, and the most of one trip."""
_NEAR = 40 * 1024
"""Bytes of rows that lie in a nearest cache that is not small: where twice a trip's are more, half as many make a trip.
A small one holds long rows in no way, and more of them at once cost less (5000 x 2000: 0.77 of the time)."""
_SHORT, _PAGE = 1536, 4096
"""Bytes of rows that are read one after the other, by four, and by two half as many: a processor foresees what follows
within a page, but not several rows there at a time."""
_PIECES, _LEAST = 32, 16
"""Pieces: a long and a short one for each of sixteen threads; and rows of one, in the middle of their lengths."""
_AHEAD = 256
"""Bytes behind what is read now that are asked for. Few: a processor foresees rows that are read as they lie, and
beyond a row's end lie rows that are read already (2 KB: 1.1 times as long; nothing: 1.02 times)."""
_LINE = 64
_FAR, _BESIDE_FOUR, _BESIDE_TWO = 12 * 1024, 1024, 4096
"""Where the nearest cache is wide: what is asked for ahead of a trip, in the order of memory; and bytes of rows that
are read by four, and by lines by two. Longer ones, by four again, wait in the second-level cache."""
_SECOND, _TINY, _BESIDE_FOUR_SMALL, _HUGE = 24 * 1024, 512, 2048, 32 * 1024
"""The same where the nearest cache is small: what is asked for into the second cache, for the nearest one is full of
the rows of two trips; bytes of rows that are read in order, and of those by four even where vectors are whole lines;
and of the longest whose trips the second one holds beside what is asked for."""
_NUMBERS = ("pieces", "rows", "columns", "wide", "stride")
_ARRAYS = ("x", "w", "z", "r")
_PAIR = {SINGLE: ("@llvm.x86.avx512.vpermi2var.ps.512", "i32"), DOUBLE: ("@llvm.x86.avx512.vpermi2var.pd.512", "i64")}
"""What puts a vector together from two lines, and the integers that say how."""
_KINDS: dict[np.dtype[Any], Kind] = {np.dtype("f4"): SINGLE, np.dtype("f8"): DOUBLE}


class Way(NamedTuple):
    """How rows are read: so many in a trip, side by side or ``in_order``, one after the other.

    ``halves``: by half vectors, of which fewer cross the end of a line where rows begin anywhere. ``far``: so many
    bytes ahead of a trip lines are asked for, in the order of memory; 0: a few ahead in each row. ``by_lines``: whole
    lines are read, and vectors put together from two of them. ``second``: they are asked for into the second cache.
    """

    rows: int
    in_order: bool = False
    halves: bool = False
    far: int = 0
    by_lines: bool = False
    second: bool = False


class RowProducts(BlockKernel):
    """The kernel of one node. Each piece has room for its own sum of the rows."""

    ahead = 2
    dtypes = tuple(_KINDS)

    def __init__(self, node: Node, threads: int, text: str) -> None:
        super().__init__(node, threads, text)
        rows, columns = node.inputs[0].shape
        kind = self.kind_of(node)
        pieces = max(1, min(max(_PIECES, self.threads), rows // _LEAST))
        self.share = Share(self.threads, pieces, self.share.brief)
        self.room = on_lines((pieces, -(-columns // kind.lanes) * kind.lanes), node.inputs[0].dtype)
        self.adding = compiled(_adding(kind))
        self.steps = np.array(self.strides(1), np.int64)
        # what is read by lines ends before the last vector: the line behind it need not be there
        wide = (columns - self.way_of(node).by_lines) // kind.lanes * kind.lanes
        self.fixed = (pieces, rows, columns, wide, self.room.shape[1])

    @staticmethod
    def text_for(node: Node) -> str:
        return _text(RowProducts.way_of(node), RowProducts.kind_of(node))

    @staticmethod
    def kind_of(node: Node) -> Kind:
        """The precision of the matrix."""
        return _KINDS[node.inputs[0].dtype]

    @staticmethod
    def way_of(node: Node) -> Way:
        """How this processor reads the matrix."""
        row = node.inputs[0].shape[1] * node.inputs[0].dtype.itemsize
        return _way(row, nearest.small(), nearest.wide(), compiler.has_scale())

    @staticmethod
    def matrices(node: Node) -> Sequence[Node]:
        graph = node.attrs["graph"]
        return [*node.inputs[:2], graph.params[0], graph.outs[0]]

    def memory(self, out: tuple[Any, ...], inputs: tuple[Any, ...]) -> tuple[Any, Sequence[Any]]:
        return out[1], (*inputs[:2], *out[1:3])

    def after(self, out: tuple[Any, ...]) -> tuple[Entry, Sequence[int]]:
        columns, stride = self.fixed[2], self.fixed[4]
        return self.adding, (columns, len(self.room), stride, address_of(self.room), address_of(out[0]))


def _way(row: int, small: bool, wide: bool, lines: bool) -> Way:
    """How rows of so many bytes are read where the nearest cache is of this kind, or neither; ``lines``: is a vector a
    whole line?

    >>> _way(4000, small=True, wide=False, lines=True)
    Way(rows=2, in_order=False, halves=False, far=24576, by_lines=True, second=True)
    >>> _way(4000, small=True, wide=False, lines=False)
    Way(rows=4, in_order=False, halves=True, far=24576, by_lines=False, second=True)
    >>> _way(4000, small=False, wide=True, lines=True)
    Way(rows=2, in_order=False, halves=False, far=12288, by_lines=True, second=False)
    >>> _way(4000, small=False, wide=False, lines=True).rows
    4
    >>> _way(1024, small=False, wide=False, lines=True).in_order
    True
    """
    if wide:
        by_lines = _BESIDE_FOUR < row <= _BESIDE_TWO
        return Way(_UNIT // 2 if by_lines else _UNIT, far=_FAR, by_lines=by_lines)
    if small and _TINY <= row <= _HUGE:
        by_lines = lines and row > _BESIDE_FOUR_SMALL
        rows = _UNIT // 2 if by_lines and row <= _BESIDE_TWO else _UNIT
        far = max(_SECOND, rows * row)  # a trip begins with all its rows
        return Way(rows, halves=not by_lines, far=far, by_lines=by_lines, second=True)
    if row <= _SHORT:
        return Way(_UNIT, in_order=True, halves=small)
    if row <= _PAGE // 2:
        return Way(_UNIT // 2, in_order=True)
    return Way(_UNIT if small or 2 * _UNIT * row <= _NEAR else _UNIT // 2)


@functools.cache
def _text(way: Way, kind: Kind) -> str:
    """The kernel that reads rows so."""
    at_once, trip = way.rows, functools.partial(_trip_in_order if way.in_order else _trip, way, kind)
    code = started(_ARRAYS)
    with code.loop("%low", "%high") as (piece, _):
        begin, end = _begin(code, piece), _begin(code, code.add(piece, "1"))
        final = code.do(f"icmp eq i64 {code.add(piece, '1')}, %pieces")
        end = code.do(f"select i1 {final}, i64 %rows, i64 {end}")
        sums = code.at(kind.element, "%room", code.multiply(piece, "%stride"))
        with code.loop("0", "%stride", str(kind.lanes)) as (column, _):
            _store(code, kind, kind.vector, "zeroinitializer", sums, column)
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
    declared = [f"declare {kind.vector} {_tail(kind)}(ptr, i32, <{kind.lanes} x i1>, {kind.vector})"]
    if way.by_lines:
        pair, integer = _PAIR[kind]
        declared.append(f"declare {kind.vector} {pair}({kind.vector}, <{kind.lanes} x {integer}>, {kind.vector})")
    text = finished(code, _NUMBERS, _ARRAYS, declared)
    return in_half_vectors(text) if way.halves else text


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
def _adding(kind: Kind) -> str:
    """The code that adds up the sums of all pieces, in their order."""
    code = Code()
    whole = code.do(f"and i64 %columns, -{kind.lanes}")
    for held_as, low, high, step in ((kind.vector, "0", whole, kind.lanes), (kind.element, whole, "%columns", 1)):
        with code.loop(low, high, str(step)) as (column, _):
            first = load(code, held_as, "%room", column)
            with code.loop("1", "%count", carried=[(held_as, first)]) as (part, held):
                here = code.add(code.multiply(part, "%stride"), column)
                held[0] = code.do(f"fadd {held_as} {held[0]}, {load(code, held_as, '%room', here)}")
            _store(code, kind, held_as, held[0], "%out", column)
    numbers = [("i64", name) for name in ("columns", "count", "stride")]
    return module([*numbers, ("ptr", "room"), ("ptr", "out")], code, threaded=False)


def _trip(way: Way, kind: Kind, code: Code, count: int, made: str = "", added: str = "", sums: str = "") -> None:
    """One trip along ``count`` rows: z of those from ``made`` on, and those from ``added`` on, times their elements of
    r, added to ``sums``."""
    new, old = _starts(code, kind, made, count), _starts(code, kind, added, count)
    factors = _factors(code, kind, added, len(old))
    lines = [_Lines(code, kind, start) for start in (*new, *old)] if way.by_lines else []
    carried = [(kind.vector, "zeroinitializer")] * len(new)
    carried += [(kind.vector, each.first) for each in lines]
    with code.loop("0", "%wide", str(kind.lanes), carried) as (column, held):
        if new:
            _ask(code, way, kind, new, column)
        dots, following = held[: len(new)], held[len(new) :]
        if lines:
            vectors = [each.vector(code, column, following, k) for k, each in enumerate(lines)]
        else:
            vectors = [load(code, kind.vector, start, column) for start in (*new, *old)]
        held[:] = [*_multiplied(code, kind, vectors[: len(new)], dots, column), *following]
        if old:
            _add(code, kind, vectors[len(new) :], factors, sums, column)
    dots = held[: len(new)]
    with code.loop("%wide", "%columns", str(kind.lanes), [(kind.vector, each) for each in dots]) as (column, held):
        inside = _inside(code, kind, column)
        vectors = [_vector(code, kind, start, column, inside) for start in (*new, *old)]
        held[:] = _multiplied(code, kind, vectors[: len(new)], held, column, inside)
        if old:
            _add(code, kind, vectors[len(new) :], factors, sums, column)
    for k, each in enumerate(held):
        _store(code, kind, kind.element, total(code, each, kind), "%z", code.add(made, str(k)))


class _Lines:
    """A row that is read by whole lines: they begin before it, and a vector of it is the end of one line and the
    beginning of the next."""

    def __init__(self, code: Code, kind: Kind, start: str) -> None:
        self.kind = kind
        integer = _PAIR[kind][1]
        places, lanes = f"<{kind.lanes} x {integer}>", range(kind.lanes)
        address = code.do(f"ptrtoint ptr {start} to i64")
        before = code.do(f"udiv i64 {code.do(f'and i64 {address}, {_LINE - 1}')}, {kind.size}")
        self.begin = code.do(f"inttoptr i64 {code.do(f'and i64 {address}, -{_LINE}')} to ptr")
        number = before if integer == "i64" else code.do(f"trunc i64 {before} to {integer}")
        every = code.spread(places, number)
        self.places = f"{places} " + code.do(f"add {places} {every}, <{', '.join(f'{integer} {k}' for k in lanes)}>")
        self.first = self._line(code, "0")

    def _line(self, code: Code, column: str) -> str:
        return code.do(f"load {self.kind.vector}, ptr {code.at(self.kind.element, self.begin, column)}, align {_LINE}")

    def vector(self, code: Code, column: str, lines: list[str], k: int) -> str:
        """What begins at a column; entry ``k`` of ``lines`` is the line that it begins in, and becomes the next one."""
        kind = self.kind
        before, lines[k] = lines[k], self._line(code, code.add(column, str(kind.lanes)))
        pair = f"{_PAIR[kind][0]}({kind.vector} {before}, {self.places}, {kind.vector} {lines[k]})"
        return code.do(f"call {kind.vector} {pair}")


def _ask(code: Code, way: Way, kind: Kind, rows: list[str], column: str) -> None:
    """Ask for a line of each row, or for as many lines farther on, in the order of memory."""
    if not way.far:
        for start in rows:
            fetch(code, code.at("i8", code.at(kind.element, start, column), str(_AHEAD)))
        return
    place = code.at("i8", code.at(kind.element, rows[0], code.multiply(column, str(len(rows)))), str(way.far))
    for k in range(len(rows)):
        fetch(code, code.at("i8", place, str(_LINE * k)), second=way.second)


def _multiplied(
    code: Code, kind: Kind, vectors: list[str], dots: list[str], column: str, inside: str = ""
) -> list[str]:
    """The dots of some rows with their vectors at a column times those of w."""
    if not vectors:
        return []
    weight = _vector(code, kind, "%w", column, inside)
    return [fma(code, kind.vector, each, weight, dot) for each, dot in zip(vectors, dots, strict=True)]


def _trip_in_order(
    way: Way, kind: Kind, code: Code, count: int, made: str = "", added: str = "", sums: str = ""
) -> None:
    """The same, one new row after the other: beside each of them a part of the columns of the old ones is added."""
    new, old = _starts(code, kind, made, count), _starts(code, kind, added, count)
    vector, lanes = kind.vector, kind.lanes
    factors = _factors(code, kind, added, len(old))
    part = code.multiply(code.do(f"sdiv i64 %wide, {count * lanes}"), str(lanes))
    shared = code.multiply(part, str(count))
    for k in range(count):
        dots = [(vector, "zeroinitializer")] * (count if new else 0)
        with code.loop("0", part, str(lanes), dots) as (column, held):
            for n in range(len(held)):
                place = code.add(code.multiply(column, str(count)), str(n * lanes))
                held[n] = fma(code, vector, load(code, vector, new[k], place), load(code, vector, "%w", place), held[n])
            if old:
                place = code.add(code.multiply(part, str(k)), column)
                _add(code, kind, [load(code, vector, start, place) for start in old], factors, sums, place)
        if not new:
            continue
        dot, *others = held
        for each in others:
            dot = code.do(f"fadd {vector} {dot}, {each}")
        for low, high in ((shared, "%wide"), ("%wide", "%columns")):
            with code.loop(low, high, str(lanes), [(vector, dot)]) as (column, held):
                inside = _inside(code, kind, column) if low == "%wide" else ""
                weight = _vector(code, kind, "%w", column, inside)
                held[0] = fma(code, vector, _vector(code, kind, new[k], column, inside), weight, held[0])
            dot = held[0]
        _store(code, kind, kind.element, total(code, dot, kind), "%z", code.add(made, str(k)))
    for low, high in ((shared, "%wide"), ("%wide", "%columns")) if old else ():
        with code.loop(low, high, str(lanes)) as (column, _):
            inside = _inside(code, kind, column) if low == "%wide" else ""
            _add(code, kind, [_vector(code, kind, start, column, inside) for start in old], factors, sums, column)


def _starts(code: Code, kind: Kind, first: str, count: int) -> list[str]:
    """Where ``count`` rows begin; no rows if there is no first one."""
    rows = [code.add(first, str(k)) for k in range(count if first else 0)]
    return [code.at(kind.element, "%x", code.multiply(row, "%columns")) for row in rows]


def _factors(code: Code, kind: Kind, first: str, count: int) -> list[str]:
    """The elements of r of so many rows, each of them as a vector."""
    rows = [code.add(first, str(k)) for k in range(count)]
    return [spread(code, load(code, kind.element, "%r", row), kind) for row in rows]


def _add(code: Code, kind: Kind, vectors: list[str], factors: list[str], sums: str, column: str) -> None:
    """Vectors of rows times the rows' factors, added to the sums at a column."""
    value = load(code, kind.vector, sums, column)
    for each, factor in zip(vectors, factors, strict=True):
        value = fma(code, kind.vector, each, factor, value)
    _store(code, kind, kind.vector, value, sums, column)


def _store(code: Code, kind: Kind, held_as: str, value: str, pointer: str, offset: str) -> None:
    """A vector or a number, from element ``offset`` behind a pointer on."""
    code.run(f"store {held_as} {value}, ptr {code.at(kind.element, pointer, offset)}, align {kind.size}")


def _inside(code: Code, kind: Kind, column: str) -> str:
    """Which lanes of the vector at a column, which runs at most once, lie before the end of the row."""
    lanes = ", ".join(f"i64 {k}" for k in range(kind.lanes))
    numbers = f"<{kind.lanes} x i64>"
    left = code.do(f"sub nsw i64 %columns, {column}")
    every = code.spread(numbers, left)
    return code.do(f"icmp slt {numbers} <{lanes}>, {every}")


def _vector(code: Code, kind: Kind, pointer: str, column: str, inside: str) -> str:
    """What begins at a column; zeros where it is not ``inside``."""
    if not inside:
        return load(code, kind.vector, pointer, column)
    place = f"ptr {code.at(kind.element, pointer, column)}, i32 {kind.size}"
    masked = f"{place}, <{kind.lanes} x i1> {inside}, {kind.vector} zeroinitializer"
    return code.do(f"call {kind.vector} {_tail(kind)}({masked})")


def _tail(kind: Kind) -> str:
    """What loads a part of a vector."""
    return f"@llvm.masked.load.{kind.name}.p0"
