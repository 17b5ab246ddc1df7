"""Compiled maps of image tiles: one vector of channels of a whole tile is in registers while it is transformed.

The matrix is part of the text, so its zeros and ones cost nothing. What lies outside of the image is read from a row of
zeros and written to one that nobody reads; there are no branches.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.kernels.numba_.channels import TASKS, TYPES, VECTOR, Writer, Written, splat, tasks, threads_for
from futurex.kernels.numba_.code import module
from futurex.kernels.numba_.pairwise import PREFETCH, prefetch
from futurex.kernels.threads import may_share
from futurex.ops.tiles import Matrix
from futurex.tree.node import Node

_GEOMETRY = [*TASKS, "height", "width", "down", "across", "low0", "low1", "hop", "plane"]
_OUTSIDE = (
    f"@zeros = internal constant [{VECTOR} x i8] zeroinitializer, align {VECTOR}",
    f"@nowhere = internal global [{VECTOR} x i8] zeroinitializer, align {VECTOR}",
)


def claim(node: Node, threads: int) -> Written | None:
    """The kernel of a ``tile_transform`` or ``tile_assemble`` node, or None for what is not compiled."""
    source, attrs = node.inputs[0], node.attrs
    if not node.is_static or node.dtype not in TYPES or not math.prod(node.shape) * math.prod(source.shape):
        return None
    assemble = node.op == "tile_assemble"
    image, planes = (node, source) if assemble else (source, node)
    examples, height, width, channels = image.shape
    threads = threads_for(node, threads)
    geometry = (
        *tasks(examples, channels, VECTOR // node.dtype.itemsize, threads), height, width, *attrs["tiles"],
        *attrs["low"], attrs["hop"], math.prod(planes.shape[1:]),
    )  # fmt: skip
    covers = all(count * attrs["hop"] >= size for count, size in zip(attrs["tiles"], image.shape[1:3], strict=True))
    exact = covers and attrs["hop"] == len(attrs["matrix"][0]) and not any(attrs["low"])
    text = _text(node.dtype, attrs["matrix"], assemble, not exact, may_share())
    return Written(node, threads, text, geometry)


@functools.lru_cache(maxsize=64)
def _text(dtype: np.dtype[Any], matrix: Matrix, assemble: bool, adds: bool, threaded: bool) -> str:
    writer = _Writer(dtype, matrix)
    if assemble:
        writer.assemble(adds)
    else:
        writer.transform()
    parameters = [("i64", name) for name in _GEOMETRY] + [("ptr", "out"), ("ptr", "source")]
    return module(parameters, writer.code, threaded, [PREFETCH, *_OUTSIDE])


class _Writer(Writer):
    """The two kernels of one matrix."""

    def __init__(self, dtype: np.dtype[Any], matrix: Matrix) -> None:
        super().__init__(dtype, 1)
        self.matrix = matrix
        self.turned = tuple(zip(*matrix, strict=True))
        self.rows, self.window = len(matrix), len(matrix[0])
        self.single = dtype.itemsize == 4

    def transform(self) -> None:
        """out = P d P' of every tile d of the source."""
        with self.tasks() as (example, begin, end), self.nest(["%down", "%across"]) as at:
            places = self._places(example, at)
            target = self._planes(example, at)
            for vectors, channel in self.channels(begin, end):
                d = [
                    [self.load_at(vectors, self._inside(place, channel, "%source", "@zeros")) for place in row]
                    for row in places
                ]
                found = self._both_sides(self.matrix, d, vectors)
                for number, value in enumerate(found):
                    offset = self.code.add(self.code.multiply("%plane", str(number)), target, channel)
                    if vectors:  # of each plane the next line: there are more of them than a processor foresees
                        later = self.code.add(offset, str(self.lanes))
                        self.code.run(prefetch(self.code.at(self.element, "%out", later), second=True))
                    self.store(vectors, [value], "%out", offset)

    def assemble(self, adds: bool) -> None:
        """out = the sum of P' m P of every tile m of the source; unless tiles cover the image exactly, it ``adds``."""
        code = self.code
        with self.tasks() as (example, begin, end):
            if adds:
                with self.nest(["%height", "%width"]) as (y, x):
                    row = code.add(code.multiply(code.add(code.multiply(example, "%height"), y), "%width"), x)
                    start = code.multiply(row, "%channels")
                    for vectors, channel in self.channels(begin, end):
                        self.store(vectors, [splat(self.kind(vectors), "0.0")], "%out", code.add(start, channel))
            with self.nest(["%down", "%across"]) as at:
                places = self._places(example, at)
                source = self._planes(example, at)
                for vectors, channel in self.channels(begin, end):
                    self._assemble(places, source, vectors, channel, adds)

    def _assemble(self, places: list[Any], source: str, vectors: int, channel: str, adds: bool) -> None:
        code, kind = self.code, self.kind(vectors)
        start = code.add(source, channel)
        planes = [
            self.load(vectors, "%source", code.add(code.multiply("%plane", str(number)), start))[0]
            for number in range(self.rows**2)
        ]
        m = [planes[k * self.rows : (k + 1) * self.rows] for k in range(self.rows)]
        found = iter(self._both_sides(self.turned, m, vectors))
        for row in places:
            for place in row:
                pointer, value = self._inside(place, channel, "%out", "@nowhere"), next(found)
                if adds:
                    value = code.do(f"fadd {kind} {self.load_at(vectors, pointer)}, {value}")
                code.run(f"store {kind} {value}, ptr {pointer}, align {self.align}")

    def load_at(self, vectors: int, pointer: str) -> str:
        """The vector, or the one element, at an address."""
        return self.code.do(f"load {self.kind(vectors)}, ptr {pointer}, align {self.align}")

    def _places(self, example: str, at: Sequence[str]) -> list[list[tuple[str, str]]]:
        """For each position of a tile the offset of its channels in the image, and whether it lies inside."""
        code = self.code
        axes = []
        for axis, (extent, place) in enumerate(zip(("%height", "%width"), at, strict=True)):
            first = code.do(f"sub i64 {code.multiply(place, '%hop')}, %low{axis}")
            starts = [code.add(first, str(k)) for k in range(self.window)]
            axes.append([(start, code.do(f"icmp ult i64 {start}, {extent}")) for start in starts])
        found = []
        for y, inside_y in axes[0]:
            row = code.multiply(code.add(code.multiply(example, "%height"), y), "%width")
            found.append([
                (code.multiply(code.add(row, x), "%channels"), code.do(f"and i1 {inside_y}, {inside_x}"))
                for x, inside_x in axes[1]
            ])  # fmt: skip
        return found

    def _planes(self, example: str, at: Sequence[str]) -> str:
        """The offset of a tile's channels within a plane."""
        code = self.code
        number = code.add(code.multiply(code.add(code.multiply(example, "%down"), at[0]), "%across"), at[1])
        return code.multiply(number, "%channels")

    def _inside(self, place: tuple[str, str], channel: str, array: str, otherwise: str) -> str:
        offset, inside = place
        pointer = self.code.do(f"getelementptr {self.element}, ptr {array}, i64 {self.code.add(offset, channel)}")
        return self.code.do(f"select i1 {inside}, ptr {pointer}, ptr {otherwise}")

    def _both_sides(self, matrix: Sequence[Sequence[float]], values: list[list[str]], vectors: int) -> list[str]:
        """``matrix values matrix'``, row by row."""
        columns = [[self._sum(row, column, vectors) for row in matrix] for column in zip(*values, strict=True)]
        rows = zip(*columns, strict=True)
        return [self._sum(weights, row, vectors) for row in rows for weights in matrix]

    def _sum(self, weights: Sequence[float], values: Sequence[str], vectors: int) -> str:
        """The sum of values times constants, the plain ones first."""
        kind, code = self.kind(vectors), self.code
        terms = sorted(
            ((w, v) for w, v in zip(weights, values, strict=True) if w), key=lambda term: (abs(term[0]) != 1, -term[0])
        )
        total = ""
        for weight, value in terms:
            if not total:
                total = value if weight == 1 else code.do(f"fmul {kind} {value}, {splat(kind, self._constant(weight))}")
            elif abs(weight) == 1:
                total = code.do(f"{'fadd' if weight > 0 else 'fsub'} {kind} {total}, {value}")
            else:
                part = code.do(f"fmul contract {kind} {value}, {splat(kind, self._constant(weight))}")
                total = code.do(f"fadd contract {kind} {total}, {part}")
        return total or splat(kind, "0.0")

    def _constant(self, value: float) -> str:
        """As LLVM writes it: the bits of the double, of the single precision number where that is the type."""
        held = float(np.float32(value)) if self.single else value
        return f"0x{struct.unpack('=Q', struct.pack('=d', held))[0]:016X}"
