"""Reductions, arg-reductions and cumulative sums. ``axis`` is a sorted tuple of non-negative ints, or None for all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from futurex.ops.elementwise import where
from futurex.tree.aval import Aval
from futurex.tree.dims import same
from futurex.tree.node import Node, apply
from futurex.tree.record import Cost, Sample, op

Axis = tuple[int, ...] | None


def axes_of(ndim: int, axis: Axis) -> tuple[int, ...]:
    return tuple(range(ndim)) if axis is None else axis


def reduced_shape(shape: tuple[int, ...], axis: Axis, keepdims: bool) -> tuple[int, ...]:
    """The shape of a reduction's result."""
    axes = axes_of(len(shape), axis)
    if keepdims:
        return tuple(1 if k in axes else extent for k, extent in enumerate(shape))
    return tuple(extent for k, extent in enumerate(shape) if k not in axes)


def restore(reduced: Node, x: Node, axis: Axis) -> Node:
    """A reduced array broadcast to the shape it was reduced from."""
    kept = tuple(1 if k in axes_of(x.ndim, axis) else extent for k, extent in enumerate(x.shape))
    if not same(reduced.shape, kept):
        reduced = apply("reshape", reduced, shape=kept)
    return apply("broadcast_to", reduced, shape=x.shape)


def _factors(x: Aval, axis: Axis, keepdims: bool, whole: bool = False, **_: Any) -> str:
    """``whole``: what is reduced is not divided."""
    axes = axes_of(x.ndim, axis)
    names = [f"!d{k}" if whole and k in axes else f"d{k}" for k in range(x.ndim)]
    outs = [("1" if keepdims else None) if k in axes else name for k, name in enumerate(names)]
    return f"{' '.join(names)} -> {' '.join(name for name in outs if name)}"


def _kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(x: Any, axis: Axis, keepdims: bool, **attrs: Any) -> Any:
        if axis is not None and len(axis) == 1:
            return function(x, axis=axis[0], keepdims=keepdims, **attrs)
        return function(x, axis=axis, keepdims=keepdims, **attrs)

    return kernel


def _aval_like(function: Callable[..., Any]) -> Callable[..., Aval]:
    """Shape by rule, dtype by asking NumPy on one element."""

    def aval(x: Aval, axis: Axis, keepdims: bool, **attrs: Any) -> Aval:
        shape = reduced_shape(x.shape, axis, keepdims)
        if function in (np.max, np.min) and x.static and x.size == 0 and math.prod(shape) != 0:
            function(np.empty(0, x.dtype))  # raises what NumPy raises for an empty maximum
        return Aval(shape, np.asarray(function(np.ones(1, x.dtype), **attrs)).dtype)

    return aval


def _cost(x: Aval, axis: Axis, keepdims: bool, **_: Any) -> Cost:
    return Cost(x.size, x.nbytes + 8.0 * math.prod(reduced_shape(x.shape, axis, keepdims)))


def _samples(order: int, dtypes: tuple[Any, ...] = (np.float64, np.float32, np.int64), extra: bool = False) -> Any:
    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        for dtype in dtypes:
            for shape, axis, keepdims in (((3, 4), None, False), ((3, 4), (1,), False), ((2, 3, 4), (0, 2), True)):
                apart = rng.permutation(math.prod(shape)).reshape(shape) / 7.0 - 0.8
                values = apart if dtype != np.int64 else rng.integers(1, 4, shape)
                attrs = {"axis": axis, "keepdims": keepdims, **({"dtype": None} if extra else {})}
                yield Sample((values.astype(dtype),), attrs, order=order if dtype == np.float64 else 0)

    return samples


def _sum_rule(g: Node, out: Node, x: Node, axis: Axis, keepdims: bool, dtype: Any) -> tuple[Node]:
    return (restore(g, x, axis),)


def _prod_rule(g: Node, out: Node, x: Node, axis: Axis, keepdims: bool, dtype: Any) -> tuple[Node]:
    """The product of the others, so written that it has a derivative itself: those of two zeros are each other."""
    zero = apply("equal", x, 0)
    others = where(zero, 1, x)

    def total(name: str, of: Node, dtype: Any = None) -> Node:
        return apply(name, of, axis=axis, keepdims=keepdims, dtype=dtype)

    zeros = restore(total("sum", zero), x, axis)
    product = restore(g * total("prod", others, dtype), x, axis)
    beside = product * (restore(total("sum", where(zero, x, 0)), x, axis) - x)
    slope = where(apply("equal", zeros, 1), product, where(apply("equal", zeros, 2), beside, 0))
    return (where(zero, slope, restore(g * out, x, axis) / others),)


def _extreme_rule(g: Node, out: Node, x: Node, axis: Axis, keepdims: bool) -> tuple[Node]:
    """The gradient is shared equally by all elements that attain the extreme."""
    hit = apply("equal", x, restore(out, x, axis))
    count = apply("sum", hit, axis=axis, keepdims=keepdims, dtype=x.dtype)
    return (where(hit, restore(g / count, x, axis), 0.0),)


def _prod_samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield from _samples(2, extra=True)(rng)
    attrs = {"axis": (1,), "keepdims": False, "dtype": None}
    yield Sample((np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 5.0], [1.5, 2.0, 4.0]]),), attrs)


def _reduction(function: Callable[..., Any], rule: Any, reduce: str, samples: Any) -> None:
    op(
        function.__name__, _kernel(function), aval=_aval_like(function), vjp=rule, factors=_factors, reduce=reduce,
        cost=_cost, samples=samples,
    )  # fmt: skip


_reduction(np.sum, _sum_rule, "sum", _samples(2, extra=True))
_reduction(np.prod, _prod_rule, "prod", _prod_samples)
op(
    "free_sum", _kernel(np.sum), aval=_aval_like(np.sum), vjp=lambda g, out, x, axis, keepdims: (restore(g, x, axis),),
    decompose=lambda x, axis, keepdims: apply("sum", x, axis=axis, keepdims=keepdims, dtype=None),
    factors=_factors, reduce="sum", cost=_cost, samples=_samples(2),
)  # fmt: skip
"""A sum that is no NumPy program's own: kernels add it up in an order that suits them, always in the same one."""
op(
    "free_max", _kernel(np.fmax.reduce), aval=_aval_like(np.max), vjp=_extreme_rule, cost=_cost, samples=_samples(1),
    decompose=lambda x, axis, keepdims: apply("max", x, axis=axis, keepdims=keepdims),
    factors=lambda x, axis, keepdims: _factors(x, axis, keepdims, whole=True),
)  # fmt: skip
"""The largest number for a reader who meets NaN elsewhere: what it gives beside NaN is one of the elements."""
_reduction(np.max, _extreme_rule, "max", _samples(1))
_reduction(np.min, _extreme_rule, "min", _samples(1))
_reduction(np.any, None, "max", _samples(0))
_reduction(np.all, None, "min", _samples(0))


def _arg(function: Callable[..., Any]) -> dict[str, Any]:
    def kernel(x: Any, axis: int, keepdims: bool) -> Any:
        return function(x, axis=axis, keepdims=keepdims)

    def aval(x: Aval, axis: int, keepdims: bool) -> Aval:
        if same(x.shape[axis], 0):
            function(np.empty(0))  # raises NumPy's error for an empty sequence
        return Aval(reduced_shape(x.shape, (axis,), keepdims), np.dtype(np.intp))

    def factors(x: Aval, axis: int, keepdims: bool) -> str:
        names = [f"!d{k}" if k == axis else f"d{k}" for k in range(x.ndim)]
        outs = [("1" if keepdims else None) if k == axis else name for k, name in enumerate(names)]
        return f"{' '.join(names)} -> {' '.join(name for name in outs if name)}"

    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample((rng.normal(size=(3, 4)),), {"axis": 1, "keepdims": False}, order=0)
        yield Sample((rng.integers(0, 2, (3, 4)),), {"axis": 0, "keepdims": True}, order=0)

    return {"kernel": kernel, "aval": aval, "factors": factors, "samples": samples}


op("argmax", **_arg(np.argmax))
op("argmin", **_arg(np.argmin))


def _cumsum_rule(g: Node, out: Node, x: Node, axis: int, dtype: Any) -> tuple[Node]:
    return (apply("flip", apply("cumsum", apply("flip", g, axis=(axis,)), axis=axis, dtype=None), axis=(axis,)),)


def along(x: Aval, axis: int, **_: Any) -> str:
    """The tiling rule of what runs along one axis."""
    names = " ".join(f"!d{k}" if k == axis else f"d{k}" for k in range(x.ndim))
    return f"{names} -> {names}"


op(
    "cumsum", lambda x, axis, dtype: np.cumsum(x, axis, dtype), vjp=_cumsum_rule, factors=along,
    aval=lambda x, axis, dtype: Aval(x.shape, np.cumsum(np.ones(1, x.dtype), dtype=dtype).dtype),
    samples=lambda rng: [
        Sample((rng.normal(size=(3, 4)),), {"axis": 1, "dtype": None}),
        Sample((rng.integers(0, 5, (4,)).astype(np.int8),), {"axis": 0, "dtype": None}, order=0),
    ],
)  # fmt: skip
