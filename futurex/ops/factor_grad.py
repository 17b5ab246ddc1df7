"""The derivative of Cholesky factors, of large real matrices in blocks.

The formula in whole matrices, ``inv(L)^T Phi(L^T g) inv(L)``, makes a product and two triangular solutions: twelve
times the arithmetic of the factorization. Reversed block by block it is twice that (Murray, "Differentiation of the
Cholesky decomposition", 2016), nearly all of it in products of matrices.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.ops import batching
from futurex.ops.elementwise import conj
from futurex.ops.matrices import adjoint, as_read, batch, matrix, part, positive, room, swap_last, triangle
from futurex.ops.triangular import solve_triangular
from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply
from futurex.tree.record import Sample, op

_BLOCK = 64
"""Rows and columns of a block: less is many small products, more is much by the formula."""
_LEAST_ROWS = 256
"""Of fewer rows the formula is as fast."""


def cholesky_gradient(g: Node, factor: Node, upper: bool) -> Node:
    """The cotangent of a matrix from that of its factor, of the triangle that is read; the other has no influence."""
    if not factor.is_static or factor.dtype.kind != "f" or factor.shape[-1] < _LEAST_ROWS:
        lower, gradient = (adjoint(factor), swap_last(g)) if upper else (factor, conj(g))
        return conj(as_read(_of_both(lower, gradient), lower=not upper))
    if upper:
        return swap_last(apply("cholesky_grad", swap_last(factor), swap_last(g)))
    return apply("cholesky_grad", factor, g)


def _of_both(lower: Node, gradient: Node) -> Node:
    """The gradient of all elements, by the formula."""
    left = solve_triangular(adjoint(lower), triangle(adjoint(lower) @ gradient), lower=False)
    return solve_triangular(lower, left, lower=True, right=True)


def _in_blocks(factor: Any, g: Any) -> Any:
    """Beginning with the last block of columns, each step that the blocked factorization takes, in reverse."""
    extent = factor.shape[-1]
    out = np.tril(g)
    for high in range(extent, 0, -_BLOCK):
        low = max(0, high - _BLOCK)
        rows, own, before = slice(high, extent), slice(low, high), slice(0, low)
        on_diagonal = np.tril(factor[..., own, own])
        if high < extent:
            below = _transposed(np.linalg.solve(_transposed(on_diagonal), _transposed(out[..., rows, own])))
            out[..., rows, own] = below
            out[..., own, own] -= np.tril(_transposed(below) @ factor[..., rows, own])
            out[..., rows, before] -= below @ factor[..., own, before]
            out[..., own, before] -= _transposed(below) @ factor[..., rows, before]
        whole = _whole(on_diagonal, out[..., own, own])
        out[..., own, before] -= whole @ factor[..., own, before]
        halves = np.tril(whole)
        np.einsum("...ii->...i", halves)[...] *= 0.5
        out[..., own, own] = halves
    return out


def _whole(lower: Any, gradient: Any) -> Any:
    """The sum of the gradient of a block by the formula and its transpose."""
    turned = _transposed(lower)
    inner = np.tril(turned @ gradient)
    inner = inner + _transposed(inner)
    np.einsum("...ii->...i", inner)[...] *= 0.5
    return _transposed(np.linalg.solve(turned, _transposed(np.linalg.solve(turned, inner))))


def _transposed(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)


def _formula(factor: Node, g: Node) -> Node:
    return as_read(_of_both(part(factor, True), g))


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield Sample((np.linalg.cholesky(positive(rng, 5, 5)), matrix(rng, 5, 5)))
    yield Sample((np.linalg.cholesky(positive(rng, 2, 3, 3)), matrix(rng, 2, 3, 3)), order=1)
    for extent, dtype in ((2 * _BLOCK + 5, np.float64), (3, np.float32)):
        factor = np.linalg.cholesky(positive(rng, 2, extent, extent, dtype=dtype))
        yield Sample((factor, matrix(rng, 2, extent, extent, dtype=dtype)), order=int(dtype == np.float64))
    yield Sample((np.zeros((2, 0, 0)), np.zeros((2, 0, 0))), order=0)


def _aval(factor: Aval, g: Aval) -> Aval:
    return factor


op(
    "cholesky_grad", _in_blocks, aval=_aval, decompose=_formula, batch=batching.rows("cholesky_grad"), room=room(2),
    factors=lambda factor, g: f"{batch(factor)} !m !n, {batch(factor)} !m !n -> {batch(factor)} !m !n",
    samples=_samples,
)  # fmt: skip
