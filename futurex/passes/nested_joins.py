"""Joins of joins, each along a new axis beside the other's, are one join.

Windows are stacked row by row (``np.stack([np.stack([x[i : i + n, j : j + n] for j in range(3)]) for i in ...])``). Of
one join every block is written where it belongs; of these, the outer one copies what the inner ones have made.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from futurex.passes.blocks import dropped_axes
from futurex.passes.joins import MOST_BLOCKS
from futurex.passes.rewrite import Maker, rewrite, users_of
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply

LEAST = 1 << 15
"""Elements of a join; of smaller ones the calls cost as much as the copies."""


def flatten_joins(graph: Graph) -> Graph:
    """The graph with such joins as one each."""
    joins = [node for node in graph.nodes if node.op == "concatenate" and _is_large(node)]
    if not joins:
        return graph
    users, makers = users_of(graph), dict[Node, Maker]()
    for node in joins:
        inner = [_joined_in(part, node, users) for part in node.inputs]
        found = [each for each in inner if each is not None]
        if len(found) == len(inner) and sum(len(each.inputs) for each in found) <= MOST_BLOCKS:
            makers[node] = functools.partial(_flat, node, found)
    return flatten_joins(rewrite(graph, lambda node: None, makers)) if makers else graph


def _is_large(node: Node) -> bool:
    return isinstance(node.aval, Aval) and node.is_static and node.size >= LEAST


def _joined_in(part: Node, join: Node, users: Mapping[Node, list[Node]]) -> Node | None:
    """The join of which a part is the elements, in their order, with the outer join's axis in front of its own."""
    axis, inner = join.attrs["axis"], part
    while len(users[inner]) == 1 and (inner.op == "reshape" or dropped_axes(inner)):
        inner = inner.inputs[0]
    if inner.op != "concatenate" or len(users[inner]) != 1 or inner.dtype != join.dtype:
        return None
    behind = inner.shape[axis + 1 :]
    beside = inner.attrs["axis"] == axis and inner.shape[:axis] == part.shape[:axis]
    return inner if beside and part.shape[axis] == 1 and part.shape[part.ndim - len(behind) :] == behind else None


def _flat(join: Node, inner: list[Node], new: Mapping[Node, Node]) -> Node:
    parts = [new[part] for each in inner for part in each.inputs]
    return apply("reshape", apply("concatenate", *parts, axis=join.attrs["axis"]), shape=join.shape)
