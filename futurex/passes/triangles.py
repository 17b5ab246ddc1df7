"""Systems of equations with a factor that is a triangle are substituted, where NumPy factorises it anew.

``np.linalg.solve(L, b)`` of ``L = np.linalg.cholesky(a)`` takes as long as for any matrix, some hundred times what it
need take for one right side. Last bits are others: NumPy exchanges rows of a lower triangle, and divides them first.
"""

from __future__ import annotations

from futurex.ops.matrices import column, vector
from futurex.ops.triangular import half_of, solve_triangular
from futurex.passes.rewrite import rewrite
from futurex.tree.graph import Graph
from futurex.tree.node import Node

LEAST_ROWS = 64
"""Smaller systems keep NumPy's bits: they take little longer."""


def substitute(graph: Graph) -> Graph:
    """The graph with such systems solved as what they are."""
    return rewrite(graph, _substituted) if any(node.op == "solve" for node in graph.nodes) else graph


def _substituted(node: Node) -> Node | None:
    if node.op != "solve" or not all(each.is_static and each.dtype == node.dtype for each in (node, *node.inputs)):
        return None
    a, b = node.inputs
    lower = half_of(a) if a.shape[-1] >= LEAST_ROWS else None
    if lower is None:
        return None
    return vector(solve_triangular(a, column(b), lower=lower)) if b.ndim == 1 else solve_triangular(a, b, lower=lower)
