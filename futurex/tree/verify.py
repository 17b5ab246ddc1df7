"""The verifier: what every graph must satisfy. Passes are tested by ending in it."""

from __future__ import annotations

from typing import Any

from futurex.tree.dims import Dim, Fresh, same
from futurex.tree.graph import Graph
from futurex.tree.node import Node, _known_scalar


class MalformedGraph(AssertionError):
    """A graph breaks a rule; the message names the node."""


def verify(graph: Graph) -> Graph:
    """Check closedness, order, types against every op's own rule, and all sub-graphs; returns the graph.

    Raises MalformedGraph with the offending node.
    """
    seen: set[Node] = set()
    params = set(graph.params)
    if len(params) != len(graph.params):
        raise MalformedGraph(f"{graph.name}: an input is listed twice")
    for node in graph.nodes:
        for source in node.inputs:
            if source not in seen:
                raise MalformedGraph(f"{graph.name}: {node!r} reads %{source.id} before it exists")
        if node.op == "param" and node not in params:
            raise MalformedGraph(
                f"{graph.name}: {node!r} is an input of another graph; values from outside are passed in"
            )
        seen.add(node)
        _check_aval(graph, node)
        for value in node.attrs.values():
            for inner in value if isinstance(value, tuple) else (value,):
                if isinstance(inner, Graph):
                    verify(inner)
    return graph


def _check_aval(graph: Graph, node: Node) -> None:
    if node.op in ("param", "const", "item"):
        return
    inputs = tuple(source.aval for source in node.inputs)
    inferred = node.record.infer(inputs, tuple(_known_scalar(source) for source in node.inputs), node.attrs)
    if not _fits(inferred, node.aval):
        raise MalformedGraph(f"{graph.name}: {node!r} should have abstract value {inferred!r}")


def _fits(inferred: Any, actual: Any) -> bool:
    """Equal, where the rule leaves nothing open; equal extents that it leaves open are equal symbols. What a tape holds
    has other extents from round to round: no symbol is theirs."""
    pairs = list(zip(inferred, actual, strict=True)) if isinstance(actual, tuple) else [(inferred, actual)]
    open_: dict[Fresh, Any] = {}
    for rule, aval in pairs:
        if (rule.dtype, rule.weak, len(rule.extents)) != (aval.dtype, aval.weak, len(aval.extents)):
            return False
        of_rounds = len(rule.extents) != len(rule.shape)
        for expected, extent in zip(rule.extents, aval.extents, strict=True):
            if of_rounds and isinstance(expected, Dim) and isinstance(extent, Dim):
                continue
            if not same(open_.setdefault(expected, extent) if isinstance(expected, Fresh) else expected, extent):
                return False
    return True
