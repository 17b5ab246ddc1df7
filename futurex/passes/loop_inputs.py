"""What loops are given: arrays whose rows the rounds write begin without being filled, and the shape in which all
rounds see an array from outside is given to it once."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from futurex.passes.counters import written_rows
from futurex.passes.fuse import LARGE_ELEMENTS
from futurex.passes.rewrite import rewrite
from futurex.passes.simplify import scalar_of
from futurex.tree.graph import Graph, rebuilt, substitute
from futurex.tree.node import Node, apply, build, param
from futurex.tree.source import at

_FIRST_ROOM = 1 << 16
"""Rooms of loops are numbered from here on, those of other passes from 0 up and down."""


def give_loops(graph: Graph) -> Graph:
    """The graph with large filled arrays that a loop writes row by row made without their elements, but for the rows
    that it leaves, and with reshaped inputs in the place of those that its rounds reshape."""
    loops = [node for node in graph.nodes if node.op == "loop"]
    makers = {}
    first = 0
    for loop in loops:
        rows, shapes = _unfilled(loop), _shapes(loop)
        if rows or shapes:
            makers[loop] = functools.partial(_given, loop, first, rows, shapes)
        first += len(loop.inputs)
    return rewrite(graph, lambda node: None, makers) if makers else graph


def _unfilled(loop: Node) -> dict[int, range]:
    """The rows that the rounds write of arrays that begin filled with a number, where that are most of them."""
    return {
        k: rows
        for k, rows in written_rows(loop).items()
        if (begin := loop.inputs[k]).op == "full" and begin.is_static and begin.size >= LARGE_ELEMENTS
        and scalar_of(begin) is not None and 2 * len(rows) > begin.shape[0] and k not in loop.attrs["tape"]
    }  # fmt: skip


def _shapes(loop: Node) -> dict[int, tuple[int, ...]]:
    """The shape that all readers of an input from outside give it first."""
    body, test = loop.attrs["body"], loop.attrs["test"]
    tested = {*test.outs, *(source for node in test.nodes for source in node.inputs)}
    found: dict[int, tuple[int, ...]] = {}
    for k in range(len(body.outs), len(body.params)):
        array = body.params[k]
        readers = [node for node in body.nodes if array in node.inputs]
        if not readers or array in body.outs or not array.is_static or test.params[k] in tested:
            continue
        firsts = {node.attrs["chain"][:1] if node.op == "load" else () for node in readers}
        inside = any(array in node.inputs[1:] for node in readers)
        if len(firsts) == 1 and not inside and (first := firsts.pop()) and first[0][0] == "reshape":
            found[k] = first[0][1]
    return found


def _given(
    loop: Node, first: int, rows: Mapping[int, range], shapes: Mapping[int, tuple[int, ...]], new: Mapping[Node, Node]
) -> Node:
    inputs, attrs = [new[source] for source in loop.inputs], dict(loop.attrs)
    for k, written in rows.items():
        inputs[k] = _begun(inputs[k], written, _FIRST_ROOM + first + k)
    for k, shape in shapes.items():
        inputs[k] = apply("reshape", inputs[k], shape=shape)
    if shapes:
        attrs |= {name: _on_reshaped(attrs[name], inputs, shapes) for name in ("test", "body")}
    return build(loop.record, tuple(inputs), attrs, loop.aval, loop.src)


def _begun(filled: Node, written: range, number: int) -> Node:
    """Room for an array, filled where no round writes."""
    made = apply("room", shape=filled.shape, dtype=filled.dtype, number=number)
    for low, high in ((0, written.start), (written.stop, filled.shape[0])):
        if low < high:
            rest = apply("full", filled.inputs[0], shape=(high - low, *filled.shape[1:]), dtype=filled.dtype)
            made = apply("store", made, rest, chain=(("index", (("s", low, high, None),)),), mode="set")
    return made


def _on_reshaped(graph: Graph, inputs: Sequence[Node], shapes: Mapping[int, tuple[int, ...]]) -> Graph:
    """A loop's sub-graph, whose readers of some parameters find them in their shape."""
    params = [param(inputs[k].aval, each.attrs["name"]) if k in shapes else each for k, each in enumerate(graph.params)]
    reshaped = {graph.params[k] for k in shapes}

    def rebuild(node: Node, given: list[Node]) -> Node:
        if node.op != "load" or node.inputs[0] not in reshaped:
            return rebuilt(node, given)
        rest = node.attrs["chain"][1:]
        with at(node.src):
            return apply("load", *given, chain=rest) if rest else given[0]

    known = dict(zip(graph.params, params, strict=True))
    return Graph(params, substitute(graph, known, rebuild), graph.name)
