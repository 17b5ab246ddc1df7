"""Functions whose results have shapes that only the run knows: positions, selections, distinct values."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from futurex.frontend.errors import Escape
from futurex.frontend.numpy_api.creation import full
from futurex.frontend.numpy_api.registry import METHODS, handles
from futurex.frontend.numpy_api.selection import take
from futurex.frontend.numpy_api.shapes import worth_repeating
from futurex.frontend.numpy_api.ufuncs import one_axis
from futurex.frontend.trace import emit, emit_many
from futurex.frontend.tracer import Tracer, array_node, as_tracer, fresh, new_array
from futurex.tree.node import Node


def _as_array(node: Node) -> Tracer:
    """A result that NumPy lays out in C order."""
    return new_array(node)


@handles(np.nonzero)
def nonzero(a: Any) -> tuple[Tracer, ...]:
    x = as_tracer(a)
    if x.ndim == 0:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use np.atleast_1d(scalar).nonzero() instead.")
    return tuple(map(_as_array, emit_many("nonzero", x._node, extents=None)))


@handles(np.flatnonzero)
def flatnonzero(a: Any) -> Tracer:
    return nonzero(as_tracer(a).ravel())[0]


@handles(np.argwhere)
def argwhere(a: Any) -> Tracer:
    x = as_tracer(a)
    if x.ndim == 0:
        raise Escape("numpy.argwhere of a 0-dimensional array", "this use is not traced")
    columns = [emit("reshape", place._node, shape=(1, place.shape[0])) for place in nonzero(x)]
    return fresh(emit("concatenate", *columns, axis=0)).transpose()


@handles(np.compress)
def compress(condition: Any, a: Any, axis: Any = None, out: Any = None) -> Any:
    test, x = as_tracer(condition), as_tracer(a)
    if test.ndim != 1:
        raise ValueError("condition must be a 1-d array")
    if out is not None:
        raise Escape("numpy.compress with out=", "this option is not traced")
    return take(x, nonzero(test)[0], axis)


@handles(np.extract)
def extract(condition: Any, arr: Any) -> Any:
    return take(as_tracer(arr).ravel(), nonzero(as_tracer(condition).ravel())[0])


@handles(np.repeat)
def repeat(a: Any, repeats: Any, axis: Any = None) -> Tracer:
    x = as_tracer(a)
    if axis is None:
        x, axis = x.ravel(), 0
    axis = one_axis(axis, x.ndim)
    counts = array_node(repeats)
    times = int(np.asarray(counts.value).item()) if counts.op == "const" and counts.size == 1 else 0
    if times > 1 and counts.dtype.kind in "iu" and worth_repeating(x._node, times):
        return _as_array(emit("repeat_each", x._node, times=times, axis=axis))
    if counts.op == "const" and x.aval.static:
        return take(x, np.repeat(np.arange(x.shape[axis]), np.asarray(counts.value)), axis)
    is_count = isinstance(repeats, Tracer) and repeats.is_scalar and counts.dtype.kind in "iu"
    if is_count and np.can_cast(counts.dtype, np.int64) and isinstance(x.shape[axis], int) and x.shape[axis] == 1:
        return full((*x.shape[:axis], repeats, *x.shape[axis + 1 :]), x)  # of an extent that compiled loops know
    if counts.dtype == np.uint64 and isinstance(repeats, Tracer) and repeats.is_scalar:
        counts = emit("cast", counts, dtype=np.dtype(np.int64))  # NumPy refuses unsigned arrays, and takes scalars
    return _as_array(emit("repeat", x._node, counts, axis=axis))


@handles(np.unique)
def unique(
    ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False, axis: Any = None,
    *, equal_nan: bool = True, sorted: bool = True,
) -> Any:  # fmt: skip
    x = as_tracer(ar)
    if not sorted:
        raise Escape("numpy.unique with sorted=False", "the order of its result is not promised")
    if x.dtype.kind == "c" or not all(
        isinstance(flag, bool) for flag in (return_index, return_inverse, return_counts, equal_nan)
    ):
        raise Escape("numpy.unique of this", "complex numbers and unusual options are not traced")
    wanted = {"index": return_index, "inverse": return_inverse, "counts": return_counts}
    extras = tuple(name for name, flag in wanted.items() if flag)
    place = None if axis is None else normalize_axis_index(operator.index(axis), x.ndim)
    place = None if x.ndim == 1 else place
    results = tuple(
        map(_as_array, emit_many("unique", x._node, extras=extras, axis=place, equal_nan=equal_nan))
    )
    return results if extras else results[0]


METHODS.update(nonzero=nonzero, repeat=repeat, compress=lambda self, condition, axis=None, out=None: compress(
    condition, self, axis, out
))  # fmt: skip
