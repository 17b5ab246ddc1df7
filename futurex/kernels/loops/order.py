"""In which order the nodes of a sub-graph run, so that writes can happen in place.

A tree has no mutation: ``store`` gives a new array. Where the old one is read by nobody after it, the write may go into
its memory. Readers of the old array are put before the write where that is possible; where it is not, the array is
copied first.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from futurex.kernels.loops.delivery import VIEWS, Users, Wanted, before, destined, is_in_place, wanted
from futurex.passes.dead import may_not_end
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node


@dataclass(frozen=True)
class Placed:
    """A node in its turn, and the positions of the inputs whose memory it may overwrite.

    ``lazy``: a view that nobody reads after what it shows was overwritten; others are copies.
    """

    node: Node
    consumes: frozenset[int]
    lazy: bool = False


@dataclass(frozen=True)
class Schedule:
    """Nodes in their turns, and where their results go."""

    order: list[Placed]
    wanted: Wanted


def is_array(aval: object) -> bool:
    return isinstance(aval, Aval) and bool(aval.shape)


def overwrites(node: Node) -> list[int]:
    """The inputs whose memory the node would like to take for its results."""
    if node.op in ("store", "scatter", "masked_store"):
        return [0]
    if node.op == "concatenate" and not node.attrs["axis"] and not node.aval.static:
        return [1] if is_in_front(node) else [0]
    if node.op == "loop":
        return [k for k in range(len(node.attrs["body"].outs)) if is_array(node.inputs[k].aval)]
    if node.op == "cond":
        return [k + 1 for k in sorted(_changed(node.attrs["then"]) | _changed(node.attrs["orelse"]))]
    return []


def is_in_front(join: Node) -> bool:
    """Do rows come to stand in front of an array that only the run can count, as at the beginning of a queue?"""
    return len(join.inputs) == 2 and join.inputs[0].aval.static and not join.inputs[1].aval.static


def is_part(node: Node) -> bool:
    """The first or the last rows of an array that only the run can count, as a list without its last entries, or a
    queue without its first: memory that they may have for themselves where nobody reads the others afterwards."""
    if node.op != "load" or not node.attrs["chain"] or node.aval.static or node.inputs[0].aval.static:
        return False
    return all(map(_leaves_ends_out, node.attrs["chain"]))


def _leaves_ends_out(view: tuple[Any, ...]) -> bool:
    kind, *of = view  # of "real" and "imag" there is nothing more to say
    if kind != "index" or len(of[0]) != 1 or of[0][0][0] != "s":
        return False
    _, start, stop, step = of[0][0]
    return (start in (None, 0) or stop is None) and step in (None, 1)


def _overwritten(graph: Graph) -> dict[Node, list[int]]:
    """For each node the inputs whose memory it would like to take: of a part of an array only where that is a result,
    or overwritten itself, for else it is read where it lies."""
    found: dict[Node, list[int]] = {}
    changing = set(graph.outs)
    for node in reversed(graph.nodes):
        places = [0] if node in changing and is_part(node) else overwrites(node)
        changing.update(node.inputs[k] for k in places)
        found[node] = places
    return found


def _changed(graph: Graph) -> set[int]:
    """Array inputs that a branch overwrites or returns."""
    position = {node: k for k, node in enumerate(graph.params)}
    wanted = {node.inputs[k] for node, places in _overwritten(graph).items() for k in places} | set(graph.outs)
    return {position[node] for node in wanted if node in position and is_array(node.aval)}


def schedule(graph: Graph) -> Schedule:
    """The nodes of a graph in order, each after its inputs and after the readers of what it overwrites."""
    nodes = [node for node in graph.nodes if node.op not in ("param", "const")]
    index = {node: k for k, node in enumerate(nodes)}
    behind: list[set[int]] = [{index[source] for source in node.inputs if source in index} for node in nodes]
    reach = [0] * len(nodes)  # as bits: every node that must come before this one
    for k, earlier in enumerate(behind):
        for each in earlier:
            reach[k] |= reach[each] | 1 << each
    _after_checks(nodes, behind, reach)
    users: dict[Node, list[int]] = {}
    for k, node in enumerate(nodes):
        for source in dict.fromkeys(node.inputs):
            users.setdefault(source, []).append(k)
    kept = set(graph.outs)
    taken: set[Node] = set()
    consumes: list[set[int]] = [set() for _ in nodes]
    overwritten = _overwritten(graph)
    for k, node in enumerate(nodes):
        for place in overwritten[node]:
            source = node.inputs[place]
            others = [user for user in users[source] if user != k]
            if (
                source.op == "const"
                or source in kept
                or source in taken
                or node.inputs.count(source) > 1
                or any(reach[user] >> k & 1 for user in others)
            ):
                continue
            taken.add(source)
            consumes[k].add(place)
            _follow(k, others, behind, reach)
    consumer = {nodes[k].inputs[place]: nodes[k] for k, places in enumerate(consumes) for place in places}
    readers = {node: [nodes[k] for k in each] for node, each in users.items()}
    found = dict(wanted(graph, readers, consumer))
    early: dict[Node, list[Node]] = {}  # by whom the array of a store is written before that
    for k, node in enumerate(nodes):
        for number, store in destined(found, node).items():
            first = before(readers, store, node)
            needed = [index[each] for each in first or () if each in index]
            if first is None or k in needed or any(reach[each] >> k & 1 for each in needed):
                del found[node, number]
            else:
                _follow(k, needed, behind, reach)
                early.setdefault(store, []).append(node)
    order = [nodes[k] for k in _topological(behind)]
    lazy = _lazy(order, consumer, kept, early)
    return Schedule([Placed(node, frozenset(consumes[index[node]]), node in lazy) for node in order], found)


def _after_checks(nodes: Sequence[Node], behind: list[set[int]], reach: list[int]) -> None:
    """Put loops behind the checks that do not need them: a check may keep the program from one that never ends."""
    checks = [k for k, node in enumerate(nodes) if node.op == "check"]
    for k, node in enumerate(nodes):
        if checks and may_not_end(node) and (first := [check for check in checks if not reach[check] >> k & 1]):
            _follow(k, first, behind, reach)


def _follow(k: int, others: Sequence[int], behind: list[set[int]], reach: list[int]) -> None:
    """Put node ``k``, and what comes after it, behind the others."""
    behind[k].update(others)
    gained = 0
    for each in others:
        gained |= reach[each] | 1 << each
    for later in range(len(reach)):
        if later == k or reach[later] >> k & 1:
            reach[later] |= gained


def _lazy(order: Sequence[Node], consumer: Mapping[Node, Node], kept: set[Node], early: Users) -> set[Node]:
    """The views that are read for the last time before anything they may show is overwritten, or while each of their
    elements is."""
    position = {node: k for k, node in enumerate(order)}
    written = dict(position)
    for store, producers in early.items():
        written[store] = min(position[each] for each in producers)
    last: dict[Node, int] = {}  # where a node, or a lazy view of it, is read for the last time
    lazy: set[Node] = set()
    for k in reversed(range(len(order))):
        node = order[k]
        end = last.get(node, k)
        if node.op in VIEWS and node not in kept and node not in consumer:
            shown, overwritten = node, len(order)
            while shown.op in VIEWS or shown.op == "item":
                shown = shown.inputs[0]
                writer = consumer.get(shown)
                while writer is not None and is_part(writer):  # writes nothing itself
                    writer = consumer.get(writer)
                if writer is not None:
                    at_once = any(is_in_place(writer, each, node) for each in early.get(writer, ()))
                    overwritten = min(overwritten, written[writer] + at_once)
            if end < overwritten:
                lazy.add(node)
        reach = end if node in lazy or node.op == "item" else k
        for source in node.inputs:
            last[source] = max(last.get(source, -1), k, reach if source is node.inputs[0] else k)
    return lazy


def _topological(behind: list[set[int]]) -> list[int]:
    """Earlier nodes first wherever their order is free."""
    waiting = [len(sources) for sources in behind]
    after: list[list[int]] = [[] for _ in behind]
    for k, sources in enumerate(behind):
        for source in sources:
            after[source].append(k)
    ready = [k for k, count in enumerate(waiting) if not count]
    order = []
    while ready:
        k = heapq.heappop(ready)
        order.append(k)
        for following in after[k]:
            waiting[following] -= 1
            if not waiting[following]:
                heapq.heappush(ready, following)
    return order
