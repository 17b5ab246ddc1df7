"""Shapes of traced arrays: views, joins, splits, padding and repetition."""

from __future__ import annotations

import builtins
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib import array_utils

from futurex.frontend.control.collected import blocks
from futurex.frontend.entry_kinds import Entry
from futurex.frontend.errors import Escape
from futurex.frontend.lists import TracedList
from futurex.frontend.numpy_api.creation import as_dtype, as_shape, of_one_shape
from futurex.frontend.numpy_api.registry import handles
from futurex.frontend.numpy_api.ufuncs import applied, into, layout_of, normal_axes, one_axis
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import Tracer, as_tracer, entered, fresh, new_array
from futurex.tree.aval import PYTHON_SCALARS
from futurex.tree.node import Node, const, size_node


@handles(np.reshape)
def reshape(a: Any, /, shape: Any, order: str = "C") -> Tracer:
    if isinstance(shape, Tracer) and shape._node.op != "const":
        raise Escape("a shape that is an array", "the shape of the result depends on data")
    return as_tracer(a).reshape(shape, order=order)


@handles(np.transpose, np.permute_dims)
def transpose(a: Any, axes: Any = None) -> Tracer:
    return as_tracer(a).transpose(axes)


@handles(np.matrix_transpose)
def matrix_transpose(x: Any, /) -> Tracer:
    return as_tracer(x).mT


@handles(np.swapaxes)
def swapaxes(a: Any, axis1: int, axis2: int) -> Tracer:
    return as_tracer(a).swapaxes(axis1, axis2)


@handles(np.moveaxis)
def moveaxis(a: Any, source: Any, destination: Any) -> Tracer:
    x = as_tracer(a)
    from_ = array_utils.normalize_axis_tuple(source, x.ndim, "source")
    to = array_utils.normalize_axis_tuple(destination, x.ndim, "destination")
    if len(from_) != len(to):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    order = [k for k in range(x.ndim) if k not in from_]
    for place, axis in sorted(zip(to, from_, strict=True)):
        order.insert(place, axis)
    return x.transpose(*order)


@handles(np.lib.stride_tricks.sliding_window_view)
def sliding_window_view(
    x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
) -> Tracer:
    array = as_tracer(x)
    if writeable or not array.aval.static:
        raise Escape("sliding windows that may be written to, or of unknown extents", "this use is not traced")
    sizes = window_shape if isinstance(window_shape, tuple | list) else (window_shape,)
    axes = range(array.ndim) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    if not all(isinstance(each, int | np.integer) for each in (*sizes, *axes)) or 0 in sizes:
        raise Escape("sliding windows of sizes that are not known, or of no elements", "this use is not traced")
    like = np.broadcast_to(np.zeros((), array.dtype), array.shape)
    np.lib.stride_tricks.sliding_window_view(like, window_shape, axis)  # refuses what NumPy refuses
    places = [array_utils.normalize_axis_index(k, array.ndim) for k in axes]
    steps = zip(places, sizes, strict=True)
    return array._extended(*(("windows", place, operator.index(size)) for place, size in steps)).readonly()


@handles(np.ravel)
def ravel(a: Any, order: str = "C") -> Tracer:
    return as_tracer(a).ravel(order)


@handles(np.squeeze)
def squeeze(a: Any, axis: Any = None) -> Tracer:
    return as_tracer(a).squeeze(axis)


@handles(np.expand_dims)
def expand_dims(a: Any, axis: Any) -> Tracer:
    x = as_tracer(a)
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    total = x.ndim + len(axes)
    places = normal_axes(tuple(axes), total) or ()
    entries = tuple(("n",) if k in places else ("s", None, None, None) for k in range(total))
    return x._extended(("index", entries))


@handles(np.broadcast_to)
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Tracer:
    x, target = as_tracer(array), as_shape(shape)
    if x.ndim > len(target):
        raise ValueError("input operand has more dimensions than allowed by the axis remapping")
    return x._extended(("broadcast_to", target)).readonly()


@handles(np.diagonal)
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tracer:
    return as_tracer(a).diagonal(offset, axis1, axis2)


def _joined(
    values: TracedList, axis: Any, widened: Callable[[Any], Any], out: Any = None, dtype: Any = None,
    casting: Any = "same_kind",
) -> Any:  # fmt: skip
    """Entries of a list whose length depends on data, each of the ``widened`` shape, one behind the other."""
    rows = values.stacked()
    count, shape = rows.shape[0], list(widened(rows.shape[1:]))
    if axis is None:
        result = rows.reshape((rows.size,))
    elif not shape:
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    else:
        place = one_axis(axis, len(shape))
        apart = moveaxis(rows.reshape((count, *shape)), 0, place)
        shape[place] = count * shape[place]
        result = new_array(apart.reshape(tuple(shape))._node)
    return result if out is None and dtype is None else concatenate([result], 0, out, dtype=dtype, casting=casting)


MANY = 64  # times that an array is joined with itself, as np.resize does it


def _repeated(x: Node, times: int, axis: int) -> Node:
    """An array so many times behind itself."""
    blocks = emit("reshape", x, shape=(math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
    blocks = emit("repeat_each", blocks, times=times, axis=0)
    return emit("reshape", blocks, shape=(*x.shape[:axis], times * x.shape[axis], *x.shape[axis + 1 :]))


@handles(np.concatenate)
def concatenate(arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    if out is not None and dtype is not None:
        raise TypeError("concatenate() only takes `out` or `dtype` as an argument, but both were provided.")
    if isinstance(arrays, TracedList):
        return _joined(arrays, axis, lambda shape: shape, out, dtype, casting)
    given = [*arrays]
    tracers = [as_tracer(part) for part in given]
    parts = [part._node for part in tracers]
    if not parts:
        raise ValueError("need at least one array to concatenate")
    if axis is None:
        weak = [type(part) in PYTHON_SCALARS or (isinstance(part, Tracer) and part.aval.weak) for part in given]
        kinds = (part.dtype.type(0).item() if own else part.dtype for part, own in zip(parts, weak, strict=True))
        if dtype is None and out is None:  # else numbers go right into that
            common = np.result_type(*kinds)
            parts = [as_dtype(part, common) if own else part for part, own in zip(parts, weak, strict=True)]
        parts, axis = [emit("reshape", part, shape=(part.size,)) for part in parts], 0
    if builtins.any(part.ndim == 0 for part in parts):
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    place = one_axis(axis, parts[0].ndim)
    if dtype is not None:
        parts = [as_dtype(part, np.dtype(dtype)) for part in parts]
    if len(parts) >= MANY and parts[0].aval.static and builtins.all(part is parts[0] for part in parts):
        result = fresh(_repeated(parts[0], len(parts), place))
    else:
        result = fresh(emit("concatenate", *parts, axis=place))
    if dtype is not None and not builtins.all(np.can_cast(part.dtype, dtype, casting) for part in tracers):
        raise Escape("numpy.concatenate with this dtype=", "NumPy refuses the cast")
    result._cell.strides = layout_of(result.aval, tracers, parts)
    if out is not None and _takes_part(entered(out), result, tracers):
        raise Escape("numpy.concatenate into one of its parts, or another shape", "NumPy reads what it has written")
    return result if out is None else into(out, result._node, True, casting)


def _takes_part(out: Any, result: Tracer, parts: list[Tracer]) -> bool:
    """Is it of another shape than the result, or does it share its memory with one of the parts?"""
    return isinstance(out, Tracer) and (
        len(out.shape) != result.ndim or any(part._cell is out._cell for part in parts if not part.is_scalar)
    )


@handles(np.stack)
def stack(arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    if isinstance(arrays, TracedList):
        place = one_axis(axis, len(arrays.stacked().shape))
        return _joined(arrays, place, lambda shape: (*shape[:place], 1, *shape[place:]), out, dtype, casting)
    parts = [as_tracer(part) for part in arrays]
    if not parts:
        raise ValueError("need at least one array to stack")
    of_one_shape([part._node for part in parts], "all input arrays must have the same shape")
    axis = operator.index(axis)
    together = blocks([part._node for part in parts], lambda node: emit("reshape", node, shape=(1, *node.shape)))
    inside = -1 - parts[0].ndim <= axis <= parts[0].ndim
    if len(together) < len(parts) and inside and out is None:  # rows that a loop collected
        stacked = concatenate(list(map(new_array, together)), 0, dtype=dtype, casting=casting)
        return moveaxis(stacked, 0, axis).copy() if axis else stacked
    return concatenate([expand_dims(part, axis) for part in parts], axis, out, dtype=dtype, casting=casting)


def _at_least(ndim: int, a: Any) -> Tracer:
    x = as_tracer(a)
    while x.ndim < ndim:
        x = expand_dims(x, 2 if x.ndim == 2 else 0)
    return x


@handles(np.atleast_1d)
def atleast_1d(*arrays: Any) -> Any:
    result = tuple(_at_least(1, a) for a in arrays)
    return result[0] if len(result) == 1 else result


@handles(np.atleast_2d)
def atleast_2d(*arrays: Any) -> Any:
    result = tuple(_at_least(2, a) for a in arrays)
    return result[0] if len(result) == 1 else result


@handles(np.vstack)
def vstack(tup: Any, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    if isinstance(tup, TracedList):
        return _joined(tup, 0, lambda shape: (1,) * (2 - len(shape)) + shape, None, dtype, casting)
    return concatenate([_at_least(2, part) for part in tup], 0, dtype=dtype, casting=casting)


@handles(np.hstack)
def hstack(tup: Any, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    if isinstance(tup, TracedList):
        many = len(tup.kind.aval.shape) > 1 if isinstance(tup.kind, Entry) else False
        return _joined(tup, int(many), lambda shape: shape or (1,), None, dtype, casting)
    parts = [_at_least(1, part) for part in tup]
    return concatenate(parts, 0 if parts and parts[0].ndim == 1 else 1, dtype=dtype, casting=casting)


@handles(np.dstack)
def dstack(tup: Any) -> Tracer:
    return concatenate([_at_least(3, part) for part in tup], 2)


@handles(np.append)
def append(arr: Any, values: Any, axis: Any = None) -> Tracer:
    return concatenate([as_tracer(arr), as_tracer(values)], axis)


@handles(np.column_stack)
def column_stack(tup: Any) -> Any:
    if isinstance(tup, TracedList):
        return _joined(tup, 1, lambda shape: shape if len(shape) > 1 else (*(shape or (1,)), 1))
    parts = [as_tracer(part) for part in tup]
    return concatenate([part if part.ndim > 1 else _at_least(1, part)[:, None] for part in parts], 1)


@handles(np.split)
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tracer]:
    if isinstance(ary, list | tuple):
        raise Escape("numpy.split of a list", "NumPy takes the list for the axis, whichever it is, or refuses it")
    n = as_tracer(ary).shape[axis]
    if isinstance(indices_or_sections, int) and n % indices_or_sections:
        raise ValueError("array split does not result in an equal division")
    return array_split(ary, indices_or_sections, axis)


@handles(np.array_split)
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tracer]:
    if isinstance(ary, list | tuple) and axis != 0:
        raise Escape("numpy.array_split of a list", "NumPy takes the list for the axis, whichever it is")
    x = as_tracer(ary)
    n = x.shape[axis]
    axis = axis % x.ndim
    if isinstance(indices_or_sections, int):
        if indices_or_sections <= 0:
            raise ValueError("number sections must be larger than 0.")
        each, extra = divmod(n, indices_or_sections)
        sizes = [each + 1] * extra + [each] * (indices_or_sections - extra)
        bounds = [0, *itertools.accumulate(sizes)]
    else:
        bounds = [0, *(operator.index(k) for k in indices_or_sections), n]
    whole: list[Any] = [slice(None)] * x.ndim
    parts = [x[(*whole[:axis], slice(lo, hi), *whole[axis + 1 :])] for lo, hi in itertools.pairwise(bounds)]
    return current().remember(parts)


@handles(np.flip)
def flip(m: Any, axis: Any = None) -> Tracer:
    x = as_tracer(m)
    axes = array_utils.normalize_axis_tuple(axis if axis is not None else range(x.ndim), x.ndim)
    if not x.ndim:
        return new_array(x._node)[()]  # NumPy indexes it, which makes a scalar
    return x._extended(("flip", axes))


@handles(np.flipud)
def flipud(m: Any) -> Tracer:
    return flip(m, 0)


@handles(np.fliplr)
def fliplr(m: Any) -> Tracer:
    return flip(m, 1)


@handles(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> Tracer:
    x = as_tracer(a)
    if axis is None:
        flat = roll(new_array(emit("reshape", x._node, shape=(x.size,))), shift, 0)
        return new_array(emit("reshape", flat._node, shape=x.shape))
    axes = array_utils.normalize_axis_tuple(axis, x.ndim, allow_duplicate=True)
    if not x.ndim:  # and no axis: NumPy takes apart what is not there
        raise ValueError("not enough values to unpack (expected 2, got 0)")
    several = shift.ndim if isinstance(shift, Tracer | np.ndarray) else isinstance(shift, tuple | list | range)
    shifts = tuple(shift) if several else (shift,)
    if len(axes) != len(shifts):  # one of either goes with all others
        shifts, axes = (shifts * len(axes), axes) if len(shifts) == 1 else (shifts, axes * len(shifts))
    for by, k in zip(shifts, axes, strict=True):
        n = x.shape[k]
        if type(n) is not int or (isinstance(by, Tracer) and _is_count(by)):
            x = _rolled(x, by, k)
            continue
        by = operator.index(by) % n if n else 0
        if by:
            whole: list[Any] = [slice(None)] * x.ndim
            tail, head = list(whole), list(whole)
            tail[k], head[k] = slice(n - by, None), slice(None, n - by)
            x = concatenate([x[tuple(tail)], x[tuple(head)]], k)
    return fresh(x._node)


def _is_count(value: Tracer) -> bool:
    """Is it one integer of at most 64 bits with a sign?"""
    return not value.ndim and np.can_cast(value.dtype, np.int64) and value.dtype.kind in "iu"


def _rolled(x: Tracer, by: Any, axis: int) -> Tracer:
    """Rolled by a number or along an extent that only the run knows."""
    axis = array_utils.normalize_axis_index(operator.index(axis), x.ndim)
    if not (isinstance(by, Tracer) and _is_count(by)):
        by = operator.index(by)
    extent = emit("maximum", size_node(x.shape[axis]), 1)
    places = emit("iota", shape=(x.shape[axis],), axis=0, dtype=np.dtype(np.int64))
    first = emit("remainder", as_tracer(by)._node, extent)
    source = emit("remainder", emit("subtract", places, first), extent)
    return x[(slice(None),) * axis + (new_array(source),)]


LEAST_REPEATED = 64 * 1024
"""Bytes of a result from which copies of what lies next to each other are an operation of their own."""


def worth_repeating(x: Node, times: int) -> bool:
    """Is it one whose shape is known and which becomes so much?"""
    if x.aval.static and x.aval.nbytes * times >= 2**63:
        raise Escape("an array larger than any memory", "NumPy refuses it")
    return x.aval.static and x.aval.nbytes * times >= LEAST_REPEATED


@handles(np.tile)
def tile(A: Any, reps: Any) -> Tracer:
    x = as_tracer(A)
    counts = tuple(reps) if isinstance(reps, tuple | list) else (reps,)
    if not all(isinstance(count, int | np.integer | Tracer) for count in counts):
        raise Escape("numpy.tile so many times", "NumPy refuses it, as a rule")
    x = x.reshape((1,) * (len(counts) - x.ndim) + x.shape)
    for axis, count in enumerate((1,) * (x.ndim - len(counts)) + counts):
        if isinstance(count, Tracer):
            x = _tiled(x, count, axis)
        elif isinstance(count, int) and count > 1 and worth_repeating(x._node, count):
            x = fresh(_repeated(x._node, count, axis))
        elif count != 1:
            x = concatenate([x] * count, axis) if count else x[(slice(None),) * axis + (slice(0, 0),)]
    return fresh(x._node) if x.ndim else new_array(x._node)


def _tiled(x: Tracer, count: Tracer, axis: int) -> Tracer:
    """So many times behind itself, as only the run knows."""
    if not _is_count(count):
        raise Escape("numpy.tile so many times", "NumPy refuses it, as a rule")
    if not isinstance(x.shape[axis], int) or x.shape[axis] != 1:
        row = x.reshape((*x.shape[:axis], 1, *x.shape[axis:])).repeat(count, axis)
        return row.reshape((*row.shape[:axis], row.shape[axis] * row.shape[axis + 1], *row.shape[axis + 2 :]))
    return x.repeat(count, axis)


def _triangle(m: Any, k: int, lower: bool) -> Tracer:
    x = as_tracer(m)
    extents = x.shape[-2:]  # the triangle of a row is a square
    mask = new_array(const(np.tri(extents[0], extents[-1], k if lower else k - 1, dtype=bool)))
    zero = x.dtype.type(0)
    return applied("where", mask, x, zero) if lower else applied("where", mask, zero, x)


@handles(np.tril)
def tril(m: Any, k: int = 0) -> Tracer:
    return _triangle(m, k, lower=True)


@handles(np.triu)
def triu(m: Any, k: int = 0) -> Tracer:
    return _triangle(m, k, lower=False)
