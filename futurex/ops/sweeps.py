"""``fused_reduction``: a region of elementwise operations and the reductions among them, as one node for one kernel.

All reductions of a region take the same array shape along the same axes, its :class:`Space`. Values have one of two
levels: *full*, the shape of the space, or *reduced*, without its axes or with them kept as ones. Where the axes are the
last ones, reduced values may enter full ones again (softmax, layer normalisation); otherwise a region ends with them.

A region whose reductions run along rows may also add its full values up over all rows, where the order of additions is
free (``free_sum``): such results are *crossed*, and end the region. So backward normalisation is one trip.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from futurex.ops.fusion import CORRECTLY_ROUNDED, SUPPORTED, op_of_graph, real_loop_of
from futurex.ops.reduce import axes_of
from futurex.ops.strides import has_gaps, is_scattered
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, param
from futurex.tree.record import Sample

Shape = tuple[int, ...]

REDUCTIONS = frozenset(("sum", "free_sum", "prod", "max", "free_max", "min", "any", "all"))
VIEWS = frozenset(("broadcast_to", "reshape"))
LONGEST_ROW = 8192
"""Elements of a row up to which it is read again from the cache nearby, and what was costly is kept."""
FEWEST_ROWS, SHARED = 8, 128 * 1024
"""Of longer rows as many as are worth one kernel: threads share rows, so that large arrays must have some."""
LEAST_ROW, MANY_ROWS = 8, 1024
"""Elements of a row below which a function of what it is reduced to is better done for so many rows at once."""


class Level(Enum):
    """Where a value of a region stands."""

    FULL = "full"
    REDUCED = "reduced"
    CROSSED = "crossed"


@dataclass(frozen=True)
class Space:
    """The shape that reductions take, and the axes along which they take it."""

    shape: Shape
    axes: Shape

    @property
    def kept(self) -> Shape:
        """The shape of a result that keeps its axes as ones."""
        return tuple(1 if axis in self.axes else extent for axis, extent in enumerate(self.shape))

    @property
    def dropped(self) -> Shape:
        return tuple(extent for axis, extent in enumerate(self.shape) if axis not in self.axes)

    @property
    def count(self) -> int:
        """Elements that one result is made of."""
        return math.prod(self.shape[axis] for axis in self.axes)

    @property
    def pattern(self) -> str:
        """Runs of kept (K) and reduced (R) axes, those of one element left out: ``KR`` reduces rows, ``RK`` columns."""
        letters = ["R" if axis in self.axes else "K" for axis, extent in enumerate(self.shape) if extent != 1]
        return "".join(letter for k, letter in enumerate(letters) if k == 0 or letters[k - 1] != letter)

    @property
    def returns(self) -> bool:
        """May reduced values enter full ones again within one kernel?"""
        rows = math.prod(self.shape) // self.count
        fits = self.count <= LONGEST_ROW or rows >= FEWEST_ROWS or math.prod(self.shape) < SHARED
        return self.pattern in ("R", "KR") and fits

    def crosses(self, other: Space) -> bool:
        """Does this one add up over the rows along which the other reduces?"""
        together = {axis for axis, extent in enumerate(self.shape) if extent != 1}
        both = [{axis for axis in each.axes if axis in together} for each in (self, other)]
        return self.shape == other.shape and not both[0] & both[1] and both[0] | both[1] == together


def space_of(node: Node) -> Space | None:
    """What a reduction takes; None if it is none that a compiled region may hold."""
    if node.op not in REDUCTIONS or not node.is_static or not isinstance(node.aval, Aval):
        return None
    source = node.inputs[0]
    if source.aval.weak or source.dtype not in SUPPORTED or node.dtype not in SUPPORTED:
        return None
    if "f" in (source.dtype.kind, node.dtype.kind) and node.op not in ("any", "all") and node.dtype != source.dtype:
        return None  # NumPy converts in pieces, which its order of summation follows
    space = Space(source.shape, axes_of(source.ndim, node.attrs["axis"]))
    if space.count < 2 or space.pattern not in ("R", "KR", "RK", "KRK"):
        return None
    return space


def levels(nodes: Iterable[Node], space: Space) -> dict[Node, Level] | None:
    """The level of each node of a region, inputs before users; None if they do not make a region."""
    found: dict[Node, Level] = {}
    inside = set(nodes)
    for node in nodes:
        level = _level(node, space)
        if level is None:
            return None
        for source in node.inputs:
            if source in inside:
                if not _fits(node, level, source, found[source], space):
                    return None
            elif not _reads(node, level, source, space):
                return None
        found[node] = level
    return found


def _level(node: Node, space: Space) -> Level | None:
    if node.op in REDUCTIONS:
        own = space_of(node)
        if node.op == "free_sum" and own is not None and space.returns and own.crosses(space):
            return Level.CROSSED
        return Level.REDUCED if own == space else None
    if node.shape == space.shape:
        return Level.FULL if node.op == "broadcast_to" or real_loop_of(node) is not None else None
    if node.shape not in (space.kept, space.dropped) or space.pattern.endswith("K"):
        return None
    short = space.count < LEAST_ROW and math.prod(space.shape) >= MANY_ROWS * space.count
    if short and node.op not in CORRECTLY_ROUNDED and node.op != "reshape":
        return None
    return Level.REDUCED if node.op == "reshape" or real_loop_of(node) is not None else None


def _fits(node: Node, level: Level, source: Node, from_level: Level, space: Space) -> bool:
    if node.op in REDUCTIONS or from_level is Level.CROSSED:
        return node.op in REDUCTIONS and from_level is Level.FULL
    if level is Level.REDUCED:
        return from_level is Level.REDUCED and (source.shape in (node.shape, ()) or node.op == "reshape")
    return from_level is Level.FULL or (space.returns and source.shape == space.kept)


def _reads(node: Node, level: Level, source: Node, space: Space) -> bool:
    """Can a node read an array from outside? It moves along all reduced axes or none, and so behind them."""
    if level is Level.REDUCED and node.op not in REDUCTIONS:
        return node.op not in VIEWS
    return not turned(source) and not _stays_apart(node, source) and enters(source, space)


def _stays_apart(node: Node, source: Node) -> bool:
    """Is it a view that the kernel would have to copy, where less is to do? NumPy reduces views where they lie, in an
    order that their gaps decide; operations before a reduction are a region that reads rows with gaps, and one array
    that they make is read sooner than copies of all their operands."""
    if adds_converted(node):
        return False
    return has_gaps(source) or (node.op in REDUCTIONS and is_scattered(source))


def adds_converted(node: Node) -> bool:
    """Is it a sum of integers of another type? NumPy takes some nanoseconds for each, and no order matters."""
    return node.op == "sum" and node.dtype.kind in "iu" and node.inputs[0].dtype != node.dtype


def enters(source: Node, space: Space) -> bool:
    """Does an operand move along all reduced axes or none, and so behind them?"""
    behind = set(range(max(space.axes) + 1, len(space.shape)))
    return all(_uniform(source, space, axes) for axes in (set(space.axes), behind))


def turned(node: Node) -> bool:
    """Is it a view whose elements lie in another order in memory? NumPy's sums follow that order."""
    if node.op == "reshape":
        return turned(node.inputs[0])
    if node.op != "load":
        return node.op in ("transpose", "flip", "frames")
    steps = [step for step in node.attrs["chain"] if step[0] not in ("sized", "reshape")]
    return not all(step[0] == "index" and all(map(_forwards, step[1])) for step in steps)


def _forwards(entry: tuple[Any, ...]) -> bool:
    return entry[0] != "s" or entry[3] is None or (isinstance(entry[3], int) and entry[3] > 0)


def _uniform(source: Node, space: Space, axes: set[int]) -> bool:
    places = [axis - len(space.shape) for axis in axes if space.shape[axis] != 1]
    return len({-place <= source.ndim and source.shape[place] != 1 for place in places}) <= 1


def aligned(node: Node, source: Node, space: Space) -> Shape:
    """The shape of an operand from outside as the space's dimensions see it: ones where it does not move."""
    if node.shape == space.dropped and node.op not in REDUCTIONS:
        padded = (1,) * (node.ndim - source.ndim) + source.shape
        extents = iter(padded)
        return tuple(1 if axis in space.axes else next(extents) for axis in range(len(space.shape)))
    return (1,) * (len(space.shape) - source.ndim) + source.shape


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    x = param(Aval((3, 4), np.dtype(float)), "x")
    total = apply("sum", x * 2.0, axis=(1,), keepdims=True, dtype=None)
    yield Sample((rng.normal(size=(3, 4)),), {"graph": Graph([x], [x / total, total], "region")}, order=1)


op_of_graph("fused_reduction", samples=_samples)


def holds_reduction(nodes: Collection[Node]) -> Space | None:
    """The space of a region's reductions; None if it has none. Sums over all rows follow the reductions of rows."""
    over_rows = None
    for node in nodes:
        if node.op in REDUCTIONS:
            space = space_of(node)
            if node.op != "free_sum" or space is None or space.pattern != "RK":
                return space
            over_rows = over_rows or space
    return over_rows
