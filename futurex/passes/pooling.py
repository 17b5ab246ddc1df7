"""Maximum pooling that keeps where the maxima are, so that its gradient does not look for them again.

A number of one byte for each result takes the place of the whole input, which the gradient would read a second time.
"""

from __future__ import annotations

from futurex.passes.rewrite import rewrite
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, item


def keep_places(graph: Graph) -> Graph:
    """The graph with every ``max_pool_grad`` as a ``max_pool_spread`` of the places that the forward pass gives."""
    grads = [node for node in graph.nodes if node.op == "max_pool_grad" and node.is_static]
    graded = {(node.inputs[1], _geometry(node)) for node in grads}
    if not graded:
        return graph
    makers = {
        node: lambda new, node=node: item(_places(new[node.inputs[0]], node), 0)
        for node in graph.nodes
        if node.op == "max_pool" and (node.inputs[0], _geometry(node)) in graded
    }
    return rewrite(graph, _gradient, makers)


def _geometry(node: Node) -> tuple[object, ...]:
    return tuple(node.attrs[name] for name in ("window", "stride", "padding"))


def _places(x: Node, node: Node) -> Node:
    return apply("max_pool_places", x, **node.attrs)


def _gradient(node: Node) -> Node | None:
    if node.op != "max_pool_grad" or not node.is_static:
        return None
    g, x = node.inputs
    return apply("max_pool_spread", g, item(_places(x, node), 1), input_shape=x.shape, **node.attrs)
