"""Results that are views which lie the other way round: what a caller gets is made by a region, which turns squares."""

from __future__ import annotations

from futurex.ops.fusion import is_generated
from futurex.ops.strides import turned_along
from futurex.passes.fuse import ALONE_ELEMENTS, region_of
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, param


def copy_turned(graph: Graph) -> Graph:
    """The graph with large results of the kind, of arguments, as regions of one operand. Such views of what a run
    computes are given as they are."""
    outs = [_copied(node) if _is_copied(node) else node for node in graph.outs]
    return graph if outs == list(graph.outs) else Graph(graph.params, outs, graph.name)


def _is_copied(node: Node) -> bool:
    if not isinstance(node.aval, Aval) or not node.is_static or node.size < ALONE_ELEMENTS:
        return False
    return turned_along(node) is not None and node.inputs[0].op == "param" and is_generated(node.dtype)


def _copied(node: Node) -> Node:
    """The region whose result is its operand."""
    same = param(node.aval, "a0")
    return region_of([same], [same], [node])
