"""What a kernel for a region with reductions must know: its operands, and the passes over a row that its stages need.

A full value belongs to the stage after the last reduction that it reads. What a later stage needs of an earlier one is
read from a result where it is one, kept in a buffer where it was costly, and computed again otherwise.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.kernels.numba_.element import helds_of
from futurex.kernels.numba_.functions import FUNCTIONS, GUARDED
from futurex.kernels.numba_.layout import Layout, collapse
from futurex.kernels.numba_.region import Scalar
from futurex.ops.fusion import function_of
from futurex.ops.sweeps import LONGEST_ROW, REDUCTIONS, Level, Shape, Space, aligned, holds_reduction, levels
from futurex.tree.graph import Graph
from futurex.tree.node import Node

Dtype = np.dtype[Any]
_COSTLY = 4.0


@dataclass(frozen=True)
class Operand:
    """An array operand as one level of the region reads it: input ``position``, in the space's dimensions."""

    node: Node
    position: int
    shape: Shape


class Sweep:
    """The region of one ``fused_reduction``. Raises ValueError for one that no kernel is made for."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        nodes = [node for node in graph.nodes if node.inputs]
        space = holds_reduction(nodes)
        found = levels(nodes, space) if space is not None else None
        if space is None or found is None:
            raise ValueError(f"{graph!r} is not a region with reductions")
        self.space: Space = space
        self.nodes = nodes
        self.level = found
        self.position = {node: k for k, node in enumerate(graph.params)}
        self.operand: dict[tuple[Node, Shape], Operand] = {}
        scalars: dict[tuple[Node, Dtype], Scalar] = {}
        for node in nodes:
            for source, held in zip(node.inputs, helds_of(node), strict=True):
                if source.inputs:
                    continue
                if source.size == 1:
                    scalars[source, held] = Scalar(source, held, self.position.get(source))
                elif source in self.position:
                    shape = aligned(node, source, space)
                    self.operand[source, shape] = Operand(source, self.position[source], shape)
                else:
                    raise ValueError(f"{source!r} is neither a number nor an input")
        self.operands = list(self.operand.values())
        self.arrays = tuple(each.position for each in self.operands)
        self.scalars = tuple(sorted(scalars.values(), key=lambda scalar: scalar.position is None))
        self.layout: Layout = collapse(space.shape, [*(each.shape for each in self.operands), space.kept])
        self.kept = self.layout.masks[-1] or (False,) * len(self.layout.extents)
        if self.kept.count(False) != 1 or False not in self.kept[-2:]:
            raise ValueError(f"{graph!r} reduces in a way that no kernel is made for")
        self.guarded = any(function_of(node) in GUARDED for node in nodes)
        self.approximate = any(function_of(node) in FUNCTIONS for node in nodes)

    @functools.cached_property
    def rows(self) -> bool:
        """Are the elements of one reduction neighbours in memory?"""
        return not self.kept[-1]

    def mask(self, operand: Operand) -> tuple[bool, ...]:
        """Which loops the operand moves along."""
        return self.layout.masks[self.operands.index(operand)]

    @functools.cached_property
    def stage(self) -> dict[Node, int]:
        """For a full value the pass that computes it, for a reduced one the first pass that may read it."""
        found: dict[Node, int] = {}
        for node in self.nodes:
            found[node] = max((found.get(source, 0) for source in node.inputs), default=0)
            found[node] += node.op in REDUCTIONS
        return found

    @functools.cached_property
    def stages(self) -> int:
        """How many passes there are."""
        full = [self.stage[node] for node in self.graph.outs if self.level[node] is Level.FULL]
        sums = [self.stage[node] - 1 for node in self.nodes if node.op in REDUCTIONS]
        return max(full + sums) + 1

    def reductions(self, stage: int) -> list[Node]:
        """What pass ``stage`` reduces of a row."""
        return [node for node in self._reduced_in(stage) if self.level[node] is Level.REDUCED]

    def crossings(self, stage: int) -> list[Node]:
        """What pass ``stage`` adds to sums over all rows."""
        return [node for node in self._reduced_in(stage) if self.level[node] is Level.CROSSED]

    def _reduced_in(self, stage: int) -> list[Node]:
        return [node for node in self.nodes if node.op in REDUCTIONS and self.stage[node] == stage + 1]

    @functools.cached_property
    def crossed(self) -> list[Node]:
        """The sums over all rows."""
        return [node for node in self.nodes if self.level[node] is Level.CROSSED]

    def results(self, stage: int) -> list[Node]:
        """The full values that pass ``stage`` writes."""
        outs = dict.fromkeys(self.graph.outs)
        return [node for node in outs if self.level[node] is Level.FULL and self.stage[node] == stage]

    @functools.cached_property
    def kept_values(self) -> list[Node]:
        """Costly full values that a later pass than their own reads, and that are no results; none of long rows."""
        found: dict[Node, None] = {}
        if self.space.count > LONGEST_ROW:
            return []
        for stage in range(1, self.stages):
            pending = [node.inputs[0] for node in self._reduced_in(stage)] + self.results(stage)
            while pending:
                node = pending.pop()
                if self.level.get(node) is not Level.FULL or (node in self.graph.outs and self.stage[node] < stage):
                    continue
                if self.stage[node] < stage and self._cost(node) >= _COSTLY:
                    found[node] = None
                else:
                    pending += node.inputs
        return list(found)

    @functools.cache  # noqa: B019  (as short-lived as the kernel's making)
    def _cost(self, node: Node) -> float:
        """About how many instructions one element takes from the operands on."""
        if self.level.get(node) is not Level.FULL:
            return 0.0
        own = 15.0 if function_of(node) in FUNCTIONS else 4.0 if node.op in ("divide", "sqrt", "reciprocal") else 1.0
        return own + sum(self._cost(source) for source in node.inputs)
