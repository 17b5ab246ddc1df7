"""Whole numbers that move with a loop's counter: what a slice between two of them leaves, known before the run.

Of ``x[i : i + 32]`` in a loop over ``range(0, 1024, 32)`` all rounds see 32 rows. A counter is known by all its values,
and what is added to it and multiplied with it is a line over it.
"""

from __future__ import annotations

from typing import NamedTuple

from futurex.frontend.trace import current
from futurex.tree.node import Node


class Line(NamedTuple):
    """``slope * counter + offset``; a constant has no counter."""

    counter: Node | None
    slope: int
    offset: int


def line_of(node: Node) -> Line | None:
    """What a traced int is of a counter that is known; None for other numbers."""
    if node.op == "const":
        value = node.value
        return Line(None, 0, int(value)) if getattr(value, "ndim", 0) == 0 and node.dtype.kind in "iu" else None
    if node in current().counters:
        return Line(node, 1, 0)
    if node.op == "python_scalar" and node.dtype.kind == "i":
        return line_of(node.inputs[0])
    if node.op not in ("add", "subtract", "multiply") or node.dtype.kind != "i":
        return None
    first, second = map(line_of, node.inputs)
    if first is None or second is None:
        return None
    if node.op == "multiply":
        if second.counter is not None:
            first, second = second, first
        factor = second.offset
        return Line(first.counter, first.slope * factor, first.offset * factor) if second.counter is None else None
    counter = second.counter if first.counter is None else first.counter
    if second.counter is not None and second.counter is not counter:
        return None
    sign = 1 if node.op == "add" else -1
    return Line(counter, first.slope + sign * second.slope, first.offset + sign * second.offset)


def distance(start: Node, stop: Node) -> int | None:
    """How far one number is from another, in all rounds alike; None where rounds may differ."""
    first, last = line_of(start), line_of(stop)
    if first is None or last is None or first.counter is not last.counter or first.slope != last.slope:
        return None
    return last.offset - first.offset


def length_of(start: Node, stop: Node, step: int | None, extent: int) -> int | None:
    """The elements that a slice leaves of an axis, the same in every round; None where rounds may differ.

    Both bounds lie on the axis in all rounds, so that neither is cut off nor counts from the end.
    """
    first, last = line_of(start), line_of(stop)
    if first is None or last is None or not (step is None or step > 0):
        return None
    if first.counter is not last.counter or first.slope != last.slope or last.offset < first.offset:
        return None
    values = current().counters[first.counter] if first.counter is not None else range(1)
    ends = [first.slope * value + first.offset for value in (values[0], values[-1])]
    span = last.offset - first.offset
    if min(ends) < 0 or max(ends) + span > extent:
        return None
    return len(range(0, span, step or 1))
