"""A matrix that several systems have is factorised once: ``solve``, ``inv`` and ``slogdet`` of it or its transpose.

A Gaussian process asks for ``solve(K, y)`` and ``slogdet(K)``, its derivative for ``solve(K.T, g)`` and ``inv(K)``:
four factorizations of one matrix. What asks for the matrix as the first of them does keeps NumPy's bits, which come of
the same functions of LAPACK; what asks for the transpose has last bits of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from futurex.ops.triangular import half_of, is_turned
from futurex.passes.rewrite import Maker, rewrite
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, item

LEAST_ROWS = 64
"""Smaller matrices have kernels that take them in stacks, and take little time."""
_ASKING = frozenset(("solve", "inv", "slogdet"))


def factorise_once(graph: Graph) -> Graph:
    """The graph with one ``lu`` for each matrix that two nodes and more ask for."""
    groups: dict[Node, list[Node]] = {}
    for node in sorted(graph.nodes, key=lambda node: node.id):
        if node.op in _ASKING and _fits(node):
            a = node.inputs[0]
            groups.setdefault(a.inputs[0] if is_turned(a) else a, []).append(node)
    makers: dict[Node, Maker] = {}
    for group in groups.values():
        if len(group) > 1:
            makers |= _makers(group)
    return rewrite(graph, lambda node: None, makers) if makers else graph


def _fits(node: Node) -> bool:
    """Is it a single matrix of a known size that is no triangle, and of such numbers as the result is?"""
    a, *sides = node.inputs
    if not all(each.is_static and each.size for each in node.inputs) or a.ndim != 2 or a.shape[0] < LEAST_ROWS:
        return False
    plain = a.dtype.char in "fdFD" and half_of(a) is None and all(side.ndim <= 2 for side in sides)
    return plain and _dtype(node).kind == a.dtype.kind


def _dtype(node: Node) -> np.dtype[Any]:
    return (node.aval[0] if isinstance(node.aval, tuple) else node.aval).dtype


def _makers(group: list[Node]) -> dict[Node, Maker]:
    """Of all that ask for one matrix."""
    first = group[0].inputs[0]
    made: list[Node] = []

    def make(node: Node, new: Mapping[Node, Node]) -> Node:
        a, *sides = node.inputs
        if not made:
            made.append(apply("lu", new[first]))
        attrs: dict[str, Any] = {"dtype": _dtype(node)}
        if node.op != "slogdet":
            attrs["turned"] = is_turned(a) != is_turned(first)
        return apply(f"lu_{node.op}", item(made[0], 0), item(made[0], 1), *(new[side] for side in sides), **attrs)

    return {node: functools.partial(make, node) for node in group}
