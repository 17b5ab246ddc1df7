"""How views lie in memory: as far as a kernel can tell that has not seen the arrays."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.tree.node import Node

LEAST_ROW = 8
"""Elements of a row below which a view is copied rather than read with its gaps."""
LEAST_IN_BLOCKS = 4096
"""Elements of a result, or a view, from which blocks of rows are read as one loop, where rows are short."""
_LONGEST_STEP = 8
"""Elements from one of a row to the next up to which a region reads them where they lie."""
_LEAST_TURNED, _LEAST_SIDE = 4096, 8
"""Elements of an array, and along each of two axes, from which it is read in squares."""
Lie = int | tuple[int, ...]
"""How an operand lies: in rows with so many elements from one to the next, or in any way in which the axes that are
named, counted from the end, go on where the axis before takes its next step."""


def undone(axes: Sequence[int]) -> tuple[int, ...]:
    """The axes that undo an exchange of axes.

    >>> np.zeros((2, 3, 4)).transpose(1, 2, 0).transpose(undone((1, 2, 0))).shape
    (2, 3, 4)
    """
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


def lies_in_rows(array: np.ndarray[Any, Any], lie: Lie = 1) -> bool:
    """Does it lie so, all steps whole numbers of elements?"""
    size = array.itemsize
    if not array.flags.aligned or any(each % size for each in array.strides):
        return False
    if isinstance(lie, tuple):
        return dense_axes(array.shape, array.strides).issuperset(lie)
    return array.strides[-1] == lie * size


def dense_axes(shape: Sequence[int], strides: Sequence[int]) -> set[int]:
    """Axes, counted from the end, along which an array goes on where the axis before them takes its next step."""
    axes = [axis for axis in range(-len(shape), 0) if shape[axis] > 1]
    return {after for axis, after in itertools.pairwise(axes) if strides[axis] == strides[after] * shape[after]}


def turned(shape: Sequence[int], strides: Sequence[int], size: int) -> tuple[int, tuple[int, ...]] | None:
    """Of an array that is read in squares the axis, counted from the end, along which neighbours lie side by side, or
    nearly, where those of a row do not, and how it lies (:data:`Lie`); None if it lies otherwise, or is small."""
    if len(shape) < 2 or math.prod(shape) < _LEAST_TURNED or shape[-1] < _LEAST_SIDE:
        return None
    if not size or any(stride % size for stride in strides):
        return None
    steps = {axis: abs(strides[axis]) for axis in range(-len(shape), 0) if shape[axis] > 1 and strides[axis]}
    axis = min(steps, key=lambda each: steps[each], default=-1)
    if steps.get(-1, 0) <= _LONGEST_STEP * size or steps[axis] > _LONGEST_STEP * size or shape[axis] < _LEAST_SIDE:
        return None
    return axis, tuple(sorted(dense_axes(shape, strides)))


def step_of(node: Node, least: int = LEAST_ROW) -> int | None:
    """How many elements lie from one to the next in the rows of a view of a dense array that has gaps, and that a
    region of elementwise operations reads where it lies; None for what is no such view, or has rows of fewer than
    ``least`` elements."""
    found = _stand_in(node)
    if found is None or found.flags.c_contiguous or not found.ndim or found.shape[-1] < least:
        return None
    step = found.strides[-1] // found.itemsize
    return step if 0 < abs(step) <= _LONGEST_STEP and lies_in_rows(found, step) else None


def goes_on(node: Node) -> bool:
    """Do rows go on where the row before ends, or is it no view of a dense array?"""
    found = _stand_in(node)
    return found is None or -1 in dense_axes(found.shape, found.strides)


def lies_in_short_rows(node: Node) -> bool:
    """Is it a view of a dense array, whose rows are dense, short ones with gaps between them, that a region reads in
    blocks?"""
    return node.is_static and node.size >= LEAST_IN_BLOCKS and step_of(node, 1) == 1


def turned_along(node: Node) -> tuple[int, tuple[int, ...]] | None:
    """:func:`turned` of a view of a dense array; None for what is none."""
    found = _stand_in(node)
    return None if found is None else turned(found.shape, found.strides, found.itemsize)


def has_gaps(node: Node) -> bool:
    """Is it a view of a dense array whose rows are dense, and long, with gaps between them?"""
    return step_of(node) == 1


def is_scattered(node: Node, least: int = LEAST_ROW) -> bool:
    """Is it a view of a dense array that only a copy brings into rows, of at least so many elements?"""
    found = _stand_in(node)
    return found is not None and not found.flags.c_contiguous and step_of(node, least) != 1


def is_gathered(node: Node) -> bool:
    """Is it a view of a dense array in another shape, which only a copy gives it?"""
    if node.op != "reshape" or len(node.inputs) != 1 or not node.is_static:
        return False
    found = _stand_in(node.inputs[0])
    if found is None:
        return False
    try:
        np.reshape(found, node.shape, copy=False)
    except ValueError:
        return True
    return False


def _stand_in(node: Node) -> np.ndarray[Any, Any] | None:
    """An array that lies as a view of a dense one does; None for what is no view, or not known before the run."""
    if node.op not in ("load", "transpose", "flip") or len(node.inputs) != 1:
        return None
    if not (node.is_static and node.inputs[0].is_static) or node.dtype.hasobject or node.dtype != node.inputs[0].dtype:
        return None
    base = np.empty(node.inputs[0].shape, node.inputs[0].dtype)  # nobody touches its pages
    return np.asarray(node.record.run([base], node.attrs))
