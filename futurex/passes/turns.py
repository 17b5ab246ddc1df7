"""Results that are views which lie the other way round, backwards, by steps, or in short rows with gaps: what a caller
gets is made by a region, which turns squares, reads rows as they lie, or writes columns."""

from __future__ import annotations

from futurex.ops.fusion import is_generated
from futurex.ops.joined import columns_of
from futurex.ops.strides import step_of, turned_along
from futurex.passes.columns import column, read_by_columns
from futurex.passes.fuse import ALONE_ELEMENTS, region_of
from futurex.passes.rewrite import rewrite
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, param


def copy_turned(graph: Graph) -> Graph:
    """The graph with large results of the kind, of arguments, as regions of one operand. Such views of what a run
    computes are given as they are, but where they are to lie in C order."""
    if any(node.op == "contiguous" for node in graph.nodes):
        graph = rewrite(graph, lambda node: _copied(node, node.inputs[0]) if node.op == "contiguous" else None)
    given = [len(node.inputs) == 1 and node.inputs[0].op == "param" for node in graph.outs]
    outs = [_copied(node, node) if own else node for node, own in zip(graph.outs, given, strict=True)]
    return graph if outs == list(graph.outs) else Graph(graph.params, outs, graph.name)


def _copied(node: Node, view: Node) -> Node:
    """A node whose value is that of a large view of one array, as the region whose result is its operand, or the
    columns of that; itself for other views."""
    if not isinstance(node.aval, Aval) or not node.is_static or node.size < ALONE_ELEMENTS:
        return node
    if len(view.inputs) != 1 or not is_generated(node.dtype):
        return node
    if turned_along(view) is not None or step_of(view) not in (None, 1):
        same = param(node.aval, "a0")
        return region_of([same], [same], [view])
    if not read_by_columns(view):
        return node
    columns = [column(view, k) for k in range(node.shape[-1])]
    params = [param(each.aval, f"a{k}") for k, each in enumerate(columns)]
    graph = Graph(params, params, "join")
    return apply("fused_join", *columns, graph=graph, blocks=columns_of(node.shape), shape=node.shape)
