"""Arrays in generated code: where they lie, views of them, and loops over their elements."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.kernels.loops.function import Function
from futurex.kernels.loops.support import Unsupported
from futurex.ops.views import Chain, index_of, view

Dtype = np.dtype[Any]
Shape = tuple[int, ...]
_RESHAPES = frozenset(("reshape", "real", "imag"))


@dataclass(frozen=True)
class Place:
    """Memory of a call: slot ``index`` of its block holds the address, or it lies at ``index`` in the scratch area."""

    index: int
    scratch: bool

    @property
    def pointer(self) -> str:
        return f"%scratch{self.index}" if self.scratch else f"%slot{self.index}"


@dataclass(frozen=True)
class Array:
    """A C-contiguous array; ``owned``: its memory may be overwritten once nobody reads it."""

    place: Place
    shape: Shape
    dtype: Dtype
    owned: bool

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def region(self) -> Region:
        strides = []
        step = self.dtype.itemsize
        for extent in reversed(self.shape):
            strides.append(step)
            step *= max(extent, 1)
        return Region(self.place.pointer, self.shape, tuple(reversed(strides)), self.dtype)


@dataclass(frozen=True)
class Region:
    """Elements ``strides`` bytes apart from the one that ``pointer`` names."""

    pointer: str
    shape: Shape
    strides: Shape
    dtype: Dtype

    def broadcast(self, shape: Shape) -> Region:
        extra = len(shape) - len(self.shape)
        if extra < 0:  # an assignment drops leading dimensions of extent one
            return Region(self.pointer, self.shape[-extra:], self.strides[-extra:], self.dtype).broadcast(shape)
        strides = (0,) * extra + tuple(
            0 if own == 1 and extent != 1 else stride
            for own, extent, stride in zip(self.shape, shape[extra:], self.strides, strict=True)
        )
        return Region(self.pointer, shape, strides, self.dtype)


def viewed(function: Function, array: Array, chain: Chain, dynamic: Sequence[str]) -> Region:
    """The view ``chain`` of an array; ``dynamic`` are registers of 64-bit indices, checked against the bounds.

    NumPy itself says how each step changes shape and strides, on an array that is never read.
    """
    start = array.region()
    stand_in = np.lib.stride_tricks.as_strided(np.empty(1, array.dtype), start.shape, start.strides)
    origin = _address(stand_in)
    moved = "0"
    for step in chain:
        if step[0] in _RESHAPES:
            raise Unsupported(f"a view by {step[0]}")
        if step[0] == "index":
            axis = 0
            for entry in step[1]:
                if entry[0] == "n":
                    continue
                if entry[0] == "s" and any(isinstance(part, tuple) for part in entry[1:]):
                    raise Unsupported("a slice with bounds that change")
                if entry[0] == "d":
                    extent, stride = stand_in.shape[axis], stand_in.strides[axis]
                    if not extent:
                        raise Unsupported("an index into nothing")
                    offset = function.emit(f"mul i64 {_bounded(function, dynamic[entry[1]], extent)}, {stride}")
                    moved = function.emit(f"add i64 {moved}, {offset}")
                axis += 1
            stand_in = stand_in[index_of(step[1], [0] * len(dynamic))]
        elif step[0] == "diagonal":
            stand_in = np.diagonal(stand_in, *step[1:])
        else:
            stand_in = view(stand_in, (step,), ())
    constant = _address(stand_in) - origin if stand_in.size else 0
    if constant:
        moved = function.emit(f"add i64 {moved}, {constant}")
    pointer = function.emit(f"getelementptr i8, ptr {start.pointer}, i64 {moved}")
    return Region(pointer, stand_in.shape, stand_in.strides, array.dtype)


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _bounded(function: Function, index: str, extent: int) -> str:
    """An index as NumPy takes it: negative ones count from the end, those outside fail."""
    negative = function.emit(f"icmp slt i64 {index}, 0")
    wrapped = function.select(negative, "i64", function.emit(f"add i64 {index}, {extent}"), index)
    function.fail_if(function.emit(f"icmp uge i64 {wrapped}, {extent}"))
    return wrapped


@contextmanager
def elements(function: Function, shape: Shape, regions: Sequence[Region]) -> Iterator[list[str]]:
    """Loops over ``shape``; yields the address of the current element of every region (each broadcast to it)."""
    aligned = [region.broadcast(shape) for region in regions]
    extents, columns = _merged(shape, [region.strides for region in aligned])
    pointers = [region.pointer for region in aligned]
    with _nested(function, extents, columns, pointers, 0) as found:
        yield found


@contextmanager
def _nested(
    function: Function, extents: list[int], columns: list[Shape], pointers: list[str], depth: int
) -> Iterator[list[str]]:
    if depth == len(extents):
        yield pointers
        return
    with function.counted(extents[depth]) as index:
        moved = []
        for pointer, stride in zip(pointers, columns[depth], strict=True):
            if stride:
                offset = function.emit(f"mul nsw i64 {index}, {stride}")
                pointer = function.emit(f"getelementptr inbounds i8, ptr {pointer}, i64 {offset}")
            moved.append(pointer)
        with _nested(function, extents, columns, moved, depth + 1) as found:
            yield found


def _merged(shape: Shape, strides: Sequence[Shape]) -> tuple[list[int], list[Shape]]:
    """Neighbouring dimensions along which all regions run on become one; those of extent one vanish."""
    extents: list[int] = []
    columns: list[Shape] = []
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        column = tuple(each[axis] for each in strides)
        if columns and all(outer == inner * extent for outer, inner in zip(columns[-1], column, strict=True)):
            extents[-1] *= extent
            columns[-1] = column
        else:
            extents.append(extent)
            columns.append(column)
    return extents, columns


def copy(function: Function, target: Array, source: Array) -> None:
    """The elements of one array into the memory of another."""
    _copy_bytes(function, target.place.pointer, source.place.pointer, target.nbytes)


def move(function: Function, target: Region, source: Region) -> bool:
    """Copy elements that lie side by side in both places; False if they do not."""
    extents, columns = _merged(target.shape, [target.strides, source.broadcast(target.shape).strides])
    size = target.dtype.itemsize
    if len(extents) > 1 or any(column != (size, size) for column in columns):
        return False
    _copy_bytes(function, target.pointer, source.pointer, math.prod(extents) * size)
    return True


def _copy_bytes(function: Function, target: str, source: str, count: int) -> None:
    if count:
        function.declare("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        function.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {count}, i1 false)")
