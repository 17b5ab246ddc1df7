"""Loops whose derivative keeps every round keep every k-th state instead, and the rounds of one segment.

A taped loop and the scans that read its tapes backwards become a loop over segments, which tapes the state in front of
each, and scans over these states: each runs the rounds of its segment again, with a tape of their own, and goes back
through them (Griewank & Walther, *Evaluating Derivatives*, section 12.1: two levels; of ``n`` rounds about
``2 * sqrt(n)`` are kept at once). What a scan carries goes from segment to segment as it went from round to round, so
sums are added in the order in which they were, and results have the same bits.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from futurex.ops.tapes import Tape
from futurex.passes.rewrite import Maker, is_effect, map_subgraphs, rewrite, users_of
from futurex.passes.rounds import rounds_of
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, build, const, item, param

_COUNT = Aval((), np.dtype(np.int64))
LEAST_ROUNDS = 4


def keep_states(graph: Graph) -> Graph:
    """The graph with such loops, those inside branches and bodies included; itself where there are none."""
    graph = rewrite(graph, map_subgraphs(keep_states))
    makers: dict[Node, Maker] = {}
    for loop, scans in _pairs(graph).items():
        rounds = rounds_of(loop)
        length = None if rounds is None else _segment(loop, rounds)
        if rounds is None or length is None:
            continue
        made = _Segments(loop, rounds, length)
        makers[loop] = made.forward
        results = [each for each in graph.nodes if each.op == "item" and each.inputs[0] is loop]
        makers.update({each: functools.partial(made.result, each) for each in results})
        makers.update({each: functools.partial(made.backward, each) for each in scans})
    return rewrite(graph, lambda node: None, makers) if makers else graph


def _segment(loop: Node, rounds: int) -> int | None:
    """How many rounds in a segment keep least; None where that would gain nothing."""
    n = len(loop.attrs["body"].outs)
    state, kept = (max(1, sum(_bytes(aval) for aval in part)) for part in (loop.aval[:n], loop.aval[n:]))
    length = min(max(2, round(math.sqrt(rounds * state / kept))), rounds)
    less = rounds // length * state + length * kept < rounds * kept
    return length if rounds >= LEAST_ROUNDS and less else None


def _bytes(aval: Aval) -> int:
    aval = aval.element if isinstance(aval, Tape) else aval
    return aval.nbytes if not aval.dtype.hasobject else 0


def _pairs(graph: Graph) -> dict[Node, list[Node]]:
    """The taped loops that can be run again, each with the scans that read its tapes; nothing else does."""
    users, returned = users_of(graph), set(graph.outs)
    found: dict[Node, list[Node]] = {}
    for loop in graph.nodes:
        if loop.op != "loop" or not loop.attrs["tape"] or not _is_simple(loop):
            continue
        first = len(loop.attrs["body"].outs)
        tapes = [each for each in users[loop] if each.attrs["index"] >= first]
        readers = list(dict.fromkeys(user for tape in tapes for user in users[tape]))
        if readers and returned.isdisjoint(tapes) and all(_goes_back(reader, tapes) for reader in readers):
            found[loop] = readers
    return found


def _is_simple(node: Node) -> bool:
    """Are all sizes known, and can it be run a second time?"""
    if not all((aval.element if isinstance(aval, Tape) else aval).static for aval in node.aval):
        return False
    return len(node.attrs["test"].outs) == 1 and not any(map(_has_effects, (node.attrs["test"], node.attrs["body"])))


def _has_effects(graph: Graph) -> bool:
    inner = [value for node in graph.nodes for value in node.attrs.values() if isinstance(value, Graph)]
    return any(map(is_effect, graph.nodes)) or any(map(_has_effects, inner))


def _goes_back(node: Node, tapes: Sequence[Node]) -> bool:
    """Is it a scan that reads these tapes alone, from their ends, and makes no sequence?"""
    if node.op != "scan":
        return False
    attrs, n = node.attrs, node.attrs["n_carry"]
    sequences, rest = node.inputs[n : n + attrs["n_xs"]], (*node.inputs[:n], *node.inputs[n + attrs["n_xs"] :])
    alone = all(each in tapes for each in sequences) and not any(each in tapes for each in rest)
    makes = len(attrs["body"].outs) > n or attrs["tape"]
    return alone and not makes and attrs["reverse"] and attrs["length"] is None and not _has_effects(attrs["body"])


class _Segments:
    """A loop of ``rounds`` rounds in segments of ``length``, and a last one of what is left over."""

    def __init__(self, loop: Node, rounds: int, length: int) -> None:
        self.loop, self.length = loop, length
        self.whole, self.left = divmod(rounds, length)
        self.n = len(loop.attrs["body"].outs)
        self._segments, self._rest = loop, loop  # as they will be made

    def forward(self, new: Mapping[Node, Node]) -> Node:
        """The loop whose first results are the old one's."""
        inputs, own, count = [new[source] for source in self.loop.inputs], self._params(), param(_COUNT, "segment")
        # It tapes its counter, so that its rounds are run by the kernels that run them again: to the same bits.
        segment = self._run(own, self.length, (self.n,))
        body = [*_items(segment, self.n), count + np.int64(1)]
        self._segments = self._counted(inputs, own, count, self.whole, body, tuple(range(self.n)))
        self._rest = self._segments
        if self.left:
            behind = [*_items(self._segments, self.n), *inputs[self.n :]]
            self._rest = self._run(behind, self.left, self.loop.attrs["tape"])
        return self._rest

    def result(self, node: Node, new: Mapping[Node, Node]) -> Node:
        """What the loop carries at its end; a tape nobody reads any more."""
        index = node.attrs["index"]
        return item(new[self.loop], index) if index < self.n else new[self.loop]

    def backward(self, scan: Node, new: Mapping[Node, Node]) -> Node:
        """A scan over the tapes of the loop: first over the rounds left over, then over the segments."""
        n, n_xs, body = scan.attrs["n_carry"], scan.attrs["n_xs"], scan.attrs["body"]
        places = [source.attrs["index"] - self.n for source in scan.inputs[n : n + n_xs]]
        carry, outside = ([new[source] for source in part] for part in (scan.inputs[:n], scan.inputs[n + n_xs :]))
        if self.left:
            carry = _items(self._scan(scan, body, carry, self._tapes(self._rest, places), outside), n)
        own = self._params()
        moved, read = ([param(each.aval, each.attrs["name"]) for each in part] for part in (
            body.params[:n], body.params[n + n_xs :]
        ))  # fmt: skip
        again = self._run(own, self.length, self.loop.attrs["tape"])
        through = self._scan(scan, body, moved, self._tapes(again, places), read)
        segment = Graph([*moved, *own[: self.n], *read, *own[self.n :]], _items(through, n), f"{body.name}_segment")
        states = [item(self._segments, self.n + 1 + k) for k in range(self.n)]
        consts = [*outside, *(new[source] for source in self.loop.inputs[self.n :])]
        return self._scan(scan, segment, carry, states, consts)

    def _params(self) -> list[Node]:
        return [param(each.aval, each.attrs["name"]) for each in self.loop.attrs["body"].params]

    def _run(self, start: Sequence[Node], rounds: int, tape: tuple[int, ...]) -> Node:
        """So many rounds of the loop, from this state."""
        own, count, body = self._params(), param(_COUNT, "round"), self.loop.attrs["body"]
        return self._counted(start, own, count, rounds, [*body.inline(own), count + np.int64(1)], tape)

    def _counted(
        self, start: Sequence[Node], own: Sequence[Node], count: Node, rounds: int, outs: Sequence[Node],
        tape: tuple[int, ...],
    ) -> Node:  # fmt: skip
        params, name = [*own[: self.n], count, *own[self.n :]], self.loop.attrs["body"].name
        test = Graph(params, [apply("less", count, const(np.int64(rounds)))], f"{name}_rounds")
        inputs = (*start[: self.n], const(np.int64(0)), *start[self.n :])
        attrs = {"test": test, "body": Graph(params, outs, name), "tape": tape}
        return build(self.loop.record, inputs, attrs, apply("loop", *inputs, **attrs).aval, self.loop.src)

    def _tapes(self, run: Node, places: Sequence[int]) -> list[Node]:
        return [item(run, self.n + 1 + k) for k in places]

    @staticmethod
    def _scan(scan: Node, body: Graph, carry: Sequence[Node], xs: Sequence[Node], consts: Sequence[Node]) -> Node:
        inputs, attrs = (*carry, *xs, *consts), {**scan.attrs, "body": body, "n_xs": len(xs)}
        return build(scan.record, inputs, attrs, apply("scan", *inputs, **attrs).aval, scan.src)


def _items(node: Node, count: int) -> list[Node]:
    return [item(node, k) for k in range(count)]
