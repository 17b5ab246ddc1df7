"""Regions along rows that fill no vector: a block of rows is one loop.

``(x - mean) / deviation`` of three columns would be loops of three elements. What all rows of a matrix share is written
out once, as often as a block has rows, and what a row has one element of for each of its columns, a block at a time:
then all of a block are dense elements, one after the other.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.kernels.numba_.compiler import has_scale
from futurex.kernels.numba_.emit import Emitter, Region
from futurex.kernels.numba_.layout import Layout
from futurex.kernels.numba_.nests import Nest
from futurex.kernels.numba_.pairwise import LINE
from futurex.kernels.numba_.scalar import memory_type
from futurex.tree.node import Node

LONGEST, _LONGEST_OF_FUNCTIONS = 63, 255
"""Elements of rows whose own loops are too short: longer ones, too, where functions take several vectors side by side
(:data:`.emit.LEAST_ABREAST`)."""
_LEAST, _LEAST_OF_MATRIX = 4096, 512
"""Elements, and of one matrix of a stack, that are worth it."""
_ROWS, _BLOCK = 16, 256
"""Blocks are multiples of so many rows, whatever their length whole vectors, and have so many elements at least."""
_AT_ONCE = 8
"""Elements that are written at once of what a row has one of; the next row is written over those that are too many."""
_SHARED, _SINGLE, _CONSTANT = (False, True), (True, False), (False, False)
"""Along which of the last two loops an operand moves."""


def suits(region: Region, layout: Layout) -> bool:
    """Are there short rows, dense ones, that do not all lie one behind the other?

    Where rows have elements of their own, writing these out takes longer than a loop along rows of a line or more,
    unless there are functions.
    """
    if len(layout.extents) < 2 or any(layout.axes) or any(each != 1 for each in layout.apart):
        return False
    *outer, rows, length = layout.extents
    if length > _longest(region) or math.prod(layout.extents) < _LEAST or (outer and rows * length < _LEAST_OF_MATRIX):
        return False
    single = [region.graph.params[k].dtype for k in region.arrays if layout.masks[k][-2:] == _SINGLE]
    if any(dtype.kind == "c" for dtype in single):
        return False
    return region.approximate or all(length * dtype.itemsize < LINE for dtype in single)


def _longest(region: Region) -> int:
    return _LONGEST_OF_FUNCTIONS if region.approximate and not has_scale() else LONGEST


def emit(region: Region, layout: Layout, aliases: Sequence[int], threaded: bool) -> str:
    """The IR of the kernel ``@region``, as :func:`.emit.emit` writes it."""
    return _InBlocks(region, layout, aliases, aside=False).module(threaded)


class _InBlocks(Emitter):
    """The loop over rows is one over blocks, with a loop over their elements."""

    def _loops(self, values: dict[tuple[Node, np.dtype[Any]], str]) -> list[str]:
        body, self.length, block, wide = self.body, _BLOCK, self.depth - 2, f"%n{self.depth - 1}"
        operands = {name: (memory_type(dtype), mask) for name, dtype, mask in self._pointers()}
        room = _BLOCK + _ROWS * _longest(self.region) + _AT_ONCE
        rooms = {
            name: body.emit(f"alloca [{room} x {kind}], align 64")
            for name, (kind, mask) in operands.items() if mask[-2:] in (_SHARED, _SINGLE)
        }  # fmt: skip
        unit = body.emit(f"mul nsw i64 {wide}, {_ROWS}")
        units = body.emit(f"udiv i64 {body.emit(f'add nsw i64 {unit}, {_BLOCK - 1}')}, {unit}")
        most = body.emit(f"mul nsw i64 {units}, {_ROWS}")
        lines = self._flush()
        nest = Nest(lines, "entry")
        for d in range(block):
            nest.enter(f"%i{d}", *self._ends(d))
        self.rows = {name: self._begin(name) for name, (_, mask) in operands.items() if not mask[-2]}
        for name, dtype, mask in self._pointers():
            if mask[-2:] == _CONSTANT:
                values[self.array_nodes[int(name[2:])], dtype] = body.load(dtype, self.rows[name])
        shared = {name: kind for name, (kind, mask) in operands.items() if mask[-2:] == _SHARED}
        low, high = self._ends(block)
        if shared:
            count = body.emit(f"sub nsw i64 {high}, {low}")
            count = body.emit(f"select i1 {body.emit(f'icmp slt i64 {count}, {most}')}, i64 {count}, i64 {most}")
            lines += self._flush()
            nest.enter("%copy", "0", count)
            begin = body.emit(f"mul nsw i64 %copy, {wide}")
            lines += self._flush()
            nest.enter("%from", "0", wide)
            for name, kind in shared.items():
                place = self._address(kind, rooms[name], begin, "%from")
                body.lines.append(f"store {kind} {self._loaded(kind, self.rows[name], '%from')}, ptr {place}")
            lines += self._flush()
            nest.leave()
            nest.leave()
        lines += self._flush()
        nest.enter(f"%i{block}", low, high, most)
        left = body.emit(f"sub nsw i64 {high}, %i{block}")
        count = body.emit(f"select i1 {body.emit(f'icmp slt i64 {left}, {most}')}, i64 {left}, i64 {most}")
        length = body.emit(f"mul nsw i64 {count}, {wide}")
        self.rows |= {name: self._begin(name) for name, (_, mask) in operands.items() if mask[-2]}
        lines += self._flush()
        single = {name: kind for name, (kind, mask) in operands.items() if mask[-2:] == _SINGLE}
        if single:
            nest.enter("%row", "0", count)
            begin = body.emit(f"mul nsw i64 %row, {wide}")
            vectors = [self._splat(kind, self._loaded(kind, self.rows[name], "%row")) for name, kind in single.items()]
            lines += self._flush()
            nest.enter("%to", "0", wide, _AT_ONCE)
            for (name, kind), vector in zip(single.items(), vectors, strict=True):
                place = self._address(kind, rooms[name], begin, "%to")
                body.lines.append(f"store <{_AT_ONCE} x {kind}> {vector}, ptr {place}, align 1")
            lines += self._flush()
            nest.leave()
            nest.leave()
        self.rows |= rooms
        nest.enter(self.index, "0", length)
        self._element(values)
        lines += self._flush()
        nest.leave(self._abreast())
        while nest.open:
            nest.leave()
        return lines

    def _ends(self, d: int) -> tuple[str, str]:
        """Where a loop begins and ends."""
        return ("%low", "%high") if d == 0 else ("0", f"%n{d}")

    def _begin(self, name: str) -> str:
        """Where the row lies that the loops around have come to."""
        dtype, mask = next((dtype, mask) for each, dtype, mask in self._pointers() if each == name)
        return self._address(memory_type(dtype), name, self._densely(mask))

    def _address(self, kind: str, start: str, *places: str) -> str:
        place = functools.reduce(lambda x, y: self.body.emit(f"add nsw i64 {x}, {y}"), places)
        return self.body.emit(f"getelementptr inbounds {kind}, ptr {start}, i64 {place}")

    def _loaded(self, kind: str, name: str, place: str) -> str:
        return self.body.emit(f"load {kind}, ptr {self._address(kind, name, place)}")

    def _splat(self, kind: str, value: str) -> str:
        """A value in every lane."""
        one = self.body.emit(f"insertelement <{_AT_ONCE} x {kind}> poison, {kind} {value}, i32 0")
        places = f"<{_AT_ONCE} x i32> zeroinitializer"
        return self.body.emit(f"shufflevector <{_AT_ONCE} x {kind}> {one}, <{_AT_ONCE} x {kind}> poison, {places}")
