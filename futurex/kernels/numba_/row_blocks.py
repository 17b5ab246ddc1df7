"""Regions along rows that fill no vector: a block of rows is one loop.

``(x - mean) / deviation`` of three columns would be loops of three elements. What all rows share is written out once,
as often as a block has rows, and what a row has one element of for each of its columns, a block at a time: then all of
a block are dense elements, one after the other.
"""

from __future__ import annotations

import functools
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
_LEAST = 4096
"""Elements that are worth it."""
_ROWS, _BLOCK = 16, 256
"""Blocks are multiples of so many rows, whatever their length whole vectors, and have so many elements at least."""
_AT_ONCE = 8
"""Elements that are written at once of what a row has one of; the next row is written over those that are too many."""
_SHARED, _SINGLE = (False, True), (True, False)


def suits(region: Region, layout: Layout) -> bool:
    """Are there short rows, dense ones, that do not all lie one behind the other?

    Where rows have elements of their own, writing these out takes longer than a loop along rows of a line or more,
    unless there are functions.
    """
    if len(layout.extents) != 2 or any(layout.axes) or any(each != 1 for each in layout.apart):
        return False
    rows, length = layout.extents
    if length > _longest(region) or rows * length < _LEAST:
        return False
    single = [region.graph.params[k].dtype for k in region.arrays if layout.masks[k] == _SINGLE]
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
        body, self.length = self.body, _BLOCK
        kinds = {name: memory_type(dtype) for name, dtype, _ in self._pointers()}
        shared, single = ([name for name, _, mask in self._pointers() if mask == each] for each in (_SHARED, _SINGLE))
        room = _BLOCK + _ROWS * _longest(self.region) + _AT_ONCE
        rooms = {name: body.emit(f"alloca [{room} x {kinds[name]}], align 64") for name in (*shared, *single)}
        unit = body.emit(f"mul nsw i64 %n1, {_ROWS}")
        units = body.emit(f"udiv i64 {body.emit(f'add nsw i64 {unit}, {_BLOCK - 1}')}, {unit}")
        most = body.emit(f"mul nsw i64 {units}, {_ROWS}")
        lines = self._flush()
        nest = Nest(lines, "entry")
        if shared:
            nest.enter("%copy", "0", most)
            begin = body.emit("mul nsw i64 %copy, %n1")
            lines += self._flush()
            nest.enter("%from", "0", "%n1")
            for name in shared:
                value = self._loaded(kinds[name], name, "%from")
                place = self._address(kinds[name], rooms[name], begin, "%from")
                body.lines.append(f"store {kinds[name]} {value}, ptr {place}")
            lines += self._flush()
            nest.leave()
            nest.leave()
        nest.enter("%block", "%low", "%high", most)
        left = body.emit("sub nsw i64 %high, %block")
        count = body.emit(f"select i1 {body.emit(f'icmp slt i64 {left}, {most}')}, i64 {left}, i64 {most}")
        first, length = body.emit("mul nsw i64 %block, %n1"), body.emit(f"mul nsw i64 {count}, %n1")
        self.rows = {name: rooms.get(name) or self._address(kind, name, first) for name, kind in kinds.items()}
        lines += self._flush()
        if single:
            nest.enter("%row", "0", count)
            source, begin = body.emit("add nsw i64 %block, %row"), body.emit("mul nsw i64 %row, %n1")
            vectors = {name: self._splat(kinds[name], self._loaded(kinds[name], name, source)) for name in single}
            lines += self._flush()
            nest.enter("%to", "0", "%n1", _AT_ONCE)
            for name, vector in vectors.items():
                place = self._address(kinds[name], rooms[name], begin, "%to")
                body.lines.append(f"store <{_AT_ONCE} x {kinds[name]}> {vector}, ptr {place}, align 1")
            lines += self._flush()
            nest.leave()
            nest.leave()
        nest.enter("%i1", "0", length)
        self._element(values)
        lines += self._flush()
        nest.leave(self._abreast())
        nest.leave()
        return lines

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
