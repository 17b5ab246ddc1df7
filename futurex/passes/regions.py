"""Regions that only derivatives know of are put in line: what remains of them is what their graph computes."""

from __future__ import annotations

from typing import Any

from futurex.ops.regions import REGIONS
from futurex.passes.rewrite import is_effect
from futurex.tree.graph import Graph, rebuilt
from futurex.tree.node import Node, build


def inline_regions(graph: Graph) -> Graph:
    """The graph without nodes of :data:`REGIONS`; each is put in line once, so that its effects run once."""
    while any(node.op in REGIONS for node in graph.nodes):
        graph = _inlined(graph)
    return graph


def _inlined(graph: Graph) -> Graph:
    new: dict[Node, Any] = {node: node for node in graph.params}
    moved = False
    # Ids grow with creation: inputs come before users, and effects in program order, which must stay theirs.
    for node in sorted(graph.nodes, key=lambda node: node.id):
        if node in new:
            continue
        inputs = [new[source] for source in node.inputs]
        if node.op in REGIONS:
            inner = node.attrs["graph"]
            new[node] = inner.inline(inputs)
            moved |= any(is_effect(each) or each.acts for each in inner.nodes)
        elif node.op == "item" and isinstance(inputs[0], list):
            new[node] = inputs[0][node.attrs["index"]]
        elif (is_effect(node) or node.acts) and (moved or tuple(inputs) != node.inputs):
            moved = True
            new[node] = build(node.record, tuple(inputs), node.attrs, node.aval, node.src)
        else:
            new[node] = rebuilt(node, inputs)
    return Graph(graph.params, [new[node] for node in graph.outs], graph.name)
