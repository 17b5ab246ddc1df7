"""Factorizations of stacks of matrices: QR, singular values, Hermitian and general eigenvalues.

The kernels are NumPy's. Sources of the derivatives: Walter & Lehmann, "Algorithmic differentiation of linear algebra
functions with application in optimum experimental design" (2010), and Roberts & Roberts, "QR and LQ decomposition
matrix backpropagation algorithms for square, wide, and deep matrices" (2020); Giles (2008) for eigenvalues; Wan &
Zhang, "Automatic differentiation for complex valued SVD" (2019). Singular and eigenvectors change infinitely fast where
values coincide, and the phase of a complex one is LAPACK's choice: derivatives are those of functions that do not
depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.ops import batching
from futurex.ops.elementwise import conj, is_complex, where
from futurex.ops.matrices import (
    adjoint,
    as_read,
    batch,
    checked,
    column,
    diagonal_matrix,
    element_bytes,
    identity_minus,
    matrix,
    matrix_samples,
    on_diagonal,
    positive,
    real_of,
    room,
    row,
    swap_last,
    total,
    triangle,
)  # fmt: skip
from futurex.ops.triangular import solve_triangular
from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply, item
from futurex.tree.record import NotDifferentiable, Sample, op

Cotangents = tuple[Any, ...]


def inverse_gaps(values: Node, squared: bool = False) -> Node:
    """1 / (v_j - v_i), or of the squares, with zeros on the diagonal."""
    v = values * values if squared else values
    mask = on_diagonal((v.shape[-1], v.shape[-1]))
    return where(mask, 0.0, 1.0 / where(mask, 1.0, row(v) - column(v)))


# -- eigenvalues of Hermitian matrices ---------------------------------------------------------------------------------


def _eigh_rule(g: Cotangents, out: Node, x: Node, UPLO: str) -> tuple[Node | None]:
    gw, gv = g
    w, v = item(out, 0), item(out, 1)
    inner = total(
        None if gw is None else diagonal_matrix(gw), None if gv is None else inverse_gaps(w) * (adjoint(v) @ conj(gv))
    )
    return (None if inner is None else conj(as_read(v @ inner @ adjoint(v), lower=UPLO == "L")),)


def _eigh_aval(x: Aval, UPLO: str) -> tuple[Aval, Aval]:
    vectors = checked(lambda a: np.linalg.eigh(a)[::-1])(x)
    return Aval(x.shape[:-1], real_of(vectors.dtype)), vectors


def _eigvalsh_aval(x: Aval, UPLO: str) -> Aval:
    return Aval(x.shape[:-1], checked(np.linalg.eigvalsh)(x).dtype)


_TRIANGLES = ({"UPLO": "L"}, {"UPLO": "U"})
op(
    "eigh", lambda x, UPLO: tuple(np.linalg.eigh(x, UPLO)), aval=_eigh_aval, vjp=_eigh_rule, fails=True,
    batch=batching.unchanged("eigh"), room=room(3),
    factors=lambda x, UPLO: f"{batch(x)} !m !n -> {batch(x)} !k, {batch(x)} !m !k",
    samples=matrix_samples(positive, *_TRIANGLES, complex_order=0),
)  # fmt: skip
op(
    "eigvalsh", lambda x, UPLO: np.linalg.eigvalsh(x, UPLO), aval=_eigvalsh_aval, fails=True,
    batch=batching.unchanged("eigvalsh"), room=room(1),
    decompose=lambda x, UPLO: item(apply("eigh", x, UPLO=UPLO), 0),
    factors=lambda x, UPLO: f"{batch(x)} !m !n -> {batch(x)} !k", samples=matrix_samples(positive, *_TRIANGLES),
)  # fmt: skip


# -- eigenvalues of general matrices, complex because what a real matrix gives is complex or real by its values --------


def _eigvals_rule(g: Node, out: Node, x: Node) -> tuple[Node]:
    v = item(apply("eig", x), 1)
    return (swap_last((v * row(g)) @ apply("inv", v)),)


def _eig_rule(g: Cotangents, out: Node, x: Node) -> tuple[Node]:
    """The vectors have length one, and LAPACK turns their largest component to the real axis."""
    gw, gv = g
    w, v = item(out, 0), item(out, 1)
    inner = None if gw is None else diagonal_matrix(gw)
    if gv is not None:
        down = v.ndim - 2
        largest = apply("argmax", apply("absolute", v), axis=down, keepdims=True)
        mask = apply("equal", apply("iota", shape=v.shape, axis=down, dtype=np.dtype(np.intp)), largest)
        along, pivot = (
            apply("sum", each, axis=(down,), keepdims=True, dtype=None) for each in (v * gv, where(mask, v, 0.0))
        )
        turned = where(mask, 1j * apply("imag", along) / pivot, 0.0)
        free = gv - conj(v) * apply("real", along) - turned
        inner = total(inner, inverse_gaps(w) * (swap_last(v) @ free))
    return (apply("solve", swap_last(v), inner @ swap_last(v)),)


def _complex_aval(x: Aval) -> tuple[Aval, Aval]:
    vectors = checked(lambda a: np.linalg.eig(a)[::-1])(x)
    return Aval(x.shape[:-1], vectors.dtype), vectors


def _complex_samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield Sample((matrix(rng, 3, 3, dtype=np.complex128),))
    yield Sample((matrix(rng, 2, 2, 2, dtype=np.complex128),))
    yield Sample((matrix(rng, 2, 2, dtype=np.complex64),), order=0)


op(
    "eig", lambda x: tuple(np.linalg.eig(x)), aval=_complex_aval, vjp=_eig_rule, fails=True,
    batch=batching.unchanged("eig"),
    factors=lambda x: f"{batch(x)} !m !n -> {batch(x)} !k, {batch(x)} !m !k", samples=_complex_samples,
)  # fmt: skip
op(
    "eigvals", np.linalg.eigvals, aval=lambda x: _complex_aval(x)[0], vjp=_eigvals_rule, fails=True,
    batch=batching.unchanged("eigvals"),
    factors=lambda x: f"{batch(x)} !m !n -> {batch(x)} !k", samples=_complex_samples,
)  # fmt: skip


# -- singular values ---------------------------------------------------------------------------------------------------


def _svd_rule(g: Cotangents, out: Node, x: Node, full_matrices: bool, hermitian: bool) -> tuple[Node | None]:
    gu, gs, gvh = g
    u, s, vh = (item(out, k) for k in range(3))
    if x.shape[-1] != x.shape[-2] and full_matrices:
        if gu is not None or gvh is not None:
            raise NotDifferentiable(
                "the vectors that svd(full_matrices=True) adds to a basis have no derivative; use full_matrices=False"
            )
        reduced = apply("svd", x, full_matrices=False, hermitian=hermitian)
        u, vh = item(reduced, 0), item(reduced, 2)
    inner = None if gs is None else diagonal_matrix(gs)
    outside = None
    if gu is not None or gvh is not None:
        gaps = inverse_gaps(s, squared=True)
        v = adjoint(vh)
        if gu is not None:
            gradient = conj(gu)
            turned = gaps * (adjoint(u) @ gradient)
            inner = total(inner, (turned + adjoint(turned)) * row(s))
            if u.shape[-2] > u.shape[-1]:
                outside = (identity_minus(u @ adjoint(u)) @ gradient / row(s)) @ vh
        if gvh is not None:
            gradient = swap_last(gvh)  # of v, conjugated twice
            along = vh @ gradient
            turned = gaps * along
            inner = total(inner, column(s) * (turned + adjoint(turned)))
            if is_complex(x):
                phases = where(on_diagonal(along.shape), along, 0.0)
                inner = total(inner, 0.5 * (adjoint(phases) - phases) / column(s))
            if v.shape[-2] > v.shape[-1]:
                outside = total(outside, (u / row(s)) @ adjoint(gradient) @ identity_minus(v @ vh))
    if inner is None:
        return (None,)
    whole = total(u @ inner @ vh, outside)
    return (conj(as_read(whole) if hermitian else whole),)  # type: ignore[arg-type]


def _svd_avals(x: Aval, full_matrices: bool, hermitian: bool) -> tuple[Aval, Aval, Aval]:
    dtype = checked(lambda a: np.linalg.svd(a, hermitian=hermitian), square=hermitian)(x).dtype
    *front, m, n = x.shape
    k = min(m, n)
    u, vh = ((m, m), (n, n)) if full_matrices else ((m, k), (k, n))
    return Aval((*front, *u), dtype), Aval((*front, k), real_of(dtype)), Aval((*front, *vh), dtype)


def _svd_samples(rng: np.random.Generator) -> Iterable[Sample]:
    reduced, full = ({"full_matrices": full, "hermitian": False} for full in (False, True))
    for shape in ((3, 3), (4, 2), (2, 2, 3)):
        yield Sample((matrix(rng, *shape),), reduced)
    yield Sample((matrix(rng, 2, 2),), full)
    yield Sample((matrix(rng, 2, 4),), full, order=0)
    yield Sample((matrix(rng, 2, 3, 2, dtype=np.complex128),), reduced, order=0)
    yield Sample((matrix(rng, 3, 2, dtype=np.float32),), reduced, order=0)
    yield Sample((np.arange(6).reshape(2, 3),), reduced, order=0)
    yield Sample((np.zeros((0, 2)),), full, order=0)
    yield Sample((positive(rng, 3, 3),), {"full_matrices": False, "hermitian": True})


def _svdvals_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for make, hermitian, shape in ((matrix, False, (2, 2, 3)), (matrix, False, (3, 3)), (positive, True, (3, 3))):
        yield Sample((make(rng, *shape),), {"hermitian": hermitian})
        yield Sample((make(rng, *shape, dtype=np.complex128),), {"hermitian": hermitian})
    yield Sample((matrix(rng, 3, 2, dtype=np.float32),), {"hermitian": False}, order=0)


def _svd_room(x: Aval, full_matrices: bool = True, **_: Any) -> int:
    """Copies of matrix and results, and what LAPACK divides and conquers in, more of it where one side is longer."""
    few, many = sorted(x.shape[-2:])
    results = few * few + many * (many if full_matrices else few)
    squares = 4 if 6 * many >= 11 * few else 3
    return element_bytes(x) * (few * many + results + squares * few * few)


op(
    "svd", lambda x, **options: tuple(np.linalg.svd(x, **options)), aval=_svd_avals, vjp=_svd_rule, fails=True,
    batch=batching.unchanged("svd"), room=_svd_room,
    factors=lambda x, **_: f"{batch(x)} !m !n -> {batch(x)} !m !p, {batch(x)} !k, {batch(x)} !q !n",
    samples=_svd_samples,
)  # fmt: skip
op(
    "svdvals", lambda x, hermitian: np.linalg.svd(x, compute_uv=False, hermitian=hermitian), fails=True,
    batch=batching.unchanged("svdvals"), room=room(1),
    aval=lambda x, hermitian: _svd_avals(x, False, hermitian)[1],
    decompose=lambda x, hermitian: item(apply("svd", x, full_matrices=False, hermitian=hermitian), 1),
    factors=lambda x, hermitian: f"{batch(x)} !m !n -> {batch(x)} !k", samples=_svdvals_samples,
)  # fmt: skip


# -- QR ----------------------------------------------------------------------------------------------------------------


def _qr(x: Any, mode: Any) -> tuple[Any, ...]:
    return tuple(np.linalg.qr(x, mode))


def _qr_rule(g: Cotangents, out: Node, x: Node, mode: str) -> tuple[Node | None]:
    """The square part of R decides Q; the columns of ``x`` beyond it are Q times the rest of R."""
    m, n = x.shape[-2:]
    if mode == "raw" or (mode == "complete" and m > n):
        raise NotDifferentiable(f"qr(mode={mode!r}) of a tall matrix has no derivative; use mode='reduced'")
    gq, gr = g
    if gq is None and gr is None:
        return (None,)
    q, r = item(out, 0), item(out, 1)
    gq, gr = (None if each is None else conj(each) for each in (gq, gr))
    rest = None
    if n > m:
        if gr is not None:
            rest = q @ _columns(gr, m, n)
            extra = _columns(x, m, n) @ adjoint(_columns(gr, m, n))
            gq, gr = total(gq, extra), _columns(gr, 0, m)
        r = _columns(r, 0, m)
    mixed = total(None if gr is None else r @ adjoint(gr), None if gq is None else -(adjoint(gq) @ q))
    half = triangle(mixed)  # type: ignore[arg-type]
    whole = total(gq, q @ (half + adjoint(half)))
    first = solve_triangular(adjoint(r), whole, lower=True, right=True)  # type: ignore[arg-type]
    return (conj(first if n <= m else apply("concatenate", first, _or_zeros(rest, x, m, n), axis=x.ndim - 1)),)


def _columns(x: Node, low: int, high: int) -> Node:
    return apply("load", x, chain=(("index", (*(("s", None, None, None),) * (x.ndim - 1), ("s", low, high, None))),))


def _or_zeros(x: Node | None, like: Node, low: int, high: int) -> Node:
    return x if x is not None else 0.0 * _columns(like, low, high)


def _qr_avals(x: Aval, mode: str) -> tuple[Aval, ...]:
    dtype = checked(np.linalg.qr, square=False)(x).dtype
    *front, m, n = x.shape
    k = m if mode == "complete" else min(m, n)
    if mode == "raw":
        return Aval((*front, n, m), dtype), Aval((*front, min(m, n)), dtype)
    return Aval((*front, m, k), dtype), Aval((*front, k, n), dtype)


def _qr_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape in ((3, 3), (4, 2), (2, 3), (2, 3, 2)):
        yield Sample((matrix(rng, *shape),), {"mode": "reduced"})
    yield Sample((matrix(rng, 3, 2, dtype=np.complex128),), {"mode": "reduced"})
    yield Sample((matrix(rng, 2, 3, dtype=np.complex128),), {"mode": "complete"})
    yield Sample((matrix(rng, 4, 2),), {"mode": "complete"}, order=0)
    yield Sample((matrix(rng, 2, 4, 2, dtype=np.float32),), {"mode": "raw"}, order=0)
    yield Sample((np.zeros((0, 2)),), {"mode": "reduced"}, order=0)


def _qr_factors(x: Aval, mode: str) -> str:
    if mode == "raw":
        return f"{batch(x)} !m !n -> {batch(x)} !n !m, {batch(x)} !k"
    return f"{batch(x)} !m !n -> {batch(x)} !m !k, {batch(x)} !k !n"


op(
    "qr", _qr, aval=_qr_avals, vjp=_qr_rule, factors=_qr_factors, fails=True, room=room(2), samples=_qr_samples,
    batch=batching.unchanged("qr"),
)  # fmt: skip
