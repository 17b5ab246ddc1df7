"""``frames``: windows that slide along the first axis, as a view; ``overlap_add``: its transpose, their sum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply
from futurex.tree.record import Sample, op


def _count(length: int, size: int, hop: int) -> int:
    if size < 1 or hop < 1 or length < size:
        raise ValueError(f"frames of {size} every {hop} do not fit an axis of {length}")
    return (length - size) // hop + 1


def _frames(x: Any, size: int, hop: int) -> Any:
    count, (step, *rest) = _count(x.shape[0], size, hop), x.strides
    shape, strides = (size, count, *x.shape[1:]), (step, step * hop, *rest)
    return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False)


def _frames_aval(x: Aval, size: int, hop: int) -> Aval:
    return Aval((size, _count(x.shape[0], size, hop), *x.shape[1:]), x.dtype)


def _overlap_add(frames: Any, length: int, hop: int) -> Any:
    size, count = frames.shape[:2]
    out = np.zeros((length, *frames.shape[2:]), frames.dtype)
    for position in range(size):
        out[position : position + (count - 1) * hop + 1 : hop] += frames[position]
    return out


def _overlap_add_aval(frames: Aval, length: int, hop: int) -> Aval:
    if frames.ndim < 2 or _count(length, frames.shape[0], hop) != frames.shape[1]:
        raise ValueError(f"overlap_add: {frames.shape} are not the frames, every {hop}, of an axis of {length}")
    return Aval((length, *frames.shape[2:]), frames.dtype)


def _names(ndim: int) -> str:
    return "".join(f" d{k}" for k in range(1, ndim))


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield Sample((rng.normal(size=(7, 3)),), {"size": 3, "hop": 1})
    yield Sample((rng.normal(size=(8,)),), {"size": 3, "hop": 2})
    yield Sample((rng.normal(size=(6, 2, 2)).astype(np.float32),), {"size": 2, "hop": 3}, order=0)


def _sum_samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield Sample((rng.normal(size=(3, 5, 2)),), {"length": 7, "hop": 1})
    yield Sample((rng.normal(size=(3, 3)),), {"length": 8, "hop": 2})


def _frames_rule(g: Node, out: Node, x: Node, size: int, hop: int) -> tuple[Node]:
    return (apply("overlap_add", g, length=x.shape[0], hop=hop),)


def _overlap_add_rule(g: Node, out: Node, frames: Node, length: int, hop: int) -> tuple[Node]:
    return (apply("frames", g, size=frames.shape[0], hop=hop),)


op(
    "frames", _frames, aval=_frames_aval, vjp=_frames_rule, view=0, samples=_samples,
    factors=lambda x, size, hop: f"!l{_names(x.ndim)} -> !s !t{_names(x.ndim)}",
)  # fmt: skip
op(
    "overlap_add", _overlap_add, aval=_overlap_add_aval, vjp=_overlap_add_rule, samples=_sum_samples,
    factors=lambda frames, length, hop: f"!s !t{_names(frames.ndim - 1)} -> !l{_names(frames.ndim - 1)}",
)  # fmt: skip
