"""Kernels that reduce along leading dimensions: rows are added to the results one after the other, as NumPy does.

A task is a range of columns of one array of rows; its totals stay in the nearest cache, and in lines that no other
thread writes to, while the rows stream by, four at a time. Totals of narrow rows stay in registers, and rows follow
each other as they lie in memory. Either way the processor foresees what is read, and nothing is asked for ahead; but
where few lines may be on their way to the nearest cache (:mod:`~futurex.kernels.numba_.nearest`), rows of memory are
taken one by one, and of parts of rows those of the next four are asked for into the second cache; where many may be,
all of the next four rows into the nearest one.

Sums whose order is free are cut along the rows instead, into blocks whose totals are added up at the end
(:mod:`~futurex.kernels.numba_.crossings`): a thread then reads all of a row, and what lies between its lines is not
fetched for nothing.
"""

from __future__ import annotations

from futurex.kernels.numba_ import crossings, nearest, pairwise, past
from futurex.kernels.numba_.code import Code, module
from futurex.kernels.numba_.places import (
    Elements,
    Values,
    added,
    literal,
    parameters_of,
    report,
    start_of,
    total_at,
    watch,
)
from futurex.kernels.numba_.scalar import memory_type
from futurex.kernels.numba_.sweep import Operand, Sweep
from futurex.ops.sweeps import REDUCTIONS, Level
from futurex.tree.node import Node

AT_ONCE = 4
"""Rows that one trip over the columns takes, where totals are in memory."""
LANES = 16
"""Columns that are one vector, or two; a task's columns are such blocks, but for the last."""
MOST_COLUMNS = 1024
"""Of one task."""
MOST_VECTORS = 16
"""That the compiler lets stand side by side."""
NARROW = 1024
"""Bytes of a row up to which registers hold its totals; twice as many where the nearest cache is small, which gains
most by rows that follow each other as they lie."""


def in_registers(sweep: Sweep, tile: int) -> bool:
    """Do registers hold the totals of so many columns?"""
    reduced = [node for node in sweep.graph.outs if sweep.level[node] is Level.REDUCED]
    narrow = 2 * NARROW if nearest.small() else NARROW
    return tile <= MOST_VECTORS * LANES and tile * sum(node.dtype.itemsize for node in reduced) <= narrow


def in_blocks(sweep: Sweep) -> bool:
    """May rows be added up in blocks?"""
    *outer, _, columns = sweep.layout.extents
    free = all(node.op == "free_sum" for node in sweep.nodes if sweep.level[node] is Level.REDUCED)
    return free and not outer and columns <= MOST_COLUMNS


class Columns:
    """The text of one kernel. ``width``: the columns of every task, if they are few: part of the text then, so that the
    compiler keeps their totals in registers. ``blocks``: a task is a block of rows. ``distant``: as of kernels over
    rows; whole rows are then taken one by one, and of ``parts`` of rows those of later ones asked for."""

    def __init__(
        self, sweep: Sweep, width: int = 0, blocks: bool = False, distant: bool = False, parts: bool = False
    ) -> None:
        self.sweep = sweep
        self.near = nearest.wide()
        self.asks = (distant and parts) or self.near
        self.width = width
        self.blocks = blocks
        self.at_once = 1 if width or (distant and not parts) else AT_ONCE
        self.outer = len(sweep.layout.extents) - 2
        self.numbers = ["tasks", "n", "columns", "tile", "tiles", *(f"e{d}" for d in range(self.outer))]
        self.numbers += ["span"] if blocks else []
        self.parameters = parameters_of(sweep, self.numbers)
        self.result = {node: k for k, node in enumerate(sweep.graph.outs) if node.op in REDUCTIONS}
        if set(self.result) != {node for node in sweep.nodes if sweep.level[node] is Level.REDUCED}:
            raise ValueError("a region that reduces columns ends with the reductions")

    def text(self, threaded: bool) -> str:
        sweep = self.sweep
        code = Code()
        if sweep.guarded:
            watch(code)
        totals = {node: f"%t{k}" for k, node in enumerate(self.result)}
        for node, name in totals.items():
            code.lines.append(f"  {name} = alloca [{MOST_COLUMNS} x {memory_type(node.dtype)}], align 64")
        shared = Elements(sweep, code).scalars()
        declared: set[str] = set()
        parts = crossings.Totals(code, list(self.result), "%columns", "%tasks") if self.blocks else None
        with code.loop("%low", "%high") as (task, _):
            outer = "0" if parts else code.do(f"udiv i64 {task}, %tiles")
            first = "0" if parts else code.multiply(code.do(f"urem i64 {task}, %tiles"), "%tile")
            width = str(self.width) if self.width else code.least("%tile", code.do(f"sub i64 %columns, {first}"))
            begun, ended = self._rows(code, task)
            begin = Elements(sweep, code)
            with code.loop("0", width) as (column, _):
                for node, pointer in totals.items():
                    value = literal(node.dtype, start_of(node))
                    begin.body.store(node.dtype, value, code.at(memory_type(node.dtype), pointer, column))
            blocks = str(self.width // LANES * LANES) if self.width else code.do(f"and i64 {width}, -{LANES}")
            index = self._index(code, outer)
            rest = code.do(f"urem i64 {code.do(f'sub i64 {ended}, {begun}')}, {self.at_once}")
            whole = code.do(f"sub i64 {ended}, {rest}")
            for low, high, count in ((begun, whole, self.at_once), (whole, ended, 1))[: self.at_once]:
                with code.loop(low, high, str(count)) as (row, _):
                    rows = [
                        _Row(self, code, index, code.add(row, str(k)), first, shared) for k in range(count)
                    ]
                    for left, right in self._spans():
                        vectors = (right - left) // LANES
                        with code.loop(str(left), str(right), lanes=LANES, abreast=vectors) as (column, _):
                            self._column(code, rows, column, totals)
                    if not self.width:
                        with code.loop("0", blocks, str(LANES)) as (block, _):
                            declared |= self._ask(code, rows, block)
                            with code.loop("0", str(LANES), lanes=LANES) as (lane, _):
                                self._column(code, rows, code.add(block, lane), totals)
                    with code.loop(blocks, width) as (column, _):
                        self._column(code, rows, column, totals)
                    for each in rows:
                        declared |= each.body.intrinsics
            made = parts.of(task) if parts else [f"%o{k}" for k in self.result.values()]
            place = "0" if parts else code.add(code.multiply(outer, "%columns"), first)
            with code.loop("0", width) as (column, _):
                for node, target in zip(self.result, made, strict=True):
                    kind = memory_type(node.dtype)
                    value = begin.body.load(node.dtype, code.at(kind, totals[node], column))
                    begin.body.store(node.dtype, value, code.at(kind, target, code.add(place, column)))
        if parts:
            parts.finish([f"%o{k}" for k in self.result.values()])
            declared.add(past.DECLARATIONS[0])
        if sweep.guarded:
            report(code)
        return module(self.parameters, code, threaded, sorted(declared))

    def _rows(self, code: Code, task: str) -> tuple[str, str]:
        """The first row of a task and the one behind its last."""
        if not self.blocks:
            return "0", "%n"
        first = code.multiply(task, "%span")
        return first, code.least(code.add(first, "%span"), "%n")

    def _ask(self, code: Code, rows: list[_Row], column: str) -> set[str]:
        """Ask for these columns of later rows, into the nearest cache if that is wide; what has to be declared for
        that."""
        sweep = self.sweep
        streams = [k for k, each in enumerate(sweep.operands) if self.asks and all(sweep.mask(each)[-2:])]
        for k in streams:
            dtype = sweep.operands[k].node.dtype
            later = code.multiply("%columns", str(AT_ONCE * dtype.itemsize))
            for each in rows:
                place = code.at("i8", code.at(memory_type(dtype), each.pointers[k], column), later)
                for byte in range(0, LANES * dtype.itemsize, pairwise.LINE):
                    code.run(pairwise.prefetch(code.at("i8", place, str(byte)), second=not self.near))
        return {pairwise.PREFETCH} if streams else set()

    def _spans(self) -> list[tuple[int, int]]:
        """Columns whose vectors are side by side, which the compiler has as many of as a power of two."""
        found, begun = [], 0
        for bit in reversed(range((self.width // LANES).bit_length())):
            if self.width // LANES >> bit & 1:
                found.append((begun, begun + (LANES << bit)))
                begun = found[-1][1]
        return found

    def _index(self, code: Code, outer: str) -> list[str]:
        found = []
        for d in reversed(range(1, self.outer)):
            found.append(code.do(f"urem i64 {outer}, %e{d}"))
            outer = code.do(f"udiv i64 {outer}, %e{d}")
        return [outer, *reversed(found)] if self.outer else []

    def _column(self, code: Code, rows: list[_Row], column: str, totals: dict[Node, str]) -> None:
        """One element of each row: its full results stored, its part of the reductions joined to them."""
        sweep = self.sweep
        held: dict[Node, tuple[str, str]] = {}
        body = rows[0].body
        for node, pointer in totals.items():
            place = code.at(memory_type(node.dtype), pointer, column)
            held[node] = place, total_at(body, node, place)
        for each in rows:
            each.begin(column)
            for k, node in enumerate(sweep.graph.outs):
                if sweep.level[node] is Level.FULL:
                    value = each.computed(node)
                    place = code.at(memory_type(node.dtype), each.results[k], column)
                    each.body.store(node.dtype, value, place)
            for node, (place, total) in held.items():
                held[node] = place, added(each.body, node, total, each.terms(node))
        for node, (place, total) in held.items():
            body.store(node.dtype, total, place)


class _Row(Elements):
    """Where one row of every array begins; operands that do not move along the columns are read once."""

    def __init__(
        self, columns: Columns, code: Code, index: list[str], row: str, first: str, shared: Values
    ) -> None:
        sweep = columns.sweep
        super().__init__(sweep, code)
        self.shared = shared
        self.pointers: list[str] = []
        self.fixed: dict[Operand, str] = {}
        self.loaded: dict[Operand, str] = {}
        counters = [*index, row]
        names = [*(f"%e{d}" for d in range(columns.outer)), "%n"]
        for k, operand in enumerate(sweep.operands):
            mask = sweep.mask(operand)
            offset = self._offset(counters, names, mask)
            if mask[-1]:
                offset = code.add(first, code.multiply(offset, "%columns")) if offset != "0" else first
            pointer = code.at(memory_type(operand.node.dtype), f"%a{k}", offset)
            self.pointers.append(pointer)
            if not mask[-1]:
                self.fixed[operand] = self.body.load(operand.node.dtype, pointer)
        place = self._offset(counters, names, (True,) * len(counters))
        place = code.add(first, code.multiply(place, "%columns"))
        self.results = {
            k: code.at(memory_type(node.dtype), f"%o{k}", place)
            for k, node in enumerate(sweep.graph.outs)
            if sweep.level[node] is Level.FULL
        }

    def _offset(self, counters: list[str], names: list[str], mask: tuple[bool, ...]) -> str:
        offset = "0"
        for counter, name, moves in zip(counters, names, mask, strict=False):
            if moves:
                scaled = offset if offset == "0" else self.code.multiply(offset, name)
                offset = counter if scaled == "0" else self.code.add(scaled, counter)
        return offset

    def begin(self, column: str) -> None:
        self.column = column
        self.values = dict(self.shared)
        self.loaded = dict(self.fixed)

    def read(self, operand: Operand) -> str:
        if operand not in self.loaded:
            pointer = self.pointers[self.sweep.operands.index(operand)]
            kind = memory_type(operand.node.dtype)
            self.loaded[operand] = self.body.load(operand.node.dtype, self.code.at(kind, pointer, self.column))
        return self.loaded[operand]
