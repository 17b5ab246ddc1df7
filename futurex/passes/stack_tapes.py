"""Tapes of loops whose rounds are few and known become arrays, and the scans that read them become loops.

A tape is a list that grows round by round, which only the interpreter of plans can keep. In an array of known length a
round stores what it carries and the way back loads it: two loops like any other, which are compiled as one function
each, and with the rest of a small graph as one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from futurex.ops.tapes import Tape
from futurex.passes.rewrite import Maker, is_effect, rewrite, users_of
from futurex.passes.rounds import rounds_of
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, build, const, item, param

MOST_ROUNDS = 20_000
LARGEST, LONGEST, WIDEST = 1 << 12, 1 << 20, 1 << 15
"""Elements of what is kept of a round, of all rounds, and of what a round computes; larger arrays are kept as they are,
without a copy."""
_INDEX = Aval((), np.dtype(np.int64))
_AT = (("index", (("d", 0),)),)


def stack_tapes(graph: Graph) -> Graph:
    """The graph with such loops and scans."""
    lengths = _lengths(graph)
    if not lengths:
        return graph
    makers: dict[Node, Maker] = {}
    for node in graph.nodes:
        if node in lengths:
            makers[node] = _loop_maker(node, lengths[node]) if node.op == "loop" else _scan_maker(node, lengths[node])
        elif node.op == "item" and node.inputs[0] in lengths:
            makers[node] = _item_maker(node)
    return rewrite(graph, lambda node: None, makers)


def _lengths(graph: Graph) -> dict[Node, int]:
    """The loops and scans that can be rewritten, and how many rounds they make."""
    found: dict[Node, int] = {}
    for node in graph.nodes:  # sources come before users
        if node.op not in ("loop", "scan") or not _is_simple(node):
            continue
        if node.op == "loop" and node.attrs["tape"]:
            count = rounds_of(node, MOST_ROUNDS)
        elif node.op == "scan" and node.attrs["length"] is None:
            counts = {found.get(xs.inputs[0]) if xs.op == "item" else None for xs in _sequences(node)}
            count = counts.pop() if len(counts) == 1 else None
        else:
            continue
        if count and all(_fits(aval, count) for aval in node.aval if isinstance(aval, Tape)):
            found[node] = count
    users, returned = users_of(graph), set(graph.outs)
    while True:
        wrong = [
            node for node in found
            if any(
                isinstance(each.aval, Tape) and (each in returned or not all(user in found for user in users[each]))
                for each in users[node]
            ) or (node.op == "scan" and any(xs.inputs[0] not in found for xs in _sequences(node)))
        ]  # fmt: skip
        if not wrong:
            return found
        for node in wrong:
            del found[node]


def _sequences(scan: Node) -> Sequence[Node]:
    first = scan.attrs["n_carry"]
    return scan.inputs[first : first + scan.attrs["n_xs"]]


def _fits(tape: Tape, count: int) -> bool:
    element = tape.element
    return element.static and element.dtype.kind in "biufc" and element.size <= min(LARGEST, LONGEST // count)


def _is_simple(node: Node) -> bool:
    """Is it made of small arrays only, so that it is compiled, and without prints and draws? Sizes that only the run
    knows are named by who shows them, which another loop would not."""
    if not node.is_static:
        return False
    graphs = [value for value in node.attrs.values() if isinstance(value, Graph)]
    while graphs:
        graph = graphs.pop()
        for each in (*graph.params, *graph.nodes):
            avals = each.aval if isinstance(each.aval, tuple) else (each.aval,)
            if is_effect(each) or any(isinstance(a, Tape) or not a.static or a.size > WIDEST for a in avals):
                return False
            graphs += [value for value in each.attrs.values() if isinstance(value, Graph)]
    return True


def _item_maker(node: Node) -> Maker:
    """Results stand where they stood; the counter comes last."""
    source, index = node.inputs[0], node.attrs["index"]
    return lambda new: item(new[source], index)


def _loop_maker(node: Node, count: int) -> Maker:
    test, body, tape = node.attrs["test"], node.attrs["body"], node.attrs["tape"]
    n = len(body.outs)

    def make(new: Mapping[Node, Node]) -> Node:
        inputs = [new[source] for source in node.inputs]
        own = [param(each.aval, each.attrs["name"]) for each in body.params]
        kept = [own[k] for k in tape]
        tapes, place, more = _recorded(kept, count)
        carry = [*own[:n], *tapes, place]
        return _loop(
            node, [*inputs[:n], *(_empty(each.aval, count) for each in kept), const(np.int64(0)), *inputs[n:]],
            Graph([*carry, *own[n:]], test.inline(own), test.name),
            Graph([*carry, *own[n:]], [*body.inline(own), *more, place + np.int64(1)], body.name),
        )  # fmt: skip

    return make


def _scan_maker(node: Node, count: int) -> Maker:
    body, n, n_xs = node.attrs["body"], node.attrs["n_carry"], node.attrs["n_xs"]
    backwards = node.attrs["reverse"]

    def make(new: Mapping[Node, Node]) -> Node:
        inputs = [new[source] for source in node.inputs]
        own = [param(each.aval, each.attrs["name"]) for each in body.params]
        carry, elements, consts = own[:n], own[n : n + n_xs], own[n + n_xs :]
        sequences = [
            param(source.aval, each.attrs["name"]) for source, each in zip(inputs[n:], elements, strict=False)
        ]
        place = param(_INDEX, "round")
        read = [_element(xs, place, each.aval) for xs, each in zip(sequences, elements, strict=True)]
        results = body.inline([*carry, *read, *consts])
        kept = [*results[n:], *(carry[k] for k in node.attrs["tape"])]
        tapes, _, more = _recorded(kept, count, place)
        step, first = (-1, count - 1) if backwards else (1, 0)
        goes_on = apply("greater_equal", place, const(np.int64(0))) if backwards else place < const(np.int64(count))
        params = [*carry, *tapes, place, *sequences, *consts]
        return _loop(
            node, [*inputs[:n], *(_empty(each.aval, count) for each in kept), const(np.int64(first)), *inputs[n:]],
            Graph(params, [goes_on], f"{body.name}_test"),
            Graph(params, [*results[:n], *more, place + np.int64(step)], body.name),
        )  # fmt: skip

    return make


def _recorded(
    values: Sequence[Node], count: int, place: Node | None = None
) -> tuple[list[Node], Node, list[Node]]:
    """Parameters for the arrays of what a round keeps, the number of the round, and the arrays behind it."""
    place = param(_INDEX, "round") if place is None else place
    tapes = [param(_stacked(each.aval, count), "tape") for each in values]
    more = [
        apply("store", whole, value, place, chain=_AT, mode="set")
        for whole, value in zip(tapes, values, strict=True)
    ]
    return tapes, place, more


def _stacked(aval: Aval, count: int) -> Aval:
    return Aval((count, *aval.shape), aval.dtype)


def _empty(aval: Aval, count: int) -> Node:
    whole = _stacked(aval, count)
    return apply("full", const(np.zeros((), whole.dtype)[()]), shape=whole.shape, dtype=whole.dtype)


def _element(xs: Node, place: Node, aval: Aval) -> Node:
    value = apply("load", xs, place, chain=_AT)
    return apply("python_scalar", value, kind=aval.dtype.kind) if aval.weak else value


def _loop(node: Node, inputs: list[Node], test: Graph, body: Graph) -> Node:
    attrs: dict[str, Any] = {"test": test, "body": body, "tape": ()}
    loop = apply("loop", *inputs, **attrs)
    return build(loop.record, loop.inputs, attrs, loop.aval, node.src)
