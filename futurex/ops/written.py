"""``fused_store``, ``matmul_store``: a region, or a product, whose result is written through a view of an array, which
is otherwise kept; and ``room``, an array of which every element will be written.

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
from futurex.tree.record import Cost, Sample, op, record


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


def _product_kernel(base: Any, x: Any, y: Any, *, chain: Chain) -> Any:
    out = np.array(base, order="C")
    store_into(out, np.matmul(x, y), (), chain, "set")
    return out


def _product_aval(base: Aval, x: Aval, y: Aval, *, chain: Chain) -> Aval:
    product = record("matmul").infer((x, y), (None, None), {})
    if view_aval(base, (), chain) != product:
        raise ValueError(f"matmul_store: {product!r} is not what lies at {chain} of {base!r}")
    return Aval(base.shape, base.dtype)


def _product_parts(base: Node, x: Node, y: Node, *, chain: Chain) -> Node:
    return apply("store", base, apply("matmul", x, y), chain=chain, mode="set")


def _product_cost(base: Aval, x: Aval, y: Aval, *, chain: Chain) -> Cost:
    return record("matmul").work((x, y), view_aval(base, (), chain), {})


def _product_samples(rng: np.random.Generator) -> Iterable[Sample]:
    heads = (("reshape", (2, 3, 2, 5)), ("transpose", (0, 2, 1, 3)))
    base, x, y = (rng.normal(size=shape) for shape in ((2, 3, 10), (2, 2, 3, 4), (2, 2, 4, 5)))
    yield Sample((base, x, y), {"chain": heads})


op(
    "matmul_store", _product_kernel, aval=_product_aval, decompose=_product_parts, cost=_product_cost, inplace=(0,),
    samples=_product_samples,
)  # fmt: skip


def _room(*, shape: tuple[int, ...], dtype: np.dtype[Any], number: int) -> Any:
    """``number`` tells apart rooms of one shape: each is written for itself."""
    return np.empty(shape, dtype)


def _room_samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield Sample((), {"shape": (0, 3), "dtype": np.dtype(np.float32), "number": 0}, order=0)


op(
    "room", _room, aval=lambda *, shape, dtype, number: Aval(shape, dtype),
    cost=lambda *, shape, dtype, number: Cost(0.0, 0.0), samples=_room_samples,
)  # fmt: skip
