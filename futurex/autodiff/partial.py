"""Partial evaluation: cut a graph into what can be computed now and what waits for inputs that come later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from futurex.autodiff.silence import silent
from futurex.ops.tapes import Tape
from futurex.tree.graph import Graph
from futurex.tree.node import Node, param


@dataclass(frozen=True)
class Halves:
    """``early`` gives the first outputs and the residuals; ``late`` takes residuals and late inputs, gives the rest."""

    early: Graph
    late: Graph


def split(graph: Graph, late: Sequence[int], n_early: int) -> Halves:
    """Cut a graph whose inputs numbered ``late`` come later, and whose first ``n_early`` outputs do not read them.

    Views are made again rather than kept, and loops are run again rather than their tapes kept.
    """
    after = [graph.params[k] for k in late]
    waiting = _waiting(graph, set(after))
    outs = graph.outs[n_early:]
    residuals: list[Node] = []
    read: set[Node] = set(outs)
    for node in reversed(graph.nodes):
        if node not in read:
            continue
        if node in waiting or _made_again(node):
            read.update(node.inputs)
        elif node.op != "const":
            residuals.append(node)
    fresh = [param(node.aval, "r") for node in residuals]
    rest = Graph([*residuals, *after], outs).inline([*fresh, *after])
    before = [node for node in graph.params if node not in after]
    return Halves(
        Graph(before, [*graph.outs[:n_early], *residuals], f"{graph.name}_early"),
        silent(Graph([*fresh, *after], rest, f"{graph.name}_late")),
    )


def _waiting(graph: Graph, late: set[Node]) -> set[Node]:
    found = set(late)
    for node in graph.nodes:
        if any(source in found for source in node.inputs):
            found.add(node)
    return found


def _made_again(node: Node) -> bool:
    if isinstance(node.aval, tuple):
        return any(isinstance(aval, Tape) for aval in node.aval)
    return node.op != "param" and (isinstance(node.aval, Tape) or (node.record.view is not None and node.op != "item"))
