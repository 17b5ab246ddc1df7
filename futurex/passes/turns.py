"""Results that are views which lie the other way round, backwards, by steps, or in short rows with gaps: what a caller
gets is made by a region, which turns squares, reads rows as they lie, or writes columns."""

from __future__ import annotations

from futurex.ops.fusion import is_generated
from futurex.ops.joined import columns_of
from futurex.ops.strides import goes_on, step_of, turned_along
from futurex.passes.blocks import MOST_COLUMNS, view_of
from futurex.passes.fuse import ALONE_ELEMENTS, region_of
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, param


def copy_turned(graph: Graph) -> Graph:
    """The graph with large results of the kind, of arguments, as regions of one operand. Such views of what a run
    computes are given as they are."""
    outs = [_copied(node) if _is_large_view(node) else node for node in graph.outs]
    return graph if outs == list(graph.outs) else Graph(graph.params, outs, graph.name)


def _is_large_view(node: Node) -> bool:
    if not isinstance(node.aval, Aval) or not node.is_static or node.size < ALONE_ELEMENTS:
        return False
    return len(node.inputs) == 1 and node.inputs[0].op == "param" and is_generated(node.dtype)


def _copied(node: Node) -> Node:
    """The region whose result is its operand, or the columns of that."""
    if turned_along(node) is not None or step_of(node) not in (None, 1):
        same = param(node.aval, "a0")
        return region_of([same], [same], [node])
    if node.ndim < 2 or not 1 < node.shape[-1] <= MOST_COLUMNS or goes_on(node):
        return node
    whole = [(0, extent) for extent in node.shape[:-1]]
    columns = [view_of(node, (*whole, k)) for k in range(node.shape[-1])]
    if any(step_of(each) is None for each in columns):
        return node
    params = [param(each.aval, f"a{k}") for k, each in enumerate(columns)]
    graph = Graph(params, params, "join")
    return apply("fused_join", *columns, graph=graph, blocks=columns_of(node.shape), shape=node.shape)
