"""Compiled ``row_products``: blocks of rows that stay in a core's cache, read once for both products.

A block is multiplied with the vector, four rows at a time; the elementwise region, a kernel of its own, is called on
the block; then its rows are added up, times what the region gave for each. Every thread adds into a vector of its own.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.compiling import is_behind
from futurex.kernels.numba_ import compiler
from futurex.kernels.numba_.code import Code, module
from futurex.kernels.numba_.compiler import compiled
from futurex.kernels.numba_.emit import analyse, emit
from futurex.kernels.numba_.layout import collapse
from futurex.kernels.numba_.vectors import DECLARATIONS, LANES, VECTOR, fma, load, slot, spread, total
from futurex.kernels.threads import openmp
from futurex.tree.node import Node

_BLOCK_BYTES = 256 * 1024
_ROWS = 4
_STEP = 2 * LANES
_FLOAT32 = np.dtype(np.float32)


class RowProducts:
    """The kernel of one node; until it is compiled, and where LLVM refuses it, NumPy computes it."""

    def __init__(self, node: Node, threads: int) -> None:
        self.node = node
        self.wait = not is_behind()
        self.interpreted = 0
        graph = node.attrs["graph"]
        self.region = analyse(graph)
        layout = collapse(graph.outs[0].shape, [each.shape for each in graph.params])
        if len(layout.extents) != 1 or self.region.guarded:
            raise ValueError("row_products: the region is not one loop over the rows")
        assert isinstance(node.aval, tuple)
        operands = [source.aval for source in node.inputs]
        self.checks = [(aval.shape, aval.dtype) for aval in (*node.aval, *operands)]
        self.results = len(node.aval)
        rows, columns = operands[0].shape
        self.threads = threads if openmp() is not None else 1
        self.partial = np.zeros((self.threads, -(-columns // _STEP) * _STEP), np.float32)
        block = max(_ROWS, _BLOCK_BYTES // (4 * columns) // _ROWS * _ROWS)
        self.fixed = (rows, columns, columns - columns % _STEP, block, self.partial.shape[1])
        self.read = [scalar for scalar in self.region.scalars if scalar.position is not None]
        constants = [scalar for scalar in self.region.scalars if scalar.position is None]
        self.constants = b"".join(slot(scalar, scalar.node.value) for scalar in constants)
        arrays = [*graph.outs, *(graph.params[k] for k in self.region.arrays)]
        steps = [0, *(each.dtype.itemsize for each in arrays), *(0 for _ in self.region.scalars)]
        self.steps = np.array(steps, np.int64)
        apart = (-1,) * len(self.region.arrays)
        self.texts = emit(self.region, layout, apart, threaded=False), _text(openmp() is not None)
        self.entries = [compiled(text, wait=False) for text in self.texts]

    @classmethod
    def claim(cls, node: Node, threads: int) -> RowProducts | None:
        """The kernel, or None for what is not compiled: another dtype, functions that hold up to a bound only."""
        if not node.is_static or not compiler.has_fma() or any(each.dtype != _FLOAT32 for each in node.inputs[:2]):
            return None
        graph = node.attrs["graph"]
        if any(each.dtype != _FLOAT32 for each in (graph.params[0], graph.outs[0])) or not node.inputs[0].aval.size:
            return None
        try:
            return cls(node, threads)
        except ValueError:
            return None

    def prepare(self, sharing: Sequence[int], *, wait: bool) -> None:
        """Have both kernels compiled."""
        self.entries = [compiled(text, wait=wait) for text in self.texts]

    @property
    def ready(self) -> bool:
        return all(entry.ready for entry in self.entries)

    def __call__(self, out: tuple[Any, ...], *inputs: Any) -> Any:
        for array, (shape, dtype) in zip((*out, *inputs), self.checks, strict=True):
            if np.shape(array) != shape or (shape and (array.dtype != dtype or not array.flags.c_contiguous)):
                raise ValueError(f"row_products: built for dense {dtype} of shape {shape}, got {np.shape(array)}")
        if not self.ready:
            self.prepare((), wait=self.wait)
        if not self.ready:
            self.interpreted += 1
            with np.errstate(all="ignore"):
                for target, value in zip(out, self.node.record.run(inputs, self.node.attrs), strict=True):
                    np.copyto(target, value)
            return out
        inner, whole = self.entries
        operands = [out[1], *inputs[2:]]  # of the region: the product, and the node's own from the third on
        own = [address_of(each) for each in (*out[2:], *(operands[k] for k in self.region.arrays))]
        scalars = b"".join(slot(scalar, operands[scalar.position]) for scalar in self.read)  # type: ignore[index]
        template = struct.pack(f"={1 + len(own)}q", 0, *own) + scalars + self.constants
        held = np.frombuffer(template, np.int64)
        self.partial[...] = 0
        pointers = (inputs[0], inputs[1], out[1], out[2], self.partial, held, self.steps)
        slots = (*self.fixed, held.size, inner.address, *map(address_of, pointers))
        block = struct.pack(f"={len(slots)}q", *slots)
        if self.threads > 1:
            whole.on_threads(block, self.threads)
        else:
            whole(block)
        np.add.reduce(self.partial[:, : self.fixed[1]], axis=0, out=out[0])
        return out


@functools.cache
def _text(threaded: bool) -> str:
    code = Code()
    thread = code.do("zext i32 %id to i64") if threaded else "0"
    if threaded:
        code.lines.insert(1, "  %id = call i32 @omp_get_thread_num()")
    for name in ("z", "r"):  # the region's kernel reads and writes these, too
        code.run(f"%{name} = inttoptr i64 %{name}.held to ptr")
    code.run("%call = inttoptr i64 %region to ptr")
    total = code.at("float", "%partial", code.multiply(thread, "%stride"))
    local = code.do("alloca i64, i64 %slots, align 8")
    with code.loop("%low", "%high", "%height") as (begin, _):
        end = code.least(code.add(begin, "%height"), "%high")
        count = code.do(f"sub nsw i64 {end}, {begin}")
        rest = code.do(f"srem i64 {count}, {_ROWS}")
        full = code.do(f"sub nsw i64 {end}, {rest}")
        for at_once, low, high in ((_ROWS, begin, full), (1, full, end)):
            with code.loop(low, high, str(at_once)) as (row, _):
                _dots(code, row, at_once)
        with code.loop("0", "%slots") as (slot, _):
            value = code.do(f"load i64, ptr {code.at('i64', '%template', slot)}")
            step = code.do(f"load i64, ptr {code.at('i64', '%steps', slot)}")
            moved = code.add(value, code.multiply(step, begin))
            code.run(f"store i64 {moved}, ptr {code.at('i64', local, slot)}")
        code.run(f"store i64 {count}, ptr {local}")
        code.run(f"call void %call(ptr {local})")
        for at_once, low, high in ((_ROWS, begin, full), (1, full, end)):
            with code.loop(low, high, str(at_once)) as (row, _):
                _sums(code, row, at_once, total)
    parameters = [("i64", name) for name in ("rows", "columns", "wide", "height", "stride", "slots", "region")]
    parameters += [("ptr", "x"), ("ptr", "w"), ("i64", "z.held"), ("i64", "r.held")]
    parameters += [("ptr", name) for name in ("partial", "template", "steps")]
    return module(parameters, code, threaded, DECLARATIONS)


def _dots(code: Code, row: str, count: int) -> None:
    """z of ``count`` rows from ``row`` on."""
    starts = [code.at("float", "%x", code.multiply(code.add(row, str(k)), "%columns")) for k in range(count)]
    zeros = [(VECTOR, "zeroinitializer")] * (2 * count)
    with code.loop("0", "%wide", str(_STEP), zeros) as (column, sums):
        for part in range(2):
            at = code.add(column, str(part * LANES))
            factor = load(code, VECTOR, "%w", at)
            for k, start in enumerate(starts):
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
