"""Two products with the same large matrix, joined by elementwise operations on its rows, as one ``row_products`` node.

``g = x.T @ f(x @ w)`` reads x twice; a matrix that no cache holds comes from memory twice. The products are added up in
an order of their own; where no kernel takes the node, it costs what the two products did, and has NumPy's bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from futurex.ops import rows as _records  # noqa: F401  (registers what this pass makes)
from futurex.ops.fusion import real_loop_of
from futurex.passes.fuse import MOST_NODES, program_order, rebuild
from futurex.passes.rewrite import users_of
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph, rebuilt
from futurex.tree.node import Node, apply, item, param
from futurex.tree.source import at

LEAST_BYTES = 6 << 20
"""Of a matrix that is worth it: smaller ones stay in the caches of two processors between the two products, of which
BLAS makes both in less time then."""
LEAST_COLUMNS, MOST_COLUMNS = 16, 1 << 16
_DTYPES = np.dtype("f4"), np.dtype("f8")


@dataclass(frozen=True)
class _Match:
    """``last`` is ``x.T @ region(x @ w)``; ``reshapes`` lie between the region's first result and it."""

    product: Node
    region: tuple[Node, ...]
    residual: Node
    reshapes: tuple[Node, ...]
    last: Node

    @property
    def members(self) -> list[Node]:
        return [self.product, *self.region, *self.reshapes, self.last]


def join_row_products(graph: Graph) -> Graph:
    """The graph with ``row_products`` in the place of pairs of products with one matrix."""
    if not any(_multiplies(node) for node in graph.nodes):
        return graph
    order, users = program_order(graph), users_of(graph)
    matches: list[_Match] = []
    taken: set[Node] = set()
    for node in order:
        match = _match(node, order, users) if _multiplies(node) else None
        if match is not None and taken.isdisjoint(match.members):
            matches.append(match)
            taken.update(match.members)
    if not matches:
        return graph
    place = {node: k for k, node in enumerate(order)}
    groups = {tuple(sorted(match.members, key=place.__getitem__)): match for match in matches}

    def make(group: Sequence[Node], graph: Graph, users: Mapping[Node, list[Node]], new: dict[Node, Node]) -> None:
        _make(groups[tuple(group)], graph, users, new)

    return rebuild(graph, order, [list(group) for group in groups], make)


def _multiplies(node: Node) -> bool:
    """Is it a large matrix times a vector, or times a single column?"""
    if node.op != "matmul" or not node.is_static or node.dtype not in _DTYPES:
        return False
    x, w = node.inputs
    if x.dtype != w.dtype or x.ndim != 2 or w.shape not in (x.shape[1:], (x.shape[1], 1)):
        return False
    large = x.aval.nbytes >= LEAST_BYTES and LEAST_COLUMNS <= x.shape[1] <= MOST_COLUMNS
    return large and x.op != "transpose" and x.shape[0] > 1


def _match(product: Node, order: Sequence[Node], users: Mapping[Node, list[Node]]) -> _Match | None:
    region = _region(product, order)
    inside = set(region)
    x = product.inputs[0]
    turned = [each for each in users[x] if each.op == "transpose" and each.attrs["axes"] == (1, 0)]
    for last in [user for source in (x, *turned) for user in users[source]]:
        residual, reshapes = _factor(last, x)
        if residual in inside and residual.dtype == last.dtype == product.dtype:
            assert residual is not None
            return _Match(product, region, residual, reshapes, last)
    return None


def _factor(last: Node, x: Node) -> tuple[Node | None, tuple[Node, ...]]:
    """The vector r of ``x.T @ r`` or ``r @ x``, without reshapes around it, and those."""
    if last.op != "matmul":
        return None, ()
    first, second = last.inputs
    if first.op == "transpose" and first.inputs[0] is x and first.attrs["axes"] == (1, 0):
        vector, fits = second, second.shape in ((x.shape[0],), (x.shape[0], 1))
    else:
        vector, fits = first, second is x and first.shape in ((x.shape[0],), (1, x.shape[0]))
    reshapes: list[Node] = []
    while fits and vector.op == "reshape":
        reshapes.append(vector)
        vector = vector.inputs[0]
    return (vector, tuple(reversed(reshapes))) if fits else (None, ())


def _region(product: Node, order: Sequence[Node]) -> tuple[Node, ...]:
    """Elementwise operations on the rows that depend on the product by each other alone."""
    behind, region = {product}, dict.fromkeys([product])
    for node in order:
        read = [source for source in node.inputs if source in behind]
        if not read:
            continue
        behind.add(node)
        fits = isinstance(node.aval, Aval) and node.shape == product.shape and real_loop_of(node) is not None
        if fits and len(region) <= MOST_NODES and all(source in region for source in read):
            region[node] = None
    return tuple(region)[1:]


def _make(match: _Match, graph: Graph, users: Mapping[Node, list[Node]], new: dict[Node, Node]) -> None:
    members, region = set(match.members), set(match.region)
    results = set(graph.outs)
    outs = [
        node for node in match.region
        if node is not match.residual and (node in results or any(user not in members for user in users[node]))
    ]  # fmt: skip
    outs.insert(0, match.residual)
    x, w = match.product.inputs
    inner = {match.product: param(match.product.aval, "a0")}
    inputs: list[Node] = []
    for source in dict.fromkeys(source for node in match.region for source in node.inputs):
        if source in region or source is match.product:
            continue
        if source.op == "const" and source.shape == ():
            inner[source] = source
            continue
        inputs.append(new[source])
        inner[source] = param(source.aval, f"a{len(inputs)}")
    params = [node for node in inner.values() if node.op == "param"]
    for node in match.region:
        inner[node] = rebuilt(node, [inner[source] for source in node.inputs])
    rows = Graph(params, [inner[node] for node in outs], "_".join(dict.fromkeys(node.op for node in match.region)))
    with at(match.product.src):
        column = new[w] if w.ndim == 1 else apply("reshape", new[w], shape=(w.shape[0],))
        made = apply("row_products", new[x], column, *inputs, graph=rows)
        gradient = item(made, 0)
        whole = match.last.shape
        new[match.last] = gradient if whole == gradient.shape else apply("reshape", gradient, shape=whole)
        new[match.product] = item(made, 1)
        for k, node in enumerate(outs):
            new[node] = item(made, 2 + k)
        for node in match.reshapes:
            new[node] = rebuilt(node, [new[node.inputs[0]]])
