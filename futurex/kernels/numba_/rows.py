"""Compiled ``row_products``: blocks of rows that stay in a core's cache, read once for both products.

A block is multiplied with the vector, four rows at a time; the elementwise region, a kernel of its own, is called on
the block; then its rows are added up, times what the region gave for each. Every thread adds into a vector of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.numba_.blocks import BLOCK_BYTES, BlockKernel, call_region, finished, started
from futurex.kernels.numba_.code import Code, module
from futurex.kernels.numba_.compiler import compiled
from futurex.kernels.numba_.team import Share
from futurex.kernels.numba_.vectors import LANES, VECTOR, fetch, fma, load, spread, total
from futurex.kernels.steps import Step, clearing
from futurex.tree.node import Node

_ROWS = 4
_STEP = 2 * LANES
_NUMBERS = ("rows", "columns", "wide", "height", "stride")
_ARRAYS = ("x", "w", "z", "r")


class RowProducts(BlockKernel):
    """The kernel of one node. Each thread has room for its own sum of the rows."""

    ahead = 2

    def __init__(self, node: Node, threads: int, text: str) -> None:
        super().__init__(node, threads, text)
        rows, columns = node.inputs[0].shape
        self.room = np.zeros((self.threads, -(-columns // _STEP) * _STEP), np.float32)
        self.parts = np.zeros(5, np.int64)
        height = max(_ROWS, BLOCK_BYTES // (4 * columns) // _ROWS * _ROWS)
        self.steps = np.array(self.strides(1), np.int64)
        self.fixed = (rows, columns, columns - columns % _STEP, height, self.room.shape[1])

    @staticmethod
    def text_for(node: Node) -> str:
        return _text()

    @staticmethod
    def matrices(node: Node) -> Sequence[Node]:
        graph = node.attrs["graph"]
        return [*node.inputs[:2], graph.params[0], graph.outs[0]]

    def memory(self, out: tuple[Any, ...], inputs: tuple[Any, ...]) -> tuple[Any, Sequence[Any]]:
        return out[1], (*inputs[:2], *out[1:3])

    def before(self) -> Sequence[Step]:
        return [clearing(address_of(self.room), self.room.nbytes)]

    def after(self, out: tuple[Any, ...]) -> Sequence[Step]:
        self.parts[:] = self.fixed[1], len(self.room), self.room.shape[1], address_of(self.room), address_of(out[0])
        return [compiled(_adding()).step(address_of(self.parts), Share(1, 1))]


@functools.cache
def _text() -> str:
    code, partial = started(_ARRAYS, "%stride")
    with code.loop("%low", "%high", "%height") as (begin, _):
        end = code.least(code.add(begin, "%height"), "%high")
        count = code.do(f"sub nsw i64 {end}, {begin}")
        rest = code.do(f"srem i64 {count}, {_ROWS}")
        full = code.do(f"sub nsw i64 {end}, {rest}")
        for at_once, low, high in ((_ROWS, begin, full), (1, full, end)):
            with code.loop(low, high, str(at_once)) as (row, _):
                _dots(code, row, at_once)
        call_region(code, begin, count)
        for at_once, low, high in ((_ROWS, begin, full), (1, full, end)):
            with code.loop(low, high, str(at_once)) as (row, _):
                _sums(code, row, at_once, partial)
    return finished(code, _NUMBERS, _ARRAYS)


@functools.cache
def _adding() -> str:
    """The code that adds up the sums of all threads, in their order."""
    code = Code()
    with code.loop("0", "%columns") as (column, _):
        first = load(code, "float", "%room", column)
        with code.loop("1", "%count", carried=[("float", first)]) as (part, held):
            here = code.add(code.multiply(part, "%stride"), column)
            held[0] = code.do(f"fadd float {held[0]}, {load(code, 'float', '%room', here)}")
        code.run(f"store float {held[0]}, ptr {code.at('float', '%out', column)}, align 4")
    numbers = [("i64", name) for name in ("columns", "count", "stride")]
    return module([*numbers, ("ptr", "room"), ("ptr", "out")], code, threaded=False)


def _dots(code: Code, row: str, count: int) -> None:
    """z of ``count`` rows from ``row`` on; the rows behind them are fetched meanwhile, which no hardware foresees."""
    starts = [code.at("float", "%x", code.multiply(code.add(row, str(k)), "%columns")) for k in range(count)]
    zeros = [(VECTOR, "zeroinitializer")] * (2 * count)
    behind = code.multiply("%columns", str(count))
    with code.loop("0", "%wide", str(_STEP), zeros) as (column, sums):
        for part in range(2):
            at = code.add(column, str(part * LANES))
            factor = load(code, VECTOR, "%w", at)
            for k, start in enumerate(starts):
                fetch(code, code.at("float", start, code.add(at, behind)))
                sums[2 * k + part] = fma(code, VECTOR, load(code, VECTOR, start, at), factor, sums[2 * k + part])
    wide = [code.do(f"fadd {VECTOR} {sums[2 * k]}, {sums[2 * k + 1]}") for k in range(count)]
    first = [("float", total(code, each)) for each in wide]
    with code.loop("%wide", "%columns", "1", first) as (column, sums):
        factor = load(code, "float", "%w", column)
        for k, start in enumerate(starts):
            sums[k] = fma(code, "float", load(code, "float", start, column), factor, sums[k])
    for k, value in enumerate(sums):
        code.run(f"store float {value}, ptr {code.at('float', '%z', code.add(row, str(k)))}, align 4")


def _sums(code: Code, row: str, count: int, total: str) -> None:
    """``count`` rows from ``row`` on, times their elements of r, added to the thread's total."""
    starts = [code.at("float", "%x", code.multiply(code.add(row, str(k)), "%columns")) for k in range(count)]
    factors = [load(code, "float", "%r", code.add(row, str(k))) for k in range(count)]
    for kind, low, high, step in ((VECTOR, "0", "%wide", LANES), ("float", "%wide", "%columns", 1)):
        wide = [spread(code, each) if kind == VECTOR else each for each in factors]
        with code.loop(low, high, str(step)) as (column, _):
            value = load(code, kind, total, column)
            for start, factor in zip(starts, wide, strict=True):
                value = fma(code, kind, load(code, kind, start, column), factor, value)
            code.run(f"store {kind} {value}, ptr {code.at('float', total, column)}, align 4")
