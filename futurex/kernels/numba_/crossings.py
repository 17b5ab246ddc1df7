"""Sums over all rows in blocks: beside what kernels do with each row, in the same trip through memory, or alone.

Rows are shared in blocks whose number follows from that of the rows alone, so results do not depend on the number of
threads. A block adds its rows to totals of its own, which lie in the nearest cache; the thread that ends last adds up
the blocks, one after the other. Totals lie in ``scratch`` memory behind its head, each on lines of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from futurex.kernels.numba_.code import Code
from futurex.kernels.numba_.pairwise import LINE
from futurex.kernels.numba_.places import InCode, added, total_at
from futurex.kernels.numba_.scalar import memory_type
from futurex.tree.node import Node

MOST_BLOCKS, LEAST_ROWS = 32, 32
"""Blocks that any number of rows is cut into at most, and rows that are worth one."""
HEAD = 16
"""Bytes of scratch memory before results of parts: a counter, and the flag of arguments beyond bounds."""
_PAGE = 4096
_APART = 20 * LINE
"""A processor takes a load for one of what was just stored where the last twelve bits of their addresses are the same:
totals lie apart from where rows begin, and from each other, as long as these begin with pages."""
CLEARING = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"


def blocks_of(rows: int) -> tuple[int, int]:
    """How many blocks there are, and how many rows one has; the last one may have fewer."""
    span = -(-rows // min(MOST_BLOCKS, max(1, rows // LEAST_ROWS)))
    return -(-rows // span), span


def room(nodes: Sequence[Node], blocks: int, columns: int) -> int:
    """Bytes for the totals of all blocks."""
    own = sum(-(-columns * node.dtype.itemsize // LINE) * LINE + _APART for node in nodes)
    return _PAGE + blocks * -(-own // _PAGE) * _PAGE


class Totals:
    """The totals of the sums ``nodes`` over rows of ``width`` elements, for one function's code, which is called for
    some of all ``blocks``."""

    def __init__(self, code: Code, nodes: Sequence[Node], width: str = "%n", blocks: str = "%blocks") -> None:
        self.code, self.nodes, self.width, self.blocks = code, nodes, width, blocks
        address = code.do("ptrtoint ptr %scratch to i64")
        gap = code.do(f"and i64 {code.do(f'sub i64 {-HEAD}, {address}')}, {_PAGE - 1}")
        self.base = code.at("i8", "%scratch", code.add(gap, str(HEAD)))
        self.offsets, end = [], "0"
        for node in nodes:
            self.offsets.append(code.add(end, str(_APART)))
            filled = code.add(code.multiply(width, str(node.dtype.itemsize)), str(LINE - 1))
            end = code.add(self.offsets[-1], code.do(f"and i64 {filled}, -{LINE}"))
        self.stride = code.do(f"and i64 {code.add(end, str(_PAGE - 1))}, -{_PAGE}")

    def of(self, block: str) -> list[str]:
        """Where the totals of a block begin."""
        start = self.code.at("i8", self.base, self.code.multiply(block, self.stride))
        return [self.code.at("i8", start, offset) for offset in self.offsets]

    def clear(self, totals: Sequence[str]) -> None:
        """Let the totals of a block begin at zero."""
        for node, total in zip(self.nodes, totals, strict=True):
            size = self.code.multiply(self.width, str(node.dtype.itemsize))
            self.code.run(f"call void @llvm.memset.p0.i64(ptr {total}, i8 0, i64 {size}, i1 false)")

    def finish(self, results: Sequence[str]) -> None:
        """After the blocks from ``%low`` to ``%high``: whoever is the last one adds up those of all."""
        code = self.code
        mine = code.do("sub i64 %high, %low")
        done = code.add(code.do(f"atomicrmw add ptr %scratch, i64 {mine} acq_rel"), mine)
        last = code.do(f"zext i1 {code.do(f'icmp eq i64 {done}, {self.blocks}')} to i64")
        with code.loop("0", last):
            first = self.of("0")
            with code.loop("1", self.blocks) as (block, _):
                for node, total, part in zip(self.nodes, first, self.of(block), strict=True):
                    with code.loop("0", self.width) as (column, _):
                        body = InCode(code)
                        more = body.load(node.dtype, code.at(memory_type(node.dtype), part, column))
                        add(body, node, total, column, (more,))
            for node, total, result in zip(self.nodes, first, results, strict=True):
                size = code.multiply(self.width, str(node.dtype.itemsize))
                code.run(f"call void @llvm.memcpy.p0.p0.i64(ptr {result}, ptr {total}, i64 {size}, i1 false)")


def add(body: InCode, node: Node, totals: str, place: str, terms: tuple[str, ...]) -> None:
    """Add a value, or a product, to one element of totals."""
    pointer = body.code.at(memory_type(node.dtype), totals, place)
    body.store(node.dtype, added(body, node, total_at(body, node, pointer), terms), pointer)
