"""Kernels that reduce many short rows: sixteen rows lie side by side, and every vector holds one column of theirs.

A row of ten elements fills no vector, and what its sum begins and ends with takes longer than its elements. So sixteen
rows at a time are turned into a buffer that the nearest cache holds, by squares of registers; passes over its elements
are loops without an end to care for, reductions join whole columns, each row in its own lane and in the order in which
NumPy adds it up; and results are turned back. Sums over all rows have a total for each lane, which are joined at a
block's end (:mod:`.crossings`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from futurex.kernels.numba_ import crossings, past
from futurex.kernels.numba_.code import Code, module
from futurex.kernels.numba_.places import Elements, Values, in_order, literal, parameters_of, report, start_of, watch
from futurex.kernels.numba_.rowwise import abreast, shown
from futurex.kernels.numba_.scalar import memory_type
from futurex.kernels.numba_.squares import turned
from futurex.kernels.numba_.sweep import Operand, Sweep
from futurex.ops.sweeps import REDUCTIONS, Level
from futurex.tree.node import Node

Dtype = np.dtype[Any]
LANES = 16
"""Rows side by side."""
LONGEST = 64
"""Elements of a row from which it fills vectors of its own."""
FEWEST = 4 * LANES
"""Rows that are worth it."""
_BLOCK = 64
"""Elements of a loop over the buffer without an end to care for."""
_MOST_BYTES = 96 * 1024
"""Of all buffers: they lie on a thread's stack, and in its second-level cache at worst."""
_JOINS = {"sum": "add", "free_sum": "add", "prod": "mul", "any": "or", "all": "and"}


def numbers(sweep: Sweep, rows: int) -> tuple[int, ...]:
    """The numbers of a kernel: what threads share first, the groups of rows or blocks of them, and the rows."""
    groups = -(-rows // LANES)
    if not sweep.crossed:
        return groups, rows
    blocks, span = crossings.blocks_of(groups)
    return blocks, rows, groups, span


def suits(sweep: Sweep, count: int) -> bool:
    """Does a kernel gain by this? Its rows are many and short."""
    extents = sweep.layout.extents
    if len(extents) != 2 or not sweep.rows or extents[0] < FEWEST:
        return False
    return fits(sweep, count)


def fits(sweep: Sweep, count: int) -> bool:
    """Are rows short, and do their buffers lie near?"""
    if count >= LONGEST or any(node.op != "free_sum" or node.dtype.kind != "f" for node in sweep.crossed):
        return False
    dtypes = {each.dtype for each in (*sweep.nodes, *(operand.node for operand in sweep.operands))}
    if any(dtype.kind == "c" or (dtype.kind == "f" and dtype.itemsize == 2) for dtype in dtypes):
        return False
    return LANES * count * sum(each.itemsize for each in Buffers(sweep).sizes()) <= _MOST_BYTES


class Buffers:
    """What lies in columns: operands, results, costly values of earlier passes, and terms of reductions."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self.operands = [each for each in sweep.operands if sweep.mask(each)[-1]]
        self.results = [node for node in dict.fromkeys(sweep.graph.outs) if sweep.level[node] is Level.FULL]
        self.kept = [node for node in sweep.kept_values if node not in self.results]
        self.terms = [node for node in sweep.nodes if node.op in REDUCTIONS and self._source(node) is None]

    def sizes(self) -> list[Dtype]:
        """The types of all of them."""
        return [
            *(each.node.dtype for each in self.operands),
            *(n.dtype for n in (*self.results, *self.kept, *self.terms)),
        ]

    def names(self) -> list[str]:
        """Their registers: ``%t``: operands, ``%f``: results, ``%k``: values that are kept, ``%b``: terms."""
        parts = (("t", self.operands), ("f", self.results), ("k", self.kept), ("b", self.terms))
        return [f"%{letter}{k}" for letter, each in parts for k in range(len(each))]

    def of_value(self, node: Node) -> str | None:
        """Where a full value lies once its pass is done."""
        if node in self.results:
            return f"%f{self.results.index(node)}"
        return f"%k{self.kept.index(node)}" if node in self.kept else None

    def of_operand(self, operand: Operand) -> str:
        return f"%t{self.operands.index(operand)}"

    def of_terms(self, node: Node) -> str:
        """Where what a reduction joins lies."""
        return self._source(node) or f"%b{self.terms.index(node)}"

    def _source(self, node: Node) -> str | None:
        """A buffer that has a reduction's terms as they are."""
        source = node.inputs[0]
        if source.dtype != node.dtype:
            return None
        if source.inputs:
            return self.of_value(source)
        found = [each for each in self.operands if each.node is source]
        return self.of_operand(found[0]) if len(found) == 1 and all(self.sweep.mask(found[0])) else None


class _Pass(Elements):
    """The elements of one pass over the buffers."""

    def __init__(self, narrow: Narrow, code: Code, stage: int) -> None:
        super().__init__(narrow.sweep, code)
        self.buffers, self.stage = narrow.buffers, stage
        self.asked: dict[Any, tuple[str, Dtype]] = {}
        self.common = self.scalars()

    def begin(self, place: str, slot: str) -> None:
        self.place, self.slot, self.values = place, slot, dict(self.common)
        self.loaded: dict[str, str] = {}

    def _load(self, name: str, dtype: Dtype, at: str) -> str:
        if name not in self.loaded:
            self.loaded[name] = self.body.load(dtype, self.code.at(memory_type(dtype), name, at))
        return self.loaded[name]

    def of_row(self, key: Any, dtype: Dtype) -> str:
        """A value that a whole row shares: those of all rows side by side, as often as a block has them."""
        name, _ = self.asked.setdefault(key, (f"%r{len(self.asked)}", dtype))
        return self._load(name, dtype, self.slot)

    def read(self, operand: Operand) -> str:
        dtype = operand.node.dtype
        if not self.sweep.mask(operand)[-1]:
            return self.of_row(operand, dtype)
        return self._load(self.buffers.of_operand(operand), dtype, self.place)

    def known(self, node: Node) -> str | None:
        if self.sweep.level[node] is Level.REDUCED:
            return self.of_row(node, node.dtype)
        name = self.buffers.of_value(node)
        if name is None or self.sweep.stage[node] == self.stage:
            return None
        return self._load(name, node.dtype, self.place)


class OfRows(Elements):
    """The values of sixteen rows, one lane each; ``first``: the row of the first lane."""

    def __init__(self, sweep: Sweep, code: Code, shared: Values, joined: dict[Node, str], first: str) -> None:
        super().__init__(sweep, code)
        self.shared, self.joined, self.first = shared, joined, first

    def begin(self, lane: str) -> None:
        self.lane, self.values = lane, dict(self.shared)

    def row(self, mask: tuple[bool, ...], lane: str) -> str:
        """The row of a lane, of an array that moves along these loops."""
        return self.code.add(self.first, lane) if mask[0] else "0"

    def read(self, operand: Operand) -> str:
        name = f"%a{self.sweep.operands.index(operand)}"
        place = self.row(self.sweep.mask(operand), self.lane)
        return self.body.load(operand.node.dtype, self.code.at(memory_type(operand.node.dtype), name, place))

    def known(self, node: Node) -> str | None:
        if node not in self.joined:
            return None
        return self.body.load(node.dtype, self.code.at(memory_type(node.dtype), self.joined[node], self.lane))


MadePass = tuple[list[tuple[str, str]], _Pass]
Row = Callable[[str], str]
"""The row of an array that is a lane's."""


class Narrow:
    """The text of one kernel for rows of ``count`` elements."""

    def __init__(self, sweep: Sweep, count: int) -> None:
        self.sweep, self.count = sweep, count
        self.buffers = Buffers(sweep)
        self.parameters = parameters_of(
            sweep, ["blocks", "rows", "groups", "span"] if sweep.crossed else ["groups", "rows"]
        )
        self.functions: list[str] = []
        self.declared: set[str] = set()

    def text(self, threaded: bool) -> str:
        """The module."""
        passes = [self._pass(stage) for stage in range(self.sweep.stages)]
        code = self._groups(passes)
        return module(self.parameters, code, threaded, [*sorted(self.declared), *self.functions])

    def _pass(self, stage: int) -> MadePass:
        """``@fill`` computes what a pass lays down of all elements. Gives its parameters."""
        sweep, code = self.sweep, Code(stage + 1)
        if sweep.guarded:
            watch(code)
        elements = _Pass(self, code, stage)
        joined = [*sweep.reductions(stage), *sweep.crossings(stage)]
        terms = [node for node in self.buffers.terms if node in joined]
        kept = [node for node in (*sweep.results(stage), *self.buffers.kept) if sweep.stage[node] == stage]

        def each(block: str, lane: str) -> None:
            place = code.add(block, lane)
            elements.begin(place, lane)
            for node in terms:
                self._put(elements, node.dtype, elements.taken(node), self.buffers.of_terms(node))
            for node in kept:
                self._put(elements, node.dtype, elements.computed(node), self.buffers.of_value(node))

        if terms or kept:
            size = self.count * LANES
            whole = size - size % _BLOCK
            for low, high, step in ((0, whole, _BLOCK), (whole, size, LANES)):
                if low < high:
                    with (
                        code.loop(str(low), str(high), str(step)) as (block, _),
                        code.loop("0", str(step), lanes=LANES, abreast=min(abreast(sweep), step // LANES)) as (lane, _),
                    ):
                        each(block, lane)
        if sweep.guarded:
            report(code)
        self.declared |= elements.body.intrinsics
        given = [("ptr", name) for name in self.buffers.names()]
        given += [(memory_type(scalar.dtype), f"%s{k}") for k, scalar in enumerate(sweep.scalars)]
        given += [("ptr", name) for name, _ in elements.asked.values()]
        given.append(("ptr", "%scratch"))
        self.functions += [
            f"define internal void @fill{stage}({shown(given)}) noinline {{", *code.lines, "  ret void", "}",
            *code.notes,
        ]  # fmt: skip
        return given, elements

    def _put(self, elements: _Pass, dtype: Dtype, value: str, name: str | None) -> None:
        elements.body.store(dtype, value, elements.code.at(memory_type(dtype), str(name), elements.place))

    def _groups(self, passes: list[MadePass]) -> Code:
        sweep, code = self.sweep, Code()
        joined, shared = self._begun(code, passes)
        for operand in self.buffers.operands:
            if not sweep.mask(operand)[0]:
                self._spread(code, operand)
        with self._shared(code) as (begin, end), code.loop(begin, end) as (group, _):
            first = code.least(code.multiply(group, str(LANES)), code.do(f"sub nsw i64 %rows, {LANES}"))
            rows = OfRows(sweep, code, shared, joined, first)
            for operand in self.buffers.operands:
                if sweep.mask(operand)[0]:
                    self._turn(code, operand, rows)
            again = code.do(f"sub nsw i64 {code.multiply(group, str(LANES))}, {first}") if sweep.crossed else ""
            self._done(code, rows, passes, again)
        return self._ended(code, rows)

    def _begun(self, code: Code, passes: list[MadePass]) -> tuple[dict[Node, str], Values]:
        """The memory of one thread: where what rows are reduced to lies; and the scalars."""
        sweep = self.sweep
        if sweep.guarded:
            watch(code)  # of what is computed of rows
        size = LANES * self.count
        for name, dtype in zip(self.buffers.names(), self.buffers.sizes(), strict=True):
            code.lines.append(f"  {name} = alloca [{size} x {memory_type(dtype)}], align 64")
        of_rows = [node for node in sweep.nodes if node.op in REDUCTIONS and node not in sweep.crossed]
        joined = {node: f"%j{k}" for k, node in enumerate(of_rows)}
        for node, name in joined.items():
            code.lines.append(f"  {name} = alloca [{LANES} x {memory_type(node.dtype)}], align 64")
        for k, node in enumerate(sweep.crossed):
            code.lines.append(f"  %x{k} = alloca [{size} x {memory_type(node.dtype)}], align 64")
        for stage, (_, made) in enumerate(passes):
            for name, dtype in made.asked.values():
                code.lines.append(f"  {name}.{stage} = alloca [{_BLOCK} x {memory_type(dtype)}], align 64")
        return joined, Elements(sweep, code).scalars()

    def _ended(self, code: Code, rows: OfRows) -> Code:
        if self.sweep.guarded:
            report(code)
        self.declared |= rows.body.intrinsics
        return code

    def _done(self, code: Code, rows: OfRows, passes: list[MadePass], again: str) -> None:
        """All passes over sixteen rows whose operands are laid down, and what becomes of them; ``again``: so many of
        the first ones were counted before."""
        sweep = self.sweep
        for stage, (given, made) in enumerate(passes):
            self._give(code, rows, made)
            asked = {name: f"{name}.{stage}" for name, _ in made.asked.values()}
            passed = ", ".join(f"{kind} {asked.get(name, name)}" for kind, name in given)
            code.run(f"call void @fill{stage}({passed})")
            for node in sweep.reductions(stage):
                self._join(code, node, rows.joined[node])
            for node in sweep.crossings(stage):
                self._cross(code, node, again)
        everywhere = (True,) * (len(sweep.layout.extents) - 1)
        for k, node in enumerate(self.buffers.results):
            for number, out in enumerate(sweep.graph.outs):
                if out is node:
                    self._turn_back(code, node.dtype, f"%f{k}", f"%o{number}", lambda lane: rows.row(everywhere, lane))
        reduced = [k for k, node in enumerate(sweep.graph.outs) if sweep.level[node] is Level.REDUCED]
        if reduced:
            with code.loop("0", str(LANES), lanes=LANES) as (lane, _):
                rows.begin(lane)
                for k in reduced:
                    node = sweep.graph.outs[k]
                    place = code.at(memory_type(node.dtype), f"%o{k}", rows.row(everywhere, lane))
                    rows.body.store(node.dtype, rows.computed(node), place)

    @contextlib.contextmanager
    def _shared(self, code: Code) -> Iterator[tuple[str, str]]:
        """First and last group of a thread, or of each of its blocks, whose totals begin and end with it."""
        crossed, outs = self.sweep.crossed, self.sweep.graph.outs
        if not crossed:
            yield "%low", "%high"
            return
        self.declared.add(past.DECLARATIONS[0])
        totals = crossings.Totals(code, crossed, str(self.count))
        with code.loop("%low", "%high") as (block, _):
            first = code.multiply(block, "%span")
            for k, node in enumerate(crossed):
                kind, size = memory_type(node.dtype), node.dtype.itemsize
                with code.loop("0", str(LANES * self.count), str(LANES)) as (place, _):
                    pointer = code.at(kind, f"%x{k}", place)
                    code.run(f"store <{LANES} x {kind}> zeroinitializer, ptr {pointer}, align {min(64, LANES * size)}")
            yield first, code.least(code.add(first, "%span"), "%groups")
            for k, (node, total) in enumerate(zip(crossed, totals.of(block), strict=True)):
                self._across(code, node, f"%x{k}", total)
        totals.finish([f"%o{outs.index(node)}" for node in crossed])

    def _cross(self, code: Code, node: Node, again: str) -> None:
        """Add a group's terms to the totals of each lane, but for the first lanes, whose rows were counted before."""
        kind, size = memory_type(node.dtype), node.dtype.itemsize
        vector, numbers, align = f"<{LANES} x {kind}>", f"<{LANES} x i64>", min(64, LANES * size)
        one = code.do(f"insertelement {numbers} poison, i64 {again}, i64 0")
        every = code.do(f"shufflevector {numbers} {one}, {numbers} poison, <{LANES} x i32> zeroinitializer")
        own = code.do(f"icmp sge {numbers} <{', '.join(f'i64 {k}' for k in range(LANES))}>, {every}")
        totals = f"%x{self.sweep.crossed.index(node)}"
        with code.loop("0", str(LANES * self.count), str(LANES)) as (place, _):
            term = code.do(f"load {vector}, ptr {code.at(kind, self.buffers.of_terms(node), place)}, align {align}")
            term = code.do(f"select <{LANES} x i1> {own}, {vector} {term}, {vector} zeroinitializer")
            pointer = code.at(kind, totals, place)
            total = code.do(f"fadd {vector} {code.do(f'load {vector}, ptr {pointer}, align {align}')}, {term}")
            code.run(f"store {vector} {total}, ptr {pointer}, align {align}")

    def _across(self, code: Code, node: Node, totals: str, target: str) -> None:
        """What the lanes of each column sum up to."""
        kind, size = memory_type(node.dtype), node.dtype.itemsize
        vector, name = f"<{LANES} x {kind}>", f"@llvm.vector.reduce.fadd.{_suffix(node.dtype, LANES)}"
        self.declared.add(f"declare {kind} {name}({kind}, {vector})")
        with code.loop("0", str(self.count)) as (column, _):
            place = code.at(kind, totals, code.multiply(column, str(LANES)))
            value = code.do(f"load {vector}, ptr {place}, align {min(64, LANES * size)}")
            total = code.do(f"call reassoc {kind} {name}({kind} -0.0, {vector} {value})")
            code.run(f"store {kind} {total}, ptr {code.at(kind, target, column)}, align {size}")

    def _give(self, code: Code, rows: OfRows, made: _Pass) -> None:
        """Lay down what a pass asks of each row, as often as a block has the rows."""
        if not made.asked:
            return
        with code.loop("0", str(LANES), lanes=LANES) as (lane, _):
            rows.begin(lane)
            for key, (name, dtype) in made.asked.items():
                value = rows.read(key) if isinstance(key, Operand) else rows.computed(key)
                for start in range(0, _BLOCK, LANES):
                    place = code.at(memory_type(dtype), f"{name}.{made.stage}", code.add(lane, str(start)))
                    rows.body.store(dtype, value, place)

    # -- between rows and columns ------------------------------------------------------------------------------------

    def _spread(self, code: Code, operand: Operand, row: str = "0") -> None:
        """A row of an operand that sixteen share, as often as there are lanes."""
        kind = memory_type(operand.node.dtype)
        source, target = f"%a{self.sweep.operands.index(operand)}", self.buffers.of_operand(operand)
        source = source if row == "0" else code.at(kind, source, code.multiply(row, str(self.count)))
        with code.loop("0", str(self.count)) as (column, _):
            size = operand.node.dtype.itemsize
            value = code.do(f"load {kind}, ptr {code.at(kind, source, column)}, align {size}")
            with code.loop("0", str(LANES), lanes=LANES) as (lane, _):
                place = code.at(kind, target, code.add(code.multiply(column, str(LANES)), lane))
                code.run(f"store {kind} {value}, ptr {place}, align {size}")

    def _squares(self, code: Code, dtype: Dtype, move: Any) -> None:
        """``move(side, first, width)`` for all squares of columns: their side, the first column and how many there
        are; whole ones in a loop."""
        side = 64 // dtype.itemsize if dtype.itemsize >= 4 else LANES
        whole = self.count - self.count % side
        if whole:
            with code.loop("0", str(whole), str(side)) as (column, _):
                move(side, column, side)
        rest = self.count - whole
        if rest:
            while side // 2 >= rest and side > 2:
                side //= 2
            move(side, str(whole), rest)

    def _turn(self, code: Code, operand: Operand, rows: OfRows) -> None:
        """Sixteen rows of an operand as columns."""
        dtype, mask = operand.node.dtype, self.sweep.mask(operand)
        source, target = f"%a{self.sweep.operands.index(operand)}", self.buffers.of_operand(operand)
        kind = memory_type(dtype)

        def move(side: int, column: str, width: int) -> None:
            vector = f"<{side} x {kind}>"
            for start in range(0, LANES, side):
                square = []
                for row in range(start, start + side):
                    place = code.add(code.multiply(rows.row(mask, str(row)), str(self.count)), column)
                    square.append(self._load(code, dtype, side, width, code.at(kind, source, place)))
                for k, value in enumerate(turned(code.do, square, kind)[:width]):
                    place = code.multiply(code.add(column, str(k)), str(LANES))
                    pointer = code.at(kind, target, code.add(place, str(start)))
                    code.run(f"store {vector} {value}, ptr {pointer}, align {side * dtype.itemsize}")

        self._squares(code, dtype, move)

    def _turn_back(self, code: Code, dtype: Dtype, source: str, target: str, row: Row) -> None:
        """Columns as sixteen rows of a result."""
        kind = memory_type(dtype)

        def move(side: int, column: str, width: int) -> None:
            vector = f"<{side} x {kind}>"
            for start in range(0, LANES, side):
                square = []
                for k in range(width):
                    place = code.multiply(code.add(column, str(k)), str(LANES))
                    pointer = code.at(kind, source, code.add(place, str(start)))
                    square.append(code.do(f"load {vector}, ptr {pointer}, align {side * dtype.itemsize}"))
                square += ["poison"] * (side - width)
                for k, value in enumerate(turned(code.do, square, kind)):
                    place = code.add(code.multiply(row(str(start + k)), str(self.count)), column)
                    self._store(code, dtype, side, width, value, code.at(kind, target, place))

        self._squares(code, dtype, move)

    def _load(self, code: Code, dtype: Dtype, side: int, width: int, pointer: str) -> str:
        """The first ``width`` elements of a vector."""
        vector = f"<{side} x {memory_type(dtype)}>"
        if width == side:
            return code.do(f"load {vector}, ptr {pointer}, align {dtype.itemsize}")
        name = f"@llvm.masked.load.{_suffix(dtype, side)}.p0"
        self.declared.add(f"declare {vector} {name}(ptr, i32, <{side} x i1>, {vector})")
        mask = _mask(side, width)
        return code.do(f"call {vector} {name}(ptr {pointer}, i32 {dtype.itemsize}, {mask}, {vector} zeroinitializer)")

    def _store(self, code: Code, dtype: Dtype, side: int, width: int, value: str, pointer: str) -> None:
        vector = f"<{side} x {memory_type(dtype)}>"
        if width == side:
            code.run(f"store {vector} {value}, ptr {pointer}, align {dtype.itemsize}")
            return
        name = f"@llvm.masked.store.{_suffix(dtype, side)}.p0"
        self.declared.add(f"declare void {name}({vector}, ptr, i32, <{side} x i1>)")
        mask = _mask(side, width)
        code.run(f"call void {name}({vector} {value}, ptr {pointer}, i32 {dtype.itemsize}, {mask})")

    # -- reductions --------------------------------------------------------------------------------------------------

    def _join(self, code: Code, node: Node, target: str) -> None:
        """What the columns of a reduction's terms join to, as NumPy joins the elements of each row."""
        kind = memory_type(node.dtype)
        vector, source, size = f"<{LANES} x {kind}>", self.buffers.of_terms(node), node.dtype.itemsize
        columns = [
            code.do(f"load {vector}, ptr {code.at(kind, source, str(k * LANES))}, align {min(64, LANES * size)}")
            for k in range(self.count)
        ]

        def both(x: str, y: str) -> str:
            return self._joined(code, node, vector, x, y)

        if node.op == "prod" and in_order(node):
            chains = 1
        elif in_order(node):
            chains = 8 if self.count >= 8 else 1
        else:
            chains = min(4, self.count)
        whole = self.count - self.count % chains if in_order(node) else self.count
        held = columns[:chains]
        for k in range(chains, whole):
            held[k % chains] = both(held[k % chains], columns[k])
        while len(held) > 1:
            held = [both(*held[k : k + 2]) if k + 1 < len(held) else held[k] for k in range(0, len(held), 2)]
        total = held[0]
        for column in columns[whole:]:
            total = both(total, column)
        if node.dtype.kind == "f":
            begun = literal(node.dtype, start_of(node))
            one = code.do(f"insertelement {vector} poison, {kind} {begun}, i64 0")
            every = code.do(f"shufflevector {vector} {one}, {vector} poison, <{LANES} x i32> zeroinitializer")
            total = both(every, total)
        code.run(f"store {vector} {total}, ptr {target}, align {min(64, LANES * size)}")

    def _joined(self, code: Code, node: Node, vector: str, x: str, y: str) -> str:
        op, floating, kind = node.op, node.dtype.kind == "f", node.dtype.kind
        if op in _JOINS:
            word = _JOINS[op]
            if kind == "b" and word in ("add", "mul"):
                word = "or" if word == "add" else "and"
            return code.do(f"{'f' if floating else ''}{word} {vector} {x}, {y}")
        if op == "free_max" and floating:
            wins = code.do(f"fcmp ogt {vector} {y}, {x}")
            return code.do(f"select <{LANES} x i1> {wins}, {vector} {y}, {vector} {x}")
        word = "min" if op == "min" else "max"
        if floating:
            name = f"@llvm.{word}imum.{_suffix(node.dtype, LANES)}"
        else:
            name = f"@llvm.{'s' if kind == 'i' else 'u'}{word}.{_suffix(node.dtype, LANES)}"
        self.declared.add(f"declare {vector} {name}({vector}, {vector})")
        return code.do(f"call {vector} {name}({vector} {x}, {vector} {y})")


def _suffix(dtype: Dtype, lanes: int) -> str:
    """How names of intrinsics of vectors end."""
    return f"v{lanes}{'f' if dtype.kind == 'f' else 'i'}{8 * dtype.itemsize}"


def _mask(side: int, width: int) -> str:
    return f"<{side} x i1> <{', '.join(f'i1 {int(k < width)}' for k in range(side))}>"
