"""Contractions of two operands as products of matrices: transposed views, a (batched) ``matmul``, a view of the result.

NumPy's ``einsum`` takes BLAS only where no index is common to both operands and the result, and its own loops for
batches. As ``matmul`` either kind goes to the fastest kernel there is and takes a bias and an activation along. Floats
may differ in the last bits, as they do with NumPy's ``optimize=``.
"""

from __future__ import annotations

import math

from futurex.ops.contract import multiplies_matrices, split_subscripts
from futurex.passes.rewrite import rewrite
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply


def lower_contractions(graph: Graph) -> Graph:
    """The graph with ``matmul`` for each ``einsum`` that multiplies floating matrices."""
    return rewrite(graph, _as_matmul) if any(node.op == "einsum" for node in graph.nodes) else graph


def _as_matmul(node: Node) -> Node | None:
    if node.op != "einsum" or not node.attrs["optimize"] or not multiplies_matrices(node.attrs["subscripts"]):
        return None
    dtypes = {each.dtype for each in (node, *node.inputs)}
    if not node.is_static or len(dtypes) > 1 or node.dtype.kind not in "fc" or not isinstance(node.aval, Aval):
        return None
    (x, y), ((a, b), out) = node.inputs, split_subscripts(node.attrs["subscripts"])
    if set(a + b) - set(out) != set(a) & set(b) - set(out):  # an index that only one operand has, summed
        return None
    if out[-1] in a and out[-1] not in b:  # so that the result lies as it is wanted
        x, y, a, b = y, x, b, a
    extents = dict(zip(a + b, x.shape + y.shape, strict=True))
    batch = "".join(letter for letter in out if letter in a and letter in b)
    left = "".join(letter for letter in out if letter in a and letter not in b)
    right = "".join(letter for letter in out if letter in b and letter not in a)
    summed = "".join(letter for letter in a if letter in b and letter not in out)

    def laid(operand: Node, names: str, *groups: str) -> Node:
        """The operand with an axis for each group of indices."""
        axes = tuple(names.index(letter) for group in groups for letter in group)
        turned = operand if axes == tuple(range(len(axes))) else apply("transpose", operand, axes=axes)
        return _reshaped(turned, tuple(math.prod(extents[letter] for letter in group) for group in groups))

    rows = (*batch, left) if batch else tuple(left)  # a stack of matrices times one matrix needs no merging
    product = apply("matmul", laid(x, a, *rows, summed), laid(y, b, *batch, summed, right))
    made = batch + left + right
    result = _reshaped(product, tuple(extents[letter] for letter in made))
    if made == out:
        return result
    return apply("transpose", result, axes=tuple(made.index(letter) for letter in out))


def _reshaped(node: Node, shape: tuple[int, ...]) -> Node:
    return node if node.shape == shape else apply("reshape", node, shape=shape)
