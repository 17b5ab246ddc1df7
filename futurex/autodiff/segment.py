"""Loops in segments: the state of a loop is kept once a segment, and within the segment that is being reversed.

A loop becomes a loop of loops. Reverse mode tapes what the outer one carries, and runs an inner one again, with a tape
of its own, when it comes to its segment (Griewank & Walther, *Evaluating Derivatives*, section 12.1: two levels).
"""

from __future__ import annotations

import numpy as np

from futurex.tree.aval import Aval
from futurex.tree.graph import Graph, rebuilt, substitute
from futurex.tree.node import Node, apply, build, item, param

COUNT = Aval((), np.dtype(np.int64))


def segmented(graph: Graph, every: int) -> Graph:
    """The graph with its loops, also those inside branches and bodies, in segments of ``every`` rounds.

    A loop whose test has effects stays as it is: the test runs once more at the end of a segment. So does one with a
    tape, of a derivative that ``graph`` takes, and its twin without: on tape is every round, not every segment.
    """
    taped = {_rounds(node) for node in graph.nodes if node.op == "loop" and node.attrs["tape"]}

    def rebuild(node: Node, inputs: list[Node]) -> Node:
        attrs = {k: segmented(v, every) if isinstance(v, Graph) else v for k, v in node.attrs.items()}
        if node.op == "loop" and _rounds(node) not in taped and not _acts(attrs["test"]):
            return _in_segments(node, inputs, attrs["test"], attrs["body"], every)
        if any(attrs[name] is not node.attrs[name] for name in attrs):
            return build(node.record, tuple(inputs), attrs, node.aval, node.src)
        return rebuilt(node, inputs)

    outs = substitute(graph, {node: node for node in graph.params}, rebuild)
    return graph if outs == list(graph.outs) else Graph(graph.params, outs, graph.name)


def _acts(test: Graph) -> bool:
    return any(node.op != "param" and node.record.effect for node in test.nodes)


def _rounds(node: Node) -> tuple[object, ...]:
    return node.inputs, node.attrs["test"], node.attrs["body"]


def _in_segments(node: Node, inputs: list[Node], test: Graph, body: Graph, every: int) -> Node:
    n = len(body.outs)
    own = [param(each.aval, each.attrs["name"]) for each in body.params]
    count, limit = param(COUNT, "count"), np.int64(every)
    within = apply("less", count, limit)
    goes_on = apply("logical_and", within, test.inline(own)[0])
    inner = apply(
        "loop", *(each for each in own[:n]), np.int64(0), *own[n:],
        test=Graph([*own[:n], count, *own[n:]], [goes_on], test.name),
        body=Graph([*own[:n], count, *own[n:]], [*body.inline(own), count + np.int64(1)], body.name), tape=(),
    )  # fmt: skip
    segment = Graph(own, [item(inner, k) for k in range(n)], f"{body.name}_segment")
    return build(
        node.record, tuple(inputs), {"test": test, "body": segment, "tape": ()}, node.aval, node.src
    )
