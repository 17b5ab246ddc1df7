"""Linear recurrences along an axis, ``y[k] = factors[k] y[k - 1] + x[k]``: what running results of any ufunc change by.

``np.logaddexp.accumulate(x)[k]`` is ``logaddexp`` of the one before and ``x[k]``, so that its derivative is that of the
one before, times a factor, and what ``x[k]`` adds. Backwards it is a recurrence, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.ops.reduce import along
from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply
from futurex.tree.record import Sample, op


def _recurrence(factors: Any, x: Any, axis: int) -> Any:
    out = np.array(x, np.result_type(factors, x))
    before = None
    for now, factor in zip(np.moveaxis(out, axis, 0)[..., None], np.moveaxis(factors, axis, 0)[..., None], strict=True):
        if before is not None:
            now += factor * before
        before = now
    return out


def shifted(x: Node, axis: int, by: int, fill: Any) -> Node:
    """Each element where the next one was (1), or the one before (-1); ``fill`` comes in."""
    part = ("s", None, -1, None) if by > 0 else ("s", 1, None, None)
    whole = ("s", None, None, None)
    rest = apply("load", x, chain=(("index", (*(whole,) * axis, part)),))
    one = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    edge = fill if isinstance(fill, Node) else apply("full", fill, shape=one, dtype=x.dtype)
    return apply("concatenate", *((edge, rest) if by > 0 else (rest, edge)), axis=axis)


def backwards(factors: Node, g: Node, axis: int) -> Node:
    """What each element is read by, all that come after it: the recurrence from the end, with the factors behind."""
    turned = (apply("flip", each, axis=(axis,)) for each in (shifted(factors, axis, -1, 0.0), g))
    return apply("flip", apply("recurrence", *turned, axis=axis), axis=(axis,))


def _recurrence_rule(g: Node, out: Node, factors: Node, x: Node, axis: int) -> tuple[Node, Node]:
    dx = backwards(factors, g, axis)
    return dx * shifted(out, axis, 1, 0.0), dx


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield Sample((rng.normal(size=(3, 4)), rng.normal(size=(3, 4))), {"axis": 1})
    yield Sample((rng.normal(size=(5,)), rng.normal(size=(5,))), {"axis": 0})
    yield Sample((rng.normal(size=(1, 2)), rng.normal(size=(1, 2))), {"axis": 0})


op(
    "recurrence", _recurrence, aval=lambda factors, x, axis: Aval(x.shape, np.result_type(factors.dtype, x.dtype)),
    vjp=_recurrence_rule, factors=lambda factors, x, axis: f"{along(x, axis).partition(' -> ')[0]}, {along(x, axis)}",
    samples=_samples,
)  # fmt: skip
