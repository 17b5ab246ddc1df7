"""Reductions of arrays that are stacked for them, as ensembles, windows and lists are (``np.mean(np.stack(parts), 0)``,
``np.max([a, b, c], axis=0)``): one operation after the other, so that nobody makes the stack.

NumPy reduces along an axis in front of others one part after the other; so do these, with its bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from futurex.ops.fusion import SUPPORTED
from futurex.ops.reduce import axes_of
from futurex.passes.blocks import as_part, dropped_axes, parts_of
from futurex.passes.fuse import ALONE_ELEMENTS
from futurex.passes.reductions import of_part
from futurex.passes.rewrite import rewrite
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply

MOST_PARTS = 16
"""Parts of a stack: so many are read beside each other."""
_STEPS = {
    "sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "any": "logical_or", "all": "logical_and",
}  # fmt: skip


def reduce_stacks(graph: Graph) -> Graph:
    """The graph with such reductions of large stacks as elementwise operations."""
    return rewrite(graph, _in_steps) if any(node.op == "concatenate" for node in graph.nodes) else graph


def _in_steps(node: Node) -> Node | None:
    whole = of_part(node) if node.op == "ufunc_reduce" else None
    node = node if whole is None else whole
    if node.op not in _STEPS or not node.is_static or not isinstance(node.aval, Aval):
        return None
    (stack,) = node.inputs
    if stack.op != "concatenate" or stack.size < ALONE_ELEMENTS or not {stack.dtype, node.dtype} <= SUPPORTED:
        return None
    axis, parts = stack.attrs["axis"], [part for part, _ in parts_of(stack)]
    in_front = axis < max((k for k, extent in enumerate(stack.shape) if extent > 1), default=0)
    if axes_of(stack.ndim, node.attrs["axis"]) != (axis,) or not in_front:
        return None
    if not 1 < len(parts) <= MOST_PARTS or any(part.shape[axis] != 1 for part in parts):
        return None
    read = [_without(axis, as_part(part, stack)) for part in parts]
    dtype = np.dtype(bool) if node.op in ("any", "all") else node.dtype
    first, *rest = (each if each.dtype == dtype else apply("cast", each, dtype=dtype) for each in read)
    if node.op == "sum" and node.dtype.kind in "fc":
        first = apply("add", first, node.dtype.type(0))  # sums begin with a positive zero
    step: Callable[[Node, Node], Node] = functools.partial(apply, _STEPS[node.op])
    found = functools.reduce(step, rest, first)
    return found if found.shape == node.shape else apply("reshape", found, shape=node.shape)


def _without(axis: int, part: Node) -> Node:
    """A part without the axis along which it is one of several."""
    if dropped_axes(part) == [axis]:
        return part.inputs[0]
    return apply("reshape", part, shape=(*part.shape[:axis], *part.shape[axis + 1 :]))
