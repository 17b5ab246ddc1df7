"""Indexing that can stay on tiles: one element of every row, and rows added into a table.

The general ops index anything with anything, so their own rules ask for whole arrays. Two common cases need less:
``x[np.arange(n), labels]`` takes from each row what is in that row, and the gradient of ``table[indices]`` is a sum
over the indices.
"""

from __future__ import annotations

import numpy as np

from futurex.partition.factors import Recipe, parse
from futurex.tree.dims import same
from futurex.tree.graph import Graph, rebuilt, substitute
from futurex.tree.node import Node, apply
from futurex.tree.source import at

_PAIRS = (("d", 0), ("d", 1))
_ALL = ("s", None, None, None)


def by_rows(graph: Graph) -> Graph:
    """The graph with ``x[arange(n), labels]`` and its gradient as ops along the axis of the columns."""

    def rebuild(node: Node, inputs: list[Node]) -> Node:
        made = rebuilt(node, inputs)
        if made.op not in ("gather", "scatter") or made.attrs["pattern"] != _PAIRS:
            return made
        with at(node.src):
            return _take(made) if made.op == "gather" else _add(made)

    return Graph(graph.params, substitute(graph, {node: node for node in graph.params}, rebuild), graph.name)


def _take(node: Node) -> Node:
    x, rows, columns = node.inputs
    if not _one_of_each_row(x, rows, columns):
        return node
    taken = apply("take_along_axis", x, apply("reshape", columns, shape=(x.shape[0], 1)), axis=1)
    return apply("reshape", taken, shape=(x.shape[0],))


def _add(node: Node) -> Node:
    base, value, rows, columns = node.inputs
    one_each = _one_of_each_row(base, rows, columns) and same(value.shape, rows.shape) and value.dtype == base.dtype
    if not one_each or node.attrs["mode"] != "add" or not _is_zeros(base):
        return node
    column = (base.shape[0], 1)
    value, columns = apply("reshape", value, shape=column), apply("reshape", columns, shape=column)
    return apply("add_along_axis", value, columns, input_shape=base.shape, axis=1)


def _one_of_each_row(x: Node, rows: Node, columns: Node) -> bool:
    if x.ndim != 2 or not same(rows.shape, (x.shape[0],)) or not same(columns.shape, rows.shape):
        return False
    return rows.op == "iota" or (rows.op == "const" and np.array_equal(rows.value, np.arange(x.shape[0])))


def _is_zeros(node: Node) -> bool:
    source = node.inputs[0] if node.op == "full" else node
    return source.op == "const" and not np.any(source.value)


def adds_rows(node: Node) -> Recipe | None:
    """The rule of rows that are added into a table of zeros: a sum over the indices. None for any other scatter."""
    if node.op != "scatter" or node.attrs["mode"] != "add" or len(node.inputs) != 3 or not _is_zeros(node.inputs[0]):
        return None
    table, value, rows = node.inputs
    if node.attrs["pattern"] != (("d", 0), *[_ALL] * (len(node.attrs["pattern"]) - 1)):
        return None
    if not same(value.shape, rows.shape + table.shape[1:]):
        return None
    picked = " ".join(f"p{k}" for k in range(rows.ndim))
    columns = " ".join(f"d{k}" for k in range(1, table.ndim))
    return parse(f"!t {columns}, {picked} {columns}, {picked} -> !t {columns}")
