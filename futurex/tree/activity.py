"""Activity: through which nodes a derivative can flow (Griewank & Walther, *Evaluating Derivatives*, section 6.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node


def carries(node: Node) -> bool:
    """Can the value of a node have a derivative: is it, or are some of its results, floating or complex?"""
    avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
    return any(isinstance(aval, Aval) and aval.inexact for aval in avals)


def influenced(order: Iterable[Node], by: Collection[Node]) -> set[Node]:
    """The nodes that depend differentiably on those in ``by``, themselves included; inputs stand before users."""
    found = set(by)
    for node in order:
        if (
            node not in found
            and node.op != "stop_gradient"
            and carries(node)
            and any(source in found for source in node.inputs)
        ):
            found.add(node)
    return found


def active_outs(graph: Graph, wrt: Collection[int]) -> list[bool]:
    """Which outputs of a graph have a derivative with respect to the inputs numbered ``wrt``."""
    found = influenced(graph.nodes, {graph.params[k] for k in wrt})
    return [node in found for node in graph.outs]
