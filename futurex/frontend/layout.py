"""Where elements lie in memory, as far as it decides what NumPy means.

Reshape gives a view of some layouts and a copy of others.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from futurex.ops.views import Chain, view
from futurex.tree.aval import Aval
from futurex.tree.dims import Dim, is_static, same

Strides = tuple[int, ...] | None


@functools.lru_cache(maxsize=4096)
def view_strides(shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any, chain: Chain, n_dynamic: int) -> Strides:
    """The strides of a view of an array with the given strides; no memory is touched."""
    dummy = as_strided(np.empty((), dtype), shape, strides)
    for step in chain:
        if step[0] == "sized":  # the stand-ins for bounds have left another shape
            dummy = as_strided(dummy, step[1], dummy.strides)
        else:
            dummy = view(dummy, (step,), [0] * n_dynamic)
    return dummy.strides


def c_strides(aval: Aval) -> tuple[int, ...]:
    """The strides of a C-contiguous array."""
    strides: list[Any] = []
    step: Any = aval.dtype.itemsize
    for extent in reversed(aval.shape):
        strides.append(step)
        step *= extent if isinstance(extent, Dim) else max(extent, 1)
    return tuple(reversed(strides))


def f_strides(aval: Aval) -> tuple[int, ...]:
    """The strides of a Fortran-contiguous array."""
    return c_strides(Aval(aval.shape[::-1], aval.dtype))[::-1]


def order_in_memory(aval: Aval, strides: Strides) -> tuple[int, ...] | None:
    """The axes from the slowest to the fastest of an array that fills its memory: by their exchange it comes into C
    order. None for others."""
    if strides is None or (aval.static and not aval.size):
        return None
    if is_contiguous(aval, strides):
        return tuple(range(aval.ndim))
    if not aval.static:
        return None
    axes = tuple(sorted(range(aval.ndim), key=lambda axis: (-strides[axis], axis)))
    turned = Aval(tuple(aval.shape[axis] for axis in axes), aval.dtype)
    return axes if is_contiguous(turned, tuple(strides[axis] for axis in axes)) else None


def open_strides(strides: tuple[Any, ...], chain: Chain) -> Strides:
    """The strides of a view where extents are not known; None where they do not follow from the steps."""
    for step in chain:
        if step[0] == "index":
            found: list[Any] = []
            rest = list(strides)
            for entry in step[1]:
                if entry[0] == "n":
                    found.append(0)
                    continue
                stride = rest.pop(0)
                if entry[0] == "s":
                    if isinstance(entry[3], tuple | Dim):
                        return None
                    found.append(stride * (1 if entry[3] is None else entry[3]))
            strides = (*found, *rest)
        elif step[0] == "transpose":
            strides = tuple(strides[axis] for axis in step[1])
        elif step[0] == "flip":
            strides = tuple(-stride if axis in step[1] else stride for axis, stride in enumerate(strides))
        elif step[0] != "sized":
            return None
    return strides


def is_contiguous(aval: Aval, strides: tuple[int, ...]) -> bool:
    """Is the layout C-contiguous? Strides of dimensions of extent one do not matter."""
    if not (aval.static and is_static(strides)):
        return same(strides, c_strides(aval))
    same_strides = zip(aval.shape, strides, c_strides(aval), strict=True)
    return aval.size == 0 or all(extent == 1 or mine == c for extent, mine, c in same_strides)


def order_of(aval: Aval, strides: Strides, order: str) -> str | None:
    """C or F for what ``order=`` says of such an array; None where that is not known, or neither."""
    if order in ("C", "F") or aval.ndim < 2:
        return order if order in ("C", "F") else "C"
    if strides is None or not aval.static:
        return None
    if is_contiguous(aval, strides):
        return "C"
    if is_contiguous(Aval(aval.shape[::-1], aval.dtype), strides[::-1]):
        return "F"
    if order == "A":
        return "C"
    if min(strides) > 0 and is_c_sorted(aval.shape, strides):
        return "C"
    return "F" if min(strides) > 0 and is_c_sorted(aval.shape[::-1], strides[::-1]) else None


def is_c_sorted(shape: tuple[int, ...], strides: Strides) -> bool:
    """Would NumPy lay out the result of an elementwise operation on such an operand in C order?"""
    if len(shape) < 2:
        return True
    if strides is None:
        return False
    if not is_static(shape) or not is_static(strides):
        later = zip(strides[:-1], strides[1:], shape[1:], strict=True)
        return all(same(stride, following * extent) for stride, following, extent in later)
    return _is_c_sorted(shape, strides)


@functools.lru_cache(maxsize=4096)
def _is_c_sorted(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    steps = [abs(stride) for extent, stride in zip(shape, strides, strict=True) if extent != 1]
    return all(a >= b > 0 for a, b in itertools.pairwise(steps))


def result_strides(aval: Aval, operands: Iterable[tuple[tuple[int, ...], Strides]]) -> Strides:
    """The strides of the result of an operation that keeps its operands' order; None where they are not known."""
    held = [(shape, strides) for shape, strides in operands if len(shape) > 1]
    if aval.ndim < 2 or all(is_c_sorted(shape, strides) for shape, strides in held):
        return c_strides(aval)
    if not is_static((*aval.shape, *(extent for shape, strides in held for extent in (*shape, *(strides or ()))))):
        return None
    orders = {_axis_order(strides) if shape == aval.shape else None for shape, strides in held}
    order = orders.pop() if len(orders) == 1 else None
    if order is None or min(aval.shape) < 2:
        return None
    result, step = [0] * aval.ndim, aval.dtype.itemsize
    for axis in reversed(order):
        result[axis] = step
        step *= aval.shape[axis]
    return tuple(result)


def copied_strides(aval: Aval, strides: Strides) -> Strides:
    """The strides of a copy in order K of such an array: axes in the order of their steps, those that are alike in
    their own."""
    if strides is None or not aval.static or is_contiguous(aval, strides):
        return None if strides is None or not aval.static else c_strides(aval)
    if is_contiguous(Aval(aval.shape[::-1], aval.dtype), strides[::-1]):
        return f_strides(aval)
    result, step = [0] * aval.ndim, aval.dtype.itemsize
    for axis in sorted(range(aval.ndim), key=lambda axis: (abs(strides[axis]), -axis)):
        result[axis] = step
        step *= max(aval.shape[axis], 1)
    return tuple(result)


def _axis_order(strides: Strides) -> tuple[int, ...] | None:
    """The axes from the slowest to the fastest; None where two move alike, stand still or go backwards."""
    if strides is None or min(strides) <= 0 or len(set(strides)) < len(strides):
        return None
    return tuple(sorted(range(len(strides)), key=lambda axis: -strides[axis]))


def reshapes_as_view(shape: tuple[int, ...], strides: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Ask NumPy whether the reshape of such an array is a view."""
    probe = np.lib.stride_tricks.as_strided(np.empty((), np.int8), shape, strides)
    try:
        np.reshape(probe, target, copy=False)
    except ValueError:
        return False
    return True


def same_but_ones(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Do the shapes differ only in dimensions of extent one? Then every layout can be viewed as the other shape."""
    return [extent for extent in shape if extent != 1] == [extent for extent in target if extent != 1]
