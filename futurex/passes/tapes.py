"""What else than what a loop carries can be on its tapes: values that a round makes.

A tape holds what is carried into a round. So a loop carries a value that it makes into the next round, and the way back
over its tapes carries it from the round behind, beginning with what the loop ended with. What a loop carries anyway is
that already.
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
from futurex.tree.graph import Graph, rebuilt, substitute, topological
from futurex.tree.node import Node, build, const, item, param


def backward_scans(graph: Graph) -> list[Node]:
    """The scans that go back over the tapes of one loop, and read no other sequences."""
    return [
        node for node in graph.nodes
        if node.op == "scan" and node.attrs["length"] is None and node.attrs["reverse"] and loop_of(node) is not None
    ]  # fmt: skip


def sequences_of(scan: Node) -> Sequence[Node]:
    """What a scan goes over."""
    first = scan.attrs["n_carry"]
    return scan.inputs[first : first + scan.attrs["n_xs"]]


def loop_of(scan: Node) -> Node | None:
    """The loop whose tapes a scan goes over; None where some are not one's."""
    sources = {xs.inputs[0] if xs.op == "item" else xs for xs in sequences_of(scan)}
    loop = sources.pop() if len(sources) == 1 else None
    return loop if loop is not None and loop.op == "loop" else None


def as_in_loop(scan: Node) -> dict[Node, Node]:
    """What nodes of a scan's body are in its loop's: what comes from the loop's tapes and from outside alone."""
    loop = loop_of(scan)
    assert loop is not None
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
        if node.op in ("const", "room"):
            known[node] = node
        elif node.inputs and not is_effect(node) and not node.acts and all(each in known for each in node.inputs):
            known[node] = rebuilt(node, [known[source] for source in node.inputs])
    return known


def can_be_taped(value: Node) -> bool:
    """Is it an array of numbers, of known shape?"""
    aval = value.aval
    plain = isinstance(aval, Aval) and not isinstance(aval, Tape) and aval.dtype.kind in "biufc"
    return plain and aval.static and not aval.weak


def retape(graph: Graph, values: Mapping[Node, Mapping[Node, Node]]) -> Graph:
    """The graph whose scans, the keys, read some values of their bodies from tapes; for each scan, these by what they
    are in its loop's body. Tapes that nothing reads any more are gone."""
    users, returned = users_of(graph), set(graph.outs)
    ways = {scan: _Way.of(scan, found) for scan, found in values.items()}
    makers: dict[Node, Maker] = {}
    for loop in dict.fromkeys(way.loop for way in ways.values()):
        read: set[int] = set()
        for xs in users[loop]:
            if xs in returned or any(user not in ways or ways[user].reads(xs) for user in users[xs]):
                read.add(xs.attrs["index"])
        own = [way for way in ways.values() if way.loop is loop]
        taped = _Taped.of(loop, read, [node for way in own for node in way.values.values()])
        makers[loop] = taped.loop_made
        for each in users[loop]:
            makers[each] = functools.partial(taped.result, each)
        for way in own:
            makers[way.scan] = functools.partial(way.made, taped)
            for each in users[way.scan]:
                if each.attrs["index"] >= way.scan.attrs["n_carry"]:
                    makers[each] = functools.partial(_shifted, each, len(way.values))
    return rewrite(graph, lambda node: None, makers)


def _shifted(node: Node, count: int, new: Mapping[Node, Node]) -> Node:
    return item(new[node.inputs[0]], node.attrs["index"] + count)


def _zeros(aval: Aval) -> Node:
    return zeros_like(aval) if aval.shape else const(np.zeros((), aval.dtype)[()])


def _plain(value: Node) -> Aval:
    return Aval(value.shape, value.dtype)


@dataclass
class _Taped:
    """A loop that has values on tape which its rounds make."""

    old: Node
    body: Graph  # with these values behind what it carries
    tape: list[int]  # what the loop carries and has on tape
    places: dict[Node, int]  # of values, by what they are in the old loop's body: which of what it carries they are

    @staticmethod
    def of(loop: Node, read: set[int], values: Sequence[Node]) -> _Taped:
        """``read``: which of the loop's results are still read as they are."""
        body, tape, n = loop.attrs["body"], loop.attrs["tape"], len(loop.attrs["body"].outs)
        shared = share(Graph(body.params, [*body.outs, *dict.fromkeys(values)], body.name))
        outs = [*shared.outs[:n]]
        places = {}
        for value, made in zip(dict.fromkeys(values), shared.outs[n:], strict=True):
            if made not in outs:
                outs.append(made)
            places[value] = outs.index(made)
        kept = [k for place, k in enumerate(tape, n) if place in read]
        kept += dict.fromkeys(k for k in places.values() if k not in kept)
        return _Taped(loop, Graph(body.params, outs, body.name), kept, places)

    @property
    def carried(self) -> int:
        """How many values the loop carries."""
        return len(self.body.outs)

    def loop_made(self, new: Mapping[Node, Node]) -> Node:
        test, n = self.old.attrs["test"], len(self.old.attrs["body"].outs)
        made = [param(_plain(each), "made") for each in self.body.outs[n:]]
        own = self.body.params
        attrs = {
            "test": Graph([*test.params[:n], *made, *test.params[n:]], test.outs, test.name),
            "body": Graph([*own[:n], *made, *own[n:]], self.body.outs, self.body.name), "tape": tuple(self.tape),
        }  # fmt: skip
        inputs = [new[source] for source in self.old.inputs]
        inputs = [*inputs[:n], *(_zeros(each.aval) for each in made), *inputs[n:]]
        avals = self.old.record.infer(tuple(source.aval for source in inputs), (), attrs)
        return build(self.old.record, tuple(inputs), attrs, avals, self.old.src)

    def result(self, node: Node, new: Mapping[Node, Node]) -> Node:
        """A result of the loop; one that is gone nobody reads."""
        n, index = len(self.old.attrs["body"].outs), node.attrs["index"]
        if index < n:
            return item(new[self.old], index)
        k = self.old.attrs["tape"][index - n]
        return self.on_tape(k, new) if k in self.tape else item(new[self.old], self.carried)

    def on_tape(self, k: int, new: Mapping[Node, Node]) -> Node:
        """The tape of what the loop carries as number ``k``."""
        return item(new[self.old], self.carried + self.tape.index(k))


@dataclass
class _Way:
    """A scan's way back, with values from tapes."""

    scan: Node
    loop: Node
    values: Mapping[Node, Node]  # of its body, by those of the loop's body
    now: dict[Node, Node] = field(default_factory=dict)  # parameters for them
    outs: list[Node] = field(default_factory=list)  # of the body that has them

    @staticmethod
    def of(scan: Node, values: Mapping[Node, Node]) -> _Way:
        loop, body = loop_of(scan), scan.attrs["body"]
        assert loop is not None
        now = {value: param(_plain(value), "made") for value in values}
        outs = substitute(body, {node: node for node in body.params} | now)
        return _Way(scan, loop, values, now, outs)

    def _stays(self) -> list[int]:
        """The numbers of the sequences that are read still."""
        first, reached = self.scan.attrs["n_carry"], set(topological(self.outs))
        elements = self.scan.attrs["body"].params[first : first + self.scan.attrs["n_xs"]]
        return [j for j, each in enumerate(elements) if each in reached]

    def reads(self, xs: Node) -> bool:
        """Does it go over this sequence still?"""
        return any(sequences_of(self.scan)[j] is xs for j in self._stays())

    def made(self, taped: _Taped, new: Mapping[Node, Node]) -> Node:
        """The scan that carries the values from the round behind."""
        scan, body = self.scan, self.scan.attrs["body"]
        first, n_xs = scan.attrs["n_carry"], scan.attrs["n_xs"]
        carry, elements, consts = body.params[:first], body.params[first : first + n_xs], body.params[first + n_xs :]
        inputs = [new[source] for source in scan.inputs]
        sequences = {elements[j]: inputs[first + j] for j in self._stays()}
        of_tape = {xs.attrs["index"]: element for element, xs in sequences.items()}
        starts, before = [], []
        for value, made in self.values.items():
            place = taped.places[made]
            xs = taped.on_tape(place, new)
            if xs.attrs["index"] not in of_tape:
                of_tape[xs.attrs["index"]] = element = param(_plain(value), "made")
                sequences[element] = xs
            starts.append(item(new[self.loop], place))
            before.append(of_tape[xs.attrs["index"]])
        attrs = {
            **scan.attrs, "n_carry": first + len(before), "n_xs": len(sequences),
            "body": Graph(
                [*carry, *self.now.values(), *sequences, *consts],
                [*self.outs[:first], *before, *self.outs[first:]], body.name,
            ),
        }  # fmt: skip
        inputs = [*inputs[:first], *starts, *sequences.values(), *inputs[first + n_xs :]]
        avals = scan.record.infer(tuple(source.aval for source in inputs), (), attrs)
        return build(scan.record, tuple(inputs), attrs, avals, scan.src)
