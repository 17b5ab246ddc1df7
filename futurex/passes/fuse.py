"""Fusion: elementwise nodes of one shape that lie next to each other become one ``fused`` node, and with the reductions
among them one ``fused_reduction``.

Regions grow along edges and never enclose a path through other nodes, so the graph stays free of cycles. A value inside
a region that is read outside becomes one more result of the region. Results stay equal bit for bit.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from futurex.ops.fusion import (
    COMPLEX,
    CORRECTLY_ROUNDED,
    PARTS,
    REMAINDERS,
    SHORT_ROW,
    SUPPORTED,
    function_of,
    is_slow,
    loop_of,
)
from futurex.ops.reduce import axes_of
from futurex.ops.strides import is_scattered, lies_in_short_rows, step_of, turned_along
from futurex.ops.sweeps import REDUCTIONS, VIEWS, adds_converted, holds_reduction, levels
from futurex.passes.rewrite import is_effect, users_of
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph, rebuilt
from futurex.tree.node import Node, apply, build, item, param
from futurex.tree.source import at

FEWEST_ELEMENTS = 256
"""Arrays below this stay with NumPy, whose call costs no more than the work."""
BESIDE_LARGE, SEVERAL = 2, 2
"""Elements of an array, and operations on it, from which a region pays beside arrays of ``LARGE_ELEMENTS``, as the
update of a bias does: what runs between two large kernels finds nothing of the interpreter in the caches."""
LARGE_ELEMENTS = 64 * 1024
ALONE_ELEMENTS, BESIDE_LARGE_ALONE = 4096, 2048
"""From here on a region of a single operation that NumPy has in registers pays, whose loop may be as fast, but whose
call takes some microseconds more; and the same beside arrays of ``LARGE_ELEMENTS``: a call of NumPy's that finds the
caches full of them takes 20 to 100 µs."""
COPY, FUNCTION = 2, 8
"""How many additions take as long as the copy of a view that does not lie in rows, and as a function."""
MOST_NODES, MOST_ARRAYS = 512, 24
"""Limits of one region: what compiles in a tenth of a second, where a function counts as several operations, and what
the pointers of a processor can follow."""


def fuse(graph: Graph, few: int | None = None, *, inside: bool = False) -> Graph:
    """The graph with its elementwise regions, and those that end in or pass through reductions, as single nodes.

    ``few``: elements from which a region of several operations pays on a device. Without, NumPy computes what is in no
    region: there several pay from ``FEWEST_ELEMENTS`` on, and one that NumPy is slow at.
    """
    here, few = few is None, FEWEST_ELEMENTS if few is None else few
    order = program_order(graph)
    large = any(isinstance(node.aval, Aval) and node.is_static and node.size >= LARGE_ELEMENTS for node in order)
    fewest = BESIDE_LARGE if large else few
    regions = Regions(order, functools.partial(_may_be_one, fewest=fewest, few=few))
    for node in order:
        if not _may_join(node):
            continue
        for source in node.inputs:
            if _may_join(source):
                regions.merge(source, node)
    users = users_of(graph)
    for node in order:
        if node.op == "free_sum" and _may_join(node):  # beside what else reads the array, in the same trip
            for user in filter(_may_join, dict.fromkeys(users[node.inputs[0]])):
                regions.merge(user, node)
    alone = min(BESIDE_LARGE_ALONE, ALONE_ELEMENTS) if large else least_alone(graph, inside)
    groups = [group for group in regions.groups(_may_join) if _pays(group, fewest, alone, few, here)]
    return rebuild(graph, order, groups, _make_region) if groups else graph


def least_alone(graph: Graph, inside: bool) -> int:
    """Elements from which a single operation pays that NumPy has in registers."""
    return LARGE_ELEMENTS if is_of_a_loop(graph, inside) else ALONE_ELEMENTS


def is_of_a_loop(graph: Graph, inside: bool) -> bool:
    """Is it what is ``inside`` of a loop, or what is around one? Of these there is mostly one function, which calls
    NumPy's loops and not NumPy, and has joins of its own."""
    return inside or any(node.record.structured for node in graph.nodes)


def fuse_small(graph: Graph, *, of_complex: bool = False) -> Graph:
    """The graph with elementwise operations of one shape and NumPy's bits as regions, however few elements they have:
    for code that is one function, in which a loop for each of them costs as much as the work. ``of_complex``: are those
    of complex numbers among them?"""
    known = SUPPORTED | COMPLEX if of_complex else SUPPORTED
    exact = functools.partial(_is_exact, known=known)
    if sum(map(exact, graph.nodes)) < SEVERAL:
        return graph
    order = program_order(graph)
    regions = Regions(order, _may_be_small)
    for node in filter(exact, order):
        for source in filter(exact, node.inputs):
            regions.merge(source, node)
    groups = [group for group in regions.groups(exact) if len(group) >= SEVERAL]
    return rebuild(graph, order, groups, _make_region) if groups else graph


def _is_exact(node: Node, known: frozenset[Any]) -> bool:
    if not isinstance(node.aval, Aval) or not node.is_static or not node.inputs or node.size < SEVERAL:
        return False
    if loop_of(node) is None or _is_view(node) or function_of(node) not in CORRECTLY_ROUNDED - REMAINDERS:
        return False
    if node.op == "cast" and node.inputs[0].dtype.kind == "f" and node.dtype.kind in "iu":
        return False  # it may fail, as remainders may, and a loop that may be left early is none of vectors
    return all(each.dtype in known for each in (node, *node.inputs))


def _may_be_small(nodes: list[Node]) -> bool:
    few = len(nodes) <= MOST_NODES and len(_read_from_outside(nodes)) <= MOST_ARRAYS
    return few and all(node.shape == nodes[0].shape for node in nodes)


def _read_from_outside(nodes: list[Node]) -> set[Node]:
    """The arrays that these nodes read and do not make; numbers that are known become part of a region."""
    inside = set(nodes)
    sources = {source for node in nodes for source in node.inputs if source not in inside}
    return {source for source in sources if not is_number(source)}


def is_number(node: Node) -> bool:
    """Is it a constant without dimensions, which a region's code has in it?"""
    return node.op == "const" and node.shape == ()


def program_order(graph: Graph) -> Sequence[Node]:
    """Inputs before users, effects as the program has them; without effects the same on every process."""
    if sum(map(is_effect, graph.nodes)) < 2:
        return graph.nodes
    return sorted(graph.nodes, key=lambda node: node.id)


def _may_join(node: Node) -> bool:
    """Can the node be part of a region? Small values and views only of one that others have begun."""
    if not isinstance(node.aval, Aval) or not node.is_static or not node.inputs:
        return False
    return node.op in VIEWS or node.op in REDUCTIONS or loop_of(node) is not None


def _is_view(node: Node) -> bool:
    """Of the nodes that may join: a part of complex numbers is a ``load``."""
    return node.op in VIEWS or node.op == "load"


def _is_region(nodes: list[Node], fewest: int, few: int) -> bool:
    """Are these a region of one shape with so many elements, or one around reductions of one space?"""
    space = holds_reduction(nodes)
    size = nodes[0].size if space is None else math.prod(space.shape)
    if size < fewest or (size < few and any(map(_is_within_units, nodes))):
        return False
    if space is not None:
        return levels(nodes, space) is not None
    first = nodes[0]
    return all(node.shape == first.shape and node.op != "reshape" and node.op not in REDUCTIONS for node in nodes)


def _is_within_units(node: Node) -> bool:
    """Is it a function whose last bits are not NumPy's?"""
    return not _is_view(node) and node.op not in REDUCTIONS and function_of(node) not in CORRECTLY_ROUNDED | PARTS


def _pays(group: list[Node], fewest: int, alone: int, few: int, here: bool) -> bool:
    working = [node for node in group if not _is_view(node)]
    if not working or not _is_region(group, fewest, few):
        return False
    copied = {source for node in group for source in node.inputs if source not in group and is_scattered(source)}
    copied = {source for source in copied if not turned_along(source)}  # in squares
    if holds_reduction(group) is None:
        copied = {source for source in copied if not step_of(source) and not lies_in_short_rows(source)}
    largest = max(node.size for node in group)
    copies = sum(source.size for source in copied) / largest
    slow = (_is_within_units(node) or adds_converted(node) for node in working)
    if sum(FUNCTION if each else 1 for each in slow) <= COPY * copies:
        return False
    if len(working) > 1:
        return len(working) >= SEVERAL or holds_reduction(group) is not None or working[0].size >= few
    if fewest < few and working[0].op in REDUCTIONS:  # beside large arrays
        return True
    only = working[0]
    few_pay = is_slow(only, here=here) or (here and _reduces_short_rows(only))
    return max(node.size for node in (only, *only.inputs)) >= (few if few_pay else alone)


def _reduces_short_rows(node: Node) -> bool:
    """Is it a reduction for which NumPy begins a loop for each of many short rows? Not the largest of floats in a row,
    for the sign of a zero among a few."""
    if node.op not in REDUCTIONS:
        return False
    (x,), axes = node.inputs, axes_of(node.inputs[0].ndim, node.attrs["axis"])
    if node.op in ("max", "min") and node.dtype.kind == "f" and x.ndim - 1 in axes:
        return False
    return x.ndim > 1 and x.shape[-1] <= SHORT_ROW and len(axes) < x.ndim


def _sources(order: Sequence[Node]) -> Iterator[Sequence[Node]]:
    """What each node comes after: its inputs, and for an effect the effect before it."""
    effect: tuple[Node, ...] = ()
    for node in order:
        if is_effect(node):
            yield (*node.inputs, *effect)
            effect = (node,)
        else:
            yield node.inputs


class Regions:
    """Disjoint sets of nodes, each with a rank: sets come after those that they read from.

    Ranks are kept as D. J. Pearce and P. H. J. Kelly keep a topological order of a graph that changes (2006): joining
    two sets looks only at the sets ranked between them, and only those are ranked anew. ``fit`` says of nodes whether
    they may be one set.
    """

    def __init__(self, order: Sequence[Node], fit: Callable[[list[Node]], bool]) -> None:
        self.order, self.fit = order, fit
        self.position = {node: k for k, node in enumerate(order)}
        self.leader = list(range(len(order)))
        self.members = {k: [k] for k in self.leader}
        self.rank = list(self.leader)
        self.earlier = [[self.position[source] for source in sources] for sources in _sources(order)]
        self.later: list[list[int]] = [[] for _ in order]
        for k, earlier in enumerate(self.earlier):
            for j in earlier:
                self.later[j].append(k)

    def together(self, source: Node, user: Node) -> bool:
        """Are these nodes in one set?"""
        return self.leader[self.position[source]] == self.leader[self.position[user]]

    def merge(self, source: Node, user: Node) -> None:
        """Join the regions of two nodes, unless that would enclose a path or make what is no region."""
        a, b = sorted((self.leader[self.position[each]] for each in (source, user)), key=self.rank.__getitem__)
        if a == b:
            return
        both = sorted(self.members[a] + self.members[b])
        if not self.fit([self.order[k] for k in both]):
            return
        after = self._between(a, b, self.later)
        if after is None:
            return
        before = self._between(b, a, self.earlier)
        assert before is not None  # a path is found from either end
        for k in self.members.pop(b):
            self.leader[k] = a
        ranks = sorted(self.rank[each] for each in (*before, a, b, *after))
        self.members[a] = both
        moved = [*sorted(before, key=self.rank.__getitem__), a, *sorted(after, key=self.rank.__getitem__)]
        for each, rank in zip(moved, ranks[: len(before) + 1] + ranks[len(before) + 2 :], strict=True):
            self.rank[each] = rank

    def _between(self, start: int, end: int, edges: list[list[int]]) -> set[int] | None:
        """The sets that can be reached from ``start`` and are ranked between both; None if that leads to ``end``."""
        low, high = sorted((self.rank[start], self.rank[end]))
        found: set[int] = set()
        pending = [start]
        while pending:
            here = pending.pop()
            for k in self.members[here]:
                for j in edges[k]:
                    there = self.leader[j]
                    if there == end and here != start:
                        return None
                    if there not in found and low < self.rank[there] < high:
                        found.add(there)
                        pending.append(there)
        return found

    def groups(self, may_join: Callable[[Node], bool]) -> list[list[Node]]:
        """The regions of nodes that may be in one, each in program order."""
        groups = ([self.order[k] for k in members] for members in self.members.values())
        return [group for group in groups if may_join(group[0])]


def _may_be_one(nodes: list[Node], fewest: int, few: int) -> bool:
    functions = sum(map(_is_within_units, nodes)) if len(nodes) * FUNCTION > MOST_NODES else 0
    if len(nodes) + (FUNCTION - 1) * functions > MOST_NODES or not _is_region(nodes, fewest, few):
        return False
    return len(_read_from_outside(nodes)) <= MOST_ARRAYS


@dataclass
class _Unit:
    """What is made at once in the new graph: one node, or one region."""

    nodes: list[Node]
    rank: int
    region: bool = False
    waits: int = 0
    users: list[_Unit] = field(default_factory=list)

    def __lt__(self, other: _Unit) -> bool:
        return self.rank < other.rank


def _units(order: Sequence[Node], groups: list[list[Node]]) -> list[_Unit]:
    """Regions and single nodes with the edges between them."""
    position = {node: k for k, node in enumerate(order)}
    units = [_Unit(group, position[group[-1]], region=True) for group in groups]
    unit_of = {node: unit for unit in units for node in unit.nodes}
    for node in order:
        if node not in unit_of:
            unit_of[node] = _Unit([node], position[node])
            units.append(unit_of[node])
    edges: set[tuple[int, int]] = set()
    for node, sources in zip(order, _sources(order), strict=True):
        for source in sources:
            first, second = unit_of[source], unit_of[node]
            if first is not second and (first.rank, second.rank) not in edges:
                edges.add((first.rank, second.rank))
                first.users.append(second)
                second.waits += 1
    return units


Make = Callable[[list[Node], Graph, dict[Node, list[Node]], dict[Node, Node]], None]
"""Makes a group anew: new forms of its nodes that others read, or the graph gives, go into the last argument."""


def rebuild(graph: Graph, order: Sequence[Node], groups: list[list[Node]], make: Make) -> Graph:
    """The graph with each group, which no path leaves and enters again, made anew as a whole; effects keep their order.

    ``order`` is that of the program; groups are in it.
    """
    users = users_of(graph)
    ready = [unit for unit in _units(order, groups) if not unit.waits]
    heapq.heapify(ready)
    new: dict[Node, Node] = {}
    moved = False
    while ready:
        unit = heapq.heappop(ready)
        if unit.region:
            make(unit.nodes, graph, users, new)
        else:
            node = unit.nodes[0]
            inputs = [new[source] for source in node.inputs]
            ordered = is_effect(node) or node.acts
            moved = moved or (ordered and tuple(inputs) != node.inputs)
            fresh = moved and ordered  # ids of effects must keep growing in program order
            new[node] = (
                build(node.record, tuple(inputs), node.attrs, node.aval, node.src) if fresh else rebuilt(node, inputs)
            )
        for user in unit.users:
            user.waits -= 1
            if not user.waits:
                heapq.heappush(ready, user)
    return Graph(graph.params, [new[node] for node in graph.outs], graph.name)


def _make_region(group: list[Node], graph: Graph, users: dict[Node, list[Node]], new: dict[Node, Node]) -> None:
    """One node for a group; scalar constants become part of it. Views that others read stay views beside it."""
    inside = set(group)
    results = set(graph.outs)
    read = [node for node in group if node in results or any(user not in inside for user in users[node])]
    views = _with_sources([node for node in read if _is_view(node)], inside)
    bases = {node.inputs[0] for node in views} & inside
    outs = [node for node in group if not _is_view(node) and (node in read or node in bases)]
    inner, inputs = taken_in(group, new, is_number)
    params = [each for each in inner.values() if each.op == "param"]
    for node in group:
        inner[node] = rebuilt(node, [inner[source] for source in node.inputs])
    with at(outs[0].src):
        made = region_of(params, [inner[node] for node in outs], inputs)
    for k, node in enumerate(outs):
        new[node] = made if len(outs) == 1 else item(made, k)
    for node in group:
        if node in views:
            new[node] = rebuilt(node, [new[source] for source in node.inputs])


def taken_in(
    group: Sequence[Node], new: Mapping[Node, Node], is_part: Callable[[Node], bool]
) -> tuple[dict[Node, Node], list[Node]]:
    """What stands in a region for all that its nodes read from outside: a parameter, or a constant that is part of it.
    And the new nodes that the parameters are given."""
    inside, inner, inputs = set(group), dict[Node, Node](), list[Node]()
    for source in dict.fromkeys(source for node in group for source in node.inputs if source not in inside):
        if source.op == "const" and is_part(source):
            inner[source] = source
        else:
            inner[source] = param(source.aval, f"a{len(inputs)}")
            inputs.append(new[source])
    return inner, inputs


def region_of(params: Sequence[Node], outs: Sequence[Node], inputs: Sequence[Node]) -> Node:
    """The node of a region with the results ``outs``, which are computed from ``params``."""
    region = Graph(params, outs)
    nodes = [node for node in region.nodes if node.inputs]
    region.name = "_".join(dict.fromkeys(node.op for node in nodes))
    return apply("fused" if holds_reduction(nodes) is None else "fused_reduction", *inputs, graph=region)


def _with_sources(views: list[Node], inside: set[Node]) -> set[Node]:
    """Views, and those inside that they are views of."""
    found: set[Node] = set()
    while views:
        node = views.pop()
        found.add(node)
        views += [source for source in node.inputs if source in inside and _is_view(source)]
    return found
