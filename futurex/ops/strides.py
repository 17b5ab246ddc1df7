"""How views lie in memory: as far as a kernel can tell that has not seen the arrays."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class LongRows:
    """Of an operand the axes, counted from the end, that go on where the axis before takes its next step: its rows,
    dense ones, are longer ones together, as those of an image's part are whose pixels are rows of three numbers."""

    axes: tuple[int, ...]


Lie = int | tuple[int, ...] | LongRows
"""How an operand lies: in rows with so many elements from one to the next, in any way in which the axes that are
named, counted from the end, go on where the axis before takes its next step, or in rows of which both is true."""


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
    if isinstance(lie, int):
        return array.strides[-1] == lie * size
    if isinstance(lie, tuple):
        return dense_axes(array.shape, array.strides).issuperset(lie)
    return array.strides[-1] == size and dense_axes(array.shape, array.strides).issuperset(lie.axes)


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


def together(node: Node) -> LongRows | None:
    """How a view of a dense array lies whose rows are too short alone, and long ones together; None for what is
    none."""
    found = _stand_in(node)
    if found is None or found.flags.c_contiguous or not found.ndim or found.shape[-1] >= LEAST_ROW:
        return None
    return rows_together(found)


def rows_together(array: np.ndarray[Any, Any]) -> LongRows | None:
    """The same of an array; None, too, for one in rows that are long alone, or not dense."""
    if not array.ndim or not 1 < array.shape[-1] < LEAST_ROW or not lies_in_rows(array):
        return None
    known, axes, length = dense_axes(array.shape, array.strides), list[int](), array.shape[-1]
    while -len(axes) - 1 in known:
        axes.append(-len(axes) - 1)
        length *= array.shape[-len(axes) - 1]
    return LongRows(tuple(axes)) if length >= LEAST_ROW and axes else None


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
    """Is it a view of a dense array whose rows are dense, and long, alone or together, with gaps between them?"""
    return step_of(node) == 1 or together(node) is not None


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
