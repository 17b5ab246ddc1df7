"""A bias joined to the contraction before it, where one library call does both.

Only float32, which is what the library computes. Activations stay apart: a compiled region makes them, with the bias
and the mask of a derivative, in less time than the library, whose ReLU turns NaN into zero. Results differ from NumPy's
within rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

import numpy as np

from futurex.ops import epilogue as _records  # noqa: F401  (registers what this pass makes)
from futurex.passes.rewrite import Maker, rewrite, users_of
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply

LEAST_PRODUCT = 64**3
"""Multiply-adds from which a matrix product is worth a library call."""


@dataclass(frozen=True)
class _Match:
    """``result`` is contraction + bias."""

    contraction: Node
    bias: Node
    result: Node

    def make(self, new: Mapping[Node, Node]) -> Node:
        inputs = (*(new[source] for source in self.contraction.inputs), new[self.bias])
        return apply(f"{self.contraction.op}_epilogue", *inputs, **self.contraction.attrs)


def join_epilogues(graph: Graph) -> Graph:
    """The graph with ``matmul_epilogue`` and ``conv_epilogue`` where a contraction has a bias and no other reader."""
    users, outs = users_of(graph), frozenset(graph.outs)
    matches = [match for node in graph.nodes if node not in outs and (match := _match(node, users, outs))]
    makers: dict[Node, Maker] = {match.result: match.make for match in matches}
    return rewrite(graph, lambda node: None, makers) if makers else graph


def _match(node: Node, users: Mapping[Node, list[Node]], outs: Set[Node]) -> _Match | None:
    if not node.is_static:
        return None
    if not _contracts(node) or len(users[node]) != 1:
        return None
    total = users[node][0]
    if total.op != "add" or total.dtype != np.float32 or total.shape != node.shape:
        return None
    bias = total.inputs[1] if total.inputs[0] is node else total.inputs[0]
    if bias.shape != node.shape[-1:] or bias.dtype != np.float32 or bias.aval.weak:
        return None
    alone = not any(user.record.elementwise and user.shape == total.shape for user in users[total])
    return _Match(node, bias, total) if alone or total in outs else None


def _contracts(node: Node) -> bool:
    if node.op == "conv":
        return _float32(node)
    if node.op != "matmul" or not _float32(node) or min(source.ndim for source in node.inputs) < 2:
        return False
    return node.size * node.inputs[0].shape[-1] > LEAST_PRODUCT


def _float32(node: Node) -> bool:
    return all(isinstance(each.aval, Aval) and each.dtype == np.float32 for each in (node, *node.inputs))
