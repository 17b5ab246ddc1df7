"""Compressed gradients: a rank's graph whose last sums are sent in a smaller form."""

from __future__ import annotations

import numpy as np

from futurex.ops.comm import communications
from futurex.tree.graph import Graph, rebuilt, topological
from futurex.tree.node import Node, apply
from futurex.tree.source import at


def compress(graph: Graph, codec: str) -> Graph:
    """Mark the sums of floats that no other exchange waits for: in a training step, those of the gradients.

    They carry the name of the codec and of the graph they belong to, under which what was left out is kept. What the
    codec makes of arrays, and which are too small for it, is the runtime's business.
    """
    exchanges = communications(graph)
    nodes = topological((*exchanges, *graph.outs), graph.params)
    behind: set[Node] = set()  # what some exchange waits for
    for node in reversed(nodes):
        if node in behind or node in exchanges:
            behind.update(node.inputs)
    chosen = {
        node
        for node in exchanges
        if node.op == "all_reduce" and node.attrs["reduce"] == "sum" and node not in behind
        and all(source.dtype in (np.float32, np.float64) for source in node.inputs)
    }  # fmt: skip
    known: dict[Node, Node] = {node: node for node in graph.params}
    for node in nodes:
        if node in known:
            continue
        inputs = [known[source] for source in node.inputs]
        if node in chosen:
            with at(node.src):
                known[node] = apply(node.op, *inputs, **{**node.attrs, "codec": f"{codec}#{graph.hash[:16]}"})
        else:
            known[node] = rebuilt(node, inputs)
    return Graph(graph.params, [known[node] for node in graph.outs], graph.name)
