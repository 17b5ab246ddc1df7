"""What a loop computes dearly and its way back needs is on tape, not computed again.

Reverse mode puts on tape what a round began with, and a round of the way back computes the rest of it anew: of a
recurrent network the products with its weights and their ``tanh``, which took as long as the loop itself. Such values
are taped (:mod:`futurex.passes.tapes`); what is made of them by a few operations an element is still computed again,
as that takes no longer than to store and load it. Nor are the rounds of a segment of ``fx.checkpoint``, which are to
be made again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from futurex.autodiff.segment import is_segments
from futurex.ops.tapes import Tape
from futurex.passes.tapes import as_in_loop, backward_scans, can_be_taped, loop_of, retape, sequences_of
from futurex.tree.graph import Graph
from futurex.tree.node import Node

DEAR = 8.0
"""Operations for an element of a result, from which on it is rather stored and loaded."""
_FEW, _TIMES = 1 << 12, 4
"""Elements that may be added to the tapes of a round in any case, and how many times those that are there."""


def tape_dear_values(graph: Graph) -> Graph:
    """The graph with such values on tape."""
    dear = {}
    for scan in backward_scans(graph):
        elements = [xs.aval.element for xs in sequences_of(scan)]
        loop = loop_of(scan)
        if not all(each.static for each in elements) or (loop is not None and is_segments(loop)):
            continue
        search, there = _Search(scan), sum(each.size for each in elements)
        values = min((search.values(narrowed=each) for each in (False, True)), key=_size)
        if values and _size(values) <= max(_FEW, _TIMES * there):
            dear[scan] = values
    return retape(graph, dear) if dear else graph


def _size(values: Iterable[Node]) -> int:
    return sum(each.size for each in values)


class _Search:
    """For the values that the body of a scan needs, and that the loop knows: which of them, or of what they are made
    of, are to be on tape?"""

    def __init__(self, scan: Node) -> None:
        self._body: Graph = scan.attrs["body"]
        self._known: Mapping[Node, Node] = as_in_loop(scan)

    def values(self, *, narrowed: bool) -> dict[Node, Node]:
        """These values, by what they are in the loop's body; ``narrowed``: what is made of dear ones and is smaller, as
        a row of a product, in their place."""
        needed = [
            source for node in self._body.nodes if node not in self._known
            for source in node.inputs if source in self._known
        ]  # fmt: skip
        needed += [out for out in self._body.outs if out in self._known]
        found: dict[Node, None] = {}
        below: dict[Node, dict[Node, None]] = {}
        for node in sorted(set(needed), key=lambda node: node.id):
            found |= _below(node, below, narrowed)
        return {node: self._known[node] for node in found}


def _below(root: Node, found: dict[Node, dict[Node, None]], narrowed: bool) -> dict[Node, None]:
    """What to have on tape for a value; nothing where it is made of what is there by cheap operations alone. ``found``:
    for values that have been looked at."""
    waiting = [root]
    while waiting:
        node = waiting[-1]
        missing = [source for source in node.inputs if source not in found]
        if missing and not _is_dear(node):
            waiting += missing
            continue
        waiting.pop()
        if _is_dear(node):
            found[node] = {node: None}
            continue
        below = {each: None for source in node.inputs for each in found[source]}
        smaller = narrowed and below and can_be_taped(node) and node.size < _size(below)
        found[node] = {node: None} if smaller else below
    return found[root]


def _is_dear(node: Node) -> bool:
    """Does it take longer to compute it than to have it on tape? What stands in loops with tapes is computed anyway."""
    if not can_be_taped(node) or node.op in ("param", "const"):
        return False
    if node.op == "item":
        return all(not isinstance(each, Tape) and each.static for each in node.inputs[0].aval)
    work = node.record.work(tuple(source.aval for source in node.inputs), node.aval, node.attrs)
    return work.flops >= DEAR * max(node.size, 1)
