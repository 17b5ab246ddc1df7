"""How the arrays of a region lie: dimensions collapsed as far as broadcasting, and gaps between rows, allow."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from futurex.kernels.addresses import lies_in_rows
from futurex.ops.views import view
from futurex.tree.node import Node

Shape = tuple[int, ...]
Mask = tuple[bool, ...]
Axes = tuple[int | None, ...]
_LEAST_ROW = 16
"""Elements of a row below which an operand is copied rather than read with its gaps."""


@dataclass(frozen=True)
class Layout:
    """Loop extents, and for each array operand which loops it moves along (none: it is a scalar).

    ``axes``: for an operand with gaps between its rows its axis, counted from the end, in each loop but the last, None
    where it does not move; nothing for one that is dense.
    """

    extents: Shape
    masks: tuple[Mask, ...]
    axes: tuple[Axes, ...]


def collapse(shape: Shape, operands: Sequence[Shape], gaps: Collection[int] = ()) -> Layout:
    """Merge neighbouring dimensions along which all operands do the same; those in ``gaps`` have gaps between rows.

    >>> collapse((8, 4, 16), [(8, 4, 16), (16,), (8, 1, 1), ()])
    Layout(extents=(8, 4, 16), masks=((True, True, True), (False, False, True), (True, False, False), ()), axes=(...))
    >>> collapse((8, 4, 16), [(8, 4, 16), (4, 16)])
    Layout(extents=(8, 64), masks=((True, True), (False, True)), axes=((), ()))
    >>> collapse((8, 4, 16), [(8, 4, 16), (4, 16)], gaps=[1])
    Layout(extents=(8, 4, 16), masks=((True, True, True), (False, True, True)), axes=((), (None, -2)))
    """
    columns: list[tuple[int, Mask, int]] = []
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        column = tuple(_moves(operand, axis - len(shape)) for operand in operands)
        if columns and columns[-1][1] == column and not any(column[k] for k in gaps):
            columns[-1] = (columns[-1][0] * extent, column, 0)
        else:
            columns.append((extent, column, axis - len(shape)))
    masks = tuple(
        () if math.prod(operand) == 1 else tuple(column[k] for _, column, _ in columns)
        for k, operand in enumerate(operands)
    )
    axes = tuple(
        tuple(axis if column[k] else None for _, column, axis in columns[:-1]) if k in gaps else ()
        for k in range(len(operands))
    )
    return Layout(tuple(extent for extent, _, _ in columns), masks, axes)


def has_gaps(node: Node) -> bool:
    """Is it a view of a dense array whose rows are dense, and long, with gaps between them?"""
    if node.op != "load" or len(node.inputs) != 1 or not (node.is_static and node.inputs[0].is_static):
        return False
    if not node.ndim or node.shape[-1] < _LEAST_ROW or node.dtype.hasobject:
        return False
    base = np.empty(node.inputs[0].shape, node.inputs[0].dtype)  # nobody touches its pages
    found = view(base, node.attrs["chain"], ())
    return not found.flags.c_contiguous and found.dtype == base.dtype and lies_in_rows(found)


def _moves(operand: Shape, axis: int) -> bool:
    return -axis <= len(operand) and operand[axis] != 1
