"""Closed graphs from the nodes of a scope, whatever these read from outside of it."""

from __future__ import annotations

from collections.abc import Sequence

from futurex.tree.graph import Graph, rebuilt
from futurex.tree.node import Node, param


def close(
    outs: Sequence[Sequence[Node]], params: Sequence[Sequence[Node]], start_id: int, names: Sequence[str]
) -> tuple[list[Graph], list[Node]]:
    """Closed graphs from nodes of a scope: values from outside become extra inputs, the same ones for every graph.

    Returns the graphs (inputs: own params, then the outside values) and the outside values.
    """
    inner = {node for group in params for node in group}
    outside: dict[Node, None] = {}
    for group in outs:
        for node in reachable(group, inner, start_id):
            if _from_outside(node, inner, start_id):
                outside[node] = None
    free = list(outside)
    graphs = []
    for group, own, name in zip(outs, params, names, strict=True):
        fresh = [param(node.aval, f"c{k}") for k, node in enumerate(free)]
        known = dict(zip(free, fresh, strict=True)) | {node: node for node in own}
        graphs.append(Graph([*own, *fresh], _rebuild(group, known), name))
    return graphs, free


def _from_outside(node: Node, inner: set[Node], start_id: int) -> bool:
    if node.op == "item":  # a graph's inputs are single arrays
        return _from_outside(node.inputs[0], inner, start_id)
    return (node.id < start_id or node.op == "param") and node.op != "const" and node not in inner


def reachable(outs: Sequence[Node], inner: set[Node], start_id: int) -> list[Node]:
    """What the nodes ``outs`` depend on, these among it: back to what lies outside of the scope, or in ``inner``."""
    seen: dict[Node, None] = {}
    stack = list(reversed(outs))
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen[node] = None
        if not _from_outside(node, inner, start_id):
            stack.extend(reversed(node.inputs))
    return list(seen)


def _rebuild(outs: Sequence[Node], known: dict[Node, Node]) -> list[Node]:
    stack = [(node, False) for node in reversed(outs)]
    while stack:
        node, ready = stack.pop()
        if node in known:
            continue
        if ready:
            known[node] = rebuilt(node, [known[source] for source in node.inputs])
        else:
            stack.append((node, True))
            stack.extend((source, False) for source in node.inputs)
    return [known[node] for node in outs]
