"""Large arguments as they lie in memory: in which order of their axes a run takes them, and whether it writes there."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from futurex.frontend.array import Array
from futurex.frontend.layout import order_in_memory
from futurex.frontend.number_lists import array_of
from futurex.frontend.plain import folded, overlap
from futurex.passes.dead import may_raise
from futurex.passes.orders import LEAST_ELEMENTS, Axes, Steps, as_they_lie
from futurex.passes.rewrite import rewrite
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply

_SMALL = 64
"""Elements of what is copied, before the array is written that it was read from."""
_FARTHEST = 16
"""Elements of memory for each of a view, from which it is copied."""

if TYPE_CHECKING:
    from futurex.frontend.variants import Variant


@dataclass
class Lying:
    """What of the inputs of a trace the plan knows otherwise than its tree.

    ``orders``: of those that are no arrays in C order, the axes by which they are. ``steps``: of those that have gaps,
    or go backwards, how they lie in the memory from their first element to the last. ``written``: outputs that a run
    leaves in these inputs, into which it writes when nothing can fail any more: nobody has to begin again then.
    ``lists``: those that are lists of numbers, of which a run takes the arrays.
    """

    orders: dict[int, Axes] = field(default_factory=dict)
    steps: dict[int, Steps] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)
    lists: tuple[int, ...] = ()

    def graph(self, graph: Graph) -> Graph:
        """The tree of a trace for such inputs."""
        outs = {out: self.orders[k] for out, k in self.written.items() if k in self.orders}
        graph = as_they_lie(graph, self.orders, outs, self.steps)
        if not self.written:
            return graph
        return rewrite(graph, functools.partial(_copied_if_small, {graph.params[k] for k in self.written.values()}))

    def inputs(self, inputs: list[Any]) -> list[Any]:
        """What a run takes of the inputs of a call."""
        if self.lists:
            inputs = [*inputs]
            for k in self.lists:
                inputs[k] = array_of(inputs[k])
        if not (self.orders or self.steps or self.written):
            return inputs
        inputs = [each if k not in self.orders else each.transpose(self.orders[k]) for k, each in enumerate(inputs)]
        for k, steps in self.steps.items():
            inputs[k] = _memory_of(inputs[k], steps.size)
        apart = bool(self.written) and any(action == "error" for action, *_ in warnings.filters)
        for k in self.written.values():
            if apart or not inputs[k].flags.carray:  # a warning may end the run, which begins again then
                inputs[k] = inputs[k].copy()
        return inputs

    def write_back(self, target: np.ndarray, out: int, result: Any, inputs: Sequence[Any]) -> None:
        """Let an argument hold what the run has left for it, unless it has written there."""
        k = self.written.get(out)
        if k is None:
            np.copyto(target, result)
        elif result is not inputs[k] or not np.may_share_memory(result, target):
            np.copyto(target if k not in self.orders else target.transpose(self.orders[k]), result)


def _copied_if_small(written: set[Node], node: Node) -> Node | None:
    """Of what is written, a copy of a few elements, which else would be a view that a write in place changes."""
    small = node.op == "load" and node.is_static and node.size <= _SMALL and node.inputs[0] in written
    return apply("contiguous", node) if small else None


def lying_of(variant: Variant, leaves: Sequence[Any]) -> Lying:
    """How a run takes leaves like these. What is given away is not turned: results are to fit its memory."""
    lists = tuple(k for k, place in enumerate(variant.inputs) if type(leaves[place]) is list)
    if variant.graph is None or variant.device != "cpu" or variant.opened:
        return Lying(lists=lists)
    written = _written(variant, variant.graph)
    return Lying(*_orders(variant, variant.graph, leaves, frozenset(written.values())), written, lists)


def _orders(
    variant: Variant, graph: Graph, leaves: Sequence[Any], written: frozenset[int]
) -> tuple[dict[int, Axes], dict[int, Steps]]:
    orders, gaps = {}, {}
    captured = (capture.array for capture in variant.captures)
    for k, value in enumerate([*(leaves[place] for place in variant.inputs), *captured]):
        if type(value) is not np.ndarray or value.size < LEAST_ELEMENTS or k in variant.gives:
            continue
        if value.flags.c_contiguous or not value.flags.aligned or not graph.params[k].is_static:
            continue
        order = order_in_memory(graph.params[k].aval, value.strides)
        if order is not None:
            orders[k] = order
        elif k not in written and value.dtype.kind in "biufc" and (steps := steps_of(value)) is not None:
            gaps[k] = steps
    return orders, gaps


def steps_of(value: np.ndarray) -> Steps | None:
    """How an array lies in the memory from its first element to the last; None where elements share a place, or lie
    too far apart.

    >>> steps_of(np.zeros((4, 6))[::-1, 1::2].T)
    Steps(size=23, start=18, shape=(4, 3), steps=(-6, 2), axes=(1, 0))
    """
    size = value.itemsize
    if any(stride % size for stride in value.strides):
        return None
    axes = tuple(sorted(range(value.ndim), key=lambda axis: (value.shape[axis] != 1, -abs(value.strides[axis]), axis)))
    shape = tuple(value.shape[axis] for axis in axes)
    steps = tuple(value.strides[axis] // size if value.shape[axis] > 1 else 0 for axis in axes)
    behind = 1  # elements from the first to the one behind the last, of the axes inside of one
    for extent, step in zip(reversed(shape), reversed(steps), strict=True):
        if extent > 1 and abs(step) < behind:
            return None
        behind += (extent - 1) * abs(step)
    if behind > _FARTHEST * value.size:
        return None
    start = sum((extent - 1) * -step for extent, step in zip(shape, steps, strict=True) if step < 0)
    return Steps(behind, start, shape, steps, axes)


def _memory_of(value: np.ndarray, size: int) -> np.ndarray:
    """What lies from the first element in memory to the last, so many in all."""
    first = value[tuple([slice(-1, None) if stride < 0 else slice(1) for stride in value.strides])]
    return as_strided(first, (size,), (value.itemsize,))


def _written(variant: Variant, graph: Graph) -> dict[int, int]:
    if not variant.written or variant.gives or variant.prints or variant.has_log or variant.generators:
        return {}
    if any(key[0] is Array for key in variant.leaves) or graph.acts:
        return {}
    if variant.limit is not None and any(map(may_raise, graph.nodes)):
        return {}
    found = {}
    for place, out in variant.written:
        result, k = graph.outs[out], variant.inputs.index(place) if place in variant.inputs else -1
        if k < 0 or graph.params[k].aval != result.aval or result.op == "param" or graph.outs.count(result) > 1:
            continue
        if result.is_static and result.size >= LEAST_ELEMENTS:
            found[out] = k
    return found


def may_write(variant: Variant, leaves: list[Any], captured: list[Any]) -> bool:
    """Is every array that is written one that may be, and a storage of its own?"""
    every = (leaves[place] if place >= 0 else captured[~place] for place, _ in variant.written)
    arrays = [target for target in every if isinstance(target, np.ndarray)]
    # Folded comes first: what np.broadcast_arrays returned warns when it is asked whether it may be written.
    return not any(folded(a) or not a.flags.writeable for a in arrays) and not overlap(arrays, leaves, captured)
