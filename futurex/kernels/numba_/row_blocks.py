"""Regions along rows that fill no vector: a block of rows is one loop.

``(x - mean) / deviation`` of three columns would be loops of three elements. What all rows of a matrix share is written
out once, as often as a block has rows, and what a row has one element of for each of its columns, a block at a time:
then all of a block are dense elements, one after the other.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.kernels.numba_ import past
from futurex.kernels.numba_.code import least, loop_note, spread
from futurex.kernels.numba_.compiler import has_scale
from futurex.kernels.numba_.emit import Emitter, goes_aside
from futurex.kernels.numba_.layout import Axes, Layout
from futurex.kernels.numba_.nests import Nest
from futurex.kernels.numba_.pairwise import LINE
from futurex.kernels.numba_.region import Region
from futurex.kernels.numba_.scalar import memory_type
from futurex.ops.strides import LEAST_IN_BLOCKS
from futurex.tree.node import Node

LONGEST, _LONGEST_OF_FUNCTIONS = 63, 255
"""Elements of rows whose own loops are too short: longer ones, too, where functions take several vectors side by side
(:data:`.emit.LEAST_ABREAST`)."""
_LEAST_OF_MATRIX = 512
"""Elements of one matrix of a stack that are worth it."""
_ROWS, _BLOCK = 16, 256
"""Blocks are multiples of so many rows, whatever their length whole vectors, and have so many elements at least."""
_AT_ONCE = 8
"""Elements that are written at once of what a row has one of; the next row is written over those that are too many."""
_FIRST_NOTE, _AS_WRITTEN = 700, ('"llvm.loop.unroll.disable"', '"llvm.loop.vectorize.enable", i1 false')
"""The number of the first note of such a loop, and what it says: rows are short, and each loop over one a beginning."""
_FULL, _SHARED, _SINGLE, _CONSTANT = (True, True), (False, True), (True, False), (False, False)
"""Along which of the last two loops an operand moves."""


@dataclass(frozen=True)
class _Operand:
    """An array by its register, its elements, the loops along which it moves, and the axes along which it has gaps."""

    name: str
    dtype: np.dtype[Any]
    mask: tuple[bool, ...]
    axes: Axes

    @property
    def kind(self) -> str:
        """The type of an element."""
        return memory_type(self.dtype)

    @property
    def is_written_out(self) -> bool:
        """Do the elements of a block not lie as they are to be read?"""
        moves = self.mask[-2:]
        return moves in (_SHARED, _SINGLE) or (moves == _FULL and bool(self.axes))


def suits(region: Region, layout: Layout) -> bool:
    """Are there short rows, dense ones, that do not all lie one behind the other? Those of the result do.

    What rows have one element of, or lies with gaps between them, is written out block by block: that takes longer than
    a loop along rows of a line or more, unless there are functions.
    """
    if len(layout.extents) < 2 or layout.axes[-1] or any(each != 1 for each in layout.apart):
        return False
    *outer, rows, length = layout.extents
    if length > _longest(region) or math.prod(layout.extents) < LEAST_IN_BLOCKS:
        return False
    if outer and rows * length < _LEAST_OF_MATRIX:
        return False
    params = region.graph.params
    single = {k for k in region.arrays if layout.masks[k][-2:] == _SINGLE}
    apart = {k for k in region.arrays if layout.axes[k]}
    if any(params[k].dtype.kind == "c" for k in single):
        return False
    return region.approximate or all(length * params[k].dtype.itemsize < LINE for k in single | apart)


def _longest(region: Region) -> int:
    return _LONGEST_OF_FUNCTIONS if region.approximate and not has_scale() else LONGEST


def emit(
    region: Region, layout: Layout, aliases: Sequence[int], threaded: bool, written: Sequence[Node] = ()
) -> str:
    """The IR of the kernel ``@region``, as :func:`.emit.emit` writes it."""
    return _InBlocks(region, layout, aliases, goes_aside(region, aliases, written)).module(threaded)


class _InBlocks(Emitter):
    """The loop over rows is one over blocks, with a loop over their elements."""

    def _loops(self, values: dict[tuple[Node, np.dtype[Any]], str]) -> list[str]:
        body, self.length, block = self.body, _BLOCK, self.depth - 2
        self.wide = f"%n{self.depth - 1}"
        operands = [_Operand(name, dtype, mask, self._axes(name)) for name, dtype, mask in self._pointers()]
        room = self._room()
        rooms = {
            each.name: body.emit(f"alloca [{room} x {each.kind}], align 64") for each in operands if each.is_written_out
        }
        unit = body.emit(f"mul nsw i64 {self.wide}, {_ROWS}")
        units = body.emit(f"udiv i64 {body.emit(f'add nsw i64 {unit}, {_BLOCK - 1}')}, {unit}")
        most = body.emit(f"mul nsw i64 {units}, {_ROWS}")
        nest = Nest(self._flush(), "entry")
        for d in range(block):
            nest.enter(f"%i{d}", *self._ends(d))
        low, high = self._ends(block)
        self.rows = {each.name: self._begin(each) for each in operands if not each.mask[-2]}
        for name, dtype, mask in self._pointers():
            if mask[-2:] == _CONSTANT:
                values[self.array_nodes[int(name[2:])], dtype] = body.load(dtype, self.rows[name])
        shared = [each for each in operands if each.mask[-2:] == _SHARED]
        if shared:
            self._copy(nest, shared, rooms, least(body.emit, body.emit(f"sub nsw i64 {high}, {low}"), most))
        nest.lines += self._flush()
        nest.enter(f"%i{block}", low, high, most)
        count = least(body.emit, body.emit(f"sub nsw i64 {high}, %i{block}"), most)
        length = body.emit(f"mul nsw i64 {count}, {self.wide}")
        self.rows |= {each.name: self._begin(each) for each in operands if each.mask[-2]}
        apart = [each for each in operands if each.mask[-2:] == _FULL and each.axes]
        if apart:
            self._copy(nest, apart, rooms, count)
        single = [each for each in operands if each.mask[-2:] == _SINGLE]
        if single:
            self._spread(nest, single, rooms, count)
        self.rows |= rooms
        self.targets = [f"%w{k}" for k in range(len(self.outs))] if self.aside else []
        nest.lines += self._flush()
        nest.enter("%within", "0", length)
        nest.lines.append(f"  {self.index} = add nsw i64 %within, 0")
        self._element(values)
        nest.lines += self._flush()
        nest.leave(self._noted())
        for k, node in enumerate(self.outs if self.aside else ()):
            count = body.emit(f"mul nsw i64 {length}, {node.dtype.itemsize}")
            body.lines.append(past.row_sent(self.rows[f"%o{k}"], f"%w{k}", count))
        nest.lines += self._flush()
        while nest.open:
            nest.leave()
        return nest.lines

    @property
    def sends_rows(self) -> bool:
        return True

    def _room(self) -> int:
        return _BLOCK + _ROWS * _longest(self.region) + _AT_ONCE

    def _copy(self, nest: Nest, operands: Sequence[_Operand], rooms: Mapping[str, str], count: str) -> None:
        """So many rows of operands written one behind the other, or the one row that all share as often."""
        row, column = f"%row{len(nest.lines)}", f"%column{len(nest.lines)}"
        nest.lines += self._flush()
        nest.enter(row, "0", count)
        begin = self.body.emit(f"mul nsw i64 {row}, {self.wide}")
        sources = [self._on(each, row) for each in operands]
        nest.lines += self._flush()
        nest.enter(column, "0", self.wide)
        for each, source in zip(operands, sources, strict=True):
            value = self._loaded(each.kind, source, column)
            place = self._address(each.kind, rooms[each.name], begin, column)
            self.body.lines.append(f"store {each.kind} {value}, ptr {place}")
        nest.lines += self._flush()
        mark, notes = loop_note(_FIRST_NOTE + 10 * len(self.notes), *_AS_WRITTEN)
        self.notes += notes
        nest.leave(mark)
        nest.leave()

    def _spread(self, nest: Nest, operands: Sequence[_Operand], rooms: Mapping[str, str], count: str) -> None:
        """What so many rows have one element of written for each of their columns."""
        nest.lines += self._flush()
        nest.enter("%one", "0", count)
        begin = self.body.emit(f"mul nsw i64 %one, {self.wide}")
        types = [f"<{_AT_ONCE} x {each.kind}>" for each in operands]
        values = [self._loaded(each.kind, self._on(each, "%one"), "0") for each in operands]
        vectors = [spread(self.body.emit, each, value) for each, value in zip(types, values, strict=True)]
        nest.lines += self._flush()
        nest.enter("%to", "0", self.wide, _AT_ONCE)
        for each, kind, vector in zip(operands, types, vectors, strict=True):
            place = self._address(each.kind, rooms[each.name], begin, "%to")
            self.body.lines.append(f"store {kind} {vector}, ptr {place}, align 1")
        nest.lines += self._flush()
        nest.leave()
        nest.leave()

    def _ends(self, d: int) -> tuple[str, str]:
        """Where a loop begins and ends."""
        return ("%low", "%high") if d == 0 else ("0", f"%n{d}")

    def _begin(self, operand: _Operand) -> str:
        """Where the row lies that the loops around have come to."""
        offset = self._over_gaps(operand.name) if operand.axes else self._densely(operand.mask)
        return self._address(operand.kind, operand.name, offset)

    def _on(self, operand: _Operand, rows: str) -> str:
        """Where the row lies that is so many behind."""
        if not operand.mask[-2]:
            return self.rows[operand.name]
        step = f"%t{operand.name[2:]}.{self.depth - 2}" if operand.axes else self.wide if operand.mask[-1] else "1"
        return self._address(operand.kind, self.rows[operand.name], self.body.emit(f"mul nsw i64 {rows}, {step}"))

    def _address(self, kind: str, start: str, *places: str) -> str:
        place = functools.reduce(lambda x, y: self.body.emit(f"add nsw i64 {x}, {y}"), places)
        return self.body.emit(f"getelementptr inbounds {kind}, ptr {start}, i64 {place}")

    def _loaded(self, kind: str, name: str, place: str) -> str:
        return self.body.emit(f"load {kind}, ptr {self._address(kind, name, place)}")
