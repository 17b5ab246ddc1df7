"""``rank_update``: ``x.T @ g``, and what elementwise operations make of it together with other matrices.

The step of an optimizer for the weights of a dense layer. A pass makes such nodes, so that a kernel needs no memory for
the gradient; over a small batch it reads the weights once, for their update and for the layer's own input gradient.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, item, param
from futurex.tree.record import Cost, Sample, op

NONE = -1
"""``back`` where no product with a matrix is wanted."""
FEW_ROWS = 16
"""Of ``x`` and ``g`` up to which the product is bound by memory: such updates have a kernel of their own."""


def _kernel(x: Any, g: Any, *others: Any, graph: Graph, back: int) -> tuple[Any, ...]:
    through = () if back == NONE else (np.matmul(g, others[back].T),)
    return (*graph(np.matmul(x.T, g), *others), *through)


def _aval(x: Aval, g: Aval, *others: Aval, graph: Graph, back: int) -> tuple[Aval, ...]:
    product = Aval((x.shape[-1], g.shape[-1]), np.result_type(x.dtype, g.dtype))
    wanted = [each.aval for each in graph.params]
    if x.ndim != 2 or g.ndim != 2 or x.shape[0] != g.shape[0]:
        raise ValueError(f"rank_update: {x!r} and {g!r} are not two matrices with equally many rows")
    if [product, *others] != wanted:
        raise TypeError(f"rank_update: {graph!r} wants {wanted}, got {[product, *others]}")
    through = () if back == NONE else (Aval(x.shape, np.result_type(g.dtype, others[back].dtype)),)
    return (*(each.aval for each in graph.outs), *through)


def _decompose(x: Node, g: Node, *others: Node, graph: Graph, back: int) -> tuple[Node, ...]:
    turned = apply("transpose", x, axes=(1, 0))
    made = apply("fused", apply("matmul", turned, g), *others, graph=graph)
    outs = [item(made, k) for k in range(len(graph.outs))] if len(graph.outs) > 1 else [made]
    if back == NONE:
        return tuple(outs)
    return (*outs, apply("matmul", g, apply("transpose", others[back], axes=(1, 0))))


def _cost(x: Aval, g: Aval, *others: Aval, graph: Graph, back: int) -> Cost:
    size = x.shape[1] * g.shape[1]
    moved = sum(each.nbytes for each in (x, g, *others)) + sum(each.aval.nbytes for each in graph.outs)
    products = 1 if back == NONE else 2
    return Cost(2.0 * products * x.shape[0] * size + float(len(graph.nodes) * size), float(moved))


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    for back in (NONE, 0):
        d, w, m = (param(Aval((5, 4), np.dtype(float)), name) for name in "dwm")
        moment = m * 0.9 + d
        graph = Graph([d, w, m], [w - moment * 0.1, moment], "update")
        x, g, held = rng.normal(size=(3, 5)), rng.normal(size=(3, 4)), rng.normal(size=(2, 5, 4))
        yield Sample((x, g, held[0], held[1]), {"graph": graph, "back": back}, order=1)


op("rank_update", _kernel, aval=_aval, decompose=_decompose, cost=_cost, samples=_samples)
