"""Forward mode: a graph whose nodes carry tangents beside their values.

What an op does to tangents comes from its ``jvp`` rule or, where it has none, from its ``vjp`` rule: that is linear in
the cotangent, and its transpose is the tangent map (Radul et al., *You only linearize once*, POPL 2023, turn the same
relation round).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from futurex.autodiff.reverse import fitted, pullback, rule_of, shown_to, stand_ins
from futurex.ops.elementwise import zeros_like
from futurex.ops.tapes import plain, zeros_for
from futurex.tree.activity import active_outs, carries, influenced
from futurex.tree.dims import Symbol
from futurex.tree.graph import Graph, rebuilt
from futurex.tree.node import Node, Place, dimensions_of, item, param
from futurex.tree.record import NotDifferentiable, plain_attrs, without_sizes
from futurex.tree.source import at

Tangents = Sequence[Node | None]


def jvp(
    graph: Graph, wrt: Sequence[int], of: Sequence[int] | None = None,
    known: Mapping[Symbol, Place] = MappingProxyType({}),
) -> Graph:  # fmt: skip
    """The graph ``(*inputs, *tangents of those numbered wrt) -> (*outputs, *tangents of those numbered of)``.

    ``of`` is by default every output that can have a derivative; those that do not depend on ``wrt`` get zeros.
    ``known`` says which inputs are extents.
    """
    if of is None:
        of = [k for k, node in enumerate(graph.outs) if carries(node)]
    seeds = {graph.params[k]: param(plain(graph.params[k].aval), "t") for k in wrt}
    with dimensions_of(graph.nodes, known):
        walk = _Walk(graph, dict(seeds))
        outs = [walk.value(node) for node in graph.outs]
        moved = [zeros_for(outs[k]) if (t := walk.tangent(graph.outs[k])) is None else t for k in of]
    return Graph([*graph.params, *seeds.values()], [*outs, *moved], f"{graph.name}_jvp")


class _Walk:
    """Values and tangents of all nodes of a graph; those of an op with several results are tuples."""

    def __init__(self, graph: Graph, seeds: dict[Node, Any]) -> None:
        self._values: dict[Node, Any] = {}
        self._tangents: dict[Node, Any] = seeds
        self._moving = influenced(graph.nodes, list(seeds))
        for node in graph.nodes:
            with at(node.src):
                self._visit(node)

    def value(self, node: Node) -> Node:
        return self._values[node]

    def tangent(self, node: Node) -> Node | None:
        return self._tangents.get(node)

    def _visit(self, node: Node) -> None:
        if node.op == "item":
            self._take(node)
            return
        inputs = [self._values[source] for source in node.inputs]
        tangents = [self._tangents.get(source) for source in node.inputs]
        if node not in self._moving or not any(t is not None for t in tangents):
            self._values[node] = rebuilt(node, inputs) if node.inputs else node
            return
        if node.record.structured and node.record.jvp is not None:
            self._values[node], moved = node.record.jvp(tangents, node, *inputs, **node.attrs, jvp=jvp)
        else:
            self._values[node] = rebuilt(node, inputs)
            moved = pushed(self._values[node], tangents)
        if isinstance(node.aval, tuple):
            self._tangents[node] = [
                None if t is None else fitted(t, aval) for t, aval in zip(moved, node.aval, strict=True)
            ]
        elif moved is not None:
            self._tangents[node] = fitted(moved, node.aval)

    def _take(self, node: Node) -> None:
        source, index = node.inputs[0], node.attrs["index"]
        whole = self._values[source]
        self._values[node] = whole[index] if isinstance(whole, list) else item(whole, index)
        moved = self._tangents.get(source)
        if moved is not None and moved[index] is not None:
            self._tangents[node] = moved[index]


def pushed(node: Node, tangents: Tangents) -> Any:
    """The tangent of a node (a tuple for several results) from those of its inputs."""
    rec = node.record
    if rec.jvp is not None:
        inputs = without_sizes(node.inputs, node.attrs)
        moved = rec.jvp(tangents[: len(inputs)], node, *inputs, **plain_attrs(node.attrs))
        if moved is not NotImplemented:
            return moved
    if rec.vjp is None and rec.decompose is not None:
        return _through_decomposition(node, tangents)
    return _transposed(node, tangents)


def _through_decomposition(node: Node, tangents: Tangents) -> Any:
    own, params, outer = stand_ins(node)
    sizes = shown_to(own, params, outer)
    with dimensions_of(own, sizes):
        given = without_sizes(own, node.attrs)
        result = node.record.decompose(*given, **plain_attrs(node.attrs))  # type: ignore[misc]
    inner = Graph(params, result if isinstance(result, tuple) else [result])
    wrt = [params.index(own[k]) for k, t in enumerate(tangents) if t is not None]
    of = [k for k, is_active in enumerate(active_outs(inner, wrt)) if is_active]
    moved = jvp(inner, wrt, of, sizes).inline([*outer, *(t for t in tangents if t is not None)])[len(inner.outs) :]
    return _results(node, dict(zip(of, moved, strict=True)))


def _transposed(node: Node, tangents: Tangents) -> Any:
    """The vjp rule pulled back with respect to its cotangents. It is linear in them: their values do not matter."""
    rule = rule_of(node, [k for k, t in enumerate(tangents) if t is not None])
    if not rule.wrt:
        return _results(node, {})
    first = len(rule.outer)
    back = pullback(rule.graph, range(first, first + len(rule.seeds)), known=rule.sizes)
    if _reach(rule.seeds, back):
        name = node.attrs["graph"].name if node.op == "custom_vjp" else node.op
        where = f" at {node.src}: {node.src.text()}" if node.src else ""
        raise NotDifferentiable(
            f"the derivative of {name}{where} is not linear in its cotangent; reverse mode can use it, forward mode "
            "is not defined by it"
        )
    blank = [zeros_like(seed.aval) for seed in rule.seeds]
    given = [t for k in rule.wrt if (t := tangents[k]) is not None]
    return _results(node, dict(zip(rule.of, back.inline([*rule.outer, *blank, *given]), strict=True)))


def _reach(seeds: Sequence[Node], graph: Graph) -> bool:
    """Does any output depend on the values, not only on the extents, of the seeds?"""
    reached = set(seeds)
    for node in graph.nodes:
        if node.op != "dim" and any(source in reached for source in node.inputs):
            reached.add(node)
    return any(node in reached for node in graph.outs)


def _results(node: Node, found: dict[int, Node]) -> Any:
    return tuple(found.get(k) for k in range(len(node.aval))) if isinstance(node.aval, tuple) else found.get(0)
