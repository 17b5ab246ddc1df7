"""What rounds that run a second time carry for nobody: of loops whose tapes alone are read, as in segments.

A loop that writes its results into an array, or appends them to a list, carries that from round to round, and reads
nothing of it. Where the rounds of a segment run again for their tape, it is not needed; with it, every segment would
keep an array of all results to begin with.
"""

from __future__ import annotations

from collections import Counter

from futurex.tree.graph import Graph, rebuilt, substitute, topological
from futurex.tree.node import Node, build, item


def without_idle(graph: Graph) -> Graph:
    """The graph with loops that carry what is read behind them, put on tape, or needed for that. That what is left out
    might raise is no reason to keep it: it ran before, on the way there."""
    kept = _kept(graph)
    if not kept:
        return graph

    def rebuild(node: Node, inputs: list[Node]) -> Node:
        if node in kept:
            return _slim(node, inputs, kept[node])
        if node.op == "item" and node.inputs[0] in kept:
            live, index = kept[node.inputs[0]], node.attrs["index"]
            n = len(node.inputs[0].attrs["body"].outs)
            return item(inputs[0], live.index(index) if index < n else index - n + len(live))
        return rebuilt(node, inputs)

    known = {node: node for node in graph.params}
    for node in graph.nodes:  # what is not needed any more is not made anew
        if node.op == "item" and node.inputs[0] in kept:
            index = node.attrs["index"]
            if index < len(node.inputs[0].attrs["body"].outs) and index not in kept[node.inputs[0]]:
                known[node] = node
    return Graph(graph.params, substitute(graph, known, rebuild), graph.name)


def _kept(graph: Graph) -> dict[Node, list[int]]:
    """What those loops go on to carry of which not all is needed."""
    twins = Counter(_key(node) for node in graph.nodes if node.op == "loop")
    needed, read = set(graph.outs), dict[Node, set[int]]()
    kept = {}
    for node in reversed(graph.nodes):
        if node not in needed:
            continue
        if node.op == "item":
            read.setdefault(node.inputs[0], set()).add(node.attrs["index"])
        if node.op == "loop" and node not in graph.outs and twins[_key(node)] == 1:  # a pass makes one loop of twins
            live, consts = _live(node, read.get(node, set()))
            if len(live) < len(node.attrs["body"].outs):
                kept[node] = live
            needed.update(node.inputs[k] for k in (*live, *consts))
        else:
            needed.update(node.inputs)
    return kept


def _key(node: Node) -> tuple[object, ...]:
    return node.inputs, node.attrs["test"], node.attrs["body"]


def _live(node: Node, read: set[int]) -> tuple[list[int], list[int]]:
    """What of a loop's carry is read or taped, may be as large as it likes, acts, or is needed for any of these or for
    the test; and the constants that then are."""
    test, body = node.attrs["test"], node.attrs["body"]
    n = len(body.outs)
    live = {k for k in range(n) if k in read or k in node.attrs["tape"] or not body.params[k].aval.static}
    live |= {k for k in range(n) if any(each.acts for each in topological((body.outs[k],)))}
    while True:
        reached = set(topological((*test.outs, *(body.outs[k] for k in live))))
        used = {k for k in range(len(node.inputs)) if body.params[k] in reached or test.params[k] in reached}
        if used & set(range(n)) <= live:
            return sorted(live), sorted(used - set(range(n)))
        live |= used & set(range(n))


def _slim(node: Node, inputs: list[Node], live: list[int]) -> Node:
    test, body, tape = node.attrs["test"], node.attrs["body"], node.attrs["tape"]
    n = len(body.outs)
    places = [*live, *range(n, len(inputs))]
    attrs = {
        "test": Graph([test.params[k] for k in places], test.outs, test.name),
        "body": Graph([body.params[k] for k in places], [body.outs[k] for k in live], body.name),
        "tape": tuple(live.index(k) for k in tape),
    }
    avals = (*(node.aval[k] for k in live), *node.aval[n:])
    return build(node.record, tuple(inputs[k] for k in places), attrs, avals, node.src)
