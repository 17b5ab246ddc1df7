"""Claims products of many small matrices: rotations, Jacobians, covariances, one for each point or example."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.kernels.matrices import Lie, Lies, ProductKernel, Turned, lie, stand_in, together
from futurex.kernels.numba_ import small_products
from futurex.kernels.numba_.compiler import has_fma
from futurex.kernels.numba_.team import Share
from futurex.kernels.registry import Kernel
from futurex.kernels.threads import may_share
from futurex.ops.contract import SHORT_SUM
from futurex.tree.node import Node

ELEMENTS = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}
_LARGEST = 32
"""Inner elements and columns, at most."""
_FEWEST = 64
"""Matrices of a stack, from which BLAS takes some microseconds: fewer are left to what is compiled as one function."""
_MOST = {4: 1 << 14, 8: 1 << 15}
"""Multiply-adds of each, by bytes of an element, up to which a library takes longer to begin than is lost here, where
nothing is packed; ..."""
_TALL, _NARROW = 1024, 64
"""... rows of others in all, at least, and bytes of a row of their result, at most: BLAS is as fast at wider ones, and
at one column."""


def small_product(node: Node, threads: int) -> Kernel | None:
    """A kernel for a stack of small products in one precision; None for all else."""
    if node.op != "matmul" or node.dtype not in ELEMENTS or not has_fma():
        return None
    if any(each.dtype != node.dtype or each.aval.weak for each in (node, *node.inputs)):
        return None
    shapes = _matrices(*(each.shape for each in node.inputs))
    batch = np.broadcast_shapes(*(shape[:-2] for shape in shapes))
    count = math.prod(batch)
    (rows, inner), columns = shapes[0][-2:], shapes[1][-1]
    if not fits(count, rows, inner, columns, node.dtype.itemsize):
        return None
    if any(math.prod(shape[:-2]) not in (1, count) for shape in shapes):
        return None
    likely = []
    for source, shape in zip(node.inputs, shapes, strict=True):
        array = stand_in(source)
        found = None if array is None else lie(array.reshape(shape) if array.ndim == 1 else array)
        likely.append(found is not None and found.turned)
    product = SmallProduct(node, count, (rows, inner, columns), (likely[0], likely[1]), threads)
    return Kernel(product, "gemm", into=True, late=product, bind=product.bind)


def fits(count: int, rows: int, inner: int, columns: int, size: int, fewest: int = _FEWEST) -> bool:
    """Are so many products of this form, with elements of so many bytes, faster here? ``fewest``: of these it takes a
    library long to begin.

    >>> fits(1000, 3, 3, 1, 8), fits(1, 2000, 3, 3, 8), fits(1, 2000, 3, 1, 8), fits(1, 3, 3, 3, 8)
    (True, True, False, False)
    """
    if not 0 < inner <= _LARGEST or not 0 < columns <= _LARGEST:
        return False
    if count >= fewest and 0 < rows * inner * columns <= _MOST[size]:
        return columns > 1 or inner <= SHORT_SUM
    return count * rows >= _TALL and columns > 1 and columns * size <= _NARROW


def _matrices(x: tuple[int, ...], y: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes as those of matrices: a first operand that is a vector is a row, a second one a column."""
    return x if len(x) > 1 else (1, *x), y if len(y) > 1 else (*y, 1)


def lie_together(x: Lie, y: Lie) -> bool:
    """Do the operands' matrices lie in one stack, or in stacks of as many?"""
    return None not in (each.steps(together((x, y))) for each in (x, y))


def numbers(batch: int, form: small_products.Form, x: Lie, y: Lie) -> Sequence[int]:
    """The parameters of the code for so many products of operands that lie so."""
    stack, steps = together((x, y)), [each.levels[0][0] if each.levels else 0 for each in (x, y)]
    outer = (found.outer if (found := each.steps(stack)) else 0 for each in (x, y))
    further = (far - stack * step for far, step in zip(outer, steps, strict=True))
    return batch * form.parts, *steps, x.row, y.row, int(stack > 0), stack or 1, *further


class SmallProduct(ProductKernel):
    """The kernel of one stack of products."""

    count = len(small_products.NUMBERS)

    def __init__(self, node: Node, batch: int, sizes: tuple[int, int, int], likely: Turned, threads: int) -> None:
        self.batch, self.sizes = batch, sizes
        self.matrices = _matrices(*(each.shape for each in node.inputs))
        super().__init__(node, likely, threads if may_share() else 1)

    def form(self, turned: Turned) -> small_products.Form:
        """The form for operands that lie so."""
        return small_products.Form(*self.sizes, ELEMENTS[self.node.dtype], *turned)

    def text(self, turned: Turned) -> str:
        return small_products.text_of(self.form(turned), may_share())

    def lies(self, arrays: Sequence[Any]) -> Lies | None:
        out, *operands = arrays
        x, y = (
            lie(each.reshape(shape) if each.ndim == 1 else each)
            for each, shape in zip(operands, self.matrices, strict=True)
        )
        result = lie(out.reshape(self.batch, self.sizes[0], self.sizes[2])) if out.flags.c_contiguous else None
        if x is None or y is None or result is None or not lie_together(x, y):
            return None
        return result, x, y

    def numbers(self, lies: Lies) -> Sequence[int]:
        _, x, y = lies
        return numbers(self.batch, self.form((x.turned, y.turned)), x, y)

    def share(self, block: Any) -> Share:
        rows, inner, columns = self.sizes
        moved = self.batch * (rows * inner + inner * columns + rows * columns) * self.node.dtype.itemsize
        return Share.of(self.threads, moved, int(np.frombuffer(block, np.int64, 1)[0]))
