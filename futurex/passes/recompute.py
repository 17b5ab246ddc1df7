"""Results of regions that only regions read are computed again there, where that saves trips through memory.

A region that writes a large array for another one moves it twice, and once more because processors read the lines that
they write to. Where the reader can make its elements in a few exact operations, from arrays that weigh no more than the
one it reads, that array is never written: the centred and masked values of batch normalisation vanish so. Results stay
equal bit for bit; functions within units in the last place are not repeated, because NumPy may compute one of two
regions before its kernel is there. Where several results are made of one such function, it is written in their place:
of the hyperbolic tangent in a GELU, whose derivative reads ``1 + t`` and ``1 - t * t``, one array is enough.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from futurex.ops.fusion import APPROXIMATE, OF_COMPLEX, OF_TWO, function_of, real_loop_of
from futurex.ops.strides import has_gaps
from futurex.ops.sweeps import REDUCTIONS, VIEWS, enters, holds_reduction, turned
from futurex.passes.fuse import MOST_ARRAYS, MOST_NODES, program_order, rebuild, region_of
from futurex.passes.rewrite import users_of
from futurex.tree.graph import Graph, rebuilt
from futurex.tree.node import Node, item, param
from futurex.tree.source import at

LEAST_BYTES = 1 << 18
"""Smaller arrays are still in a core's own cache when they are read."""
MOST_WORK = 24
"""Simple operations an element that a trip through memory is worth."""
_SLACK = 1.125  # of the bytes that are not read any more: vectors and values of rows come in their place
_REGIONS = ("fused", "fused_reduction")
_WORK = {"divide": 4, "sqrt": 4, "reciprocal": 4, "floor_divide": 8, "remainder": 8, "fmod": 8}
_WIDE = 3
"""So many times that of doubles: a vector of quotients takes as many cycles for half the numbers, on Intel's processors
as long as one trip of them."""


def recompute(graph: Graph) -> Graph:
    """The graph with such values computed where they are read."""
    order = program_order(graph)
    regions = [node for node in order if node.op in _REGIONS]
    if len(regions) < 2:
        return graph
    work = _Recompute(graph, order)
    groups = [[node, *dict.fromkeys(user for user in work.users[node] if user.op == "item")] for node in regions]
    found = rebuild(graph, order, groups, work.make)
    return found if work.recipes else graph


@dataclass(frozen=True)
class _Recipe:
    """How a value is computed from arrays of the new graph."""

    graph: Graph
    sources: tuple[Node, ...]


@dataclass(frozen=True)
class _Reader:
    """A region that is still to be made: how many nodes it will have, and the new arrays known so far that it reads."""

    nodes: int
    sources: frozenset[Node]


class _Recompute:
    """Makes the regions anew, inputs before users: a group is a region and its results."""

    def __init__(self, graph: Graph, order: Sequence[Node]) -> None:
        self.users = users_of(graph)
        self.position = {node: k for k, node in enumerate(order)}
        self.until: dict[Node, float] = {}  # for arrays of the new graph, when they are read last
        self.outs = set(graph.outs)
        self.recipes: dict[Node, _Recipe] = {}
        self.readers: dict[Node, _Reader] = {}

    def make(self, group: list[Node], graph: Graph, users: dict[Node, list[Node]], new: dict[Node, Node]) -> None:
        """A region without the values that its readers compute themselves, with those that it computes for itself."""
        node = group[0]
        for source in node.inputs:
            if source in new:
                self._lives(new[source], self._last(source))
        region, inputs = self._expanded(node, new)
        outer = dict(zip(region.params, inputs, strict=True))
        results = {value: region.outs[value.attrs["index"]] for value in group[1:]} or {node: region.outs[0]}
        again: dict[Node, tuple[Node, ...]] = {}
        shared = self._shared(results)
        for value, out in results.items():
            leaves = self._leaves(value, out, shared)
            if leaves is not None and self._pays(value, Graph(leaves, [out]), outer, new):
                again[value] = leaves
        rows = [leaf for leaves in again.values() for leaf in leaves if leaf not in outer]
        outs = list(dict.fromkeys([out for value, out in results.items() if value not in again] + rows))
        if outs == list(region.outs) and region is node.attrs["graph"]:
            made: Node | None = rebuilt(node, inputs)
        elif outs:
            needed = set(Graph((), outs).nodes)
            params = [each for each in region.params if each in needed]
            with at(node.src):
                made = region_of(params, outs, [outer[each] for each in params])
        else:
            made = None
        if made is not None:
            outer |= {out: item(made, k) if len(outs) > 1 else made for k, out in enumerate(outs)}
            new[node] = made
        for value, out in results.items():
            if value in again:
                leaves = again[value]
                sources = tuple(outer[leaf] for leaf in leaves)
                self.recipes[value] = _Recipe(Graph(leaves, [out]), sources)
                for source in sources:  # among them values of rows that were no results so far
                    self._lives(source, self._last(value))
            else:
                new[value] = outer[out]

    def _expanded(self, node: Node, new: Mapping[Node, Node]) -> tuple[Graph, list[Node]]:
        """The region and its new inputs; what has a recipe is computed inside."""
        region = node.attrs["graph"]
        if not any(source in self.recipes for source in node.inputs):
            return region, [new[source] for source in node.inputs]
        inner: dict[Node, Node] = {}

        def own(source: Node) -> Node:
            return inner.setdefault(source, param(source.aval, f"a{len(inner)}"))

        values = []
        for source in node.inputs:
            recipe = self.recipes.get(source)
            if recipe is None:
                values.append(own(new[source]))
            else:
                values += recipe.graph.inline([own(each) for each in recipe.sources])
        return Graph(inner.values(), region.inline(values), region.name), list(inner)

    def _shared(self, results: Mapping[Node, Node]) -> frozenset[Node]:
        """The functions that several results are made of, or that are results."""
        counts = Counter(
            leaf for value, out in results.items() if self._is_between(value, out)
            for leaf in _made_of(out, _is_approximate)[0] if _is_approximate(leaf) and leaf.aval == out.aval
        )  # fmt: skip
        return frozenset(node for node, count in counts.items() if count > 1 or node in results.values())

    def _is_between(self, value: Node, out: Node) -> bool:
        """Is it a large result that only regions read?"""
        regions = all(user.op in _REGIONS for user in self.users[value])
        return value not in self.outs and regions and out.aval.nbytes >= LEAST_BYTES and out.op not in REDUCTIONS

    def _leaves(self, value: Node, out: Node, shared: frozenset[Node]) -> tuple[Node, ...] | None:
        """Operands, reduced values and ``shared`` functions of the region from which others can compute a result; None
        if they should not."""
        if not self._is_between(value, out):
            return None
        leaves, inside = _made_of(out, shared.__contains__)
        approximate = any(map(_is_approximate, inside))
        return None if approximate or sum(map(_work, inside)) > MOST_WORK else leaves

    def _last(self, value: Node) -> float:
        """When a value of the old graph is read last."""
        if value in self.outs or value.op in ("param", "const"):
            return math.inf
        return max(self.position[user] for user in self.users[value])

    def _lives(self, source: Node, until: float) -> None:
        self.until[source] = max(self.until.get(source, -1), until)

    def _pays(self, value: Node, recipe: Graph, outer: Mapping[Node, Node], new: Mapping[Node, Node]) -> bool:
        """Are fewer bytes moved, and not many more kept, and stay the readers regions that kernels are made for?"""
        sources = frozenset(outer[leaf] for leaf in recipe.params if leaf in outer)
        if any(map(turned, sources)):
            return False
        rows = sum(leaf.aval.nbytes for leaf in recipe.params if leaf not in outer)
        last, limit = self._last(value), _SLACK * value.aval.nbytes
        if rows + sum(source.aval.nbytes for source in sources if self.until[source] < last) > limit:
            return False
        changed, moved = {}, 0
        for user in dict.fromkeys(self.users[value]):
            known = frozenset(new[source] for source in user.inputs if source in new)
            reader = self.readers.get(user, _Reader(len(user.attrs["graph"].nodes), known))
            moved += rows + sum(source.aval.nbytes for source in sources - reader.sources)
            reader = changed[user] = _Reader(reader.nodes + len(recipe), reader.sources | sources)
            if reader.nodes > MOST_NODES or len(reader.sources) + len(recipe.params) > MOST_ARRAYS:
                return False
            space = holds_reduction(user.attrs["graph"].nodes)
            enter = space is None or all(enters(leaf, space) for leaf in recipe.params)
            if space is not None and any(map(has_gaps, sources)):  # which would be copied
                return False
            if space is not None and not all(map(_is_real, recipe.nodes)):  # for which it would have no kernel
                return False
            if not enter or (space is not None and value.shape != space.shape):
                return False
        if moved > limit * (len(changed) + 1):  # each of them reads the value now, and it is written once
            return False
        self.readers.update(changed)
        for source in sources:
            self._lives(source, last)
        return True


def _made_of(out: Node, ends: Callable[[Node], bool]) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """Of what a result is computed: operands, values of rows and what ``ends`` the search; and the nodes between."""
    leaves: dict[Node, None] = {}
    inside: dict[Node, None] = {}
    pending = [out]
    while pending:
        node = pending.pop()
        if node.op == "param" or (node.inputs and node.shape != out.shape) or (node is not out and ends(node)):
            leaves[node] = None
        elif node.inputs and node not in inside:
            inside[node] = None
            pending += node.inputs
    return tuple(leaves), tuple(inside)


def _is_real(node: Node) -> bool:
    return not node.inputs or node.op in VIEWS or node.op in REDUCTIONS or real_loop_of(node) is not None


def _is_approximate(node: Node) -> bool:
    return function_of(node) in APPROXIMATE | OF_TWO | OF_COMPLEX


def _work(node: Node) -> int:
    """Simple operations that one element takes as long as."""
    return _WORK.get(node.op, 1) * (_WIDE if node.op in _WORK and node.dtype.itemsize > 4 else 1)
