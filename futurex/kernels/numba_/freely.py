"""Sums of a row in an order that suits vectors: sixty-four running sums, joined at the row's end.

They are as exact as NumPy's sums in pairs, and nothing is laid down for them; the compiler keeps them in registers.
"""

from __future__ import annotations

from collections.abc import Sequence

from futurex.kernels.numba_.code import Code
from futurex.kernels.numba_.crossings import add
from futurex.kernels.numba_.scalar import register_type
from futurex.tree.node import Node

RUNNING = 64
_LANES = 16


def suits(node: Node) -> bool:
    """Is the order of a reduction free, and does it matter to vectors?"""
    return node.op == "free_sum" and node.dtype.kind == "f"


class Sums:
    """The sums ``nodes`` of one function, begun where it begins."""

    def __init__(self, code: Code, nodes: Sequence[Node]) -> None:
        self.code, self.nodes = code, list(nodes)
        self.declared: set[str] = set()
        for k, node in enumerate(self.nodes):
            kind = register_type(node.dtype)
            code.run(f"%f{k} = alloca [{RUNNING} x {kind}], align 64")
            for first in range(0, RUNNING, _LANES):
                place = code.at(kind, f"%f{k}", str(first))
                code.run(f"store <{_LANES} x {kind}> zeroinitializer, ptr {place}, align 64")
            vector = f"<{_LANES} x {kind}>"
            self.declared.add(f"declare {kind} @{self._total(node)}({kind}, {vector})")

    def _total(self, node: Node) -> str:
        return f"llvm.vector.reduce.fadd.v{_LANES}f{8 * node.dtype.itemsize}"

    def add(self, node: Node, slot: str, value: str) -> None:
        """One more term, for the running sum of this number."""
        add(self.code, node, f"%f{self.nodes.index(node)}", slot, value)

    def finish(self, node: Node, cell: str) -> None:
        """Add all to a number in memory."""
        code, kind, name = self.code, register_type(node.dtype), f"%f{self.nodes.index(node)}"
        vector = f"<{_LANES} x {kind}>"
        parts = [
            code.do(f"load {vector}, ptr {code.at(kind, name, str(first))}, align 64")
            for first in range(0, RUNNING, _LANES)
        ]
        while len(parts) > 1:
            parts = [code.do(f"fadd {vector} {x}, {y}") for x, y in zip(parts[::2], parts[1::2], strict=True)]
        begun = code.do(f"load {kind}, ptr {cell}, align {node.dtype.itemsize}")
        total = code.do(f"call reassoc {kind} @{self._total(node)}({kind} {begun}, {vector} {parts[0]})")
        code.run(f"store {kind} {total}, ptr {cell}, align {node.dtype.itemsize}")
