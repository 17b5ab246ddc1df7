"""``attention``: softmax(q @ k.T * scale) @ v of operands in a narrow format, and its derivative, without the scores.

A pass makes these nodes, after everything was differentiated, for kernels that keep neither scores nor weights: those
take memory that grows with the product of the lengths. The derivative makes the weights again from the logarithm of
each row's sum, as in Dao, *FlashAttention-2* (arXiv 2307.08691).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.ops.elementwise import where
from futurex.ops.precision import STORAGE
from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply, const
from futurex.tree.record import Cost, Sample, op, record

FORMATS = frozenset(("bfloat16", "float16"))
_SINGLE = np.dtype(np.float32)


def seen(queries: int, keys: int) -> Any:
    """Which keys each query sees where none sees a later one: those up to its own place."""
    return np.tri(queries, keys, dtype=bool)


def _wide(x: Any, to: str) -> Any:
    return record("widen").kernel(x, to=to)


def _narrow(x: Any, to: str) -> Any:
    return record("narrow").kernel(x, to=to)


def _turned(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)


def _scores(q: Any, k: Any, to: str, scale: float, causal: bool) -> Any:
    scores = np.matmul(_wide(q, to), _turned(_wide(k, to))) * np.float32(scale)
    return np.where(seen(*scores.shape[-2:]), scores, np.float32(-np.inf)) if causal else scores


def _attention(q: Any, k: Any, v: Any, *, to: str, scale: float, causal: bool) -> tuple[Any, Any]:
    scores = _scores(q, k, to, scale, causal)
    top = scores.max(-1, keepdims=True)
    likely = np.exp(scores - top)
    total = likely.sum(-1, keepdims=True)
    out = np.matmul(_wide(_narrow(likely / total, to), to), _wide(v, to))
    return _narrow(out, to), (top + np.log(total))[..., 0]


def _attention_grad(
    g: Any, q: Any, k: Any, v: Any, out: Any, logs: Any, *, to: str, scale: float, causal: bool
) -> tuple[Any, ...]:
    likely = np.exp(_scores(q, k, to, scale, causal) - logs[..., None])
    wide = _wide(g, to)
    share = (wide * _wide(out, to)).sum(-1, keepdims=True)
    moved = likely * (np.matmul(wide, _turned(_wide(v, to))) - share) * np.float32(scale)
    moved, likely = (_wide(_narrow(each, to), to) for each in (moved, likely))
    found = np.matmul(moved, _wide(k, to)), np.matmul(_turned(moved), _wide(q, to)), np.matmul(_turned(likely), wide)
    return tuple(_narrow(each, to) for each in found)


def _checked(q: Aval, k: Aval, v: Aval, to: str) -> Aval:
    """What comes of it. Raises TypeError for another format, ValueError for shapes that do not fit."""
    if to not in FORMATS or {q.dtype, k.dtype, v.dtype} != {STORAGE[to]}:
        raise TypeError(f"attention takes operands in {' or '.join(sorted(FORMATS))}, got {q!r}, {k!r}, {v!r} as {to}")
    if q.ndim < 2 or q.shape[:-2] != k.shape[:-2] or q.shape[-1] != k.shape[-1] or k.shape[:-1] != v.shape[:-1]:
        raise ValueError(f"attention: queries {q!r}, keys {k!r} and values {v!r} do not fit")
    return Aval((*q.shape[:-1], v.shape[-1]), q.dtype)


def _aval(q: Aval, k: Aval, v: Aval, *, to: str, scale: float, causal: bool) -> tuple[Aval, ...]:
    return _checked(q, k, v, to), Aval(q.shape[:-1], _SINGLE)


def _grad_aval(
    g: Aval, q: Aval, k: Aval, v: Aval, out: Aval, logs: Aval, *, to: str, scale: float, causal: bool
) -> tuple[Aval, ...]:
    made = _checked(q, k, v, to)
    if (g, out, logs) != (made, made, Aval(q.shape[:-1], _SINGLE)):
        raise ValueError(f"attention_grad: {g!r}, {out!r} and {logs!r} do not fit {made!r}")
    return q, k, v


def attention_parts(q: Node, k: Node, v: Node, *, to: str, scale: float, causal: bool) -> tuple[Node, ...]:
    """The op in terms of products and a softmax."""
    scores = _scored(q, k, to, scale, causal)
    last = scores.ndim - 1
    likely = apply("narrow", apply("softmax", scores, axis=last), to=to)
    logs = apply("logsumexp", scores, axis=(last,), keepdims=False)
    return _product(likely, v, to), logs


def attention_grad_parts(
    g: Node, q: Node, k: Node, v: Node, out: Node, logs: Node, *, to: str, scale: float, causal: bool
) -> tuple[Node, ...]:
    """Its derivative in such terms."""
    likely = apply("exp", _scored(q, k, to, scale, causal) - apply("reshape", logs, shape=(*logs.shape, 1)))
    wide, made, values = (apply("widen", each, to=to) for each in (g, out, v))
    share = apply("sum", wide * made, axis=(g.ndim - 1,), keepdims=True, dtype=None)
    moved = likely * (apply("matmul", wide, _swapped(values)) - share) * np.float32(scale)
    moved, likely = (apply("narrow", each, to=to) for each in (moved, likely))
    return _product(moved, k, to), _product(_swapped(moved), q, to), _product(_swapped(likely), g, to)


def _scored(q: Node, k: Node, to: str, scale: float, causal: bool) -> Node:
    q, k = (apply("widen", each, to=to) for each in (q, k))
    scores = apply("matmul", q, _swapped(k)) * np.float32(scale)
    if not causal:
        return scores
    return where(const(seen(*scores.shape[-2:])), scores, const(np.asarray(-np.inf, np.float32)))


def _product(x: Node, y: Node, to: str) -> Node:
    return apply("narrow_product", x, y, product="matmul", to=to)


def _swapped(x: Node) -> Node:
    return apply("transpose", x, axes=(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def _cost(products: int) -> Any:
    def cost(*avals: Aval, to: str, scale: float, causal: bool) -> Cost:
        q, k, v = avals[-5:-2] if products > 2 else avals
        work = 2.0 * products * q.size * k.shape[-2] * (0.5 if causal else 1.0)
        return Cost(work, float(sum(each.nbytes for each in avals) + q.nbytes + (products > 2) * (k.nbytes + v.nbytes)))

    return cost


def _samples(grad: bool) -> Any:
    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        shapes = ((2, 3, 5, 8), (2, 3, 6, 8), (2, 3, 6, 16)), ((1, 4, 8), (1, 4, 8), (1, 4, 8))
        for (q, k, v), to, causal in ((shapes[0], "bfloat16", False), (shapes[1], "float16", True)):
            inputs = tuple(_narrow(rng.normal(size=shape).astype(np.float32), to) for shape in (q, k, v))
            attrs: dict[str, Any] = {"to": to, "scale": 0.25, "causal": causal}
            if grad:
                made = _attention(*inputs, **attrs)
                g = _narrow(rng.normal(size=made[0].shape).astype(np.float32), to)
                inputs = (g, *inputs, *made)
            yield Sample(inputs, attrs, order=0)

    return samples


op("attention", _attention, aval=_aval, cost=_cost(2), samples=_samples(False))
op("attention_grad", _attention_grad, aval=_grad_aval, cost=_cost(5), samples=_samples(True))
