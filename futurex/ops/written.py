"""``fused_store``: an elementwise region whose result is written through a view of an array, which is otherwise kept.

``u[1:-1, 1:-1] = f(u)`` is a region and a store: its result goes to memory of its own, and is copied from there. A pass
makes one node of both, so that a kernel can put it where it belongs at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.ops.views import Chain, store_into, view_aval
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, param
from futurex.tree.record import Cost, Sample, op


def _kernel(base: Any, *inputs: Any, graph: Graph, chain: Chain) -> Any:
    out = np.array(base, order="C")
    store_into(out, graph(*inputs)[0], (), chain, "set")
    return out


def _aval(base: Aval, *inputs: Aval, graph: Graph, chain: Chain) -> Aval:
    (out,) = graph.outs
    if list(inputs) != [each.aval for each in graph.params]:
        raise TypeError(f"fused_store: {graph!r} wants {[each.aval for each in graph.params]}, got {list(inputs)}")
    if view_aval(base, (), chain) != out.aval:
        raise ValueError(f"fused_store: {out.aval!r} is not what lies at {chain} of {base!r}")
    return Aval(base.shape, base.dtype)


def _decompose(base: Node, *inputs: Node, graph: Graph, chain: Chain) -> Node:
    return apply("store", base, *graph.inline(inputs), chain=chain, mode="set")


def _cost(base: Aval, *inputs: Aval, graph: Graph, chain: Chain) -> Cost:
    (out,) = graph.outs
    flops = sum(node.size for node in graph.nodes if node.inputs)
    return Cost(float(flops), float(sum(each.nbytes for each in inputs) + out.aval.nbytes))


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    x, y = (param(Aval((2, 3), np.dtype(float)), name) for name in "xy")
    graph = Graph([x, y], [x * y + 1.5], "region")
    chain = (("index", (("s", 1, 3, None), ("s", 1, -1, None))),)
    yield Sample((rng.normal(size=(4, 5)), *rng.normal(size=(2, 2, 3))), {"graph": graph, "chain": chain})


op("fused_store", _kernel, aval=_aval, decompose=_decompose, cost=_cost, inplace=(0,), samples=_samples)
