"""Equal nodes become one: constants of the same bits, and what is computed from the same inputs in the same way.

Nodes of one trace are shared when they are made. A function that is traced twice, once for its value and once for its
derivative, has constants, products and loops of its own in either trace, and here they meet.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np

from futurex.passes.rewrite import Maker, rewrite
from futurex.tree.graph import Graph
from futurex.tree.node import Node

MOST_BYTES = 1 << 20
"""Larger constants are not compared: they are what a user passed in, once."""


def share(graph: Graph) -> Graph:
    """The graph with one node for each value; effects stay as many as they are."""
    first: dict[Hashable, Node] = {}
    makers: dict[Node, Maker] = {}
    for node in sorted(graph.nodes, key=lambda node: node.id):
        bits = _bits(node) if node.op == "const" else None
        if bits is not None and first.setdefault(bits, node) is not node:
            makers[node] = _instead(first[bits])

    def rule(node: Node) -> Node | None:
        return None if node.acts else first.setdefault(_how(node), node)

    return rewrite(graph, rule, makers)


def _instead(node: Node) -> Maker:
    def make(new: Mapping[Node, Node]) -> Node:
        return node

    return make


def _how(node: Node) -> Hashable:
    """What tells computed values apart."""
    attrs = tuple((name, type(value), value) for name, value in sorted(node.attrs.items()))
    return node.op, node.inputs, attrs, node.aval


def _bits(node: Node) -> Hashable | None:
    """What tells constants apart: type, shape and bytes; None if they are not to be compared."""
    held = np.asarray(node.value)
    if held.dtype.hasobject or held.nbytes > MOST_BYTES:
        return None
    return node.aval, type(node.value), held.tobytes()
