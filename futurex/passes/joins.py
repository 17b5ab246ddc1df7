"""Large concatenations and paddings are written block by block where they belong, each block by the region that makes
it; and what elementwise operations read of one is read where its parts lie, so that nobody makes the join.

A join cuts its axis into parts. A slice of it is cut as well, and so is the result of an elementwise operation on it:
every block is the same operation on a view of each operand. The last such operation is the one node that is written
(``fused_join``); joins, slices and operations before it vanish.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence

from futurex.ops.fusion import is_generated, loop_of
from futurex.ops.joined import stored
from futurex.passes.blocks import Blocks, as_part, dropped_axes, fill_of, has_columns, parts_of, slice_of, stored_slice
from futurex.passes.fuse import FEWEST_ELEMENTS, LARGE_ELEMENTS, is_of_a_loop
from futurex.passes.rewrite import rewrite, users_of
from futurex.passes.simplify import scalar_of
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply

MOST_BLOCKS = 32
"""Blocks of one array: each is a call of a kernel."""
LEAST_BLOCK = 16
"""Elements of a block in the mean: a step of machine code takes as long as some hundred, and a call of NumPy's as ten
steps."""
FEWEST_INSIDE, MOST_INSIDE = 512, 400
"""Elements of a join inside of a loop, whose code puts smaller ones together, and nodes of what a round then is."""
LEAST_COLUMNS = 16 * 1024
"""Elements of an array that is put together of columns, which NumPy copies one by one."""
MOST_LEVELS = 24
"""Nodes one behind the other that a block goes through."""
MOST_READERS = 2
"""Nodes in which a join is read where its parts lie: as often the parts are read, and their blocks are computed."""

Grid = tuple[tuple[int, ...], ...]
"""For each axis where it is cut."""


def join_in_place(graph: Graph, *, inside: bool = False) -> Graph:
    """The graph with ``fused_join`` in the place of large joins, and of what elementwise operations read of them.

    Beside loops only those of the largest arrays: code that is one function of a loop and all around it has joins of
    its own, and knows how to write an array into one of a single number, which a padding is. ``inside`` of them it
    writes blocks of others where they belong, as far as they leave it short.
    """
    large = is_of_a_loop(graph, inside)
    if large and any(node.op == "pad" for node in graph.nodes):
        graph = rewrite(graph, _framed)
    if inside:
        short = _joined(graph, FEWEST_INSIDE)
        short = rewrite(short, _in_blocks) if short is not graph else short
        if len(short.nodes) <= MOST_INSIDE:
            return short
    return _joined(graph, LARGE_ELEMENTS if large else FEWEST_ELEMENTS)


def _joined(before: Graph, least: int) -> Graph:
    graph = rewrite(before, _as_addition)
    if not any(_is_join(node, least) for node in graph.nodes):
        return before
    refused: set[Node] = set()
    while True:
        work = _Joins(graph, refused, least)
        made = {root: blocks for root in work.roots if (blocks := work.blocks_of(root)) is not None}
        if len(made) == len(work.roots):
            break
        refused |= set(work.roots) - set(made)
    makers = {root: functools.partial(blocks.make, root) for root, blocks in made.items()}
    return rewrite(graph, lambda node: None, makers) if makers else before


def _as_addition(node: Node) -> Node | None:
    """``y[1:] += x``, which reads a slice, adds, and writes it, as one operation."""
    if node.op != "store" or node.attrs["mode"] != "set" or len(node.inputs) != 2 or node.inputs[1].op != "add":
        return None
    (base, total), chain = node.inputs, node.attrs["chain"]
    part, value = total.inputs
    own = part.op == "load" and part.inputs == (base,) and part.attrs["chain"] == chain
    same = isinstance(value.aval, Aval) and value.aval == total.aval and value.dtype == base.dtype
    return apply("store", base, value, chain=chain, mode="add") if own and same else None


def _in_blocks(node: Node) -> Node | None:
    """A small join as blocks that are written into room for it, which code of a loop does where they belong."""
    if node.op != "fused_join" or node.size >= LARGE_ELEMENTS:
        return None
    room = apply("room", shape=node.shape, dtype=node.dtype, number=node.id)
    return stored(room, node.attrs["blocks"], node.attrs["graph"].inline(node.inputs))


def _framed(node: Node) -> Node | None:
    """A small padding as an array that is written into a frame."""
    if node.op != "pad" or not node.is_static or node.size >= LARGE_ELEMENTS or node.inputs[1].shape:
        return None
    x, value = node.inputs
    inside = tuple(
        ("s", low, low + extent, None) for (low, _), extent in zip(node.attrs["widths"], x.shape, strict=True)
    )
    frame = apply("full", value, shape=node.shape, dtype=node.dtype)
    return apply("store", frame, x, chain=(("index", inside),), mode="set")


def _is_join(node: Node, least: int) -> bool:
    if node.op == "concatenate" and node.is_static and has_columns(node):
        return _is_large(node, LEAST_COLUMNS)
    return (node.op in ("concatenate", "pad") or stored_slice(node) is not None) and _is_large(node, least)


def _is_large(node: Node, least: int) -> bool:
    known = isinstance(node.aval, Aval) and node.is_static
    return known and not node.aval.weak and not node.dtype.hasobject and node.size >= least


def _is_computed(node: Node) -> bool:
    """Can generated code compute its elements one by one?"""
    return node.record.elementwise and node.is_static and isinstance(node.aval, Aval) and loop_of(node) is not None


def _adds(node: Node) -> bool:
    return stored_slice(node) is not None and bool(node.attrs["mode"] == "add")


def _parts_suit(node: Node) -> bool:
    """Are all parts arrays that generated code can read, and convert?"""
    if node.op == "pad":
        return fill_of(node) is not None and _converts(node.inputs[0], node)
    if node.op == "store":
        return is_generated(node.dtype) and not any(each.aval.weak for each in node.inputs)
    return all(_converts(part, node) for part, _ in parts_of(node))


def _converts(part: Node, join: Node) -> bool:
    if not isinstance(part.aval, Aval) or not part.is_static:
        return False
    return loop_of(as_part(part, join)) is not None if part.dtype != join.dtype else is_generated(part.dtype)


class _Joins:
    """What vanishes of a graph, and what is written instead. ``refused``: nodes that stay as they are; ``least``:
    elements of a join."""

    def __init__(self, graph: Graph, refused: set[Node], least: int) -> None:
        self.least = least
        self.users, self.outs = users_of(graph), set(graph.outs)
        self.cut = self._all_cut(graph, refused)
        self.gone = {node for node in self.cut if self._vanishes(node)}
        while self._settle(graph):
            pass
        self.roots = [node for node in graph.nodes if node in self.cut and node not in self.gone]
        self.inside = self._all_inside(graph)
        self.grids: dict[Node, Grid] = {}

    def _is_join(self, node: Node) -> bool:
        return _is_join(node, self.least)

    def _all_cut(self, graph: Graph, refused: set[Node]) -> dict[Node, int]:
        """Joins, what is a slice of one, and what is computed of either, element by element; each with the number of
        those that it is made of one after the other."""
        cut: dict[Node, int] = {}
        for node in graph.nodes:
            level = 1 + max((cut.get(source, 0) for source in node.inputs), default=0)
            if node in refused or level > MOST_LEVELS:
                continue
            follows = level > 1 and (slice_of(node) is not None or self._computes(node, cut))
            joins = self._is_join(node) and _parts_suit(node)
            if follows or (joins and (node.op != "store" or self._is_sum(node, cut))):
                cut[node] = level
        return cut

    def _is_sum(self, node: Node, cut: Mapping[Node, int]) -> bool:
        """Is what a slice is added to made for that alone? Else it is written in place. The first may be written."""
        base, users = node.inputs[0], self.users[node]
        if node.attrs["mode"] == "set" and not (users and all(slice_of(each) or _adds(each) for each in users)):
            return False
        return base in cut or _is_computed(base) or (base.op == "full" and scalar_of(base) is not None)

    def _computes(self, node: Node, cut: Mapping[Node, int]) -> bool:
        return _is_large(node, self.least) and _is_computed(node) and all(
            source not in cut or source.shape == node.shape for source in node.inputs
        )  # fmt: skip

    def _vanishes(self, node: Node) -> bool:
        """Is all that reads it cut as it is? Slices of what is computed read that where it was written."""
        users = self.users[node]
        if node in self.outs or not users or not all(user in self.cut for user in users):
            return False
        return not node.record.elementwise or all(user.op != "load" for user in users)

    def _settle(self, graph: Graph) -> bool:
        """Take back what follows from something that does not vanish; True if there was any."""
        before = len(self.cut), len(self.gone)
        for node in graph.nodes:
            if node in self.cut and not self._is_join(node) and not any(source in self.gone for source in node.inputs):
                del self.cut[node]
        for node in [node for node in self.cut if node.op == "load" and node not in self.gone]:
            del self.cut[node]  # a slice that others read is one of an array
        self.gone = {node for node in self.gone if node in self.cut and self._vanishes(node)}
        ends: dict[Node, set[Node]] = {}
        for node in reversed(graph.nodes):
            ends[node] = set[Node]().union(*(ends[user] for user in self.users[node])) if node in self.gone else {node}
        most = {node: 1 if node.record.elementwise else MOST_READERS for node in self.gone}
        self.gone = {node for node in self.gone if len(ends[node]) <= most[node]}
        return (len(self.cut), len(self.gone)) != before

    def _reader(self, node: Node) -> Node | None:
        """The one node that reads it, and reads it once."""
        users = self.users[node]
        if node in self.outs or len(set(users)) != 1 or (len(users) > 1 and self._is_join(users[0])):
            return None
        return self._reader(users[0]) if dropped_axes(users[0]) else users[0]

    def _all_inside(self, graph: Graph) -> dict[Node, int]:
        """What is computed, once, where the one node that reads it is written, and how many nodes before that."""
        once: dict[Node, int] = dict.fromkeys(self.roots, 0)
        for node in reversed(graph.nodes):
            user = self._reader(node)
            if user not in once or (node in self.cut and node not in self.gone):
                continue
            suits = _is_computed(node) and (self._is_join(user) or user.shape == node.shape)
            if node in self.gone or (suits and once[user] < MOST_LEVELS):
                once[node] = once[user] + 1
        return {node: far for node, far in once.items() if node not in self.cut}

    def absorbed(self, node: Node) -> bool:
        """Is a node computed in blocks, where these are written?"""
        return node in self.gone or node in self.inside

    def grid(self, node: Node) -> Grid:
        """Where a node is cut into blocks."""
        if node not in self.grids:
            self.grids[node] = tuple(tuple(sorted(each)) for each in self._cuts(node))
        return self.grids[node]

    def _cuts(self, node: Node) -> list[set[int]]:
        if not (node in self.roots or self.absorbed(node)):
            return [set() for _ in node.shape]
        found: list[set[int]] = [set() for _ in node.shape]
        for source, low in self._sources(node):
            for axis, cuts in enumerate(self.grid(source)):
                ends = (*cuts, 0, source.shape[axis]) if self._is_join(node) else cuts
                found[axis] |= {cut - low[axis] for cut in ends if 0 < cut - low[axis] < node.shape[axis]}
        return found

    @staticmethod
    def _sources(node: Node) -> list[tuple[Node, Sequence[int]]]:
        """What it is cut as, and how far before a source's first element its own lies."""
        if node.op == "load":
            bounds = slice_of(node)
            assert bounds is not None
            return [(node.inputs[0], [low for low, _ in bounds])]
        if node.op == "pad":
            return [(node.inputs[0], [-low for low, _ in node.attrs["widths"]])]
        if node.op == "store":
            bounds = stored_slice(node)
            assert bounds is not None
            return [(node.inputs[0], [0] * node.ndim), (node.inputs[1], [-low for low, _ in bounds])]
        if node.op == "concatenate":
            return [(part, [-start if k == node.attrs["axis"] else 0 for k in range(node.ndim)])
                    for part, start in parts_of(node)]  # fmt: skip
        return [(source, [0] * node.ndim) for source in node.inputs if source.shape == node.shape]

    def blocks_of(self, root: Node) -> Blocks | None:
        """How it is written; None where that would not pay."""
        ends = [(0, *cuts, extent) for cuts, extent in zip(self.grid(root), root.shape, strict=True)]
        count = math.prod(len(each) - 1 for each in ends)
        if count > min(MOST_BLOCKS, max(1, root.size // LEAST_BLOCK)):
            return None
        blocks = Blocks(self.absorbed)
        for bounds in itertools.product(*map(itertools.pairwise, ends)):
            if not blocks.add(root, tuple(bounds)):
                return None
        return blocks if blocks.pays(root) else None
