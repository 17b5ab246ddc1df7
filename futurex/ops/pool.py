"""Pooling over windows of the spatial axes, channels-last, with gradients; any number of spatial dimensions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from futurex.ops.window import Padding, Sizes, dense, out_sizes, padded, padded_zeros, shifts, spatial_names
from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply
from futurex.tree.record import Cost, Sample, op


def pool_shape(x: Sizes, window: Sizes, stride: Sizes, padding: Padding) -> Sizes:
    """Shape of a pooling's result. Raises ValueError for a window that does not fit or that could lie outside ``x``.

    >>> pool_shape((2, 8, 3), (2,), (2,), ((0, 0),))
    (2, 4, 3)
    """
    if len(x) < 3:
        raise ValueError(f"pooling needs (N, *spatial, C), got shape {x}")
    sizes = out_sizes(x[1:-1], window, stride, padding, dense(window))
    if any(max(pair) >= extent for pair, extent in zip(padding, window, strict=True)):
        raise ValueError(f"padding {padding} must be smaller than the window {window}: a window must see an element")
    return (x[0], *sizes, x[-1])


def place_dtype(window: Sizes) -> np.dtype[Any]:
    """The type of the number of a position inside a window.

    >>> place_dtype((3, 3)), place_dtype((20, 20))
    (dtype('uint8'), dtype('uint16'))
    """
    return np.min_scalar_type(math.prod(window))


def lowest(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "f":
        return -np.inf
    return False if dtype.kind == "b" else np.iinfo(dtype).min


def _max_pool(x: Any, window: Sizes, stride: Sizes, padding: Padding) -> Any:
    sizes = pool_shape(x.shape, window, stride, padding)[1:-1]
    x = padded(x, padding, lowest(x.dtype))
    views = (x[view] for _, view in shifts(window, stride, dense(window), sizes))
    out = next(views).copy()
    for view in views:
        np.maximum(out, view, out=out)
    return out


def _first_maxima(x: Any, window: Sizes, stride: Sizes, padding: Padding, sizes: Sizes) -> Any:
    """The number of the window position, in row-major order, where each window first attains its maximum (or a NaN)."""
    x = padded(x, padding, lowest(x.dtype))
    views = (x[view] for _, view in shifts(window, stride, dense(window), sizes))
    best = next(views).copy()
    first = np.zeros(best.shape, place_dtype(window))
    for number, view in enumerate(views, start=1):
        better = ~(view <= best) & (best == best)  # a NaN beats all before it and is never beaten
        np.copyto(first, number, where=better)
        np.copyto(best, view, where=better)
    return first


def _max_pool_grad(g: Any, x: Any, window: Sizes, stride: Sizes, padding: Padding) -> Any:
    first = _first_maxima(x, window, stride, padding, _checked(g.shape, x.shape, window, stride, padding))
    return _max_pool_spread(g, first, x.shape, window, stride, padding)


def _max_pool_pick(t: Any, x: Any, window: Sizes, stride: Sizes, padding: Padding) -> Any:
    sizes = pool_shape(x.shape, window, stride, padding)[1:-1]
    first = _first_maxima(x, window, stride, padding, sizes)
    t = padded(t, padding)
    out = np.zeros(first.shape, t.dtype)
    for number, (_, view) in enumerate(shifts(window, stride, dense(window), sizes)):
        np.copyto(out, t[view], where=first == number)
    return out


def _checked(g: Sizes, x: Sizes, window: Sizes, stride: Sizes, padding: Padding) -> Sizes:
    expected = pool_shape(x, window, stride, padding)
    if g != expected:
        raise ValueError(f"the gradient of a pooling of {x} with window {window} has shape {expected}, got {g}")
    return expected[1:-1]


def _max_pool_places(x: Any, window: Sizes, stride: Sizes, padding: Padding) -> Any:
    sizes = pool_shape(x.shape, window, stride, padding)[1:-1]
    return _max_pool(x, window, stride, padding), _first_maxima(x, window, stride, padding, sizes)


def _max_pool_spread(g: Any, places: Any, input_shape: Sizes, window: Sizes, stride: Sizes, padding: Padding) -> Any:
    _checked(g.shape, input_shape, window, stride, padding)
    buffer, inside = padded_zeros(input_shape, padding, g.dtype)
    for number, (_, view) in enumerate(shifts(window, stride, dense(window), g.shape[1:-1])):
        buffer[view] += np.where(places == number, g, g.dtype.type(0))
    return np.ascontiguousarray(inside)


def _mean_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if dtype.kind in "fc" else np.dtype(np.float64)


def _avg_pool(x: Any, window: Sizes, stride: Sizes, padding: Padding) -> Any:
    shape = pool_shape(x.shape, window, stride, padding)
    x = padded(x, padding)
    out = np.zeros(shape, _mean_dtype(x.dtype))
    for _, view in shifts(window, stride, dense(window), shape[1:-1]):
        out += x[view]
    out /= math.prod(window)
    return out


def _avg_pool_grad(g: Any, input_shape: Sizes, window: Sizes, stride: Sizes, padding: Padding) -> Any:
    sizes = _checked(g.shape, input_shape, window, stride, padding)
    share = g / math.prod(window)
    buffer, inside = padded_zeros(input_shape, padding, share.dtype)
    for _, view in shifts(window, stride, dense(window), sizes):
        buffer[view] += share
    return np.ascontiguousarray(inside)


def _grad_aval(g: Aval, x: Aval, **attrs: Any) -> Aval:
    _checked(g.shape, x.shape, **attrs)
    return Aval(x.shape, g.dtype)


def _pick_aval(t: Aval, x: Aval, **attrs: Any) -> Aval:
    if t.shape != x.shape:
        raise ValueError(f"max_pool_pick picks from {t.shape} where {x.shape} has its maxima; the shapes must be equal")
    return Aval(pool_shape(x.shape, **attrs), t.dtype)


def _places_aval(x: Aval, **attrs: Any) -> tuple[Aval, Aval]:
    shape = pool_shape(x.shape, **attrs)
    return Aval(shape, x.dtype), Aval(shape, place_dtype(attrs["window"]))


def _spread_aval(g: Aval, places: Aval, input_shape: Sizes, **attrs: Any) -> Aval:
    _checked(g.shape, input_shape, **attrs)
    if places.shape != g.shape or places.dtype != place_dtype(attrs["window"]):
        raise ValueError(f"max_pool_spread: {places!r} does not say where {g!r} belongs")
    return Aval(input_shape, g.dtype)


def _avg_grad_aval(g: Aval, input_shape: Sizes, **attrs: Any) -> Aval:
    _checked(g.shape, input_shape, **attrs)
    return Aval(input_shape, _mean_dtype(g.dtype))


def _factors(reads: str, writes: str) -> Any:
    """``reads`` and ``writes`` name the arrays: "x" large, "p" pooled. Batch and channels pass through."""

    def factors(first: Aval, *_: Aval, **__: Any) -> str:
        names = {kind: f"n {spatial_names(kind, first.ndim - 2)}c" for kind in "xp"}
        return f"{', '.join(names[kind] for kind in reads)} -> {names[writes]}"

    return factors


def _cost(large: Aval, pooled: Sizes, window: Sizes, passes: int) -> Cost:
    count = math.prod(pooled)
    return Cost(float(count * math.prod(window)), float(passes * large.nbytes + count * large.dtype.itemsize))


def _forward_cost(x: Aval, **attrs: Any) -> Cost:
    return _cost(x, pool_shape(x.shape, **attrs), attrs["window"], 1)


def _backward_cost(g: Aval, x: Aval, window: Sizes, **_: Any) -> Cost:
    return _cost(x, g.shape, window, 2)


def _spread_cost(g: Aval, places: Aval, input_shape: Sizes, window: Sizes, **_: Any) -> Cost:
    cost = _cost(Aval(input_shape, g.dtype), g.shape, window, 1)
    return Cost(cost.flops, cost.bytes + places.nbytes)


def _avg_backward_cost(g: Aval, input_shape: Sizes, window: Sizes, **_: Any) -> Cost:
    return _cost(Aval(input_shape, g.dtype), g.shape, window, 1)


_GEOMETRIES: tuple[tuple[Sizes, dict[str, Any]], ...] = (
    ((3, 8, 2), {"window": (2,), "stride": (2,), "padding": ((0, 0),)}),
    ((2, 7, 3), {"window": (3,), "stride": (2,), "padding": ((1, 0),)}),
    ((2, 5, 6, 2), {"window": (3, 2), "stride": (1, 2), "padding": ((1, 1), (0, 1))}),
    ((2, 3, 4, 3, 2), {"window": (2, 2, 2), "stride": (1, 2, 1), "padding": ((0, 0), (0, 0), (1, 0))}),
)


def _samples(which: str) -> Any:
    """Samples whose elements are well apart, so that finite differences do not change a maximum."""

    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        for shape, attrs in _GEOMETRIES:
            pooled = pool_shape(shape, **attrs)
            for dtype in (np.float64, np.float32) if shape[0] == 3 else (np.float64,):
                spread = rng.permutation(math.prod(shape)).reshape(shape) / 7.0 - 3.0
                values = {"x": spread, "t": rng.normal(size=shape), "g": rng.normal(size=pooled)}
                extra = {"input_shape": shape} if which == "g" else {}
                inputs = tuple(values[name].astype(dtype) for name in which)
                yield Sample(inputs, {**extra, **attrs}, order=2 if dtype == np.float64 else 0)

    return samples


def _places_factors(x: Aval, **_: Any) -> str:
    names = _factors("x", "p")(x)
    return f"{names}, {names.rpartition(' -> ')[2]}"


def _spread_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for sample in _samples("gx")(rng):
        g, x = sample.inputs
        _, places = _max_pool_places(x, **sample.attrs)
        yield Sample((g, places), {"input_shape": x.shape, **sample.attrs}, order=0)


op(
    "max_pool", _max_pool, aval=lambda x, **attrs: Aval(pool_shape(x.shape, **attrs), x.dtype),
    vjp=lambda g, out, x, **attrs: (apply("max_pool_grad", g, x, **attrs),),
    factors=_factors("x", "p"), cost=_forward_cost, samples=_samples("x"),
)  # fmt: skip
op(
    "max_pool_grad", _max_pool_grad, aval=_grad_aval,
    vjp=lambda ct, out, g, x, **attrs: (apply("max_pool_pick", ct, x, **attrs), None),
    factors=_factors("px", "x"), cost=_backward_cost, samples=_samples("gx"),
)  # fmt: skip
op(
    "max_pool_pick", _max_pool_pick, aval=_pick_aval,
    vjp=lambda g, out, t, x, **attrs: (apply("max_pool_grad", g, x, **attrs), None),
    factors=_factors("xx", "p"), cost=lambda t, x, **attrs: _forward_cost(x, **attrs), samples=_samples("tx"),
)  # fmt: skip


# A pass makes these two of the forward and the backward one, so that the maxima are looked for once.
op(
    "max_pool_places", _max_pool_places, aval=_places_aval, factors=_places_factors, cost=_forward_cost,
    samples=lambda rng: (replace(sample, order=0) for sample in _samples("x")(rng)),
)  # fmt: skip
op(
    "max_pool_spread", _max_pool_spread, aval=_spread_aval, factors=_factors("pp", "x"), shape_attr="input_shape",
    cost=_spread_cost, samples=_spread_samples,
)  # fmt: skip


def _avg_pool_rule(g: Node, out: Node, x: Node, **attrs: Any) -> tuple[Node]:
    return (apply("avg_pool_grad", g, input_shape=x.shape, **attrs),)


def _avg_pool_grad_rule(ct: Node, out: Node, g: Node, input_shape: Sizes, **attrs: Any) -> tuple[Node]:
    return (apply("avg_pool", ct, **attrs),)


op(
    "avg_pool", _avg_pool, aval=lambda x, **attrs: Aval(pool_shape(x.shape, **attrs), _mean_dtype(x.dtype)),
    vjp=_avg_pool_rule, factors=_factors("x", "p"), cost=_forward_cost, samples=_samples("x"),
)  # fmt: skip
op(
    "avg_pool_grad", _avg_pool_grad, aval=_avg_grad_aval, vjp=_avg_pool_grad_rule, factors=_factors("p", "x"),
    shape_attr="input_shape", cost=_avg_backward_cost, samples=_samples("g"),
)  # fmt: skip
