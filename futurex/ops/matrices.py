"""What rules about stacks of matrices share: transposes, triangles, abstract values, tilings and samples.

A cotangent ``g`` of ``x`` pairs with a change of ``x`` as ``Re(sum(g * dx))``: it is the complex conjugate of the
gradient that the literature pairs as ``Re(sum(conj(gradient) * dx))``. Rules of analytic functions therefore use plain
transposes; the others conjugate, follow the literature, and conjugate back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from futurex.ops.elementwise import conj, where
from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply
from futurex.tree.record import Sample


def room(copies: int) -> Callable[..., int]:
    """Bytes in which LAPACK works on one matrix of a stack after the other: as many as so many matrices take."""
    return lambda x, **_: copies * element_bytes(x) * math.prod(x.shape[-2:])


def element_bytes(x: Aval) -> int:
    """Bytes of a number as LAPACK computes with it."""
    return x.dtype.itemsize if x.dtype.kind in "fc" else 8


def swap_last(x: Node) -> Node:
    """The matrix transpose over the last two axes."""
    axes = (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)
    return apply("transpose", x, axes=axes)


def adjoint(x: Node) -> Node:
    """The conjugate transpose over the last two axes."""
    return conj(swap_last(x))


def by_itself(product: Node) -> bool:
    """Is it each matrix times its own transpose, of which NumPy has BLAS compute one half?"""
    x, y = product.inputs[:2]
    return product.op == "matmul" and (_turns(x, y) or _turns(y, x))


def _turns(view: Node, x: Node) -> bool:
    axes = (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)
    return view.op == "transpose" and view.inputs[0] is x and view.attrs["axes"] == axes


def column(x: Node) -> Node:
    """Vectors as matrices of one column."""
    return apply("reshape", x, shape=(*x.shape, 1))


def vector(x: Node) -> Node:
    """Matrices of one column as vectors."""
    return apply("reshape", x, shape=x.shape[:-1])


def row(x: Node) -> Node:
    """Vectors as matrices of one row."""
    return apply("reshape", x, shape=(*x.shape[:-1], 1, x.shape[-1]))


def scale(x: Node) -> Node:
    """One number per matrix, ready to multiply the matrices by."""
    return column(column(x))


def _positions(shape: Sequence[int]) -> tuple[Node, Node]:
    """The numbers of rows, in a column, and of columns, in a row."""
    m, n = shape[-2:]
    rows, columns = (
        apply("iota", shape=extents, axis=axis, dtype=np.dtype(np.intp))
        for axis, extents in enumerate(((m, 1), (1, n)))
    )
    return rows, columns


def on_diagonal(shape: Sequence[int]) -> Node:
    """A mask of the diagonals of matrices of this shape."""
    rows, columns = _positions(shape)
    return apply("equal", rows, columns)


def triangle(x: Node, lower: bool = True) -> Node:
    """The triangle of square matrices with half of their diagonal: Murray's Phi."""
    rows, columns = _positions(x.shape)
    inside = apply("greater" if lower else "less", rows, columns)
    return where(inside, x, where(apply("equal", rows, columns), 0.5 * x, 0.0))


def part(x: Node, lower: bool) -> Node:
    """The triangle of square matrices with all of their diagonal."""
    rows, columns = _positions(x.shape)
    return where(apply("greater_equal" if lower else "less_equal", rows, columns), x, 0.0)


def diagonal_matrix(x: Node) -> Node:
    """Vectors as diagonal matrices."""
    return where(on_diagonal((x.shape[-1], x.shape[-1])), row(x), 0.0)


def identity_minus(x: Node) -> Node:
    """Square matrices subtracted from the identity."""
    return where(on_diagonal(x.shape), 1.0 - x, -x)


def as_read(gradient: Node, lower: bool = True) -> Node:
    """The gradient of a Hermitian matrix with respect to the one triangle of it that LAPACK reads."""
    return triangle(gradient + adjoint(gradient), lower)


def hermitian_matrix(x: Node) -> Node:
    """The Hermitian matrix of which LAPACK reads the lower triangle."""
    half = triangle(x)
    return half + adjoint(half)


def checked(function: Callable[..., Any], square: bool = True) -> Callable[[Aval], Aval]:
    """What NumPy makes of the type of its argument; raises NumPy's error where it is not a stack of matrices."""

    def check(x: Aval) -> Aval:
        if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
            function(np.broadcast_to(np.zeros((), x.dtype), x.shape))
        result = function(np.ones([min(extent, 1) for extent in x.shape[-2:]], x.dtype))
        return Aval(x.shape, (result[0] if isinstance(result, tuple) else result).dtype)

    return check


def real_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of a part of a complex number."""
    return np.zeros((), dtype).real.dtype


def total(*terms: Node | None) -> Node | None:
    """The sum of the terms that there are."""
    there = [term for term in terms if term is not None]
    result = there[0] if there else None
    for term in there[1:]:
        result = result + term
    return result


def batch(x: Aval, core: int = 2) -> str:
    """Tiling names of the dimensions before the matrices."""
    return " ".join(f"b{k}" for k in range(x.ndim - core))


def stacks(*operands: Aval) -> tuple[str, ...]:
    """Tiling names of the dimensions before matrices that meet: those of each operand, and of the result."""
    names = [f"b{k}" for k in range(max(x.ndim for x in operands) - 2)]

    def aligned(x: Aval) -> str:
        own = names[len(names) - (x.ndim - 2) :]
        return " ".join(name if extent != 1 else "1" for name, extent in zip(own, x.shape, strict=False))

    return *map(aligned, operands), " ".join(names)


def matrix(rng: np.random.Generator, *shape: int, dtype: Any = np.float64) -> Any:
    """A random matrix whose singular values lie apart and away from zero."""
    x = rng.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.normal(size=shape)
    if 0 in shape:
        return x.astype(dtype)
    k = min(shape[-2:])
    u, _, vh = np.linalg.svd(x, full_matrices=False)
    return ((u * np.linspace(1.0, 2.5, k)) @ vh).astype(dtype)


def positive(rng: np.random.Generator, *shape: int, dtype: Any = np.float64) -> Any:
    """A random Hermitian matrix with eigenvalues that lie apart and are positive."""
    x = matrix(rng, *shape, dtype=np.complex128 if np.dtype(dtype).kind == "c" else np.float64)
    return (x @ np.swapaxes(x.conj(), -1, -2)).astype(dtype)


Maker = Callable[..., Any]


def matrix_samples(make: Maker, *attrs: dict[str, Any], complex_order: int = 2) -> Callable[..., Iterable[Sample]]:
    """Samples of square matrices: plain, stacked, complex, of other types, empty."""

    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        for each in attrs or ({},):
            yield Sample((make(rng, 3, 3),), each)
            yield Sample((make(rng, 2, 3, 3, dtype=np.complex128),), each, order=complex_order)
        yield Sample((make(rng, 4, 2, 2),), each, order=1)
        yield Sample((make(rng, 3, 3, dtype=np.float32),), each, order=0)
        yield Sample((make(rng, 2, 2, dtype=np.complex64),), each, order=0)
        yield Sample((np.array([[5, 1], [1, 3]]),), each, order=0)
        yield Sample((np.zeros((2, 0, 0)),), each, order=0)

    return samples
