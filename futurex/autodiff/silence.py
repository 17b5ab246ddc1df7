"""What derivatives run a second time, to find what the first time went through, does not print, warn or check again."""

from __future__ import annotations

import numpy as np

from futurex.tree.graph import Graph, rebuilt, substitute
from futurex.tree.node import Node, build, const

TELLING = frozenset({"check", "print", "warning"})
"""Ops that are run for their effect: their result is True."""


def silent(graph: Graph) -> Graph:
    """The graph, and those inside it, without prints, warnings and checks."""

    def rebuild(node: Node, inputs: list[Node]) -> Node:
        if node.op in TELLING:
            return const(np.True_)
        attrs = {name: silent(value) if isinstance(value, Graph) else value for name, value in node.attrs.items()}
        if any(attrs[name] is not node.attrs[name] for name in attrs):
            return build(node.record, tuple(inputs), attrs, node.aval, node.src)
        return rebuilt(node, inputs)

    if not any(tells(node) for node in graph.nodes):
        return graph
    return Graph(graph.params, substitute(graph, {node: node for node in graph.params}, rebuild), graph.name)


def tells(node: Node) -> bool:
    """Does a node print, warn or check, itself or in its sub-graphs?"""
    inner = [value for value in node.attrs.values() if isinstance(value, Graph)]
    return node.op in TELLING or any(tells(each) for graph in inner for each in graph.nodes)
