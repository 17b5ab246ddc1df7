"""Batch and layer normalisation with their gradients, as single ops that backends can claim.

Each stands for a decomposition into simpler ops: the gradients are differentiated through theirs, and a batch that is
tiled is normalised through it, so that its sums run over all tiles. ``local_batch_norm`` and its gradient say the same
of each locality's own part of the batch, where the partitioner makes parts; elsewhere they are their namesakes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply, const, item
from futurex.tree.record import Cost, Sample, op


def _leading(ndim: int) -> tuple[int, ...]:
    return tuple(range(ndim - 1))


def _total(x: Node, axes: tuple[int, ...], keepdims: bool = False) -> Node:
    return apply("sum", x, axis=axes, keepdims=keepdims, dtype=None)


def _check(x: Aval, *vectors: Aval) -> None:
    if x.ndim < 2 or any(vector.shape != x.shape[-1:] for vector in vectors):
        raise ValueError(
            f"normalisation needs x (..., C) of rank 2 or more and vectors of shape (C,): got {x.shape} "
            f"and {', '.join(str(vector.shape) for vector in vectors)}"
        )
    if x.dtype.kind != "f":
        raise TypeError(f"normalisation needs a floating-point x, got {x.dtype}; cast it first")


def _dtype(*avals: Aval) -> np.dtype[Any]:
    return np.result_type(*(aval.dtype for aval in avals))


def _moments(x: Any) -> tuple[Any, Any]:
    axes = _leading(x.ndim)
    mean = np.mean(x, axes)
    return mean, np.mean(np.square(x - mean), axes)


def _moments_decomposed(x: Node) -> tuple[Node, Node]:
    axes, count = _leading(x.ndim), float(math.prod(x.shape[:-1]))
    mean = _total(x, axes) / count
    return mean, _total(apply("square", x - mean), axes) / count


def _moments_aval(x: Aval) -> tuple[Aval, Aval]:
    _check(x)
    return Aval(x.shape[-1:], x.dtype), Aval(x.shape[-1:], x.dtype)


def _batch_norm(x: Any, scale: Any, shift: Any, eps: float) -> tuple[Any, Any, Any]:
    mean, var = _moments(x)
    return (x - mean) * (scale / np.sqrt(var + eps)) + shift, mean, var


def _batch_norm_decomposed(x: Node, scale: Node, shift: Node, eps: float) -> tuple[Node, Node, Node]:
    mean, var = _moments_decomposed(x)
    return normalised(x, scale, shift, mean, var, eps), mean, var


def normalised(x: Node, scale: Node, shift: Node, mean: Node, var: Node, eps: float) -> Node:
    """``x`` by a mean and a variance of its columns."""
    return (x - mean) * (scale / apply("sqrt", var + eps)) + shift


def _batch_norm_aval(x: Aval, scale: Aval, shift: Aval, eps: float) -> tuple[Aval, Aval, Aval]:
    _check(x, scale, shift)
    vector = Aval(x.shape[-1:], x.dtype)
    return Aval(x.shape, _dtype(x, scale, shift)), vector, vector


def _batch_norm_rule(
    g: Sequence[Node | None], out: Node, x: Node, scale: Node, shift: Node, eps: float
) -> tuple[Node | None, ...]:
    """Through y by the gradient op; through mean and variance, where a loss reads them, by their own derivatives."""
    mean, var, count = item(out, 1), item(out, 2), float(math.prod(x.shape[:-1]))
    dx: Node | None = None
    dscale: Node | None = None
    dshift: Node | None = None
    if g[0] is not None:
        back = apply("batch_norm_grad", g[0], x, scale, mean, var, eps=eps)
        dx, dscale, dshift = (item(back, k) for k in range(3))
    if g[1] is not None:
        through_mean = apply("broadcast_to", g[1] / count, shape=x.shape)
        dx = through_mean if dx is None else dx + through_mean
    if g[2] is not None:
        through_var = (x - mean) * (g[2] * (2.0 / count))
        dx = through_var if dx is None else dx + through_var
    return dx, dscale, dshift


def _batch_norm_grad(g: Any, x: Any, scale: Any, mean: Any, var: Any, eps: float) -> tuple[Any, Any, Any]:
    axes, count = _leading(x.ndim), math.prod(x.shape[:-1])
    inverse = 1 / np.sqrt(var + eps)
    normal = (x - mean) * inverse
    dshift = np.sum(g, axes)
    dscale = np.sum(g * normal, axes)
    return (g - (dshift + normal * dscale) / count) * (scale * inverse), dscale, dshift


def _batch_norm_grad_decomposed(
    g: Node, x: Node, scale: Node, mean: Node, var: Node, eps: float
) -> tuple[Node, Node, Node]:
    axes, count = _leading(x.ndim), float(math.prod(x.shape[:-1]))
    inverse = 1.0 / apply("sqrt", var + eps)
    normal = (x - mean) * inverse
    dshift = _total(g, axes)
    dscale = _total(g * normal, axes)
    return (g - (dshift + normal * dscale) / count) * (scale * inverse), dscale, dshift


def _batch_norm_grad_aval(g: Aval, x: Aval, scale: Aval, mean: Aval, var: Aval, eps: float) -> tuple[Aval, ...]:
    _check(x, scale, mean, var)
    vector = x.shape[-1:]
    return (
        Aval(x.shape, _dtype(g, x, scale, mean, var)),
        Aval(vector, _dtype(g, x, mean, var)),
        Aval(vector, g.dtype),
    )


def _local_batch_norm_grad_aval(g: Aval, x: Aval, scale: Aval, shift: Aval, eps: float) -> tuple[Aval, ...]:
    _check(x, scale, shift)
    vector = x.shape[-1:]
    return Aval(x.shape, _dtype(g, x, scale)), Aval(vector, _dtype(g, x)), Aval(vector, g.dtype)


def _local_batch_norm(x: Any, scale: Any, shift: Any, eps: float) -> Any:
    """A locality may have no part of a small batch."""
    return _batch_norm(x, scale, shift, eps)[0] if x.size else np.zeros(x.shape, np.result_type(x, scale, shift))


def _local_batch_norm_rule(g: Node, out: Node, x: Node, scale: Node, shift: Node, eps: float) -> tuple[Node, ...]:
    back = apply("local_batch_norm_grad", g, x, scale, shift, eps=eps)
    return tuple(item(back, k) for k in range(3))


def _local_batch_norm_jvp(
    tangents: Sequence[Node | None], out: Node, x: Node, scale: Node, shift: Node, eps: float
) -> Node | None:
    """The derivative by ``x`` is symmetric, as scales stand beside the statistics: it is its own transpose."""
    dx, dscale, dshift = tangents
    moved: Node | None = None
    if dx is not None:
        moved = item(apply("local_batch_norm_grad", dx, x, scale, shift, eps=eps), 0)
    if dscale is not None or dshift is not None:
        dscale, dshift = (const(np.zeros(x.shape[-1:], x.dtype)) if d is None else d for d in (dscale, dshift))
        straight = apply("local_batch_norm", x, dscale, dshift, eps=eps)
        moved = straight if moved is None else moved + straight
    return moved


def _local_batch_norm_grad(g: Any, x: Any, scale: Any, shift: Any, eps: float) -> tuple[Any, Any, Any]:
    if not x.size:
        none = np.zeros(x.shape[-1:], np.result_type(g, x))
        return np.zeros(x.shape, np.result_type(g, x, scale)), none, np.zeros(x.shape[-1:], g.dtype)
    axes = _leading(x.ndim)
    mean = np.mean(x, axes)
    return _batch_norm_grad(g, x, scale, mean, np.mean(np.square(x - mean), axes), eps)


def _layer_norm(x: Any, scale: Any, shift: Any, eps: float) -> Any:
    centred = x - np.mean(x, -1, keepdims=True)
    var = np.mean(np.square(centred), -1, keepdims=True)
    return centred / np.sqrt(var + eps) * scale + shift


def _standardised(x: Node, eps: float) -> tuple[Node, Node]:
    """``x`` with mean zero and variance one along its last axis, and one over its standard deviation."""
    axes, count = (x.ndim - 1,), float(x.shape[-1])
    centred = x - _total(x, axes, True) / count
    inverse = 1.0 / apply("sqrt", _total(apply("square", centred), axes, True) / count + eps)
    return centred * inverse, inverse


def _layer_norm_grad(g: Any, x: Any, scale: Any, eps: float) -> tuple[Any, Any, Any]:
    centred = x - np.mean(x, -1, keepdims=True)
    inverse = 1 / np.sqrt(np.mean(np.square(centred), -1, keepdims=True) + eps)
    normal = centred * inverse
    dn = g * scale
    dx = (dn - np.mean(dn, -1, keepdims=True) - normal * np.mean(dn * normal, -1, keepdims=True)) * inverse
    return dx, np.sum(g * normal, _leading(x.ndim)), np.sum(g, _leading(x.ndim))


def _layer_norm_grad_decomposed(g: Node, x: Node, scale: Node, eps: float) -> tuple[Node, Node, Node]:
    """Both sums that need the mean alone are taken before the scale of a row is known: a pass less over it."""
    last, count = (x.ndim - 1,), float(x.shape[-1])
    centred = x - _total(x, last, True) / count
    dn = g * scale
    inverse = 1.0 / apply("sqrt", _total(apply("square", centred), last, True) / count + eps)
    slope = _total(dn * centred, last, True) / count * (inverse * inverse)
    dx = (dn - _total(dn, last, True) / count - centred * slope) * inverse
    return dx, _total(g * (centred * inverse), _leading(x.ndim)), _total(g, _leading(x.ndim))


def _layer_norm_aval(x: Aval, scale: Aval, shift: Aval, eps: float) -> Aval:
    _check(x, scale, shift)
    return Aval(x.shape, _dtype(x, scale, shift))


def _layer_norm_rule(g: Node, out: Node, x: Node, scale: Node, shift: Node, eps: float) -> tuple[Node, ...]:
    back = apply("layer_norm_grad", g, x, scale, eps=eps)
    return tuple(item(back, k) for k in range(3))


def _layer_norm_grad_aval(g: Aval, x: Aval, scale: Aval, eps: float) -> tuple[Aval, ...]:
    _check(x, scale)
    vector = x.shape[-1:]
    return Aval(x.shape, _dtype(g, x, scale)), Aval(vector, _dtype(g, x)), Aval(vector, g.dtype)


def _batch(x: Aval) -> str:
    """Channels pass through; the batch is whole because its mean and variance are taken."""
    return f"{' '.join(f'!d{k}' for k in range(x.ndim - 1))} c"


def _layer(x: Aval) -> str:
    return f"{' '.join(f'd{k}' for k in range(x.ndim - 1))} !c"


def _cost(x: Aval, *_: Aval, eps: float) -> Cost:
    return Cost(10.0 * x.size, 3.0 * x.nbytes)


def _samples(vectors: int, with_g: bool, order: int = 2) -> Any:
    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        for shape, dtype in (((5, 3), "f8"), ((2, 3, 2), "f8"), ((4, 3), "f4")):
            x = rng.normal(size=shape) * 2 + 1
            g = (rng.normal(size=shape),) if with_g else ()
            rest = [rng.uniform(0.5, 1.5, shape[-1:]) for _ in range(vectors)]
            inputs = tuple(value.astype(dtype) for value in (*g, x, *rest))
            yield Sample(inputs, {"eps": 1e-3}, order=order if dtype == "f8" else 0)

    return samples


op(
    "moments", _moments, aval=_moments_aval, decompose=_moments_decomposed,
    factors=lambda x: f"{_batch(x)} -> c, c", cost=lambda x: Cost(4.0 * x.size, 1.0 * x.nbytes),
    samples=lambda rng: [Sample((rng.normal(size=(2, 5, 3)) * 2 + 1,), {}, order=2)],
)  # fmt: skip
"""Mean and variance over all axes but the last, which no NumPy program asks for at once: as kernels find them."""
op(
    "batch_norm", _batch_norm, aval=_batch_norm_aval, vjp=_batch_norm_rule, decompose=_batch_norm_decomposed,
    factors=lambda x, *_, eps: f"{_batch(x)}, c, c -> {_batch(x)}, c, c", cost=_cost, samples=_samples(2, False),
)  # fmt: skip
op(
    "batch_norm_grad", _batch_norm_grad, aval=_batch_norm_grad_aval, decompose=_batch_norm_grad_decomposed, cost=_cost,
    factors=lambda g, *_, eps: f"{_batch(g)}, {_batch(g)}, c, c, c -> {_batch(g)}, c, c", samples=_samples(3, True),
)  # fmt: skip
op(
    "local_batch_norm", _local_batch_norm, aval=lambda x, scale, shift, eps: _batch_norm_aval(x, scale, shift, eps)[0],
    vjp=_local_batch_norm_rule, jvp=_local_batch_norm_jvp, cost=_cost, samples=_samples(2, False, order=1),
    factors=lambda x, *_, eps: f"{_batch(x)}, c, c -> {_batch(x)}",
)  # fmt: skip
op(
    "local_batch_norm_grad", _local_batch_norm_grad, aval=_local_batch_norm_grad_aval, cost=_cost,
    factors=lambda g, *_, eps: f"{_batch(g)}, {_batch(g)}, c, c -> {_batch(g)}, c, c",
    samples=_samples(2, True, order=0),
)  # fmt: skip
op(
    "layer_norm", _layer_norm, aval=_layer_norm_aval, vjp=_layer_norm_rule, cost=_cost, samples=_samples(2, False),
    decompose=lambda x, scale, shift, eps: _standardised(x, eps)[0] * scale + shift,
    factors=lambda x, *_, eps: f"{_layer(x)}, !c, !c -> {_layer(x)}",
)  # fmt: skip
op(
    "layer_norm_grad", _layer_norm_grad, aval=_layer_norm_grad_aval, decompose=_layer_norm_grad_decomposed, cost=_cost,
    factors=lambda g, *_, eps: f"{_layer(g)}, {_layer(g)}, !c -> {_layer(g)}, !c, !c", samples=_samples(1, True),
)  # fmt: skip
