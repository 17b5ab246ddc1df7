"""Reductions of a row in an order that suits vectors: sixty-four running values, joined at the row's end.

Sums are as exact as NumPy's in pairs, and nothing is laid down for them: the compiler keeps the values in registers.
"""

from __future__ import annotations

from collections.abc import Sequence

from futurex.kernels.numba_.code import Code
from futurex.kernels.numba_.crossings import add
from futurex.kernels.numba_.places import InCode, literal, start_of
from futurex.kernels.numba_.scalar import register_type
from futurex.tree.node import Node

RUNNING = 64
_LANES = 16
_REDUCED = {"free_sum": "fadd", "free_max": "fmax"}


def suits(node: Node) -> bool:
    """Is the order of a reduction free, and does it matter to vectors?"""
    return node.op in _REDUCED and node.dtype.kind == "f" and node.dtype.itemsize > 2


class Running:
    """The reductions ``nodes`` of one function, begun where it begins, of ``count`` running values."""

    def __init__(self, code: Code, nodes: Sequence[Node], count: int = RUNNING) -> None:
        self.code, self.nodes, self.count = code, list(nodes), count
        self.declared: set[str] = set()
        for k, node in enumerate(self.nodes):
            kind, value = register_type(node.dtype), literal(node.dtype, start_of(node))
            code.run(f"%f{k} = alloca [{count} x {kind}], align 64")
            begun = f"<{', '.join([f'{kind} {value}'] * _LANES)}>"
            for first in range(0, count, _LANES):
                place = code.at(kind, f"%f{k}", str(first))
                code.run(f"store <{_LANES} x {kind}> {begun}, ptr {place}, align 64")
            begins = f"{kind}, " if node.op == "free_sum" else ""
            self.declared.add(f"declare {kind} @{self._across(node)}({begins}<{_LANES} x {kind}>)")

    def _across(self, node: Node) -> str:
        return f"llvm.vector.reduce.{_REDUCED[node.op]}.v{_LANES}f{8 * node.dtype.itemsize}"

    def begun(self) -> list[tuple[str, str]]:
        """Types and first values of those that are carried on one element at a time."""
        return [(register_type(node.dtype), literal(node.dtype, start_of(node))) for node in self.nodes]

    def add(self, body: InCode, node: Node, slot: str, terms: tuple[str, ...]) -> None:
        """One more element, for the running value of this number."""
        add(body, node, f"%f{self.nodes.index(node)}", slot, terms)

    def finish(self, node: Node) -> str:
        """All joined to one."""
        code, kind, name = self.code, register_type(node.dtype), f"%f{self.nodes.index(node)}"
        vector = f"<{_LANES} x {kind}>"
        parts = [
            code.do(f"load {vector}, ptr {code.at(kind, name, str(first))}, align 64")
            for first in range(0, self.count, _LANES)
        ]
        while len(parts) > 1:
            parts = [self._joined(node, vector, x, y) for x, y in zip(parts[::2], parts[1::2], strict=True)]
        begins = f"{kind} -0.0, " if node.op == "free_sum" else ""
        flags = "reassoc" if node.op == "free_sum" else "nnan"
        return code.do(f"call {flags} {kind} @{self._across(node)}({begins}{vector} {parts[0]})")

    def _joined(self, node: Node, vector: str, x: str, y: str) -> str:
        if node.op == "free_sum":
            return self.code.do(f"fadd {vector} {x}, {y}")
        larger = self.code.do(f"fcmp ogt {vector} {x}, {y}")
        return self.code.do(f"select <{_LANES} x i1> {larger}, {vector} {x}, {vector} {y}")
