"""What is added to slices with a step is added up in arrays without gaps, one for each place that such slices begin at.

The derivative of windows that move on by two is a chain of ``y[i::2, j::2] += x`` on zeros, of which each goes through
elements that lie apart. Slices that begin at places with one remainder are neighbours in ``y[i % 2::2, j % 2::2]``:
what is added to them is added, in the same order, to an array of that shape, which is written to its place once.
Chains of slices of neighbours are joins (:mod:`futurex.passes.joins`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from futurex.ops.views import Chain
from futurex.passes.fuse import FEWEST_ELEMENTS
from futurex.passes.rewrite import Maker, rewrite, users_of
from futurex.passes.simplify import scalar_of
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply

FEWEST = 2
"""Slices that are added to one array of zeros."""


class _Lattice(NamedTuple):
    """For each axis the first element of a view, how many it has, and from each to the next."""

    firsts: tuple[int, ...]
    counts: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def begin(self) -> tuple[int, ...]:
        """Where the widest view with these steps begins that has these elements."""
        return tuple(first % step for first, step in zip(self.firsts, self.steps, strict=True))


def gather_strides(graph: Graph) -> Graph:
    """The graph with such sums."""
    users, returned = users_of(graph), set(graph.outs)

    def goes_on(node: Node) -> bool:
        return node not in returned and len(users[node]) == 1 and _adds(users[node][0]) and (
            users[node][0].inputs[0] is node
        )  # fmt: skip

    makers: dict[Node, Maker] = {}
    for node in graph.nodes:
        if not _adds(node) or goes_on(node):
            continue
        links, base = [node], node.inputs[0]
        while _adds(base) and goes_on(base):
            links.append(base)
            base = base.inputs[0]
        if len(links) >= FEWEST and base.op == "full" and scalar_of(base) == 0 and _are_of_one_step(links):
            makers[node] = functools.partial(_gathered, base, links[::-1])
    return rewrite(graph, lambda node: None, makers) if makers else graph


def _adds(node: Node) -> bool:
    """Is it ``base[a:b:c] += value``, at places that are known, of a large array?"""
    if node.op != "store" or node.attrs["mode"] != "add" or len(node.inputs) != 2 or not node.is_static:
        return False
    base, value = node.inputs
    if node.size < FEWEST_ELEMENTS or value.dtype != base.dtype or not value.is_static:
        return False
    lattice = _lattice(base.shape, node.attrs["chain"])
    return lattice is not None and lattice.counts == value.shape


def _are_of_one_step(links: Sequence[Node]) -> bool:
    steps = {_known(link).steps for link in links}
    return len(steps) == 1 and math.prod(*steps) > 1


def _lattice(shape: Sequence[int], chain: Chain) -> _Lattice | None:
    """The elements of a view by slices with steps forwards; None for other views."""
    firsts, counts, steps = [0] * len(shape), [*shape], [1] * len(shape)
    for step in chain:
        if step[0] != "index":
            return None
        for axis, entry in enumerate(step[1]):
            if entry[0] != "s" or not all(isinstance(each, int | None) for each in entry[1:]):
                return None
            first, last, by = slice(*entry[1:]).indices(counts[axis])
            if by < 1:
                return None
            firsts[axis] += first * steps[axis]
            counts[axis], steps[axis] = len(range(first, last, by)), steps[axis] * by
    return _Lattice(tuple(firsts), tuple(counts), tuple(steps)) if all(counts) else None


def _known(link: Node) -> _Lattice:
    lattice = _lattice(link.shape, link.attrs["chain"])
    assert lattice is not None
    return lattice


def _gathered(base: Node, links: Sequence[Node], new: Mapping[Node, Node]) -> Node:
    """The sums of each beginning, where they belong."""
    dense: dict[tuple[int, ...], Node] = {}
    steps = _known(links[0]).steps
    for link in links:
        lattice = _known(link)
        if lattice.begin not in dense:
            shape = tuple(
                len(range(first, extent, step))
                for first, extent, step in zip(lattice.begin, base.shape, steps, strict=True)
            )
            dense[lattice.begin] = apply("full", new[base.inputs[0]], shape=shape, dtype=base.dtype)
        places = (first // step for first, step in zip(lattice.firsts, steps, strict=True))
        part = tuple(("s", place, place + count, None) for place, count in zip(places, lattice.counts, strict=True))
        whole = dense[lattice.begin]
        dense[lattice.begin] = apply("store", whole, new[link.inputs[1]], chain=(("index", part),), mode="add")
    made = new[base]
    for begin, total in dense.items():
        apart = tuple(("s", first, None, step) for first, step in zip(begin, steps, strict=True))
        made = apply("store", made, total, chain=(("index", apart),), mode="set")
    return made
