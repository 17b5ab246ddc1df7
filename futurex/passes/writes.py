"""Regions whose one result is stored through a view become one node with the store: the result is written where it
belongs, instead of to memory of its own and from there."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from futurex.ops.strides import lies_in_rows
from futurex.ops.views import around, view
from futurex.passes.fuse import ALONE_ELEMENTS
from futurex.passes.rewrite import rewrite, users_of
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply

_MOST_AXES = 4
_LEAST_ROW = 16
"""Elements of a row of the view below which NumPy copies it there."""


def write_through(graph: Graph) -> Graph:
    """The graph with ``fused_store`` in the place of large regions that only a store reads, and that store."""
    stores = [node for node in graph.nodes if node.op == "store"]
    if not stores:
        return graph
    users = users_of(graph)
    makers = {
        node: functools.partial(_joined, node)
        for node in stores
        if node.inputs[1] not in graph.outs and len(users[node.inputs[1]]) == 1 and _suits(node)
    }
    return rewrite(graph, lambda node: None, makers) if makers else graph


def _suits(store: Node) -> bool:
    """Does it set all of a view of dense, long rows to what a region of its shape and dtype computes?"""
    base, value = store.inputs[:2]
    if store.attrs["mode"] != "set" or len(store.inputs) != 2 or value.op != "fused" or not store.is_static:
        return False
    if not isinstance(value.aval, Aval) or value.size < ALONE_ELEMENTS or value.dtype != base.dtype:
        return False
    if base.ndim > _MOST_AXES or around(base.shape, store.attrs["chain"]) is None:
        return False
    target = view(np.empty(base.shape, base.dtype), store.attrs["chain"], ())
    rows = target.flags.c_contiguous or (target.shape[-1:] >= (_LEAST_ROW,) and lies_in_rows(target))
    return target.shape == value.shape and rows


def _joined(store: Node, new: Mapping[Node, Node]) -> Node:
    base, value = store.inputs
    inputs = (new[each] for each in (base, *value.inputs))
    return apply("fused_store", *inputs, graph=value.attrs["graph"], chain=store.attrs["chain"])
