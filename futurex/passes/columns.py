"""Arrays of a few columns in another order (the colours of a picture backwards, ``image[:, :, ::-1]``, or as a list
names them, ``image[:, :, [2, 1, 0]]``) are put together of columns, which regions read with steps: NumPy begins a loop
for each of the short rows."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from futurex.ops.fusion import is_generated, loop_of
from futurex.ops.strides import goes_on, is_scattered, lies_in_short_rows, step_of, turned_along
from futurex.passes.blocks import MOST_COLUMNS, Place, view_of
from futurex.passes.joins import LEAST_COLUMNS
from futurex.passes.rewrite import rewrite, users_of
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply


def order_columns(graph: Graph) -> Graph:
    """The graph with large arrays of the kind as concatenations of columns, where operations on elements read them, or
    a list names the columns."""
    users, outs = users_of(graph), set(graph.outs)
    makers = {}
    for node in graph.nodes:
        places = _picked(node)
        if places is None and node.op == "load" and node not in outs and _is_read(node, users[node]):
            places = list(range(node.shape[-1])) if read_by_columns(node) else None
        if places is not None:
            makers[node] = functools.partial(_joined, node, places)
    return rewrite(graph, lambda node: None, makers) if makers else graph


def column(view: Node, place: int) -> Node:
    """One column of an array, without its axis."""
    return view_of(view, (*_rows(view), place))


def read_by_columns(view: Node) -> bool:
    """Is it a view in short rows that does not go on from row to row, but has columns that a region reads?"""
    if len(view.inputs) != 1 or view.ndim < 2 or not 1 < view.shape[-1] <= MOST_COLUMNS or goes_on(view):
        return False
    return all(step_of(column(view, k)) is not None for k in range(view.shape[-1]))


def _is_large(node: Node) -> bool:
    known = isinstance(node.aval, Aval) and node.is_static and not node.aval.weak
    return known and node.size >= LEAST_COLUMNS and node.ndim > 1 and is_generated(node.dtype)


def _is_read(view: Node, users: Sequence[Node]) -> bool:
    """Do operations on elements alone read it, which could not read it as it lies?"""
    if not users or not _is_large(view) or not is_scattered(view):
        return False
    if step_of(view) is not None or turned_along(view) is not None or lies_in_short_rows(view):
        return False
    return all(user.record.elementwise and user.is_static and loop_of(user) is not None for user in users)


def _picked(node: Node) -> list[int] | None:
    """The columns of a large array that a list names, which the tree knows; None for other nodes."""
    if node.op != "gather" or len(node.inputs) != 2 or not _is_large(node):
        return None
    x, index = node.inputs
    *rows, last = node.attrs["pattern"]
    if index.op != "const" or index.ndim != 1 or last != ("d", 0) or len(rows) != x.ndim - 1 or not x.is_static:
        return None
    if any(entry != ("s", None, None, None) for entry in rows) or not 1 < node.shape[-1] <= MOST_COLUMNS:
        return None
    extent = x.shape[-1]
    if index.dtype.kind not in "iu" or not all(-extent <= place < extent for place in index.value):
        return None
    found = [int(place) % extent for place in index.value]
    return found if all(step_of(column(x, k)) is not None for k in found) else None


def _rows(view: Node) -> Place:
    return tuple((0, extent) for extent in view.shape[:-1])


def _joined(node: Node, places: Sequence[int], new: Mapping[Node, Node]) -> Node:
    """The columns at these places, of a view itself or of what is picked from, side by side."""
    source = new[node.inputs[0]]
    if node.op == "load":
        source = apply("load", source, **node.attrs)
    columns = [view_of(source, (*_rows(source), (place, place + 1))) for place in places]
    return apply("concatenate", *columns, axis=node.ndim - 1)
