"""``row_products``: x @ w, what elementwise operations make of it row by row, and the product of that with x again.

The form of generalised linear models and of power iterations. A pass makes such nodes, so that a kernel reads the
matrix once for both products.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, param
from futurex.tree.record import Cost, Sample, op


def _kernel(x: Any, w: Any, *others: Any, graph: Graph) -> tuple[Any, ...]:
    z = np.matmul(x, w).reshape(graph.params[0].shape)
    outs = graph(z, *others)
    return (np.matmul(x.T, outs[0].reshape(-1)), z, *outs)


def _aval(x: Aval, w: Aval, *others: Aval, graph: Graph) -> tuple[Aval, ...]:
    own = graph.params[0].aval
    if x.ndim != 2 or w.shape != x.shape[1:] or own.size != x.shape[0] or graph.outs[0].aval.size != x.shape[0]:
        raise ValueError(f"row_products: {graph!r} does not fit a matrix {x!r} and a vector {w!r}")
    if others != tuple(each.aval for each in graph.params[1:]):
        raise TypeError(f"row_products: {graph!r} wants {[each.aval for each in graph.params[1:]]}, got {list(others)}")
    return (Aval(w.shape, np.result_type(x.dtype, graph.outs[0].dtype)), own, *(each.aval for each in graph.outs))


def _decompose(x: Node, w: Node, *others: Node, graph: Graph) -> tuple[Node, ...]:
    z = apply("reshape", apply("matmul", x, w), shape=graph.params[0].shape)
    outs = graph.inline([z, *others])
    flat = apply("reshape", outs[0], shape=(x.shape[0],))
    return (apply("matmul", apply("transpose", x, axes=(1, 0)), flat), z, *outs)


def _cost(x: Aval, w: Aval, *others: Aval, graph: Graph) -> Cost:
    vectors = sum(each.nbytes for each in others) + sum(each.aval.nbytes for each in graph.outs)
    return Cost(4.0 * x.size + 10.0 * len(graph.nodes) * x.shape[0], x.nbytes + vectors)


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape in ((5,), (5, 1)):
        z, y = (param(Aval(shape, np.dtype(float)), name) for name in "zy")
        residual = apply("tanh", z) - y
        graph = Graph([z, y], [residual, residual * z], "residual")
        yield Sample((rng.normal(size=(5, 3)), rng.normal(size=3), rng.normal(size=shape)), {"graph": graph}, order=1)


op(
    "row_products", _kernel, aval=_aval, decompose=_decompose, cost=_cost, samples=_samples,
)  # fmt: skip
