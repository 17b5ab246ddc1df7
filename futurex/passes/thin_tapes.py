"""Tapes of large arrays of which the way back reads a few elements a round become tapes of those elements.

Reverse mode puts on tape what a round began with: of a recurrence that writes one element of an array a round, the
array. What each round of the way back makes of it from nothing but what is on tape, as the element before, the loop
can make in the same round on the way there.

A tape holds what is carried into a round, and such a value is made in it: so the loop carries it into the next round,
and the way back carries it from the round behind, beginning with what the loop ended with.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from futurex.ops.elementwise import zeros_like
from futurex.ops.tapes import Tape
from futurex.passes.common import share
from futurex.passes.rewrite import Maker, is_effect, rewrite, users_of
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph, rebuilt, substitute
from futurex.tree.node import Node, build, const, item, param

LEAST = 16
"""Elements of an array from which on its tape is looked at."""
_FEWER = 2  # times fewer elements than the array has, at least, must do


@dataclass
class _Thin:
    """A scan's way back over tapes of a loop: which of its sequences go, and what it reads in their place."""

    loop: Node
    gone: list[int] = field(default_factory=list)  # numbers of sequences
    values: dict[Node, Node] = field(default_factory=dict)  # of its body, by those of the loop's body


def thin_tapes(graph: Graph) -> Graph:
    """The graph with such tapes in the place of larger ones."""
    users, returned = users_of(graph), set(graph.outs)
    thin = {}
    for scan in graph.nodes:
        if scan.op == "scan" and scan.attrs["length"] is None and scan.attrs["reverse"]:
            found = _found(scan, {xs for xs in _sequences(scan) if len(users[xs]) == 1 and xs not in returned})
            if found is not None:
                thin[scan] = found
    if not thin:
        return graph
    makers: dict[Node, Maker] = {}
    for loop in dict.fromkeys(each.loop for each in thin.values()):
        ways = {scan: each for scan, each in thin.items() if each.loop is loop}
        gone = {_sequences(scan)[j] for scan, each in ways.items() for j in each.gone}
        needed = {each.attrs["index"] for each in users[loop] if each not in gone}
        dropped = {each.attrs["index"] for each in gone} - needed
        added = list(dict.fromkeys(node for each in ways.values() for node in each.values.values()))
        kept = [k for place, k in enumerate(loop.attrs["tape"], len(loop.attrs["body"].outs)) if place not in dropped]
        makers[loop] = functools.partial(_loop, loop, kept, added)
        for each in users[loop]:
            makers[each] = functools.partial(_result, each, kept, len(added))
        for scan, way in ways.items():
            makers[scan] = functools.partial(_scan, scan, way, len(kept), added)
            for each in users[scan]:
                if each.attrs["index"] >= scan.attrs["n_carry"]:
                    makers[each] = functools.partial(_shifted, each, len(way.values))
    return rewrite(graph, lambda node: None, makers)


def _sequences(scan: Node) -> Sequence[Node]:
    first = scan.attrs["n_carry"]
    return scan.inputs[first : first + scan.attrs["n_xs"]]


def _found(scan: Node, own: set[Node]) -> _Thin | None:
    """What can be done for a scan; ``own``: the sequences that it alone reads."""
    taped = {j: xs for j, xs in enumerate(_sequences(scan)) if xs.op == "item" and xs.inputs[0].op == "loop"}
    loops = {xs.inputs[0] for xs in taped.values()}
    if len(loops) != 1 or len(taped) != scan.attrs["n_xs"]:
        return None
    found = _Thin(loops.pop())
    known = _as_in(scan, found.loop)
    for j, xs in taped.items():
        whole = scan.attrs["body"].params[scan.attrs["n_carry"] + j]
        if xs in own and isinstance(xs.aval, Tape) and whole.is_static and whole.size >= LEAST:
            values = _read(scan.attrs["body"], whole, known)
            if values and sum(each.size for each in values) * _FEWER <= whole.size:
                found.gone.append(j)
                found.values.update(values)
    return found if found.gone else None


def _as_in(scan: Node, loop: Node) -> dict[Node, Node]:
    """What nodes of the scan's body are in the loop's: what comes from its tapes and from outside alone."""
    body, inner, n = scan.attrs["body"], loop.attrs["body"], len(loop.attrs["body"].outs)
    first, last = scan.attrs["n_carry"], scan.attrs["n_carry"] + scan.attrs["n_xs"]
    known: dict[Node, Node] = {}
    for own, source in zip(body.params[first:last], scan.inputs[first:last], strict=True):
        known[own] = inner.params[loop.attrs["tape"][source.attrs["index"] - n]]
    outside = dict(zip(loop.inputs[n:], inner.params[n:], strict=True))
    for own, source in zip(body.params[last:], scan.inputs[last:], strict=True):
        if source in outside:
            known[own] = outside[source]
    for node in body.nodes:
        if node.op == "const":
            known[node] = node
        elif node.inputs and not is_effect(node) and not node.acts and all(each in known for each in node.inputs):
            known[node] = rebuilt(node, [known[source] for source in node.inputs])
    return known


def _read(body: Graph, whole: Node, known: Mapping[Node, Node]) -> dict[Node, Node] | None:
    """What small values are made of an array, and of those of its size that are made of it, by what they are in the
    loop; None where something else is needed for one."""
    values: dict[Node, Node] = {}
    large = [whole]  # grows
    for source in large:
        if source in body.outs:
            return None
        for node in body.nodes:
            if source not in node.inputs:
                continue
            parts = [each for each in body.nodes if each.op == "item" and each.inputs[0] is node]
            for each in parts if isinstance(node.aval, tuple) else [node]:
                if each not in known or not _is_array(each.aval):
                    return None
                if each.size * _FEWER <= whole.size:
                    values[each] = known[each]
                elif each not in large:
                    large.append(each)
    return values


def _is_array(aval: object) -> bool:
    return isinstance(aval, Aval) and not isinstance(aval, Tape) and aval.static and not aval.weak


def _loop(loop: Node, kept: Sequence[int], added: Sequence[Node], new: Mapping[Node, Node]) -> Node:
    """The loop that carries what is made in a round into the next one, and puts that on tape."""
    test, body = loop.attrs["test"], loop.attrs["body"]
    n = len(body.outs)
    made = [param(_plain(each), "made") for each in added]
    inputs = [new[source] for source in loop.inputs]
    body = share(Graph([*body.params[:n], *made, *body.params[n:]], [*body.outs, *added], body.name))
    attrs = {
        "test": Graph([*test.params[:n], *made, *test.params[n:]], test.outs, test.name), "body": body,
        "tape": (*kept, *range(n, n + len(added))),
    }  # fmt: skip
    inputs = [*inputs[:n], *(_zeros(each.aval) for each in made), *inputs[n:]]
    avals = loop.record.infer(tuple(source.aval for source in inputs), (), attrs)
    return build(loop.record, tuple(inputs), attrs, avals, loop.src)


def _zeros(aval: Aval) -> Node:
    return zeros_like(aval) if aval.shape else const(np.zeros((), aval.dtype)[()])


def _plain(value: Node) -> Aval:
    return Aval(value.shape, value.dtype)


def _result(node: Node, kept: Sequence[int], count: int, new: Mapping[Node, Node]) -> Node:
    """A result of the loop; one that is gone nobody reads."""
    loop, index = node.inputs[0], node.attrs["index"]
    n = len(loop.attrs["body"].outs)
    if index >= n:
        k = loop.attrs["tape"][index - n]
        index = n + count + (kept.index(k) if k in kept else 0)
    return item(new[loop], index)


def _shifted(node: Node, count: int, new: Mapping[Node, Node]) -> Node:
    return item(new[node.inputs[0]], node.attrs["index"] + count)


def _scan(scan: Node, way: _Thin, kept: int, added: Sequence[Node], new: Mapping[Node, Node]) -> Node:
    """The scan that carries them from the round behind."""
    body, first, n_xs = scan.attrs["body"], scan.attrs["n_carry"], scan.attrs["n_xs"]
    loop, n = new[way.loop], len(way.loop.attrs["body"].outs)
    now = {value: param(_plain(value), "made") for value in way.values}
    before = [param(each.aval, "made") for each in now.values()]
    carry, elements, consts = body.params[:first], body.params[first : first + n_xs], body.params[first + n_xs :]
    stay = [j for j in range(n_xs) if j not in way.gone]
    places = [added.index(made) for made in way.values.values()]
    inputs = [new[source] for source in scan.inputs]
    known = {node: node for node in body.params} | now
    outs = substitute(body, known)
    attrs = {
        **scan.attrs, "n_carry": first + len(now), "n_xs": len(stay) + len(before),
        "body": Graph(
            [*carry, *now.values(), *(elements[j] for j in stay), *before, *consts],
            [*outs[:first], *before, *outs[first:]], body.name,
        ),
    }  # fmt: skip
    sequences = [inputs[first + j] for j in stay] + [item(loop, n + len(added) + kept + place) for place in places]
    inputs = [*inputs[:first], *(item(loop, n + place) for place in places), *sequences, *inputs[first + n_xs :]]
    avals = scan.record.infer(tuple(source.aval for source in inputs), (), attrs)
    return build(scan.record, tuple(inputs), attrs, avals, scan.src)
