"""Products in a narrow format: what ``fx.autocast`` does to a tree."""

from __future__ import annotations

import numpy as np

from futurex.ops.precision import PRODUCTS
from futurex.passes.contractions import lower_contractions
from futurex.passes.rewrite import map_subgraphs, rewrite
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply


def lower_precision(graph: Graph, to: str) -> Graph:
    """The graph with every product of singles taken in the format ``to``, those in its sub-graphs too.

    Operands are rounded to the format and stored in it, sums are single precision, and the result is stored narrow.
    Everything else stays as it is, so values change by about the format's rounding.
    """
    graph = rewrite(lower_contractions(graph), map_subgraphs(lambda inner: lower_precision(inner, to)))
    return rewrite(graph, lambda node: _lowered(node, to))


def _lowered(node: Node, to: str) -> Node | None:
    if node.op not in PRODUCTS or not isinstance(node.aval, Aval) or "dims" in node.attrs:
        return None
    if any(source.dtype != np.float32 or source.aval.weak for source in (*node.inputs, node)):
        return None
    narrow = [_narrow(source, to) for source in node.inputs]
    return apply("widen", apply("narrow_product", *narrow, product=node.op, to=to, **node.attrs), to=to)


def _narrow(node: Node, to: str) -> Node:
    """What came out of a product is narrow already."""
    if node.op == "widen" and node.attrs["to"] == to:
        return node.inputs[0]
    return apply("narrow", node, to=to)
