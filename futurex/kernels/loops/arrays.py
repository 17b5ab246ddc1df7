"""Arrays in generated code: where they lie, and views of them, whose extents the run may have to tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from futurex.kernels.loops.function import Function
from futurex.kernels.loops.support import Unsupported
from futurex.ops.views import Chain

Dtype = np.dtype[Any]
MOST_ROWS = 1 << 40
"""Of an array that comes from outside with any number of them: nothing that may have as many is laid down."""


@dataclass(frozen=True)
class Extent:
    """A number of elements that the run finds out; ``most`` is the largest it can be."""

    register: str
    most: int


Size = int | Extent
Shape = tuple[Size, ...]
Strides = tuple[int, ...]


def most(extent: Size) -> int:
    return extent.most if isinstance(extent, Extent) else extent


def text(extent: Size) -> str:
    """An extent as an operand of an instruction."""
    return extent.register if isinstance(extent, Extent) else str(extent)


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
    """Elements ``strides`` bytes apart, the first one ``offset`` bytes into a place.

    ``owned``: the array fills its place, and may be overwritten once nobody reads it.
    """

    place: Place
    shape: Shape
    strides: Strides
    dtype: Dtype
    owned: bool = False
    offset: str = "0"

    @property
    def capacity(self) -> tuple[int, ...]:
        return tuple(map(most, self.shape))

    @property
    def nbytes(self) -> int:
        return math.prod(self.capacity) * self.dtype.itemsize

    @property
    def static(self) -> bool:
        return all(type(extent) is int for extent in self.shape)

    @property
    def static_rows(self) -> bool:
        """Is at most the number of rows left to the run?"""
        return bool(self.shape) and all(type(extent) is int for extent in self.shape[1:])

    @property
    def contiguous(self) -> bool:
        """Do the elements lie side by side in C order, whatever the extents turn out to be?"""
        steps = zip(self.capacity, self.strides, packed(self.capacity, self.dtype.itemsize), strict=True)
        if self.static and all(extent <= 1 or own == stride for extent, own, stride in steps):
            return True
        return len(self.shape) == 1 and self.strides[0] == self.dtype.itemsize

    def pointer(self, function: Function) -> str:
        """The address of the first element."""
        if self.offset == "0":
            return self.place.pointer
        return function.emit(f"getelementptr i8, ptr {self.place.pointer}, i64 {self.offset}")

    def borrowed(self) -> Array:
        return replace(self, owned=False)


@dataclass(frozen=True)
class Opaque:
    """What generated code only hands on from one call of Python to another: objects, arrays of unbounded size."""

    index: int


def packed(shape: Sequence[int], itemsize: int) -> Strides:
    """Strides of an array in C order."""
    strides = []
    step = itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def is_whole(array: Array) -> bool:
    """Does the array fill its place, in C order?"""
    return array.offset == "0" and array.strides == packed(array.capacity, array.dtype.itemsize)


# -- arithmetic of extents -------------------------------------------------------------------------------------------


def plus(function: Function, x: str, y: str) -> str:
    """A sum of two 64-bit literals or registers."""
    if x[0] != "%" and y[0] != "%":
        return str(int(x) + int(y))
    if "0" in (x, y):
        return y if x == "0" else x
    return function.emit(f"add i64 {x}, {y}")


def times(function: Function, x: str, y: str) -> str:
    if x[0] != "%" and y[0] != "%":
        return str(int(x) * int(y))
    return function.emit(f"mul i64 {x}, {y}")


def broadcast(function: Function, shapes: Sequence[Shape]) -> Shape:
    """The common shape; extents that must agree are compared where only the run can tell."""
    ndim = max(map(len, shapes), default=0)
    out: list[Size] = []
    for axis in range(-ndim, 0):
        extent: Size = 1
        for shape in shapes:
            if -axis <= len(shape):
                extent = _agreed(function, extent, shape[axis])
        out.append(extent)
    return tuple(out)


def _agreed(function: Function, one: Size, two: Size) -> Size:
    if one == two or two == 1:
        return one
    if one == 1:
        return two
    if isinstance(one, int) and isinstance(two, int):
        raise Unsupported(f"extents {one} and {two}")
    function.fail_if(function.emit(f"icmp ne i64 {text(one)}, {text(two)}"))
    return one if isinstance(one, int) else two if isinstance(two, int) or two.most < one.most else one


def broadcast_strides(function: Function, array: Array, shape: Shape) -> Strides:
    """The strides of an array taken as one of ``shape``; an assignment drops leading extents of one."""
    extra = len(shape) - len(array.shape)
    own, strides = array.shape, array.strides
    if extra < 0:
        if any(extent != 1 for extent in own[:-extra]):
            raise Unsupported("a value of more dimensions")
        own, strides, extra = own[-extra:], strides[-extra:], 0
    found = [0] * extra
    for extent, wide, stride in zip(own, shape[extra:], strides, strict=True):
        if extent == 1 and wide != 1:
            found.append(0)
            continue
        _agreed(function, wide, extent)
        if extent != wide and not (isinstance(extent, Extent) or isinstance(wide, Extent)):
            raise Unsupported(f"extents {extent} and {wide}")
        if extent != wide and isinstance(wide, int) and wide == 1:
            function.fail_if(function.emit(f"icmp ne i64 {text(extent)}, 1"))
        found.append(stride)
    return tuple(found)


# -- views -----------------------------------------------------------------------------------------------------------


def viewed(function: Function, array: Array, chain: Chain, dynamic: Sequence[str]) -> Array:
    """The view ``chain`` of an array; ``dynamic`` are registers of 64-bit indices, checked against the bounds."""
    for step in chain:
        if step[0] == "index":
            array = _indexed(function, array, step[1], dynamic)
        elif step[0] == "transpose":
            axes = step[1]
            array = replace(
                array, shape=tuple(array.shape[k] for k in axes), strides=tuple(array.strides[k] for k in axes)
            )
        elif step[0] == "flip":
            array = _flipped(function, array, step[1])
        elif step[0] == "broadcast_to":
            array = _widened(function, array, step[1])
        elif step[0] == "reshape":
            array = reshaped(function, array, step[1])
        elif step[0] == "diagonal":
            array = _diagonal(function, array, *step[1:])
        elif step[0] == "windows":
            array = _windows(array, *step[1:])
        elif step[0] == "strided":
            _, start, shape, steps = step
            (stride,) = array.strides
            moved = plus(function, array.offset, str(start * stride))
            array = replace(array, shape=shape, strides=tuple(stride * each for each in steps), offset=moved)
        elif step[0] == "sized":
            array = replace(array, shape=step[1])
        elif step[0] in ("real", "imag") and array.dtype.kind == "c":
            half = array.dtype.itemsize // 2
            moved = plus(function, array.offset, str(half if step[0] == "imag" else 0))
            array = replace(array, dtype=np.dtype(f"f{half}"), offset=moved)
        else:
            raise Unsupported(f"a view by {step[0]}")
    return array.borrowed()


def _indexed(function: Function, array: Array, entries: Sequence[tuple[Any, ...]], dynamic: Sequence[str]) -> Array:
    shape: list[Size] = []
    strides: list[int] = []
    offset, axis = array.offset, 0
    for entry in entries:
        if entry[0] == "n":
            shape.append(1)
            strides.append(0)
            continue
        extent, stride = array.shape[axis], array.strides[axis]
        axis += 1
        if entry[0] == "s":
            start, count, step = _slice(function, extent, entry[1:], dynamic)
            shape.append(count)
            strides.append(stride * step)
            position = start
        elif entry[0] == "d":
            position = _bounded(function, dynamic[entry[1]], extent)
        elif isinstance(extent, int):
            position = str(range(extent)[entry[1]])
        else:
            position = _bounded(function, str(entry[1]), extent)
        offset = plus(function, offset, times(function, position, str(stride)))
    rest = slice(axis, None)
    return replace(
        array, shape=(*shape, *array.shape[rest]), strides=(*strides, *array.strides[rest]), offset=offset
    )


def _bounded(function: Function, index: str, extent: Size) -> str:
    """An index as NumPy takes it: negative ones count from the end, those outside fail."""
    limit, known = text(extent), function.ranges.get(index)
    if known is not None and isinstance(extent, int) and 0 <= known.start < known.stop <= extent:
        return index
    negative = function.emit(f"icmp slt i64 {index}, 0")
    wrapped = function.select(negative, "i64", function.emit(f"add i64 {index}, {limit}"), index)
    function.fail_if(function.emit(f"icmp uge i64 {wrapped}, {limit}"))
    return wrapped


def _slice(
    function: Function, extent: Size, parts: tuple[Any, ...], dynamic: Sequence[str]
) -> tuple[str, Size, int]:
    """First position, number of elements and step of a slice, as Python's ``slice.indices`` says."""
    if not all(isinstance(part, int | tuple | None) for part in parts) or isinstance(parts[2], tuple):
        raise Unsupported("a slice by symbols, or with a step that changes")
    if isinstance(extent, int) and not any(isinstance(part, tuple) for part in parts):
        places = range(*slice(*parts).indices(extent))
        return str(places.start if places else 0), len(places), places.step
    step = 1 if parts[2] is None else parts[2]
    last = "-1" if step < 0 else "0"  # what lies before the first element
    limit = text(extent)
    upper = plus(function, limit, last)
    defaults = (upper, "-1") if step < 0 else ("0", limit)
    start, stop = (
        default if part is None else _clamped(function, dynamic[part[1]] if isinstance(part, tuple) else str(part),
                                              limit, last, upper)
        for part, default in zip(parts, defaults, strict=False)
    )  # fmt: skip
    ahead, behind = (start, stop) if step < 0 else (stop, start)
    distance = function.emit(f"sub i64 {ahead}, {behind}")
    rounds = function.emit(f"sdiv i64 {function.emit(f'add i64 {distance}, {abs(step) - 1}')}, {abs(step)}")
    empty = function.emit(f"icmp sle i64 {distance}, 0")
    count = function.select(empty, "i64", "0", rounds)
    first = function.select(empty, "i64", "0", start) if start != "0" else start
    return first, Extent(count, -(-most(extent) // abs(step))), step


def stepped(
    function: Function, extent: Size, parts: tuple[Any, ...], dynamic: Sequence[str]
) -> tuple[str, Extent, str]:
    """The same for a step that the run tells; one that goes backwards fails."""
    step, limit = dynamic[parts[2][1]], text(extent)
    function.fail_if(function.emit(f"icmp slt i64 {step}, 1"))
    bounds = [dynamic[part[1]] if isinstance(part, tuple) else part for part in parts[:2]]
    start, stop = (
        default if bound is None else _clamped(function, str(bound), limit, "0", limit)
        for bound, default in zip(bounds, ("0", limit), strict=True)
    )
    distance = function.emit(f"sub i64 {stop}, {start}")
    last = function.emit(f"sdiv i64 {function.emit(f'sub i64 {distance}, 1')}, {step}")
    empty = function.emit(f"icmp sle i64 {distance}, 0")
    count = function.select(empty, "i64", "0", function.emit(f"add i64 {last}, 1"))
    return start, Extent(count, most(extent)), step


def _clamped(function: Function, value: str, limit: str, low: str, high: str) -> str:
    """A bound of a slice: negative ones count from the end, those outside become the nearest one inside."""
    negative = function.emit(f"icmp slt i64 {value}, 0")
    wrapped = function.select(negative, "i64", function.emit(f"add i64 {value}, {limit}"), value)
    below = function.emit(f"icmp slt i64 {wrapped}, {low}")
    raised = function.select(below, "i64", low, wrapped)
    above = function.emit(f"icmp sgt i64 {raised}, {high}")
    return function.select(above, "i64", high, raised)


def _flipped(function: Function, array: Array, axes: Any) -> Array:
    for axis in range(len(array.shape)) if axes is None else axes:
        entries = [("s", None, None, None)] * (axis % len(array.shape)) + [("s", None, None, -1)]
        array = _indexed(function, array, entries, ())
    return array


def _widened(function: Function, array: Array, shape: Sequence[Any]) -> Array:
    if any(type(extent) is not int for extent in shape):
        raise Unsupported("a broadcast to extents that are not known")
    return replace(array, shape=tuple(shape), strides=broadcast_strides(function, array, tuple(shape)))


def _diagonal(function: Function, array: Array, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    if not array.static:
        raise Unsupported("a diagonal of unknown extent")
    one, two = axis1 % len(array.shape), axis2 % len(array.shape)
    rest = [k for k in range(len(array.shape)) if k not in (one, two)]
    down, right = max(-offset, 0), max(offset, 0)
    length = max(0, min(array.capacity[one] - down, array.capacity[two] - right))
    start = down * array.strides[one] + right * array.strides[two] if length else 0
    return replace(
        array,
        shape=(*(array.shape[k] for k in rest), length),
        strides=(*(array.strides[k] for k in rest), array.strides[one] + array.strides[two]),
        offset=plus(function, array.offset, str(start)),
    )


def _windows(array: Array, axis: int, size: int) -> Array:
    extent = array.shape[axis]
    if isinstance(extent, Extent):
        raise Unsupported("windows along an axis of unknown extent")
    shape = (*array.shape[:axis], extent - size + 1, *array.shape[axis + 1 :], size)
    return replace(array, shape=shape, strides=(*array.strides, array.strides[axis]))


def reshaped(function: Function, array: Array, shape: Sequence[Any]) -> Array:
    """The same memory in another shape; Unsupported where that needs a copy or extents are not known."""
    if not array.static:
        return _reshaped_unknown(function, array, shape)
    if any(type(extent) is not int for extent in shape):
        raise Unsupported("a reshape to unknown extents")
    stand_in = np.lib.stride_tricks.as_strided(np.empty(1, array.dtype), array.capacity, array.strides)
    try:
        turned = stand_in.reshape(tuple(shape), copy=False)
    except ValueError as error:
        raise Unsupported("a reshape that copies") from error
    return replace(array, shape=turned.shape, strides=turned.strides)


def _reshaped_unknown(function: Function, array: Array, shape: Sequence[Any]) -> Array:
    """Extents of one come and go; rows of which the run knows the number become one row."""
    old = [(extent, stride) for extent, stride in zip(array.shape, array.strides, strict=True) if extent != 1]
    new = [extent for extent in shape if extent != 1]
    if len(new) == 1 and len(old) > 1 and isinstance(old[0][0], Extent) and type(new[0]) is not int:
        row, item = math.prod(array.capacity) // max(old[0][0].most, 1), array.dtype.itemsize
        if is_whole(array) and all(isinstance(extent, int) for extent, _ in old[1:]):
            count = Extent(times(function, old[0][0].register, str(row)), row * old[0][0].most)
            old = [(count, item)]
    fits = len(old) == len(new) and all(
        extent == wanted if isinstance(extent, int) else type(wanted) is not int
        for (extent, _), wanted in zip(old, new, strict=True)
    )
    if not fits:
        raise Unsupported("a reshape of unknown extents")
    rest = iter(old)
    found = [(1, 0) if extent == 1 else next(rest) for extent in shape]
    return replace(array, shape=tuple(e for e, _ in found), strides=tuple(stride for _, stride in found))


# -- loops over elements ---------------------------------------------------------------------------------------------


def merged(shape: Shape, strides: Sequence[Strides]) -> tuple[list[Size], list[Strides]]:
    """Neighbouring dimensions along which all operands run on become one; those of extent one vanish."""
    extents: list[Size] = []
    columns: list[Strides] = []
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        column = tuple(each[axis] for each in strides)
        if (
            columns
            and isinstance(extent, int)
            and isinstance(extents[-1], int)
            and all(outer == inner * extent for outer, inner in zip(columns[-1], column, strict=True))
        ):
            extents[-1] *= extent
            columns[-1] = column
        else:
            extents.append(extent)
            columns.append(column)
    return extents, columns
