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

import numpy as np

from futurex.ops.fusion import loop_of
from futurex.ops.joined import Index
from futurex.ops.strides import LEAST_ROW, is_scattered, step_of
from futurex.ops.views import Step, box
from futurex.passes.fold import constant
from futurex.passes.fuse import ALONE_ELEMENTS, MOST_ARRAYS, MOST_NODES
from futurex.passes.rewrite import rewrite, users_of
from futurex.passes.simplify import scalar_of, simplified
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph, topological
from futurex.tree.node import Node, apply, const, param

MOST_BLOCKS = 32
"""Blocks of one array: each is a call of a kernel."""
LEAST_BLOCK = 4096
"""Elements of a block in the mean, as many as are computed while a kernel is called."""
MOST_LEVELS = 24
"""Nodes one behind the other that a block goes through."""

Bounds = tuple[tuple[int, int], ...]
"""For each axis the first element of a block, and the one behind the last."""
Grid = tuple[tuple[int, ...], ...]
"""For each axis where it is cut."""


def join_in_place(graph: Graph) -> Graph:
    """The graph with ``fused_join`` in the place of large joins, and of what elementwise operations read of them."""
    if not any(map(_is_join, graph.nodes)):
        return graph
    refused: set[Node] = set()
    while True:
        work = _Joins(graph, refused)
        made = {root: blocks for root in work.roots if (blocks := work.blocks_of(root)) is not None}
        if len(made) == len(work.roots):
            break
        refused |= set(work.roots) - set(made)
    makers = {root: functools.partial(blocks.make, root) for root, blocks in made.items()}
    return rewrite(graph, lambda node: None, makers) if makers else graph


def _is_join(node: Node) -> bool:
    return node.op in ("concatenate", "pad") and _is_large(node)


def _is_large(node: Node) -> bool:
    known = isinstance(node.aval, Aval) and node.is_static
    return known and not node.aval.weak and not node.dtype.hasobject and node.size >= ALONE_ELEMENTS


def _is_computed(node: Node) -> bool:
    """Can generated code compute its elements one by one?"""
    return node.record.elementwise and node.is_static and isinstance(node.aval, Aval) and loop_of(node) is not None


def _slice_of(node: Node) -> Bounds | None:
    """Where a slice of neighbours lies in the array that it is one of; None for other nodes."""
    if node.op != "load" or len(node.inputs) != 1 or not node.is_static or not node.inputs[0].is_static:
        return None
    base = node.inputs[0]
    bounds = box(base.shape, node.attrs["chain"])
    return tuple(bounds) if bounds is not None and node.ndim == base.ndim else None


class _Joins:
    """What vanishes of a graph, and what is written instead. ``refused``: nodes that stay as they are."""

    def __init__(self, graph: Graph, refused: set[Node]) -> None:
        self.users, self.outs = users_of(graph), set(graph.outs)
        self.cut = self._all_cut(graph, refused)
        self.gone = {node for node in self.cut if self._vanishes(node)}
        while self._settle(graph):
            pass
        self.roots = [node for node in graph.nodes if node in self.cut and node not in self.gone]
        self.inside = self._all_inside(graph)
        self.grids: dict[Node, Grid] = {}

    def _all_cut(self, graph: Graph, refused: set[Node]) -> dict[Node, int]:
        """Joins, what is a slice of one, and what is computed of either, element by element; each with the number of
        those that it is made of one after the other."""
        cut: dict[Node, int] = {}
        for node in graph.nodes:
            level = 1 + max((cut.get(source, 0) for source in node.inputs), default=0)
            if node in refused or level > MOST_LEVELS:
                continue
            follows = level > 1 and (_slice_of(node) is not None or self._computes(node, cut))
            if follows or (_is_join(node) and _parts_suit(node)):
                cut[node] = level
        return cut

    @staticmethod
    def _computes(node: Node, cut: Mapping[Node, int]) -> bool:
        return _is_large(node) and _is_computed(node) and all(
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
            if node in self.cut and not _is_join(node) and not any(source in self.gone for source in node.inputs):
                del self.cut[node]
        for node in [node for node in self.cut if node.op == "load" and node not in self.gone]:
            del self.cut[node]  # a slice that others read is one of an array
        self.gone = {node for node in self.gone if node in self.cut and self._vanishes(node)}
        ends: dict[Node, set[Node]] = {}
        for node in reversed(graph.nodes):
            ends[node] = set[Node]().union(*(ends[user] for user in self.users[node])) if node in self.gone else {node}
        most = {node: 1 if node.record.elementwise else _MOST_READERS for node in self.gone}
        self.gone = {node for node in self.gone if len(ends[node]) <= most[node]}
        return (len(self.cut), len(self.gone)) != before

    def _reader(self, node: Node) -> Node | None:
        """The one node that reads it, and reads it once."""
        users = self.users[node]
        if node in self.outs or len(set(users)) != 1 or (len(users) > 1 and _is_join(users[0])):
            return None
        return self._reader(users[0]) if _dropped(users[0]) else users[0]

    def _all_inside(self, graph: Graph) -> dict[Node, int]:
        """What is computed, once, where the one node that reads it is written, and how many nodes before that."""
        once: dict[Node, int] = dict.fromkeys(self.roots, 0)
        for node in reversed(graph.nodes):
            user = self._reader(node)
            if user not in once or (node in self.cut and node not in self.gone):
                continue
            suits = _is_computed(node) and (_is_join(user) or user.shape == node.shape)
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
                ends = (*cuts, 0, source.shape[axis]) if _is_join(node) else cuts
                found[axis] |= {cut - low[axis] for cut in ends if 0 < cut - low[axis] < node.shape[axis]}
        return found

    @staticmethod
    def _sources(node: Node) -> list[tuple[Node, Sequence[int]]]:
        """What it is cut as, and how far before a source's first element its own lies."""
        if node.op == "load":
            bounds = _slice_of(node)
            assert bounds is not None
            return [(node.inputs[0], [low for low, _ in bounds])]
        if node.op == "pad":
            return [(node.inputs[0], [-low for low, _ in node.attrs["widths"]])]
        if node.op == "concatenate":
            return [(part, [-start if k == node.attrs["axis"] else 0 for k in range(node.ndim)])
                    for part, start in _parts(node)]  # fmt: skip
        return [(source, [0] * node.ndim) for source in node.inputs if source.shape == node.shape]

    def blocks_of(self, root: Node) -> _Blocks | None:
        """How it is written; None where that would not pay."""
        ends = [(0, *cuts, extent) for cuts, extent in zip(self.grid(root), root.shape, strict=True)]
        count = math.prod(len(each) - 1 for each in ends)
        if count > min(MOST_BLOCKS, max(1, root.size // LEAST_BLOCK)):
            return None
        blocks = _Blocks(self)
        for bounds in itertools.product(*map(itertools.pairwise, ends)):
            if not blocks.add(root, tuple(bounds)):
                return None
        return blocks if blocks.pays(root) else None


_MOST_READERS = 2
"""Nodes in which a join is read where its parts lie: as often the parts are read, and their blocks are computed."""


def _parts(node: Node) -> list[tuple[Node, int]]:
    """The parts of a concatenation that are not empty, and where each begins."""
    axis, start, found = node.attrs["axis"], 0, []
    for part in node.inputs:
        if part.size:
            found.append((part, start))
        start += part.shape[axis]
    return found


def _parts_suit(node: Node) -> bool:
    """Are all parts arrays that generated code can read, and convert?"""
    if node.op == "pad":
        return _fill(node) is not None and _converts(node.inputs[0], node)
    return all(_converts(part, node) for part, _ in _parts(node))


def _converts(part: Node, join: Node) -> bool:
    if not isinstance(part.aval, Aval) or not part.is_static:
        return False
    return loop_of(_as(part, join)) is not None if part.dtype != join.dtype else _is_copied(part)


def _is_copied(part: Node) -> bool:
    """Does generated code know the dtype?"""
    return loop_of(apply("cast", param(Aval((2,), np.dtype(bool)), "x"), dtype=part.dtype)) is not None


def _as(part: Node, join: Node) -> Node:
    return part if part.dtype == join.dtype else apply("cast", part, dtype=join.dtype)


def _fill(pad: Node) -> Node | None:
    """The number around what is padded, as the array holds it; None where it is not known, or NumPy would complain."""
    held = scalar_of(pad.inputs[1])
    if held is None:
        return None
    return constant(apply("full", const(held), shape=(), dtype=pad.dtype), [held])


class _Blocks:
    """The graphs of an array's blocks, with the views that they read."""

    def __init__(self, joins: _Joins) -> None:
        self.joins = joins
        self.params: dict[tuple[Node, Bounds], Node] = {}
        self.outs: list[Node] = []
        self.indices: list[Index] = []
        self.made: dict[tuple[Node, Bounds], Node] = {}

    def add(self, root: Node, bounds: Bounds) -> bool:
        """One more block; False where none can be made."""
        index: list[tuple[int | str | None, ...]] = [("s", low, high, None) for low, high in bounds]
        node, inner = self._part_of(root, bounds) if root.op == "concatenate" else (root, bounds)
        if node.dtype == root.dtype and (dropped := _dropped(node)) and self.joins.absorbed(node.inputs[0]):
            node, inner = node.inputs[0], tuple(each for k, each in enumerate(inner) if k not in dropped)
            index = [("i", each[1]) if k in dropped else each for k, each in enumerate(index)]
        value = self._value(node, inner) if node is not root else self._computed(root, bounds)
        if value.dtype != root.dtype:
            value = apply("cast", value, dtype=root.dtype)
        self.outs.append(value)
        self.indices.append(tuple(index))
        inside = _inside_of(value)
        return len(inside) <= MOST_NODES and sum(not each.inputs for each in inside) <= MOST_ARRAYS

    def _value(self, node: Node, bounds: Bounds) -> Node:
        """A node's elements in these bounds, in which it is not cut."""
        if (node, bounds) not in self.made:
            inside = self.joins.absorbed(node)
            self.made[node, bounds] = self._computed(node, bounds) if inside else self._read(node, bounds)
        return self.made[node, bounds]

    def _computed(self, node: Node, bounds: Bounds) -> Node:
        if node.op == "load":
            starts = _slice_of(node)
            assert starts is not None
            return self._value(node.inputs[0], _shifted(bounds, [low for low, _ in starts]))
        if node.op == "concatenate":
            return _as(self._value(*self._part_of(node, bounds)), node)
        if node.op == "pad":
            inner, low = node.inputs[0], [-low for low, _ in node.attrs["widths"]]
            moved = _shifted(bounds, low)
            if all(first >= 0 and last <= extent for (first, last), extent in zip(moved, inner.shape, strict=True)):
                return self._value(inner, moved)
            fill = _fill(node)
            assert fill is not None
            return apply("broadcast_to", fill, shape=tuple(last - first for first, last in bounds))
        operands = [self._value(source, _of_operand(source, bounds)) for source in node.inputs]
        return apply(node.op, *operands, **node.attrs)

    def _part_of(self, node: Node, bounds: Bounds) -> tuple[Node, Bounds]:
        """The part of a concatenation in which a block lies, and where."""
        axis = node.attrs["axis"]
        part, start = next(each for each in reversed(_parts(node)) if each[1] <= bounds[axis][0])
        return part, _shifted(bounds, [-start if k == axis else 0 for k in range(node.ndim)])

    def _read(self, node: Node, bounds: Bounds) -> Node:
        """A parameter of the graph, or a number."""
        if node.op == "const" and not node.shape:
            return node
        value = scalar_of(node) if node.op == "full" else None
        if value is not None:
            return apply("broadcast_to", const(value), shape=tuple(last - first for first, last in bounds))
        if (node, bounds) not in self.params:
            shape = tuple(last - first for first, last in bounds)
            self.params[node, bounds] = param(Aval(shape, node.dtype, node.aval.weak), f"a{len(self.params)}")
        return self.params[node, bounds]

    def pays(self, root: Node) -> bool:
        """Are rows long enough, on the whole, and is there anything to compute or to copy?"""
        sources = {inner: _view(*key) for key, inner in self.params.items()}
        rows = 0
        for value, index in zip(self.outs, self.indices, strict=True):
            read = [sources[each] for each in _inside_of(value) if each in sources]
            copied = all(not each.inputs or each.op == "cast" for each in _inside_of(value))
            if copied and any(is_scattered(each, 1) for each in read):
                return False  # NumPy copies those once
            gaps = any(step_of(each, 1) is not None for each in read)
            rows += value.size // (value.shape[-1] if gaps else _neighbours(root.shape, value.shape, index))
        return rows * LEAST_ROW <= root.size

    def make(self, root: Node, new: Mapping[Node, Node]) -> Node:
        """The node that writes all blocks."""
        inputs = [_view(new.get(node, node), bounds) for node, bounds in self.params]
        graph = Graph(list(self.params.values()), self.outs)
        names = dict.fromkeys(node.op for node in graph.nodes if node.inputs and node.op != "broadcast_to")
        graph.name = "_".join(("join", *names))
        return apply("fused_join", *inputs, graph=graph, blocks=tuple(self.indices), shape=root.shape)


def _inside_of(value: Node) -> list[Node]:
    return list(topological((value,)))


def _neighbours(shape: Sequence[int], block: Sequence[int], index: Index) -> int:
    """How many elements of a block follow each other in an array of this shape."""
    count = 1
    for extent, entry in zip(reversed(shape), reversed(index), strict=True):
        own = 1 if entry[0] == "i" else entry[2] - entry[1]
        count *= own
        if own < extent:
            break
    return count


def _dropped(node: Node) -> list[int]:
    """The axes of one element that a view puts between those of its operand; none for other nodes."""
    if node.op not in ("reshape", "load") or len(node.inputs) != 1:
        return []
    if not (node.is_static and node.inputs[0].is_static):
        return []
    if node.op == "load" and not all(_adds_axes(step) for step in node.attrs["chain"]):
        return []
    own, found = list(node.inputs[0].shape), []
    for axis, extent in enumerate(node.shape):
        if own and own[0] == extent:
            own.pop(0)
        elif extent == 1:
            found.append(axis)
        else:
            return []
    return [] if own else found


def _adds_axes(step: Step) -> bool:
    """Does a step of a view leave all elements where they are, beside new axes?"""
    return step[0] == "index" and all(entry in (("n",), ("s", None, None, None)) for entry in step[1])


def _shifted(bounds: Bounds, by: Sequence[int]) -> Bounds:
    return tuple((first + far, last + far) for (first, last), far in zip(bounds, by, strict=True))


def _of_operand(source: Node, bounds: Bounds) -> Bounds:
    """What a block of a result reads of an operand that is broadcast."""
    own = bounds[len(bounds) - source.ndim :]
    return tuple((0, 1) if extent == 1 else each for each, extent in zip(own, source.shape, strict=True))


def _view(node: Node, bounds: Bounds) -> Node:
    """The block of a node as a view of it; itself where that is all of it."""
    if all((0, extent) == each for each, extent in zip(bounds, node.shape, strict=True)):
        return node
    made = apply("load", node, chain=(("index", tuple(("s", first, last, None) for first, last in bounds)),))
    other = simplified(made)
    return made if other is None else other
