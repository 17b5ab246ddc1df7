"""What one row of a region is reduced to, and where it lies in every array."""

from __future__ import annotations

from typing import Any, Protocol

from futurex.kernels.numba_ import past
from futurex.kernels.numba_.code import Code
from futurex.kernels.numba_.places import Elements, Values, in_order, literal, start_of
from futurex.kernels.numba_.scalar import memory_type, register_type
from futurex.kernels.numba_.sweep import Operand, Sweep
from futurex.ops.sweeps import Level
from futurex.tree.node import Node


class OfRows(Protocol):
    """What a kernel over rows tells of itself: reductions that end in cells of memory, results that go past the caches,
    those of them that passes send on themselves, and whether there is one long row."""

    sweep: Sweep
    joins: list[Node]
    aside: list[Node]
    sent: list[Node]
    whole: bool


class MadePass:
    """A pass as it is called: what it is given, and which values of the row it asks for."""

    def __init__(
        self, stage: int, ordered: list[Node], given: list[tuple[str, str]], asked: list[Any], function: str
    ) -> None:
        self.stage, self.ordered, self.given, self.asked, self.function = stage, ordered, given, asked, function


class RowValues(Elements):
    """The reduced values of one row, and the row's place in every array."""

    def __init__(
        self, rows: OfRows, code: Code, row: str, shared: Values, cells: dict[Node, str] | None = None
    ) -> None:
        super().__init__(rows.sweep, code)
        self.rows = rows
        self.values |= shared
        self.pointers: dict[str, str] = {}
        self.results: dict[Node, str] = {}
        self.loaded: dict[Operand, str] = {}
        self.row = row
        self.index = self._index(row)
        self.joins = {node: f"%j{k}" for k, node in enumerate(rows.joins)} if cells is None else cells
        self._point(row)

    def _index(self, row: str) -> list[str]:
        """The counters of the kept loops."""
        depth = len(self.sweep.layout.extents) - 1
        if depth <= 1:
            return [row] * depth
        found = []
        for d in reversed(range(1, depth)):
            found.append(self.code.do(f"urem i64 {row}, %e{d}"))
            row = self.code.do(f"udiv i64 {row}, %e{d}")
        return [row, *reversed(found)]

    def _point(self, row: str) -> None:
        sweep, code = self.sweep, self.code
        for k, node in enumerate(sweep.graph.outs):
            if sweep.level[node] is Level.FULL:
                self.results[node] = code.at(memory_type(node.dtype), f"%o{k}", code.multiply(row, "%n"))
                aside = self.rows.aside
                waits = node in aside and node not in self.rows.sent
                self.pointers[f"%o{k}.row"] = f"%w{aside.index(node)}" if waits else self.results[node]
        for k, operand in enumerate(sweep.operands):
            mask = sweep.mask(operand)
            offset = "0"
            for d, index in enumerate(self.index):
                if mask[d]:
                    offset = index if offset == "0" else code.add(code.multiply(offset, f"%e{d}"), index)
            if mask[-1] and offset != "0":
                offset = code.multiply(offset, "%n")
            self.pointers[f"%a{k}.row"] = code.at(memory_type(operand.node.dtype), f"%a{k}", offset)

    def read(self, operand: Operand) -> str:
        if operand not in self.loaded:
            pointer = self.pointers[f"%a{self.sweep.operands.index(operand)}.row"]
            self.loaded[operand] = self.body.load(operand.node.dtype, pointer)
        return self.loaded[operand]

    def give(self, node: Node, value: str) -> None:
        """The result of a reduction; NumPy's sums begin at zero, which has a sign."""
        if in_order(node) and node.op == "sum":
            value = self.body.emit(f"fadd {register_type(node.dtype)} 0.0, {value}")
        self.values[node, node.dtype] = value

    def run(self, made: MadePass, start: str, count: str) -> dict[Node, str]:
        """One pass over the row, or over a piece of it; gives the sums, and takes them as the row's."""
        reductions = self.sweep.reductions(made.stage)
        for node in reductions:
            if node in self.joins:
                self.body.store(node.dtype, literal(node.dtype, start_of(node)), self.joins[node])
        asked = {}
        for (_, name), key in zip(made.given[len(made.given) - len(made.asked) :], made.asked, strict=True):
            asked[name] = self.read(key) if isinstance(key, Operand) else self.computed(key)
        joins = {f"%j{k}": self.joins.get(node, "null") for k, node in enumerate(self.rows.joins)}
        names = {**self.pointers, **joins, **asked}
        passed = ", ".join(f"{kind} {names.get(name, name)}" for kind, name in made.given)
        sums = [node for node in made.ordered if node.op == "sum"]
        result = "{" + ", ".join(register_type(node.dtype) for node in sums) + "}" if sums else "void"
        call = f"call {result} {made.function}(i64 {start}, i64 {count}, {passed})"
        found = {}
        if sums:
            held = self.code.do(call)
            found = {node: self.code.do(f"extractvalue {result} {held}, {k}") for k, node in enumerate(sums)}
        else:
            self.code.run(call)
        if not self.rows.whole:
            for node in reductions:
                self.give(node, found[node] if node in found else self.body.load(node.dtype, self.joins[node]))
        return found

    def write(self) -> None:
        """Store the row's reduced results, and send on what goes past the caches."""
        for k, node in enumerate(self.rows.aside):
            if node in self.rows.sent:
                continue
            count = self.code.multiply("%n", str(node.dtype.itemsize))
            self.code.run(past.row_sent(self.results[node], f"%w{k}", count))
        self.write_reduced()

    def write_reduced(self) -> None:
        """Store the row's reduced results."""
        for k, node in enumerate(self.sweep.graph.outs):
            if self.sweep.level[node] is Level.REDUCED:
                value = self.computed(node)
                self.body.store(node.dtype, value, self.code.at(memory_type(node.dtype), f"%o{k}", self.row))
