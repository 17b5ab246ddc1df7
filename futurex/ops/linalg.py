"""Systems of linear equations: inverse, solution, determinants, Cholesky factor, pseudo-inverse and least squares.

The kernels are NumPy's. Sources of the derivatives: Giles, "An extended collection of matrix derivative results for
forward and reverse mode algorithmic differentiation" (2008); Murray, "Differentiation of the Cholesky decomposition"
(2016); Golub & Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems whose variables
separate" (1973), which holds while the rank stays the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.ops import batching
from futurex.ops.elementwise import conj, is_complex, unbroadcast
from futurex.ops.factor_grad import cholesky_gradient
from futurex.ops.matrices import (
    adjoint,
    as_read,
    batch,
    checked,
    column,
    element_bytes,
    hermitian_matrix,
    identity_minus,
    matrix,
    matrix_samples,
    positive,
    real_of,
    room,
    row,
    scale,
    stacks,
    swap_last,
    total,
    vector,
)  # fmt: skip
from futurex.ops.minors import MOST, cofactors
from futurex.ops.triangular import half_of, solve_triangular
from futurex.tree.aval import Aval
from futurex.tree.dims import Fresh, broadcast_shapes, is_static
from futurex.tree.node import Node, apply, const, item
from futurex.tree.record import Sample, op


def _inv_rule(g: Node, out: Node, x: Node) -> tuple[Node]:
    turned = swap_last(out)
    return (-(turned @ g @ turned),)


def _same_factors(x: Aval, **_: Any) -> str:
    return f"{batch(x)} !m !n -> {batch(x)} !m !n"


op(
    "inv", np.linalg.inv, aval=checked(np.linalg.inv), vjp=_inv_rule, factors=_same_factors, fails=True,
    batch=batching.unchanged("inv"), room=room(2),
    samples=matrix_samples(matrix),
)  # fmt: skip


def _solve_aval(a: Aval, b: Aval) -> Aval:
    if a.ndim < 2 or a.shape[-1] != a.shape[-2] or b.shape[-min(b.ndim, 2) : b.ndim - 1 or None][:1] != a.shape[-1:]:
        np.linalg.solve(*(np.broadcast_to(np.zeros((), x.dtype), x.shape) for x in (a, b)))
    dtype = np.linalg.solve(np.ones((1, 1), a.dtype), np.ones((1, 1), b.dtype)).dtype
    if b.ndim == 1:
        return Aval(a.shape[:-1], dtype)
    return Aval((*broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]), dtype)


def _solve_rule(g: Node, out: Node, a: Node, b: Node) -> tuple[Node, Node]:
    if b.ndim == 1:
        db = vector(_solved_turned(a, column(g)))
        return -(column(db) * row(out)), unbroadcast(db, b.aval)
    db = _solved_turned(a, g)
    return unbroadcast(-(db @ swap_last(out)), a.aval), unbroadcast(db, b.aval)


def _solved_turned(a: Node, b: Node) -> Node:
    """The solution for the transposed matrix, which may be known to be a triangle."""
    half = half_of(a)
    if half is None:
        return apply("solve", swap_last(a), b)
    return solve_triangular(swap_last(a), b, lower=not half)


def _solve_factors(a: Aval, b: Aval) -> str:
    if b.ndim == 1:
        return f"{batch(a)} !m !n, !n -> {batch(a)} !m"
    first, second, out = stacks(a, b)
    return f"{first} !m !n, {second} !n k -> {out} !m k"


def _solve_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for a, b in (((3, 3), (3, 2)), ((3, 3), (3,)), ((2, 3, 3), (3,)), ((2, 3, 3), (1, 3, 2)), ((2, 2), (3, 2, 4))):
        yield Sample((matrix(rng, *a), rng.normal(size=b)))
    yield Sample((matrix(rng, 2, 2, dtype=np.complex128), matrix(rng, 2, 3)))
    yield Sample((matrix(rng, 2, 2), matrix(rng, 2, 3, dtype=np.complex128)))
    yield Sample((matrix(rng, 2, 2, dtype=np.float32), np.arange(2)), order=0)
    yield Sample((np.zeros((0, 0)), np.zeros((0, 2))), order=0)


op(
    "solve", np.linalg.solve, aval=_solve_aval, vjp=_solve_rule, factors=_solve_factors, fails=True,
    batch=batching.solve, room=lambda a, b: element_bytes(a) * (a.shape[-1] ** 2 + math.prod(b.shape[-2:])),
    samples=_solve_samples,
)  # fmt: skip


_WELL = 1e6
"""Condition up to which the inverse tells cofactors; beyond, singular values keep the digits that it loses."""


def _cofactor(x: Any) -> Any:
    """det(x) times the transposed inverse, in ways in which it exists for singular matrices too."""
    extent = x.shape[-1]
    if 0 < extent <= MOST:
        return _by_minors(x)
    try:
        with np.errstate(all="ignore"):
            found, well = _by_inverse(x)
    except np.linalg.LinAlgError:
        return _by_singular_values(x)
    return found if well.all() else np.where(well[..., None, None], found, _by_singular_values(x))


def _by_inverse(x: Any) -> tuple[Any, Any]:
    """And for which matrices it is as exact as other ways."""
    inverse, determinant = np.linalg.inv(x), np.linalg.det(x)
    first, second = (np.abs(each).sum(axis=-1).max(axis=-1) if x.shape[-1] else 0 for each in (x, inverse))
    well = (first * second < _WELL) & np.isfinite(determinant) & (determinant != 0)
    return determinant[..., None, None] * np.swapaxes(inverse, -1, -2), well


def _by_minors(x: Any) -> Any:
    extent, dtype = x.shape[-1], np.linalg.det(x[..., :1, :1]).dtype
    entries = np.ascontiguousarray(np.moveaxis(x, (-2, -1), (0, 1)).astype(dtype))
    out = np.empty(x.shape, dtype)
    for place, value in cofactors(extent, lambda i, j: entries[i, j], 1).items():
        out[(..., *place)] = value
    return out


def _by_singular_values(x: Any) -> Any:
    u, s, vh = np.linalg.svd(x)
    others = np.prod(np.where(np.eye(s.shape[-1], dtype=bool), 1, s[..., None, :]), axis=-1)
    sign = np.linalg.det(u) * np.linalg.det(vh)
    return sign[..., None, None] * ((u.conj() * others[..., None, :]) @ vh.conj())


def _cofactor_rule(g: Node, out: Node, x: Node) -> tuple[Node]:
    turned = swap_last(apply("inv", x))
    whole = apply("sum", g * out, axis=(g.ndim - 2, g.ndim - 1), keepdims=True, dtype=None)
    return (whole * turned - out @ swap_last(g) @ turned,)


op(
    "cofactor", _cofactor, aval=checked(np.linalg.inv), vjp=_cofactor_rule, factors=_same_factors, fails=True,
    samples=lambda rng: [
        *matrix_samples(matrix)(rng),
        *(Sample((matrix(rng, 2, 6, 6, dtype=dtype),), order=1) for dtype in (float, complex)),
        *(Sample((np.diag([1.0, 2.0, *(3.0,) * more, 0.0]),), order=0) for more in (0, 1, 3)),
    ],
)  # fmt: skip


def _det_rule(g: Node, out: Node, x: Node) -> tuple[Node]:
    return (scale(g) * apply("cofactor", x),)


def _det_aval(x: Aval) -> Aval:
    return Aval(x.shape[:-2], checked(np.linalg.det)(x).dtype)


op(
    "det", np.linalg.det, aval=_det_aval, vjp=_det_rule, samples=matrix_samples(matrix),
    batch=batching.unchanged("det"), room=room(1),
    factors=lambda x: f"{batch(x)} !m !n -> {batch(x)}",
)  # fmt: skip


def _slogdet_rule(g: tuple[Any, ...], out: Node, x: Node) -> tuple[Node | None]:
    """The logarithm changes by Re tr(inv(x) dx), the phase of a complex determinant by Im tr(inv(x) dx)."""
    gsign, glog = g
    weight = glog
    if gsign is not None and is_complex(x):
        turn = -1j * apply("real", 1j * gsign * item(out, 0))
        weight = turn if glog is None else glog + turn
    return (None if weight is None else scale(weight) * swap_last(apply("inv", x)),)


def _slogdet_aval(x: Aval) -> tuple[Aval, Aval]:
    dtype = checked(np.linalg.slogdet)(x).dtype
    return Aval(x.shape[:-2], dtype), Aval(x.shape[:-2], real_of(dtype))


op(
    "slogdet", lambda x: tuple(np.linalg.slogdet(x)), aval=_slogdet_aval, vjp=_slogdet_rule, room=room(1),
    batch=batching.unchanged("slogdet"),
    samples=matrix_samples(matrix), factors=lambda x: f"{batch(x)} !m !n -> {batch(x)}, {batch(x)}",
)  # fmt: skip


def _cholesky_rule(g: Node, out: Node, x: Node, upper: bool) -> tuple[Node]:
    return (cholesky_gradient(g, out, upper),)


op(
    "cholesky", lambda x, upper: np.linalg.cholesky(x, upper=upper), vjp=_cholesky_rule, factors=_same_factors,
    room=room(1),
    batch=batching.unchanged("cholesky"),
    aval=lambda x, upper: checked(np.linalg.cholesky)(x), fails=True,
    samples=matrix_samples(positive, {"upper": False}, {"upper": True}),
)  # fmt: skip


def _pinv_rule(g: Node, out: Node, x: Node, rcond: Node, hermitian: bool) -> tuple[Node, None]:
    """Golub and Pereyra's formula: the change of the inverse, and what turns the two null spaces."""
    a = hermitian_matrix(x) if hermitian else x
    gradient, back = conj(g), adjoint(out)
    change = (
        identity_minus(a @ out) @ adjoint(gradient) @ out @ back
        + back @ out @ adjoint(gradient) @ identity_minus(out @ a)
        - back @ gradient @ back
    )
    return conj(as_read(change) if hermitian else change), None


def _pinv_aval(x: Aval, rcond: Aval, hermitian: bool) -> Aval:
    dtype = checked(np.linalg.pinv, square=hermitian)(x).dtype
    return Aval((*x.shape[:-2], x.shape[-1], x.shape[-2]), dtype)


def _pinv_samples(rng: np.random.Generator) -> Iterable[Sample]:
    plain = {"hermitian": False}
    for shape in ((3, 3), (4, 2), (2, 2, 3)):
        yield Sample((matrix(rng, *shape), 1e-15), plain)
    yield Sample((matrix(rng, 3, 2, dtype=np.complex128), 1e-15), plain)
    yield Sample((matrix(rng, 2, 2, 3), np.array([1e-9, 0.7])), plain, order=0)
    yield Sample((positive(rng, 3, 3), 1e-15), {"hermitian": True})
    yield Sample((positive(rng, 2, 2, dtype=np.complex128), 1e-15), {"hermitian": True})
    yield Sample((np.zeros((0, 2), int), 1e-15), plain, order=0)
    yield Sample((matrix(rng, 3, 2, dtype=np.float32), np.float64(1e-5)), plain, order=0)


op(
    "pinv", lambda x, rcond, hermitian: np.linalg.pinv(x, rcond, hermitian), aval=_pinv_aval, vjp=_pinv_rule,
    batch=batching.pinv,
    factors=lambda x, rcond, hermitian: f"{batch(x)} !m !n, {batch(x) if rcond.ndim else ''} -> {batch(x)} !n !m",
    fails=True, samples=_pinv_samples,
)  # fmt: skip


def _lstsq_aval(a: Aval, b: Aval, rcond: float | None) -> tuple[Aval, Aval, Aval, Aval]:
    """Solution, residuals, rank, singular values; of the residuals there are none where the rank is not full."""
    if a.ndim != 2 or b.ndim not in (1, 2) or a.shape[0] != b.shape[0]:
        stand_ins = [np.broadcast_to(np.zeros((), x.dtype), x.shape) for x in (a, b)]
        np.linalg.lstsq(stand_ins[0], stand_ins[1])
    x, residuals, rank, s = np.linalg.lstsq(np.ones((2, 1), a.dtype), np.ones((2, 1), b.dtype), rcond)
    known = is_static(a.shape)
    return (
        Aval((a.shape[1], *b.shape[1:]), x.dtype),
        Aval((0,) if known and a.shape[0] <= a.shape[1] else (Fresh(1),), residuals.dtype),
        Aval((), rank.dtype),
        Aval((min(a.shape) if known else Fresh(0),), s.dtype),
    )


def _lstsq_rule(g: tuple[Any, ...], out: Node, a: Node, b: Node, rcond: float | None) -> tuple[Any, ...]:
    """x is pinv(a) @ b; what is left over and what x cannot reach turn with the matrix."""
    gx, gresiduals, _, gs = g
    as_columns = column if b.ndim == 1 else _same
    x = as_columns(item(out, 0))
    rest = as_columns(b) - a @ x
    da = db = None
    if gx is not None:
        gradient = conj(as_columns(gx))
        inverse = apply("pinv", a, _cutoff(a) if rcond is None else rcond, hermitian=False)
        back = adjoint(inverse)
        db = back @ gradient
        unreached = identity_minus(inverse @ a) @ gradient
        da = rest @ adjoint(inverse @ db) + back @ x @ adjoint(unreached) - db @ adjoint(x)
    if gresiduals is not None:
        weighted = 2.0 * rest * row(_filled(gresiduals, x.shape[1]))
        da, db = total(da, -(weighted @ adjoint(x))), total(db, weighted)
    if gs is not None:
        values = apply("svd", a, full_matrices=False, hermitian=False)
        da = total(da, (item(values, 0) * row(gs)) @ item(values, 2))
    if db is not None:
        db = conj(vector(db) if b.ndim == 1 else db)
    return None if da is None else conj(da), db


def _cutoff(a: Node) -> Any:
    """The relative size below which ``lstsq`` takes a singular value for zero, if it is not told."""
    eps = float(np.finfo(float).eps)
    if is_static(a.shape):
        return eps * max(a.shape)
    ones = (apply("full", const(1.0), shape=(extent,), dtype=np.dtype(float)) for extent in a.shape)
    rows, columns = (apply("sum", each, axis=None, keepdims=False, dtype=None) for each in ones)
    return apply("maximum", rows, columns) * eps


def _same(x: Node) -> Node:
    return x


def _filled(x: Node, length: int) -> Node:
    """A vector that may be empty, with zeros instead."""
    zeros = apply("full", const(np.zeros((), x.dtype)[()]), shape=(length,), dtype=x.dtype)
    places = apply("iota", shape=x.shape, axis=0, dtype=np.dtype(np.intp))
    return apply("scatter", zeros, x, places, pattern=(("d", 0),), mode="add")


def _lstsq_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for a, b in (((4, 2), (4,)), ((4, 2), (4, 2)), ((3, 3), (3, 2)), ((2, 3), (2,))):
        yield Sample((matrix(rng, *a), rng.normal(size=b)), {"rcond": None})
    yield Sample((matrix(rng, 4, 2, dtype=np.complex128), matrix(rng, 4, 2, dtype=np.complex128)), {"rcond": 1e-12})
    yield Sample((matrix(rng, 4, 2, dtype=np.float32), np.arange(4)), {"rcond": None}, order=0)
    yield Sample((matrix(rng, 4, 3), rng.normal(size=(4, 0))), {"rcond": 0.6}, order=0)
    yield Sample((np.zeros((0, 2)), np.zeros(0)), {"rcond": None}, order=0)


op(
    "lstsq", lambda a, b, rcond: tuple(np.linalg.lstsq(a, b, rcond)), aval=_lstsq_aval, vjp=_lstsq_rule, fails=True,
    samples=_lstsq_samples,
    factors=lambda a, b, rcond: f"!m !n, !m{' !k' * (b.ndim - 1)} -> !n{' !k' * (b.ndim - 1)}, !q, , !r",
)  # fmt: skip
