"""Loops in segments: the state of a loop is kept once a segment, and within the segment that is being reversed.

A loop becomes a loop of loops. Reverse mode tapes what the outer one carries, and runs an inner one again, with a tape
of its own, when it comes to its segment (Griewank & Walther, *Evaluating Derivatives*, section 12.1: two levels).

Where it is known how many rounds there are, so is the length of each segment, and rounds that are left over are a loop
behind them: their tapes are arrays, and all of it can be compiled.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from futurex.passes.rounds import rounds_of
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph, rebuilt, substitute
from futurex.tree.node import Node, apply, build, const, item, param

COUNT = Aval((), np.dtype(np.int64))
_NAME = "segment of "


def is_segments(loop: Node) -> bool:
    """Is it a loop over segments, whose rounds are to be made again? Graphs keep their names."""
    name: str = loop.attrs["body"].name
    return name.startswith(_NAME)


def segmented(graph: Graph, every: int) -> Graph:
    """The graph with its loops, also those inside branches and bodies, in segments of ``every`` rounds.

    A loop whose test has effects stays as it is: the test runs once more at the end of a segment. So does one with a
    tape, of a derivative that ``graph`` takes, and its twin without: on tape is every round, not every segment.
    """
    taped = {_rounds(node) for node in graph.nodes if node.op == "loop" and node.attrs["tape"]}

    def rebuild(node: Node, inputs: list[Node]) -> Node:
        attrs = {k: segmented(v, every) if isinstance(v, Graph) else v for k, v in node.attrs.items()}
        if node.op == "loop" and _rounds(node) not in taped and not _acts(attrs["test"]):
            rounds = rounds_of(node)
            if rounds is not None:
                return _counted(node, inputs, attrs["body"], rounds, every)
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
    segment = Graph(own, [item(inner, k) for k in range(n)], f"{_NAME}{body.name}")
    return build(
        node.record, tuple(inputs), {"test": test, "body": segment, "tape": ()}, node.aval, node.src
    )


def _counted(node: Node, inputs: list[Node], body: Graph, rounds: int, every: int) -> Node:
    """A loop of so many rounds. What it carries comes first among the results of what stands in its place."""
    n = len(body.outs)
    whole, left = divmod(rounds, every)
    if rounds <= every:
        return build(node.record, tuple(inputs), {**node.attrs, "body": body}, node.aval, node.src)
    own = _params(body)
    inner = _rounds_from(node, body, own, every)
    count = param(COUNT, "segment")
    outs = [*(item(inner, k) for k in range(n)), count + np.int64(1)]
    segments = _loop(node, [*own[:n], count, *own[n:]], outs, f"{_NAME}{body.name}", whole, inputs)
    return _rounds_from(node, body, [*(item(segments, k) for k in range(n)), *inputs[n:]], left) if left else segments


def _params(body: Graph) -> list[Node]:
    return [param(each.aval, each.attrs["name"]) for each in body.params]


def _rounds_from(node: Node, body: Graph, start: Sequence[Node], rounds: int) -> Node:
    """So many rounds of a loop, from this state."""
    n, own, count = len(body.outs), _params(body), param(COUNT, "round")
    outs = [*body.inline(own), count + np.int64(1)]
    return _loop(node, [*own[:n], count, *own[n:]], outs, body.name, rounds, start)


def _loop(
    node: Node, params: Sequence[Node], outs: Sequence[Node], name: str, rounds: int, start: Sequence[Node]
) -> Node:
    n = len(outs) - 1
    test = Graph(params, [apply("less", params[n], const(np.int64(rounds)))], f"{name}_rounds")
    inputs, attrs = (*start[:n], const(np.int64(0)), *start[n:]), {"test": test, "body": Graph(params, outs, name)}
    made = apply("loop", *inputs, **attrs, tape=())
    return build(node.record, inputs, {**attrs, "tape": ()}, made.aval, node.src)
