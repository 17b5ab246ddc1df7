"""``polyfit`` and ``i0``: NumPy's own code computes them, and what they mean in simpler operations has derivatives."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply, const
from futurex.tree.record import Sample, op


def _polyfit(x: Any, y: Any, *weights: Any, deg: int, rcond: float | None) -> Any:
    return np.polyfit(x, y, deg, rcond, w=weights[0] if weights else None)


def _polyfit_aval(x: Aval, y: Aval, *weights: Aval, deg: int, rcond: float | None) -> Aval:
    few = [np.arange(1, deg + 2).astype(each.dtype) for each in (x, y, *weights)]
    return Aval((deg + 1, *y.shape[1:]), np.polyfit(few[0], few[1], deg, w=few[2] if weights else None).dtype)


def _polyfit_parts(x: Node, y: Node, *weights: Node, deg: int, rcond: float | None) -> Node:
    """The least squares of scaled powers, as NumPy solves them."""
    x, y = x + 0.0, y + 0.0
    wide = np.promote_types(x.dtype, int)
    column = apply("reshape", x if x.dtype == wide else apply("cast", x, dtype=wide), shape=(*x.shape, 1))
    powers = [apply("full", 1.0, shape=column.shape, dtype=wide)]
    for _ in range(deg):
        powers.append(powers[-1] * column)
    matrix = apply("concatenate", *reversed(powers), axis=1)
    if weights:
        w = weights[0] + 0.0
        matrix = matrix * apply("reshape", w, shape=(*w.shape, 1))
        y = y * apply("reshape", w, shape=(*w.shape, *(1,) * (y.ndim - 1)))
    scale = apply("sqrt", apply("sum", matrix * matrix, axis=(0,), keepdims=False, dtype=None))
    scale = apply("stop_gradient", scale)  # which the solution does not depend on
    limit = float(x.shape[0] * np.finfo(x.dtype).eps) if rcond is None else rcond
    found = apply("matmul", apply("pinv", matrix / scale, limit, hermitian=False), y)
    return found / apply("reshape", scale, shape=(deg + 1, *(1,) * (y.ndim - 1)))


def _polyfit_samples(rng: np.random.Generator) -> Iterable[Sample]:
    x, y, w = rng.normal(size=7), rng.normal(size=(7, 2)), rng.uniform(0.5, 2.0, 7)
    yield Sample((x, y[:, 0]), {"deg": 2, "rcond": None})
    yield Sample((x, y, w), {"deg": 3, "rcond": None})
    yield Sample((x, y[:, 0], w), {"deg": 0, "rcond": 1e-9})
    yield Sample((np.arange(5), np.arange(5) ** 2), {"deg": 1, "rcond": None}, order=0)
    yield Sample((x.astype(np.float32), y[:, 0].astype(np.float32)), {"deg": 1, "rcond": None}, order=0)


op(
    "polyfit", _polyfit, aval=_polyfit_aval, decompose=_polyfit_parts, fails=True, samples=_polyfit_samples,
    factors=lambda x, y, *w, deg, rcond: (
        f"!n, !n{' !k' * (y.ndim - 1)}{', !n' * len(w)} -> !d{' !k' * (y.ndim - 1)}"
    ),
)  # fmt: skip

_POINTS = 64
"""Of the integral of ``cosh(x cos t)`` over a quarter of the circle: its sum has all digits up to the largest ``x``
whose result is finite."""


def _i0_parts(x: Node) -> Node:
    places = const(np.cos((np.arange(_POINTS) + 0.5) * (0.5 * math.pi / _POINTS)).astype(x.dtype))
    grown = apply("cosh", apply("reshape", x, shape=(*x.shape, 1)) * places)
    return apply("sum", grown, axis=(x.ndim,), keepdims=False, dtype=None) * (1.0 / _POINTS)


op(
    "i0", lambda x: np.i0(x), aval=lambda x: Aval(x.shape, np.i0(np.ones(1, x.dtype)).dtype), decompose=_i0_parts,
    factors="elementwise",
    samples=lambda rng: [
        Sample((rng.normal(size=(3, 4)) * 3,)), Sample((np.array([0.0, 12.0]),)),
    ],
)  # fmt: skip
