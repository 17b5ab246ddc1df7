"""What the rounds of a way back add up as products is one product behind it.

A weight's derivative in a loop is a sum over its rounds, of an outer product or of a product along the examples of a
batch: each round reads and writes the whole sum. The rounds keep the factors, and one product of them all, long in its
inner dimension, gives the sum.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from futurex.ops.views import Chain
from futurex.passes.rewrite import users_of
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply

LEAST = 256
"""Elements of a sum from which on it is looked at."""
_LONG = 8
"""Rounds of an inner loop whose product adds up as well for itself: what they keep lasts no longer than one round."""


@dataclass(frozen=True)
class Factor:
    """One side of a round's product: ``rows`` of so many columns, or, ``turned``, columns of so many rows, whatever the
    shape of the node."""

    node: Node
    rows: int
    columns: int
    turned: bool

    def of_all(self, whole: Node) -> Node:
        """The rows of all rounds, one below the other, in an array of all of them."""
        count, rows = whole.shape[0], whole.shape[0] * self.rows
        if not self.turned:
            return apply("reshape", whole, shape=(rows, self.columns))
        beside = apply("transpose", apply("reshape", whole, shape=(count, self.columns, self.rows)), axes=(1, 0, 2))
        return _turned(apply("reshape", beside, shape=(self.columns, rows)))


@dataclass(frozen=True)
class Pair:
    """The factors of a round's product: ``x.T @ y``, where both have as many rows."""

    factors: tuple[Factor, Factor]

    @property
    def kept(self) -> Sequence[Node]:
        """What of all rounds the sum is made of."""
        return [factor.node for factor in self.factors]

    def of_all(self, x: Node, y: Node) -> Node:
        """The sum over rounds, by what is kept of all of them."""
        x, y = (factor.of_all(whole) for factor, whole in zip(self.factors, (x, y), strict=True))
        return apply("matmul", _turned(x), y)


@dataclass(frozen=True)
class Total:
    """What a round adds up of a factor that is kept anyway, as the slope of a bias that is added to each row."""

    node: Node
    axes: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def kept(self) -> Sequence[Node]:
        """What of all rounds the sum is made of."""
        return [self.node]

    def of_all(self, whole: Node) -> Node:
        """The sum over rounds, by what is kept of all of them."""
        axes = (0, *(axis + 1 for axis in self.axes))
        return apply("reshape", apply("sum", whole, axis=axes, keepdims=False, dtype=None), shape=self.shape)


@dataclass(frozen=True)
class Sum:
    """What a round makes of a sum: it adds ``rest`` to it, and what one operation behind the loop gives, each to all of
    it or, by its chain, to a part of it."""

    rest: Node
    parts: list[tuple[Pair | Total, Chain | None]]

    @property
    def kept(self) -> Sequence[Node]:
        """What of all rounds it is made of."""
        return [node for part, _ in self.parts for node in part.kept]

    def total(self, begun: Node, whole_of: Callable[[Node], Node]) -> Node:
        """The sum, by what it is without these parts, and what all rounds keep by what one does."""
        for part, chain in self.parts:
            begun = _added(begun, part.of_all(*map(whole_of, part.kept)), chain)
        return begun


def _added(base: Node, value: Node, chain: Chain | None) -> Node:
    return base + value if chain is None else apply("store", base, value, chain=chain, mode="add")


def sums_of_products(carry: Sequence[Node], results: Sequence[Node], inputs: Sequence[Node]) -> dict[int, Sum]:
    """Those of what a loop carries that its rounds do nothing with but add products to, or sums of their factors, by
    their numbers."""
    graph = Graph(inputs, results, "round")
    users = users_of(graph)
    for out in results:
        users[out].append(out)
    alone = [k for k, own in enumerate(carry) if own.is_static and own.ndim and len(users.get(own, ())) == 1]
    large = [k for k in alone if carry[k].ndim == 2 and carry[k].size >= LEAST]
    found = {k: total for k in large if (total := _sum(carry[k], results[k], users, _pair)) is not None}
    kept = {node for total in found.values() for node in total.kept}
    of_kept = functools.partial(_total, kept)
    return found | {
        k: total for k in alone if k not in found and (total := _sum(carry[k], results[k], users, of_kept)) is not None
    }


def _sum(own: Node, out: Node, users: dict[Node, list[Node]], part_of: Callable[[Node], Any]) -> Sum | None:
    terms = _terms(own, out, users)
    if (own, None) not in terms:
        return None
    parts, rest = [], own
    for node, chain in reversed(terms):
        part = part_of(node) if len(users[node]) == 1 else None
        if part is not None:
            parts.append((part, chain))
        elif node is not own:
            rest = _added(rest, node, chain)
    return Sum(rest, parts) if parts else None


def _terms(own: Node, out: Node, users: dict[Node, list[Node]]) -> list[tuple[Node, Chain | None]]:
    """What is added up, the last one first, and to what part of the sum if not to all of it."""
    waiting: list[tuple[Node, Chain | None]] = [(out, None)]
    terms = []
    while waiting:
        node, chain = waiting.pop()
        alone = len(users[node]) == 1
        if alone and node.op == "add" and all(each.aval == node.aval for each in node.inputs):
            waiting += [(each, chain) for each in node.inputs]
        elif alone and chain is None and _adds_to_a_part(node) and node.aval == own.aval:
            waiting += [(node.inputs[0], None), (node.inputs[1], node.attrs["chain"])]
        else:
            terms.append((node, chain))
    return terms


def _adds_to_a_part(node: Node) -> bool:
    """Is it ``base[a:b] += value``, at a place that is known?"""
    return node.op == "store" and bool(node.attrs["mode"] == "add") and len(node.inputs) == 2


def _total(kept: Collection[Node], node: Node) -> Total | None:
    """The sum of what is kept, over some of its axes; it may be of another shape with as many elements."""
    shape, node = node.shape, _base(node)
    if node.op != "sum" or node.inputs[0] not in kept or node.attrs["dtype"] is not None:
        return None
    (source,), axis = node.inputs, node.attrs["axis"]
    if source.dtype != node.dtype:
        return None
    axes = range(source.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return Total(source, tuple(each % source.ndim for each in axes), shape)


def _pair(node: Node) -> Pair | None:
    """The factors of a product that is smaller in them than in its result."""
    if node.op != "matmul" or any(each.dtype != node.dtype or len(each.shape) != 2 for each in node.inputs):
        return None
    x, y = node.inputs
    (m, rows), n = x.shape, y.shape[1]
    if rows * (m + n) > m * n or (rows >= _LONG and any(map(_is_of_rounds, node.inputs))):
        return None
    return Pair((_factor(x, rows, m, turned=True), _factor(y, rows, n, turned=False)))


def _is_of_rounds(node: Node) -> bool:
    """Does a loop within the round make its rows, as that of a segment whose states alone are kept?"""
    while node.op in ("load", "reshape", "transpose"):
        node = node.inputs[0]
    return node.op == "item" and node.inputs[0].op in ("loop", "scan")


def _factor(node: Node, rows: int, columns: int, *, turned: bool) -> Factor:
    """``turned``: is the node columns of rows? What it is the transpose of is the other way round."""
    base = _base(node)
    if rows > 1 and base.shape == node.shape and (other := _transposed(base)) is not None:
        base, turned = _base(other), not turned
    return Factor(base, rows, columns, turned and rows > 1)


def _transposed(node: Node) -> Node | None:
    """What a matrix is the transpose of; None where it is none."""
    if node.op == "transpose":
        return node.inputs[0]
    chain: Chain = node.attrs["chain"] if node.op == "load" else ()
    return apply("load", *node.inputs, chain=chain[:-1]) if chain[1:] and chain[-1] == ("transpose", (1, 0)) else None


def _turned(node: Node) -> Node:
    """The transpose of a matrix; of a transpose what that was made of."""
    return node.inputs[0] if node.op == "transpose" and node.ndim == 2 else apply("transpose", node, axes=(1, 0))


def _base(node: Node) -> Node:
    """What has the same elements in the same order."""
    while node.op == "reshape" or (node.op == "transpose" and max(node.shape) == node.size):
        node = node.inputs[0]
    return node
