"""Compiled ``rank_update``: blocks of rows whose part of the product stays in a core's cache while it is used.

For each row of the matrix a kernel adds up ``x.T @ g``, one vector of ``g`` after the other, and with the same vectors
the dot products of the row with the rows of ``g``; then the elementwise region, a kernel of its own, is called on the
block. The matrix is read before the region may overwrite it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.kernels.numba_.blocks import BLOCK_BYTES, BlockKernel, call_region, finished, started
from futurex.kernels.numba_.code import Code
from futurex.kernels.numba_.vectors import LANES, VECTOR, fma, load, spread, total
from futurex.ops.low_rank import FEW_ROWS, NONE
from futurex.tree.node import Node

_PAIRED = 8
"""Rows of ``x`` and ``g`` up to which two rows of the matrix are made at once: registers for more there are not."""
_NUMBERS = ("rows", "columns", "wide", "height", "stride", "place")
_ARRAYS = ("x", "g", "w", "dx")


class RankUpdate(BlockKernel):
    """The kernel of one node. Each thread has room for one block of the product."""

    def __init__(self, node: Node, threads: int, text: str) -> None:
        super().__init__(node, threads, text)
        rows, columns = node.attrs["graph"].outs[0].shape
        height = max(1, BLOCK_BYTES // (4 * columns))
        outs = [each.aval for each in node.attrs["graph"].outs]
        self.inplace = tuple(k + 1 for k in self.region.arrays if k and node.inputs[k + 1].aval in outs)
        self.room = np.empty((self.threads, height * columns), np.float32)
        place = 1 + self.results + self.region.arrays.index(0)  # where the region looks for the product
        steps = self.strides(columns)
        steps[place] = 0
        self.steps = np.array(steps, np.int64)
        self.fixed = (rows, columns, columns - columns % LANES, height, height * columns, place)

    @staticmethod
    def text_for(node: Node) -> str:
        count = node.inputs[0].shape[0]
        if count > FEW_ROWS:
            raise ValueError(f"{node.op}: a product that is not bound by memory")
        return _text(count, node.attrs["back"] != NONE)

    @staticmethod
    def matrices(node: Node) -> Sequence[Node]:
        graph, back = node.attrs["graph"], node.attrs["back"]
        return [*node.inputs[:2], graph.params[0], *([] if back == NONE else [node.inputs[2 + back]])]

    def memory(self, out: tuple[Any, ...], inputs: tuple[Any, ...]) -> tuple[Any, Sequence[Any]]:
        back = self.node.attrs["back"]
        return None, (*inputs[:2], *((None, None) if back == NONE else (inputs[2 + back], out[-1])))


@functools.cache
def _text(count: int, back: bool) -> str:
    """The kernel for matrices ``x`` and ``g`` of ``count`` rows."""
    code = started(_ARRAYS)
    part = code.at("float", "%room", code.multiply("%ticket", "%stride"))
    with code.loop("%low", "%high", "%height") as (begin, _):
        end = code.least(code.add(begin, "%height"), "%high")
        trips = [(1, begin, end)]
        if count <= _PAIRED:
            odd = code.do(f"srem i64 {code.do(f'sub nsw i64 {end}, {begin}')}, 2")
            pairs = code.do(f"sub nsw i64 {end}, {odd}")
            trips = [(2, begin, pairs), (1, pairs, end)]
        for at_once, first, last in trips:
            with code.loop(first, last, str(at_once)) as (row, _):
                target = code.at("float", part, code.multiply(code.do(f"sub nsw i64 {row}, {begin}"), "%columns"))
                _rows(code, count, back, row, target, at_once)
        elements = code.multiply(code.do(f"sub nsw i64 {end}, {begin}"), "%columns")
        call_region(code, begin, elements, ("%place", part))
    return finished(code, _NUMBERS, _ARRAYS)


def _rows(code: Code, count: int, back: bool, row: str, target: str, at_once: int) -> None:
    """Rows of the product from ``row`` on; with ``back`` the elements of ``dx`` that belong to them."""
    places = [code.add(row, str(j)) if j else row for j in range(at_once)]
    lines = [code.multiply("%rows", str(k)) for k in range(count)]
    factors = [[load(code, "float", "%x", code.add(line, place)) for line in lines] for place in places]
    starts = [code.at("float", "%w", code.multiply(place, "%columns")) for place in places] if back else []
    targets = [code.at("float", target, code.multiply("%columns", str(j))) for j in range(at_once)]
    sums = ["0.0"] * (count * at_once)
    for kind, low, high, step in ((VECTOR, "0", "%wide", LANES), ("float", "%wide", "%columns", 1)):
        wide = kind == VECTOR
        held = [[spread(code, each) for each in own] if wide else own for own in factors]
        first = [(kind, "zeroinitializer" if wide else each) for each in sums] if back else []
        with code.loop(low, high, str(step), first) as (column, dots):
            products = ["zeroinitializer" if wide else "0.0"] * at_once
            weights = [load(code, kind, start, column) for start in starts]
            for k in range(count):
                value = load(code, kind, "%g", code.add(code.multiply("%columns", str(k)), column))
                for j in range(at_once):
                    products[j] = fma(code, kind, held[j][k], value, products[j])
                    if back:
                        dots[j * count + k] = fma(code, kind, value, weights[j], dots[j * count + k])
            for j in range(at_once):
                code.run(f"store {kind} {products[j]}, ptr {code.at('float', targets[j], column)}, align 4")
        sums = [total(code, each) for each in dots] if wide else list(dots)
    for j in range(at_once if back else 0):
        for k, line in enumerate(lines):
            place = code.at("float", "%dx", code.add(line, places[j]))
            code.run(f"store float {sums[j * count + k]}, ptr {place}, align 4")
