"""Tapes of large arrays of which the way back reads a few elements a round become tapes of those elements.

Reverse mode puts on tape what a round began with: of a recurrence that writes one element of an array a round, the
array. What each round of the way back makes of it from nothing but what is on tape, as the element before, the loop
can make in the same round on the way there (:mod:`futurex.passes.tapes`).
"""

from __future__ import annotations

from collections.abc import Mapping

from futurex.ops.tapes import Tape
from futurex.passes.rewrite import users_of
from futurex.passes.tapes import as_in_loop, backward_scans, can_be_taped, retape, sequences_of
from futurex.tree.graph import Graph
from futurex.tree.node import Node

LEAST = 16
"""Elements of an array from which on its tape is looked at."""
_FEWER = 2  # times fewer elements than the array has, at least, must do


def thin_tapes(graph: Graph) -> Graph:
    """The graph with such tapes in the place of larger ones."""
    scans = backward_scans(graph)
    if not scans:
        return graph
    users, returned = users_of(graph), set(graph.outs)
    thin = {}
    for scan in scans:
        own = {xs for xs in sequences_of(scan) if len(users[xs]) == 1 and xs not in returned}
        values = _values(scan, own)
        if values:
            thin[scan] = values
    return retape(graph, thin) if thin else graph


def _values(scan: Node, own: set[Node]) -> dict[Node, Node]:
    """What is to be on tape for a scan; ``own``: the sequences that it alone reads."""
    known, found = as_in_loop(scan), {}
    for j, xs in enumerate(sequences_of(scan)):
        whole = scan.attrs["body"].params[scan.attrs["n_carry"] + j]
        if xs in own and isinstance(xs.aval, Tape) and whole.is_static and whole.size >= LEAST:
            values = _read(scan.attrs["body"], whole, known)
            if values and sum(each.size for each in values) * _FEWER <= whole.size:
                found.update(values)
    return found


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
                if each not in known or not can_be_taped(each):
                    return None
                if each.size * _FEWER <= whole.size:
                    values[each] = known[each]
                elif each not in large:
                    large.append(each)
    return values
