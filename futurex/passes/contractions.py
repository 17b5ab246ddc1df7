"""Contractions of two operands as products of matrices: transposed views, a (batched) ``matmul``, a view of the result.

NumPy's ``einsum`` takes BLAS only where no index is common to both operands and the result, and its own loops for
batches, and its ``matvec`` and ``vecmat`` take BLAS once for each matrix of a stack. As ``matmul`` each goes to the
fastest kernel there is and takes a bias along. Floats may differ in the last bits, as they do with NumPy's
``optimize=``; integers in none.

So does a small product of a matrix and a vector, or of a stack of them (``hd,htd->ht``: one new position's attention to
those before), for which NumPy's loop takes two to four times as long, and twenty inside a loop that is compiled.

What multiplies element by element and adds up (``ij,ij->i``), as derivatives of broadcasts do, becomes a region with a
sum at its end, where operands are large and lie in one order.

The gradient of weights that see one position at a time is a product, too: ``x.T @ g`` over all positions. The library's
kernel for it is slower than its product where there are many filters (2048 to 512 channels at 8 x 7 x 7: 11.4 against
5.2 ms on one thread), and faster for a few filters over many channels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from futurex.ops.contract import SHORT_SUM, multiplies_matrices, split_subscripts
from futurex.ops.strides import is_scattered
from futurex.passes.low_rank import is_large_product
from futurex.passes.rewrite import rewrite
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply

MANY_FILTERS, SOME_FILTERS = 256, 96
"""Filters from which a product is faster, and those where it is if the channels are at most twice as many and ..."""
FEW_POSITIONS = 8192
"""... the operands stay in the cache. Measured on shapes of GoogLeNet and ResNet-50."""


_CONTRACTIONS = frozenset(("einsum", "matvec", "vecmat", "conv_weight_grad"))
LEAST_SPACE = 64 * 1024
"""Products of elements from which a region is faster than one call of NumPy's."""
MANY_ROWS = 8
"""Rows of each matrix of a large stack from which a product for each is faster than a region that adds up rows: 8 of
512 x 64 in single precision 31 and 70 us, 256 of 8 x 64 46 and 34."""
MANY_MATRICES, LEAST_COLUMNS, SMALL = 64, 3, 32
"""Matrices of a stack, columns of each, and the most rows and columns, where each is multiplied by one matrix by
itself: to merge them takes as long as to multiply (100 of 8 x 8: 12 and 4 us)."""
LEAST_OUTER = 64
"""Elements of a matrix from which each is rather multiplied than all given to BLAS: 32 x 32 take it 1.9 us."""


def lower_contractions(graph: Graph, *, free: bool = True) -> Graph:
    """The graph with ``matmul`` for each ``einsum`` that multiplies matrices, and for gradients of pointwise
    weights where it is faster; with ``free``, other large ones as a product of elements and a sum in a free order."""
    if not any(node.op in _CONTRACTIONS or _is_outer(node) for node in graph.nodes):
        return graph

    def rule(node: Node) -> Node | None:
        if node.op == "conv_weight_grad":
            return _pointwise_weights(node)
        if _is_outer(node):
            return _sum_of_one(*node.inputs)
        if node.op in ("matvec", "vecmat"):
            return _of_vectors(node)
        if node.op != "einsum":
            return None
        wished = _is_whole(node) if node.dtype.kind in "iu" else node.attrs["optimize"]
        matrices = wished and multiplies_matrices(node.attrs["subscripts"])
        vectors = free and not matrices and _multiplies_vectors(node)
        found = _as_matmul(node) if matrices or (vectors and _beats_regions(node)) else _as_outer(node)
        if found is None and free:
            found = _as_sum(node)
        return _as_matmul(node) if found is None and vectors else found

    return rewrite(graph, rule)


def _is_whole(node: Node) -> bool:
    """Is it large? Of integers, which may be added up in any order."""
    if not node.is_static or len(node.inputs) != 2:
        return False
    names, _ = split_subscripts(node.attrs["subscripts"])
    extents = dict(zip("".join(names), (extent for each in node.inputs for extent in each.shape), strict=True))
    return math.prod(extents.values()) >= LEAST_SPACE


def _is_outer(node: Node) -> bool:
    """Products of a column and a row, as gradients of each example's own are, where there are many elements, each of
    them a sum of one, or a stack: for NumPy as many calls."""
    if node.op != "matmul" or not node.is_static or node.dtype not in (np.float32, np.float64):
        return False
    x, y = node.inputs
    matrices = min(x.ndim, y.ndim) >= 2 and x.dtype == y.dtype == node.dtype and x.shape[-1] == 1
    if node.ndim == 2 and is_large_product(node):
        return False  # an update's, which is one trip with the input gradient
    return matrices and (node.size >= LEAST_OUTER or node.size > node.shape[-2] * node.shape[-1])


def _sum_of_one(x: Node, y: Node) -> Node:
    """Products of elements, as sums of one each, which begin with a positive zero."""
    return apply("add", apply("multiply", x, y), x.dtype.type(0))


def _as_outer(node: Node) -> Node | None:
    """A large product of two floating operands that adds nothing up (``ni,nj->nij``): NumPy's loop knows one at a
    time."""
    names, out = split_subscripts(node.attrs["subscripts"])
    if len(names) != 2 or not node.is_static or any(each.dtype != node.dtype for each in node.inputs):
        return None
    repeats = any(len(set(own)) < len(own) for own in names)
    if repeats or set(out) != set("".join(names)) or node.dtype.char not in "fd" or node.size < LEAST_SPACE:
        return None
    return _sum_of_one(*(_spread_over(out, own, each) for own, each in zip(names, node.inputs, strict=True)))


def _spread_over(space: str, names: str, operand: Node) -> Node:
    """An operand with an axis for each of ``space``, of which it need not have all."""
    axes = tuple(names.index(letter) for letter in space if letter in names)
    turned = operand if axes == tuple(range(len(axes))) else apply("transpose", operand, axes=axes)
    extents = dict(zip(names, operand.shape, strict=True))
    return _reshaped(turned, tuple(extents.get(letter, 1) for letter in space))


def _of_vectors(node: Node) -> Node | None:
    """Products of floating matrices and vectors as those of matrices, which is what BLAS makes of them."""
    same = node.is_static and {each.dtype for each in node.inputs} == {node.dtype}
    if not same or node.dtype.char not in "fd" or node.record.decompose is None:
        return None
    return node.record.decompose(*node.inputs)


def _pointwise_weights(node: Node) -> Node | None:
    attrs = node.attrs
    plain = {*attrs["kernel_shape"], *attrs["stride"], attrs["groups"]} == {1} and not any(map(any, attrs["padding"]))
    if not node.is_static or not plain or any(each.dtype != np.float32 for each in (node, *node.inputs)):
        return None
    channels, filters = node.shape[-2:]
    positions = math.prod(node.inputs[1].shape[:-1])
    small = filters >= SOME_FILTERS and channels <= 2 * filters and positions <= FEW_POSITIONS
    if (not small and filters < MANY_FILTERS) or not positions:
        return None
    x, g = (_reshaped(each, (positions, each.shape[-1])) for each in node.inputs)
    return _reshaped(apply("matmul", apply("transpose", x, axes=(1, 0)), g), node.shape)


def _as_matmul(node: Node) -> Node | None:
    dtypes = {each.dtype for each in (node, *node.inputs)}
    if not node.is_static or len(dtypes) > 1 or node.dtype.kind not in "fciu" or not isinstance(node.aval, Aval):
        return None
    (x, y), ((a, b), out) = node.inputs, split_subscripts(node.attrs["subscripts"])
    if set(a + b) - set(out) != set(a) & set(b) - set(out):  # an index that only one operand has, summed
        return None
    longer = a if len(a) >= len(b) else b
    if set(a) ^ set(b) <= set(longer):  # a matrix and a vector: so that the matrix is read as it lies
        swaps = (longer is a) != (longer[-1] not in out)
    else:  # so that the result lies as it is wanted
        swaps = out[-1] in a and out[-1] not in b
    if swaps:
        x, y, a, b = y, x, b, a
    extents = dict(zip(a + b, x.shape + y.shape, strict=True))
    batch = "".join(letter for letter in out if letter in a and letter in b)
    left = "".join(letter for letter in out if letter in a and letter not in b)
    right = "".join(letter for letter in out if letter in b and letter not in a)
    summed = "".join(letter for letter in a if letter in b and letter not in out)

    if _is_of_stack(a, b, out, extents, node.dtype):
        return apply("matmul", _ending(x, a, summed), _ending(y, b, out[-1]))

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


def _ending(matrices: Node, names: str, last: str) -> Node:
    """Matrices whose last index is this one of their two."""
    *stack, one, two = range(matrices.ndim)
    return matrices if names[-1] == last else apply("transpose", matrices, axes=(*stack, two, one))


def _is_of_stack(a: str, b: str, out: str, extents: Mapping[str, int], dtype: np.dtype[Any]) -> bool:
    """Is it a small matrix times each of a stack of small ones (``ij,ejk->eik``), which need not be merged to a wide
    one, and the result not be taken apart, for as many multiply-adds?"""
    if len(a) != 2 or len(b) < 3 or out[:-2] != b[:-2] or len({*a, *b}) != len(b) + 1 or dtype.char not in "fd":
        return False
    left, right = out[-2], out[-1]
    if {left, right} & {*b[:-2]} or left not in a or {*b[-2:]} != {right, *a} - {left}:
        return False
    inner, columns = (extents[letter] for letter in b[-2:])
    many = math.prod(extents[letter] for letter in b[:-2]) >= MANY_MATRICES
    return many and extents[right] >= LEAST_COLUMNS and max(inner, columns) <= SMALL and extents[left] <= SMALL


def _multiplies_vectors(node: Node) -> bool:
    """Is it a product of a matrix and a vector, or a stack of them, whose rows lie one behind the other? NumPy's loop
    takes two to four times as long for those."""
    names, out = split_subscripts(node.attrs["subscripts"])
    if len(names) != 2 or not node.is_static or node.dtype.char not in "fd":
        return False
    first, second = map(set, names)
    stack, extra = first & second & set(out), first ^ second
    of_one = bool(extra) and (extra <= first or extra <= second) and extra <= set(out)
    apart = all(own[-1:] not in stack and len(set(own)) == len(own) for own in names)
    return bool((first & second) - stack) and of_one and apart


def _beats_regions(node: Node) -> bool:
    """Is such a product faster than a region with a sum at its end, as small ones are that make no region?"""
    names, out = split_subscripts(node.attrs["subscripts"])
    extents = dict(zip("".join(names), (extent for each in node.inputs for extent in each.shape), strict=True))
    if math.prod(extents.values()) < LEAST_SPACE:
        return True
    first, second = map(set, names)
    summed, rows = ((first & second) - set(out), first ^ second)
    if not _lies_in_matrices(max(names, key=len), first & second & set(out), summed):
        return False
    few = math.prod(extents[letter] for letter in summed) <= SHORT_SUM
    many = math.prod(extents[letter] for letter in rows) >= MANY_ROWS
    return bool(first & second & set(out)) and (few or (many and max(names, key=len)[-1] in summed))


def _lies_in_matrices(names: str, stack: set[str], summed: set[str]) -> bool:
    """Is a product of its matrices one of the operand as it lies? Those of ``prqs,rs->prq`` would have to be gathered.

    >>> _lies_in_matrices("rqs", {"r"}, {"s"}), _lies_in_matrices("prqs", {"r"}, {"s"})
    (True, False)
    """
    groups = [0 if letter in stack else 1 if letter in summed else 2 for letter in names]
    runs = [group for k, group in enumerate(groups) if k == 0 or groups[k - 1] != group]
    return len(set(runs)) == len(runs) and 0 not in runs[1:]


def _as_sum(node: Node) -> Node | None:
    """A contraction whose operands lie in one order, as a product of elements and a sum."""
    if not node.is_static or not isinstance(node.aval, Aval) or len(node.inputs) > 2:
        return None
    names, out = split_subscripts(node.attrs["subscripts"])
    if node.dtype.char not in "fd" or any(each.dtype != node.dtype for each in node.inputs):
        return None
    extents = {letter: extent for own, each in zip(names, node.inputs, strict=True)
               for letter, extent in zip(own, each.shape, strict=True)}  # fmt: skip
    space = max(names, key=len)
    repeats = any(len(set(own)) < len(own) for own in names)
    if repeats or len(extents) > len(space) or math.prod(extents.values()) < LEAST_SPACE:
        return None
    if any(not _in_order(own, space) for own in (*names, out)) or out == space or any(map(is_scattered, node.inputs)):
        return None
    laid = [_spread_over(space, own, each) for own, each in zip(names, node.inputs, strict=True)]
    value = laid[0] if len(laid) == 1 else apply("multiply", *laid)
    axes = tuple(k for k, letter in enumerate(space) if letter not in out)
    return apply("free_sum", value, axis=axes, keepdims=False)


def _in_order(names: str, space: str) -> bool:
    return [letter for letter in space if letter in names] == list(names)


def _reshaped(node: Node, shape: tuple[int, ...]) -> Node:
    return node if node.shape == shape else apply("reshape", node, shape=shape)
