"""Reverse mode: walk a graph backwards and let every op's rule add to the cotangents of its inputs.

The method is the standard adjoint accumulation (Griewank & Walther, *Evaluating Derivatives*, 2nd ed., section 3.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.ops.elementwise import zeros_like
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, const, item, param
from futurex.tree.record import NotDifferentiable, record
from futurex.tree.source import at


def cotangents(
    outs: Sequence[Node], seeds: Sequence[Node | None], wrt: Sequence[Node], order: Sequence[Node]
) -> list[Node]:
    """The cotangents of ``wrt`` for given cotangents of ``outs``; zeros where an output does not depend on it.

    ``order`` lists the nodes with inputs before users.
    """
    needed = _depends_on(order, wrt)
    sums: dict[Node, Any] = {}
    for node, seed in zip(outs, seeds, strict=True):
        if seed is not None and node in needed:
            _accumulate(sums, node, seed)
    for node in reversed(order):
        if node not in sums or node not in needed or not node.inputs:
            continue
        with at(node.src):
            _propagate(node, sums, needed)
    return [_or_zeros(sums.get(node), node) for node in wrt]


def _or_zeros(cotangent: Any, node: Node) -> Node:
    return cotangent if cotangent is not None else zeros_like(Aval(node.aval.shape, node.aval.dtype))


def _depends_on(order: Sequence[Node], wrt: Sequence[Node]) -> set[Node]:
    """Nodes through which a derivative can flow to ``wrt``."""
    needed = set(wrt)
    for node in order:
        if node not in needed and node.op != "stop_gradient" and any(source in needed for source in node.inputs):
            needed.add(node)
    return needed


def _propagate(node: Node, sums: dict[Node, Any], needed: set[Node]) -> None:
    g = sums[node]
    if node.op == "item":
        source = node.inputs[0]
        parts = sums.setdefault(source, [None] * len(source.aval))
        index = node.attrs["index"]
        parts[index] = g if parts[index] is None else parts[index] + g
        return
    if isinstance(node.aval, Aval) and not node.aval.inexact:
        return
    for source, cotangent in zip(node.inputs, _apply_rule(node, g, needed), strict=True):
        if cotangent is not None and source in needed and _carries(source):
            _accumulate(sums, source, cotangent)


def _carries(node: Node) -> bool:
    return not isinstance(node.aval, Aval) or node.aval.inexact


def _apply_rule(node: Node, g: Any, needed: set[Node]) -> Sequence[Node | None]:
    rec = node.record
    g = tuple(g) if isinstance(g, list) else g
    if rec.vjp is not None:
        extra = {"pullback": pullback, "needed": [source in needed for source in node.inputs]} if rec.structured else {}
        cotangents_ = rec.vjp(g, node, *node.inputs, **extra, **node.attrs)
        if cotangents_ is not NotImplemented:
            return cotangents_
    if rec.decompose is not None:
        return _through_decomposition(node, g)
    if not any(source in needed and _carries(source) for source in node.inputs):
        return [None] * len(node.inputs)
    if rec.elementwise and node.op in ("sign", "floor", "ceil", "trunc", "rint", "floor_divide"):
        return [None] * len(node.inputs)  # piecewise constant: the derivative is zero almost everywhere
    where = f" at {node.src}: {node.src.text()}" if node.src else ""
    what = node.attrs["call"] if node.op == "native" else node.op
    raise NotDifferentiable(
        f"{what} has no derivative{where}; use fx.stop_gradient on its input if it should count as constant"
    )


def _through_decomposition(node: Node, g: Any) -> list[Node]:
    """The derivative of the simpler ops that the node stands for."""
    inputs = [param(source.aval) for source in node.inputs]
    result = node.record.decompose(*inputs, **node.attrs)  # type: ignore[misc]
    outs = list(result) if isinstance(result, tuple) else [result]
    seeds = list(g) if isinstance(g, tuple) else [g]
    inner = Graph(inputs, outs)
    cots = cotangents(outs, seeds, inputs, inner.nodes)
    return Graph(inputs, cots).inline(node.inputs)


def _accumulate(sums: dict[Node, Any], node: Node, cotangent: Node) -> None:
    aval = node.aval
    if cotangent.shape != aval.shape:
        raise AssertionError(f"the rule of a user of {node!r} gave a cotangent of shape {cotangent.shape}")
    if cotangent.dtype != aval.dtype or cotangent.aval.weak:
        if cotangent.dtype.kind == "c" and aval.dtype.kind != "c":
            cotangent = apply("real", cotangent)
        cotangent = apply("cast", cotangent, dtype=aval.dtype)
    sums[node] = cotangent if node not in sums else sums[node] + cotangent


def pullback(graph: Graph, wrt: Sequence[int]) -> Graph:
    """The graph ``(*inputs, *output cotangents) -> cotangents of the inputs numbered wrt``."""
    wanted = [graph.params[k] for k in wrt]
    seeds = [param(Aval(node.aval.shape, node.aval.dtype), "g") if _carries(node) else None for node in graph.outs]
    cots = cotangents(graph.outs, seeds, wanted, graph.nodes)
    return Graph([*graph.params, *(seed for seed in seeds if seed is not None)], cots, f"{graph.name}_pullback")


def grad(graph: Graph, wrt: Sequence[int]) -> Graph:
    """The gradient of a graph whose first output is a real scalar."""
    full = value_and_grad(graph, wrt)
    return Graph(full.params, full.outs[len(graph.outs) :], f"grad_{graph.name}")


def value_and_grad(graph: Graph, wrt: Sequence[int]) -> Graph:
    """All outputs of the graph, then the gradients of its first output.

    Raises TypeError if that output is not a real floating scalar.
    """
    out = graph.outs[0]
    if out.aval.shape != () or out.aval.dtype.kind != "f":
        raise TypeError(
            f"grad needs a function that returns a real scalar; {graph.name} returns {out.aval!r}. "
            "Reduce it (`.sum()`, `.mean()`)"
        )
    wanted = [graph.params[k] for k in wrt]
    seed = const(np.ones((), out.dtype)[()])
    cots = cotangents(graph.outs, [seed, *(None for _ in graph.outs[1:])], wanted, graph.nodes)
    return Graph(graph.params, [*graph.outs, *cots], f"value_and_grad_{graph.name}")


def differentiable(name: str) -> bool:
    """True if the op has a derivative rule of its own or through its decomposition."""
    rec = record(name)
    return rec.vjp is not None or rec.decompose is not None


def split(node: Node, count: int) -> list[Node]:
    """The results of a node with several results."""
    return [item(node, index) for index in range(count)]
