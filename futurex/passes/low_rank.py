"""Updates of large matrices by products, as one ``rank_update`` node each.

``w - rate * (0.9 * m + x.T @ g)`` over a batch of eight is bound by memory: the gradient is written and read again,
and the weights are read once more for ``g @ w.T``. Over larger batches the update is made of the product's tiles. Only
single precision, in which products are not NumPy's bits anyway; where no kernel takes the node, its parts are run.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from futurex.ops.low_rank import FEW_ROWS, NONE
from futurex.passes.fuse import Regions, program_order, rebuild
from futurex.passes.rewrite import users_of
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, item
from futurex.tree.source import at

MOST_ROWS = 512
"""Of the product: from more on nobody makes it in one go. Few are joined with the input gradient, too."""
LEAST_BYTES = 1 << 20
"""Of its result: smaller ones stay in a cache."""
_LEAST_COLUMNS = 64


def join_updates(graph: Graph) -> Graph:
    """The graph with ``rank_update`` in the place of such products and the regions that read them; where there are few
    rows with the input gradient beside it."""
    if not any(is_large_product(node) for node in graph.nodes):
        return graph
    order, users = program_order(graph), users_of(graph)
    regions = Regions(order, lambda nodes: True)
    parts: dict[Node, tuple[Node, Node | None]] = {}
    for product in order:
        region = users[product][0] if is_large_product(product) and len(users[product]) == 1 else None
        if region is None or product in graph.outs or region in parts or not _updates(region, product):
            continue
        regions.merge(product, region)
        behind = _product_back(product, region, users)
        if behind is not None:
            regions.merge(behind, region)
        parts[region] = product, behind
    groups = [group for group in regions.groups(lambda node: True) if len(group) > 1]
    if not groups:
        return graph

    def make(group: list[Node], graph: Graph, users: dict[Node, list[Node]], new: dict[Node, Node]) -> None:
        region = next(node for node in group if node in parts)
        product, behind = parts[region]
        _make(region, product, behind if behind in group else None, new)

    return rebuild(graph, order, groups, make)


def is_large_product(node: Node) -> bool:
    """Is it ``x.T @ g`` of not too many rows, with a large result?"""
    if node.op != "matmul" or not node.is_static or node.ndim != 2 or node.inputs[0].op != "transpose":
        return False
    turned, g = node.inputs
    single = all(each.dtype == np.float32 for each in (node, turned, g))
    few = g.ndim == 2 and 0 < g.shape[0] <= MOST_ROWS and g.shape[1] >= _LEAST_COLUMNS
    return single and few and turned.attrs["axes"] == (1, 0) and node.aval.nbytes >= LEAST_BYTES


def _updates(region: Node, product: Node) -> bool:
    """Is it elementwise, on whole matrices of the product's shape and on numbers?"""
    if region.op != "fused" or region.inputs.count(product) != 1:
        return False
    inner = region.attrs["graph"]
    outs = all(each.shape == product.shape for each in inner.outs)
    return outs and all(each.shape == product.shape or each.size == 1 for each in inner.params)


def _product_back(product: Node, region: Node, users: Mapping[Node, list[Node]]) -> Node | None:
    """``g @ w.T`` for a matrix ``w`` that the region reads."""
    g = product.inputs[1]
    for node in users[g] if g.shape[0] <= FEW_ROWS else ():
        if node.op != "matmul" or node.inputs[0] is not g or node.dtype != np.float32:
            continue
        w = node.inputs[1]
        if w.op == "transpose" and w.attrs["axes"] == (1, 0) and w.dtype == np.float32 and w.inputs[0] in region.inputs:
            return node
    return None


def _make(region: Node, product: Node, behind: Node | None, new: dict[Node, Node]) -> None:
    inner, place = region.attrs["graph"], region.inputs.index(product)
    first = inner.params[place]
    others = [source for source in region.inputs if source is not product]
    turned = Graph([first, *(each for each in inner.params if each is not first)], inner.outs, inner.name)
    back = NONE if behind is None else others.index(behind.inputs[1].inputs[0])
    x, g = product.inputs[0].inputs[0], product.inputs[1]
    with at(region.src):
        made = apply("rank_update", new[x], new[g], *(new[each] for each in others), graph=turned, back=back)
    several = isinstance(region.aval, tuple)
    new[region] = made if several else item(made, 0)
    new[product] = made  # nobody else reads it
    if behind is not None:
        new[behind] = item(made, len(inner.outs))
