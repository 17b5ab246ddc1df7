"""How the arrays of a region lie: dimensions collapsed as far as broadcasting allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Shape = tuple[int, ...]
Mask = tuple[bool, ...]


@dataclass(frozen=True)
class Layout:
    """Loop extents, and for each array operand which loops it moves along (none: it is a scalar)."""

    extents: Shape
    masks: tuple[Mask, ...]


def collapse(shape: Shape, operands: Sequence[Shape]) -> Layout:
    """Merge neighbouring dimensions along which all operands do the same.

    >>> collapse((8, 4, 16), [(8, 4, 16), (16,), (8, 1, 1), ()])
    Layout(extents=(8, 4, 16), masks=((True, True, True), (False, False, True), (True, False, False), ()))
    >>> collapse((8, 4, 16), [(8, 4, 16), (4, 16)])
    Layout(extents=(8, 64), masks=((True, True), (False, True)))
    """
    columns: list[tuple[int, Mask]] = []
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        column = tuple(_moves(operand, axis - len(shape)) for operand in operands)
        if columns and columns[-1][1] == column:
            columns[-1] = (columns[-1][0] * extent, column)
        else:
            columns.append((extent, column))
    masks = tuple(
        () if math.prod(operand) == 1 else tuple(column[k] for _, column in columns)
        for k, operand in enumerate(operands)
    )
    return Layout(tuple(extent for extent, _ in columns), masks)


def _moves(operand: Shape, axis: int) -> bool:
    return -axis <= len(operand) and operand[axis] != 1
