"""What the rounds of a way back add up as products is one product behind it.

A weight's derivative in a loop is a sum over its rounds, of an outer product or of a product along the examples of a
batch: each round reads and writes the whole sum. The rounds keep the factors, and one product of them all, long in its
inner dimension, gives the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from futurex.passes.rewrite import users_of
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply

LEAST = 256
"""Elements of a sum from which on it is looked at."""


@dataclass(frozen=True)
class Pair:
    """The factors of a round's product: ``x.T @ y``, where both have so many rows."""

    factors: tuple[Node, Node]  # in the same order of elements, of whatever shape
    rows: int
    shape: tuple[int, int]

    def of_all(self, x: Node, y: Node) -> Node:
        """The sum over rounds, of the factors of all of them."""
        rows = x.shape[0] * self.rows
        x, y = (apply("reshape", each, shape=(rows, n)) for each, n in zip((x, y), self.shape, strict=True))
        return apply("matmul", apply("transpose", x, axes=(1, 0)), y)


@dataclass(frozen=True)
class Sum:
    """What a round makes of a sum: it adds ``rest`` to it, and products."""

    rest: Node
    pairs: list[Pair]

    def total(self, begun: Node, whole_of: Callable[[Node], Node]) -> Node:
        """The sum, by what it is without the products, and the factors of all rounds by those of one."""
        for pair in self.pairs:
            begun = begun + pair.of_all(*map(whole_of, pair.factors))
        return begun


def sums_of_products(carry: Sequence[Node], results: Sequence[Node], inputs: Sequence[Node]) -> dict[int, Sum]:
    """Those of what a loop carries that its rounds do nothing with but add products to, by their numbers."""
    graph = Graph(inputs, results, "round")
    users = users_of(graph)
    for out in results:
        users[out].append(out)
    found = {}
    for k, own in enumerate(carry):
        if len(own.shape) == 2 and own.is_static and own.size >= LEAST and len(users.get(own, ())) == 1:
            total = _sum(own, results[k], users)
            if total is not None:
                found[k] = total
    return found


def _sum(own: Node, out: Node, users: dict[Node, list[Node]]) -> Sum | None:
    waiting, terms = [out], []
    while waiting:
        node = waiting.pop()
        if node.op == "add" and len(users[node]) == 1 and all(each.aval == own.aval for each in node.inputs):
            waiting += node.inputs
        else:
            terms.append(node)
    if own not in terms:
        return None
    pairs, rest = [], own
    for node in reversed(terms):
        pair = _pair(node) if len(users[node]) == 1 else None
        if pair is not None:
            pairs.append(pair)
        elif node is not own:
            rest = rest + node
    return Sum(rest, pairs) if pairs else None


def _pair(node: Node) -> Pair | None:
    """The factors of a product that is smaller in them than in its result."""
    if node.op != "matmul" or any(each.dtype != node.dtype or len(each.shape) != 2 for each in node.inputs):
        return None
    x, y = node.inputs
    (m, rows), n = x.shape, y.shape[1]
    if rows * (m + n) > m * n:
        return None
    if x.op == "transpose":
        x = x.inputs[0]
    elif rows > 1:
        return None
    return Pair((_base(x), _base(y)), rows, (m, n))


def _base(node: Node) -> Node:
    """What has the same elements in the same order."""
    while node.op == "reshape" or (node.op == "transpose" and max(node.shape) == node.size):
        node = node.inputs[0]
    return node
