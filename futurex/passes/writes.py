"""Regions and products whose one result is stored through a view become one node with the store: the result is written
where it belongs, instead of to memory of its own and from there. So do products whose axes come in another order, and
are made one; and what is added to a view is added by a kernel."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from futurex.ops.fusion import loop_of
from futurex.ops.strides import LEAST_ROW, lies_in_rows, rows_together, undone
from futurex.ops.views import Chain, around, view
from futurex.passes.assemble import product_of
from futurex.passes.fuse import LARGE_ELEMENTS
from futurex.passes.rewrite import rewrite, users_of
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, param

_MOST_AXES = 4
_LEAST_ROW = 16
"""Elements of a row of the view below which NumPy copies a product there."""


def write_through(graph: Graph) -> Graph:
    """The graph with ``fused_store`` in the place of large regions that only a store reads, and that store, and of
    stores that add, and with ``matmul_store`` in that of such products."""
    users = users_of(graph)
    makers = {}
    for node in graph.nodes:
        if node.op == "store" and node.attrs["mode"] == "add":
            if _adds(node):
                makers[node] = functools.partial(_added, node)
        elif node.op == "store" and users[node.inputs[1]] == [node] and node.inputs[1] not in graph.outs:
            if _suits(node):
                makers[node] = functools.partial(_joined, node)
            elif _stores_product(node, users, graph):
                makers[node] = functools.partial(_multiplied, node, node.inputs[0], node.attrs["chain"])
        elif node.op == "reshape" and _merges_heads(node, users, graph):
            room = apply("room", shape=node.shape, dtype=node.dtype, number=-len(makers) - 1)
            makers[node] = functools.partial(_multiplied, node, room, (("reshape", node.inputs[0].shape),))
    return rewrite(graph, lambda node: None, makers) if makers else graph


def _suits(store: Node) -> bool:
    """Does it set all of a view of dense, long rows to what a region of its shape and dtype computes?"""
    return store.attrs["mode"] == "set" and store.inputs[1].op == "fused" and _fills_rows(store, store.inputs[1].inputs)


def _adds(store: Node) -> bool:
    """Does it add an array to a view of such rows, as derivatives of slices do?"""
    value = store.inputs[1]
    return _fills_rows(store, (value,)) and loop_of(apply("add", value, value)) is not None


def _fills_rows(store: Node, read: Sequence[Node]) -> bool:
    """Is all of a view set whose rows are dense and long, alone or, where what is ``read`` allows that, together?"""
    base, value = store.inputs[:2]
    if len(store.inputs) != 2 or not store.is_static or not isinstance(value.aval, Aval) or value.aval.weak:
        return False
    if value.size < LARGE_ELEMENTS or value.dtype != base.dtype:
        return False
    if base.ndim > _MOST_AXES or around(base.shape, store.attrs["chain"]) is None:
        return False
    target = view(np.empty(base.shape, base.dtype), store.attrs["chain"], ())
    rows = target.flags.c_contiguous or (target.shape[-1:] >= (LEAST_ROW,) and lies_in_rows(target))
    return target.shape == value.shape and (rows or _lies_together(target, read))


def _lies_together(target: np.ndarray, read: Sequence[Node]) -> bool:
    """Are short rows of a view long ones together, along which all that is read moves, or nothing?"""
    found = rows_together(target)
    if found is None:
        return False
    last = len(found.axes) + 1
    moves = ({axis <= each.ndim and each.shape[-axis] > 1 for axis in range(1, last + 1)} for each in read)
    return all(len(each) == 1 for each in moves)


def _joined(store: Node, new: Mapping[Node, Node]) -> Node:
    base, value = store.inputs
    inputs = (new[each] for each in (base, *value.inputs))
    return apply("fused_store", *inputs, graph=value.attrs["graph"], chain=store.attrs["chain"])


def _added(store: Node, new: Mapping[Node, Node]) -> Node:
    """The sum of what stands there and the value is written where that stands."""
    chain, (base, value) = store.attrs["chain"], (new[each] for each in store.inputs)
    own = param(value.aval, "own"), param(value.aval, "value")
    graph = Graph(own, [apply("add", *own)], "add")
    return apply("fused_store", base, apply("load", base, chain=chain), value, graph=graph, chain=chain)


def _stores_product(store: Node, users: Mapping[Node, list[Node]], graph: Graph) -> bool:
    """Does it set all of a view of dense rows to a product that nobody else reads, its axes in any order?"""
    base, value = store.inputs[:2]
    if store.attrs["mode"] != "set" or len(store.inputs) != 2 or not store.is_static or value.dtype != base.dtype:
        return False
    found = view(np.empty(base.shape, base.dtype), store.attrs["chain"], ())
    return found.shape == value.shape and _is_written(value, found, users, graph)


def _merges_heads(node: Node, users: Mapping[Node, list[Node]], graph: Graph) -> bool:
    """Is it a copy of a product, whose axes come in another order, for the sake of the shape?"""
    value = node.inputs[0]
    if value.op != "transpose" or not node.is_static or users[value] != [node] or value in graph.outs:
        return False
    return _is_written(value, np.empty(node.shape, node.dtype).reshape(value.shape), users, graph)


def _is_written(value: Node, found: np.ndarray, users: Mapping[Node, list[Node]], graph: Graph) -> bool:
    """Is it a large product that nobody else reads, and whose rows lie dense where ``value`` lies as ``found`` does?"""
    product = product_of(value)
    if product is None or value.size < LARGE_ELEMENTS:
        return False
    target, inner = view(found, _turns(value), ()), value
    while inner is not product:
        inner = inner.inputs[0]
        if len(users[inner]) != 1 or inner in graph.outs:
            return False
    return target.shape[-1:] >= (_LEAST_ROW,) and lies_in_rows(target)


def _multiplied(node: Node, base: Node, chain: Chain, new: Mapping[Node, Node]) -> Node:
    value = node.inputs[-1]
    product = product_of(value)
    assert product is not None
    inputs = (new.get(each, each) for each in (base, *product.inputs))
    return apply("matmul_store", *inputs, chain=(*chain, *_turns(value)))


def _turns(value: Node) -> Chain:
    """The steps from an array with the axes of a turned product to one with the product's own."""
    chain: list[tuple[str, tuple[int, ...]]] = []
    while value.op == "transpose":
        axes = value.attrs["axes"]
        chain.append(("transpose", undone(axes)))
        value = value.inputs[0]
    return tuple(chain)
