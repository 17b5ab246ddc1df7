"""Copies of elements, or of blocks of them, side by side: what ``np.repeat`` is, however it is written.

``np.kron(x, np.ones((2, 2)))`` multiplies by ones, ``np.broadcast_to(x[:, None, :, None], shape).reshape(...)`` is a
view with axes on which nothing moves, copied: loops over two elements each. As ``repeat_each``, axis after axis from
the last one on, elements are repeated in registers, and rows are copied. Other products of each element of a row with a
few others, as ``np.kron`` makes them, are those of rows, too, in which elements are repeated.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping

import numpy as np

from futurex.passes.rewrite import rewrite
from futurex.passes.simplify import scalar_of
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph, rebuilt
from futurex.tree.node import Node, apply

LEAST = 64 * 1024
"""Bytes of a result from which each repetition is a trip of its own."""
_LEAST_ROW = 16
"""Elements of a row, each of which is multiplied by a few, at least."""
_MOST = 16
"""Neighbours that are one element, at most: longer rows of them are copied as fast element by element."""


def repeat_elements(graph: Graph) -> Graph:
    """The graph with repetitions where reshaped arrays are what repeats elements along axes between others."""
    reshaped = {node.inputs[0] for node in graph.nodes if node.op == "reshape" and _is_large(node)}
    makers = {node: functools.partial(_made, node) for node in reshaped if _ways(node) is not None}
    return rewrite(graph, _of_reshaped, makers) if makers else graph


def _of_reshaped(node: Node) -> Node | None:
    """A reshaped array's shape is that of what it was reshaped from."""
    if node.op != "reshape" or node.inputs[0].op != "reshape" or not node.is_static:
        return None
    return apply("reshape", node.inputs[0].inputs[0], shape=node.shape)


def _made(node: Node, new: Mapping[Node, Node]) -> Node:
    """The array that a node is, of the new form of what it is made of."""
    way = _ways(rebuilt(node, [new[each] for each in node.inputs]))
    assert way is not None
    return way()


def _ways(node: Node) -> Callable[[], Node] | None:
    """How an array is made by repetitions, if it is."""
    source = _spread(node)
    if source is not None:
        return lambda: _repeated(source, node.shape)
    return functools.partial(_in_rows, node) if _multiplies_cells(node) else None


def _multiplies_cells(node: Node) -> bool:
    """Does it multiply each element of a long row by each of a few, as ``np.kron`` does?"""
    if node.op != "multiply" or not node.is_static or node.ndim < 2 or node.dtype.kind not in "fiub":
        return False
    few, many = node.shape[-1], node.shape[-2]
    if not 1 < few <= _MOST or many < _LEAST_ROW or any(each.ndim != node.ndim for each in node.inputs):
        return False
    return sorted(each.shape[-2:] for each in node.inputs) == [(1, few), (many, 1)]


def _in_rows(node: Node) -> Node:
    """The same products in rows: of elements, each repeated, and of the few, again and again."""
    rows = []
    for each in node.inputs:
        whole = (*each.shape[:-2], *node.shape[-2:])
        made = _repeated(each, whole)
        rows.append(apply("reshape", made, shape=(*whole[:-2], math.prod(whole[-2:]))))
    return apply("reshape", apply("multiply", *rows), shape=node.shape)


def _is_large(node: Node) -> bool:
    return node.is_static and isinstance(node.aval, Aval) and node.size * node.dtype.itemsize >= LEAST


def _spread(node: Node) -> Node | None:
    """What an array repeats the elements of along axes of one: a product with nothing but ones is such an array."""
    if not isinstance(node.aval, Aval) or node.dtype.hasobject:
        return None
    source: Node | None = None
    if node.op == "broadcast_to":
        (source,) = node.inputs
    elif node.op == "load" and node.attrs["chain"][-1][0] == "broadcast_to" and len(node.inputs) == 1:
        first = node.attrs["chain"][:-1]
        source = apply("load", *node.inputs, chain=first) if first else node.inputs[0]
    elif node.op == "multiply" and node.dtype.kind in "fiub":
        source = next((each for k, each in enumerate(node.inputs) if _are_ones(node.inputs[1 - k])), None)
    if source is None or not isinstance(source.aval, Aval) or source.aval.weak or source.ndim != node.ndim:
        return None
    axes = [k for k, extent in enumerate(node.shape) if source.shape[k] != extent]
    if not axes or (axes[-1] == node.ndim - 1 and node.shape[-1] > _MOST) or not node.size:
        return None
    if all(math.prod(source.shape[:axis]) == 1 for axis in axes):  # the whole behind itself
        return None
    return source if source.dtype == node.dtype else apply("cast", source, dtype=node.dtype)


def _are_ones(node: Node) -> bool:
    held = scalar_of(node)
    if held is None and node.op == "const" and isinstance(node.value, np.ndarray) and 0 < node.size <= _MOST**2:
        held = node.value.flat[0] if (node.value == node.value.flat[0]).all() else None
    return held is not None and isinstance(node.aval, Aval) and not node.aval.weak and held == 1


def _repeated(source: Node, whole: tuple[int, ...]) -> Node:
    """The elements of a source in an array of the ``whole`` shape."""
    made, behind = source, 1
    for axis in reversed(range(len(whole))):
        if source.shape[axis] != whole[axis]:
            blocks = apply("reshape", made, shape=(math.prod(source.shape[:axis]), behind))
            made = apply("repeat_each", blocks, times=whole[axis], axis=0)
        behind *= whole[axis]
    return apply("reshape", made, shape=whole)
