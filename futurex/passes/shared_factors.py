"""A matrix is factorised once for all who ask: ``solve``, ``inv`` and ``slogdet`` of it or its transpose, and values
(eigenvalues, singular ones) beside their vectors.

A Gaussian process asks for ``solve(K, y)`` and ``slogdet(K)``, its derivative for ``solve(K.T, g)`` and ``inv(K)``:
four factorizations of one matrix. What asks for the matrix as the first of them does keeps NumPy's bits, which come of
the same functions of LAPACK; what asks for the transpose has last bits of its own, as values that come with vectors.
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
LEAST_VALUES = 32
"""Rows and columns from which values are taken from where vectors are: of smaller ones they take some 20 µs."""
_VALUES = {"eigvalsh": ("eigh", "UPLO", 0), "svdvals": ("svd", "hermitian", 1)}
"""Values alone, who has vectors beside them, what both have to be told alike, and which of its results they are."""


def factorise_once(graph: Graph) -> Graph:
    """The graph with one ``lu`` for each matrix that two nodes and more ask for, and no values beside vectors."""
    groups: dict[Node, list[Node]] = {}
    for node in sorted(graph.nodes, key=lambda node: node.id):
        if node.op in _ASKING and _fits(node):
            a = node.inputs[0]
            groups.setdefault(a.inputs[0] if is_turned(a) else a, []).append(node)
    makers: dict[Node, Maker] = {}
    for group in groups.values():
        if len(group) > 1:
            makers |= _makers(group)
    makers |= _of_vectors(graph)
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


class _Once:
    """A node that the first one makes who asks for it."""

    def __init__(self, make: Maker) -> None:
        self._make = make
        self._made: Node | None = None

    def __call__(self, new: Mapping[Node, Node]) -> Node:
        if self._made is None:
            self._made = self._make(new)
        return self._made


def _makers(group: list[Node]) -> dict[Node, Maker]:
    """Of all that ask for one matrix."""
    first = group[0].inputs[0]
    factors = _Once(lambda new: apply("lu", new[first]))

    def make(node: Node, new: Mapping[Node, Node]) -> Node:
        a, *sides = node.inputs
        lu = factors(new)
        attrs: dict[str, Any] = {"dtype": _dtype(node)}
        if node.op != "slogdet":
            attrs["turned"] = is_turned(a) != is_turned(first)
        return apply(f"lu_{node.op}", item(lu, 0), item(lu, 1), *(new[side] for side in sides), **attrs)

    return {node: functools.partial(make, node) for node in group}


def _of_vectors(graph: Graph) -> dict[Node, Maker]:
    """Of values that are asked for beside their vectors, and of these, which come first then."""
    makers: dict[Node, Maker] = {}
    for node in graph.nodes:
        vectors, told, place = _VALUES.get(node.op, ("", "", 0))
        a = node.inputs[0] if vectors else node
        if not vectors or not a.is_static or min(a.shape[-2:]) < LEAST_VALUES:
            continue
        for whole in graph.nodes:
            if whole.op == vectors and whole.inputs[0] is a and whole.attrs[told] == node.attrs[told]:
                made = makers.setdefault(whole, _Once(functools.partial(_again, whole)))
                makers[node] = functools.partial(_part, made, place)
                break
    return makers


def _again(node: Node, new: Mapping[Node, Node]) -> Node:
    return apply(node.op, *(new[source] for source in node.inputs), **node.attrs)


def _part(made: Maker, place: int, new: Mapping[Node, Node]) -> Node:
    return item(made(new), place)
