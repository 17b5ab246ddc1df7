"""How the arrays of a region lie: dimensions collapsed as far as broadcasting, and gaps between rows, allow."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

Shape = tuple[int, ...]
Mask = tuple[bool, ...]
Axes = tuple[int | None, ...]
MOST_LOOPS = 6
"""Those that a kernel has at most."""
_NONE: Mapping[int, int] = MappingProxyType({})
_NOWHERE: Mapping[int, Collection[int]] = MappingProxyType({})


@dataclass(frozen=True)
class Layout:
    """Loop extents, and for each array operand which loops it moves along (none: it is a scalar).

    ``axes``: for an operand with gaps between its rows its axis, counted from the end, in each loop but the last, None
    where it does not move; nothing for one that is dense. ``apart``: how many elements lie from one of an operand to
    the next along the last loop; 0 for one of which only a run tells: its ``axes`` are those of all loops.
    """

    extents: Shape
    masks: tuple[Mask, ...]
    axes: tuple[Axes, ...]
    apart: tuple[int, ...]


def collapse(
    shape: Shape, operands: Sequence[Shape], gaps: Mapping[int, int] = _NONE,
    dense: Mapping[int, Collection[int]] = _NOWHERE,
) -> Layout:
    """Merge neighbouring dimensions along which all operands do the same; those in ``gaps`` have gaps between rows, in
    which so many elements lie from one to the next, but for axes in ``dense``, counted from the end, along which an
    operand has none. A single element is a row, and what is one of a single operand an array, as it is of rows of one
    with gaps.

    >>> collapse((8, 4, 16), [(8, 4, 16), (16,), (8, 1, 1), ()])
    Layout(extents=(8, 4, 16), masks=((True, True, True), (False, False, True), (True, False, False), ()), ...)
    >>> collapse((8, 4, 16), [(8, 4, 16), (4, 16)])
    Layout(extents=(8, 64), masks=((True, True), (False, True)), axes=((), ()), apart=(1, 1))
    >>> collapse((8, 4, 16), [(8, 4, 16), (4, 16)], gaps={1: 3})
    Layout(extents=(8, 4, 16), masks=((True, True, True), (False, True, True)), axes=((), (None, -2)), apart=(1, 3))
    """
    columns: list[tuple[int, Mask, int]] = []
    single = math.prod(shape) == 1
    for axis in range(-len(shape), 0):
        extent = shape[axis]
        if extent == 1 and not (axis == -1 and (gaps or single)):
            continue
        column = tuple(_moves(operand, axis) for operand in operands)
        gapped = any(column[k] and axis not in dense.get(k, ()) for k in gaps)
        if columns and columns[-1][1] == column and not gapped and extent > 1:
            columns[-1] = (columns[-1][0] * extent, column, axis)
        else:
            columns.append((extent, column, axis))
    masks = tuple(
        () if math.prod(operand) == 1 and not (single and operand) else tuple(column[k] for _, column, _ in columns)
        for k, operand in enumerate(operands)
    )
    axes = tuple(
        tuple(axis if column[k] else None for _, column, axis in columns[: -1 if gaps[k] else None])
        if k in gaps
        else ()
        for k in range(len(operands))
    )
    apart = tuple(gaps.get(k, 1) for k in range(len(operands)))
    return Layout(tuple(extent for extent, _, _ in columns), masks, axes, apart)


def _moves(operand: Shape, axis: int) -> bool:
    return -axis <= len(operand) and operand[axis] != 1
