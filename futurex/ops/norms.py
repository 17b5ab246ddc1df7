"""Norms of vectors and matrices that need no factorization, and condition numbers.

The kernels are NumPy's; the derivatives are those of what a norm is made of. At zero, where a norm has a corner, it
counts as flat.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.ops.elementwise import conj, is_complex, where
from futurex.ops.matrices import batch, checked, matrix, real_of
from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply
from futurex.tree.record import Sample, op

Axis = int | tuple[int, ...] | None


def _axes(ndim: int, axis: Axis) -> tuple[int, ...]:
    axes = tuple(range(ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return tuple(k % ndim for k in axes)


def _norm_aval(x: Aval, ord: Any, axis: Axis, keepdims: bool) -> Aval:
    small = np.ones([min(extent, 1) for extent in x.shape], x.dtype)
    dtype = np.linalg.norm(small, ord, axis, keepdims).dtype  # raises what NumPy raises for axes and orders
    gone = _axes(x.ndim, axis)
    shape = ((1 if k in gone else extent) for k, extent in enumerate(x.shape) if keepdims or k not in gone)
    return Aval(tuple(shape), dtype)


def _root(x: Node, power: float) -> Node:
    """A root of what is not negative, flat at zero."""
    positive = where(apply("greater", x, 0.0), x, 1.0)
    root = apply("sqrt", positive) if power == 0.5 else apply("power", positive, power)
    return where(apply("greater", x, 0.0), root, 0.0)


def _square(x: Node) -> Node:
    return apply("real", conj(x) * x) if is_complex(x) else x * x


def _reduced(name: str, x: Node, axes: tuple[int, ...], keepdims: bool) -> Node:
    extra = {"dtype": None} if name == "sum" else {}
    if not axes:
        return x
    if name == "max" and any(x.shape[k] == 0 for k in axes):  # NumPy starts from zero
        return apply("sum", x, axis=axes, keepdims=keepdims, dtype=None)
    return apply(name, x, axis=axes, keepdims=keepdims, **extra)


def _norm_parts(x: Node, ord: Any, axis: Axis, keepdims: bool) -> Node:
    if not x.aval.inexact:
        x = apply("cast", x, dtype=np.dtype(float))
    axes = _axes(x.ndim, axis)
    ordered = tuple(sorted(axes))
    whole = axis is None and ord is None
    if whole or ord in ("fro", "f") or (ord == 2 and len(axes) == 1) or ord is None:
        return _root(_reduced("sum", _square(x), ordered, keepdims), 0.5)
    size = apply("absolute", x)
    if len(axes) == 1:
        if ord in (np.inf, -np.inf):
            return _reduced("max" if ord > 0 else "min", size, axes, keepdims)
        if ord == 0:
            return _reduced("sum", apply("cast", apply("not_equal", x, 0), dtype=size.dtype), axes, keepdims)
        if ord == 1:
            return _reduced("sum", size, axes, keepdims)
        return _root(_reduced("sum", apply("power", size, float(ord)), axes, keepdims), 1.0 / ord)
    rows, columns = axes
    first, second = (rows, columns) if abs(ord) == 1 else (columns, rows)
    extreme = _reduced("max" if ord > 0 else "min", _reduced("sum", size, (first,), True), (second,), True)
    return extreme if keepdims else _reduced("sum", extreme, ordered, False)


def _norm_factors(x: Aval, ord: Any, axis: Axis, keepdims: bool) -> str:
    gone = _axes(x.ndim, axis)
    names = [f"!d{k}" if k in gone else f"d{k}" for k in range(x.ndim)]
    kept = ["1" if k in gone else name for k, name in enumerate(names) if keepdims or k not in gone]
    return f"{' '.join(names)} -> {' '.join(kept)}"


def _norm_samples(rng: np.random.Generator) -> Iterable[Sample]:
    def sample(x: Any, ord: Any, axis: Axis, keepdims: bool = False, order: int = 2) -> Sample:
        return Sample((x,), {"ord": ord, "axis": axis, "keepdims": keepdims}, order=order)

    x, z = rng.normal(size=(2, 3, 4)), matrix(rng, 2, 3, dtype=np.complex128)
    ord: Any
    for ord in (None, 1, 2, 3, -1, 0.5, np.inf, -np.inf):
        yield sample(x, ord, 1)
        yield sample(z, ord, -1, True)
    yield sample(x, 0, 1, order=1)
    for ord in ("fro", None, 1, -1, np.inf, -np.inf):
        yield sample(x, ord, (0, 2))
        yield sample(z, ord, (1, 0), True)
    for value in (x, z):
        yield sample(value, None, None)
        yield sample(value, None, None, True)
    yield sample(x.astype(np.float32), 3, 2, order=0)
    yield sample(np.arange(4), None, None, order=0)
    yield sample(np.zeros((0, 2)), np.inf, 0, order=0)


op(
    "norm", lambda x, ord, axis, keepdims: np.linalg.norm(x, ord, axis, keepdims), aval=_norm_aval,
    decompose=_norm_parts, factors=_norm_factors, samples=_norm_samples,
)  # fmt: skip


def _cond(x: Any, p: Any) -> Any:
    return np.asarray(np.linalg.cond(x, p))[()]


def _cond_aval(x: Aval, p: Any) -> Aval:
    dtype = checked(lambda a: np.linalg.cond(a, p), square=p not in (None, 2, -2))(x).dtype
    return Aval(x.shape[:-2], real_of(dtype))


def _cond_parts(x: Node, p: Any) -> Node:
    if p in (None, 2, -2):
        values = apply("svdvals", x, hermitian=False)
        first, last = (
            apply("load", values, chain=(("index", (*(("s", None, None, None),) * (x.ndim - 2), ("i", k))),))
            for k in (0, -1)
        )
        return last / first if p == -2 else first / last
    if p == "nuc":
        sizes = [
            apply("sum", apply("svdvals", a, hermitian=False), axis=(x.ndim - 2,), keepdims=False, dtype=None)
            for a in (x, apply("inv", x))
        ]
    else:
        sizes = [apply("norm", a, ord=p, axis=(-2, -1), keepdims=False) for a in (x, apply("inv", x))]
    return sizes[0] * sizes[1]


def _cond_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for p in (None, -2, 1, -np.inf, "fro", "nuc"):
        yield Sample((matrix(rng, 2, 3, 3),), {"p": p})
        yield Sample((matrix(rng, 2, 2, dtype=np.complex128),), {"p": p}, order=1)
    yield Sample((matrix(rng, 4, 3),), {"p": 2})
    yield Sample((np.array([[2, 1], [1, 1]]),), {"p": 1}, order=0)


op(
    "condition_number", _cond, aval=_cond_aval, decompose=_cond_parts, fails=True, samples=_cond_samples,
    factors=lambda x, p: f"{batch(x)} !m !n -> {batch(x)}",
)  # fmt: skip
