"""Compiled ``rank_update``: blocks of rows whose part of the product stays in a core's cache while it is used.

For each row of the matrix a kernel adds up ``x.T @ g``, one vector of ``g`` after the other, and with the same vectors
the dot products of the row with the rows of ``g``; then the elementwise region, a kernel of its own, is called on the
block. The matrix is read before the region may overwrite it.
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
from futurex.kernels.numba_.compiler import Entry, compiled
from futurex.kernels.numba_.emit import analyse, emit
from futurex.kernels.numba_.layout import collapse
from futurex.kernels.numba_.vectors import DECLARATIONS, LANES, VECTOR, fma, load, slot, spread, total
from futurex.kernels.threads import openmp
from futurex.ops.low_rank import NONE
from futurex.tree.node import Node

_BLOCK_BYTES = 256 * 1024
_PAIRED = 8
"""Rows of ``x`` and ``g`` up to which two rows of the matrix are made at once: registers for more there are not."""
_FLOAT32 = np.dtype(np.float32)
_NUMBERS = ("rows", "columns", "wide", "height", "stride", "slots", "place", "region")
_ADDRESSES = ("x", "g", "w", "dx", "scratch", "template", "steps")


class RankUpdate:
    """The kernel of one node; until it is compiled, and where LLVM refuses it, NumPy computes it."""

    def __init__(self, node: Node, threads: int) -> None:
        self.node = node
        self.wait = not is_behind()
        self.interpreted = 0
        graph = node.attrs["graph"]
        self.region = analyse(graph)
        self.layout = collapse(graph.outs[0].shape, [each.shape for each in graph.params])
        assert isinstance(node.aval, tuple)
        self.results = len(graph.outs)
        self.checks = [(aval.shape, aval.dtype) for aval in (*node.aval, *(each.aval for each in node.inputs))]
        rows, columns = graph.outs[0].shape
        self.threads = threads if openmp() is not None else 1
        height = max(1, _BLOCK_BYTES // (4 * columns))
        self.scratch = np.empty((self.threads, height * columns), np.float32)
        self.fixed = (rows, columns, columns - columns % LANES, height, height * columns)
        self.read = [scalar for scalar in self.region.scalars if scalar.position is not None]
        constants = [scalar for scalar in self.region.scalars if scalar.position is None]
        self.constants = b"".join(slot(scalar, scalar.node.value) for scalar in constants)
        arrays = [*graph.outs, *(graph.params[k] for k in self.region.arrays)]
        steps = [0, *(columns * each.dtype.itemsize for each in arrays), *(0 for _ in self.region.scalars)]
        self.place = 1 + self.results + self.region.arrays.index(0)  # where the region looks for the product
        steps[self.place] = 0
        self.steps = np.array(steps, np.int64)
        self.text = _text(node.inputs[0].shape[0], node.attrs["back"] != NONE, openmp() is not None)
        self.whole = compiled(self.text, wait=False)
        self.variants: dict[tuple[int, ...], Entry] = {}

    @classmethod
    def claim(cls, node: Node, threads: int) -> RankUpdate | None:
        """The kernel, or None for what is not compiled: another dtype, functions that hold up to a bound only."""
        graph, back = node.attrs["graph"], node.attrs["back"]
        matrices = [*node.inputs[:2], graph.params[0], *([] if back == NONE else [node.inputs[2 + back]])]
        if not node.is_static or not compiler.has_fma() or any(each.dtype != _FLOAT32 for each in matrices):
            return None
        try:
            kernel = cls(node, threads)
        except ValueError:
            return None
        return kernel if len(kernel.layout.extents) == 1 and not kernel.region.guarded else None

    @property
    def inplace(self) -> tuple[int, ...]:
        """Inputs whose memory a result may take."""
        outs = [each.aval for each in self.node.attrs["graph"].outs]
        return tuple(k + 1 for k in self.region.arrays if k and self.node.inputs[k + 1].aval in outs)

    def prepare(self, sharing: Sequence[int], *, wait: bool) -> None:
        """Have both kernels compiled, the region's as the plan will use it."""
        self._variant(tuple(sharing[k + 1] if k else -1 for k in self.region.arrays), wait=wait)
        self.whole = compiled(self.text, wait=wait)

    @property
    def ready(self) -> bool:
        return self.whole.ready and all(entry.ready for entry in self.variants.values())

    def _variant(self, aliases: tuple[int, ...], *, wait: bool) -> Entry:
        """The region's kernel for operands that share memory with these results (-1: with none)."""
        entry = self.variants.get(aliases)
        if entry is None or (wait and not entry.ready and entry.error is None):
            text = emit(self.region, self.layout, aliases, threaded=False)
            entry = self.variants[aliases] = compiled(text, wait=wait)
        return entry

    def __call__(self, out: tuple[Any, ...], *inputs: Any) -> Any:
        for array, (shape, dtype) in zip((*out, *inputs), self.checks, strict=True):
            if np.shape(array) != shape or (shape and (array.dtype != dtype or not array.flags.c_contiguous)):
                raise ValueError(f"rank_update: built for dense {dtype} of shape {shape}, got {np.shape(array)}")
        written = [address_of(each) for each in out]
        operands = [None, *inputs[2:]]  # of the region: the product, and the node's own from the third on
        read = [address_of(operands[k]) if k else 0 for k in self.region.arrays]
        aliases = tuple(written.index(each) if each in written else -1 for each in read)
        inner = self._variant(aliases, wait=self.wait)
        if not self.whole.ready:
            self.whole = compiled(self.text, wait=self.wait)
        if not self.whole.ready or not inner.ready:
            return self._interpret(out, inputs)
        scalars = b"".join(slot(scalar, operands[scalar.position]) for scalar in self.read)  # type: ignore[index]
        own = [*written[: self.results], *read]
        template = struct.pack(f"={1 + len(own)}q", 0, *own) + scalars + self.constants
        held = np.frombuffer(template, np.int64)
        back = self.node.attrs["back"]
        w, dx = (0, 0) if back == NONE else (address_of(inputs[2 + back]), written[-1])
        own_memory = map(address_of, (self.scratch, held, self.steps))
        addresses = (address_of(inputs[0]), address_of(inputs[1]), w, dx, *own_memory)
        slots = (*self.fixed, held.size, self.place, inner.address, *addresses)
        block = struct.pack(f"={len(slots)}q", *slots)
        if self.threads > 1:
            self.whole.on_threads(block, self.threads)
        else:
            self.whole(block)
        return out

    def _interpret(self, out: tuple[Any, ...], inputs: Sequence[Any]) -> Any:
        """NumPy computes it; as compiled code it says nothing of floating-point errors."""
        self.interpreted += 1
        with np.errstate(all="ignore"):
            found = self.node.record.run(inputs, self.node.attrs)
        for target, value in zip(out, [np.array(each) for each in found], strict=True):
            np.copyto(target, value)
        return out


@functools.cache
def _text(count: int, back: bool, threaded: bool) -> str:
    """The kernel for matrices ``x`` and ``g`` of ``count`` rows."""
    code = Code()
    thread = code.do("zext i32 %id to i64") if threaded else "0"
    if threaded:
        code.lines.insert(1, "  %id = call i32 @omp_get_thread_num()")
    for name in _ADDRESSES:  # what the region reads and writes, too, is no memory of this kernel's own
        code.run(f"%{name} = inttoptr i64 %{name}.held to ptr")
    code.run("%call = inttoptr i64 %region to ptr")
    part = code.at("float", "%scratch", code.multiply(thread, "%stride"))
    local = code.do("alloca i64, i64 %slots, align 8")
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
        with code.loop("0", "%slots") as (slot, _):
            value = code.do(f"load i64, ptr {code.at('i64', '%template', slot)}")
            step = code.do(f"load i64, ptr {code.at('i64', '%steps', slot)}")
            code.run(f"store i64 {code.add(value, code.multiply(step, begin))}, ptr {code.at('i64', local, slot)}")
        code.run(f"store i64 {code.multiply(code.do(f'sub nsw i64 {end}, {begin}'), '%columns')}, ptr {local}")
        code.run(f"store ptr {part}, ptr {code.at('i64', local, '%place')}")
        code.run(f"call void %call(ptr {local})")
    parameters = [*(("i64", name) for name in _NUMBERS), *(("i64", f"{name}.held") for name in _ADDRESSES)]
    return module(parameters, code, threaded, DECLARATIONS)


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
