"""Medians and quantiles of many numbers: each place in their order is looked for alone.

NumPy hands all places to one partition, which has no vectors then (NumPy 2.4: 2.8 ms for the median of 200,000
doubles, where one place takes 0.35). Below a place that is found lies what is smaller, so that its neighbour is the
largest there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

LEAST, FEWEST = 32, 8192
"""Numbers in an order, and in all of them, from which that is faster."""


def room_of_selection(x: Any) -> int:
    """Bytes that :func:`by_selection` allocates: a copy to be put in order, and which of its numbers are zeros."""
    return int(x.nbytes + (x.size if x.dtype.kind == "f" else 0))


def selects(x: Any, function: str, axis: tuple[int, ...], method: str) -> bool:
    """Is a median, percentile or quantile of such an array found so? ``x``: an array, or what is known of one."""
    count = math.prod(x.shape[k] for k in axis)
    if function not in ("median", "quantile", "percentile") or method != "linear" or count < LEAST or x.size < FEWEST:
        return False
    # quantiles of single precision lie where NumPy's rounding in single precision puts them
    return x.dtype in (np.float64, np.int32, np.int64) or (function == "median" and x.dtype == np.float32)


def by_selection(x: Any, function: str, q: Any, axis: tuple[int, ...]) -> Any | None:
    """``np.median(x, axis)``, or ``np.quantile(x, q, axis)`` or ``np.percentile`` for a number or several; None where
    NumPy's own way is to be taken: for NaN, and where zeros of both signs meet, whose order is NumPy's secret.

    >>> by_selection(np.arange(1000), "quantile", (0.5, 0.25), (0,))
    array([499.5 , 249.75])
    """
    rest = [k for k in range(x.ndim) if k not in axis]
    lanes = np.array(x.transpose(*rest, *axis), order="C").reshape(*(x.shape[k] for k in rest), -1)
    count = lanes.shape[-1]
    if function == "median":
        places = {count // 2, (count - 1) // 2}
    else:
        points = np.asarray(q, np.float64) / (100 if function == "percentile" else 1)
        if not ((points >= 0) & (points <= 1)).all():
            return None
        ahead = (count - 1) * points
        below = np.floor(ahead).astype(np.intp)
        places = {int(each) for each in (*below.flat, *np.minimum(below + 1, count - 1).flat)}
    found: dict[int, Any] = {}
    _select(lanes, 0, sorted(places), found)
    if x.dtype.kind == "f" and not _are_certain(lanes, found):
        return None
    if function == "median":
        return np.mean([found[each] for each in sorted(places)], axis=0)
    values = [
        np.quantile([found[int(k)], found[min(int(k) + 1, count - 1)]], part, axis=0)
        for k, part in zip(below.flat, (ahead - below).flat, strict=True)
    ]
    return np.stack(values) if points.ndim else values[0]


def _select(lanes: Any, before: int, places: Sequence[int], found: dict[int, Any]) -> None:
    """Put what is at ``places`` of the whole order into ``found``; ``lanes``: what lies behind the first ``before``."""
    if not places:
        return
    middle = places[len(places) // 2]
    at = middle - before
    lanes.partition(at, -1)
    found[middle] = lanes[..., at].copy()
    left = [each for each in places if each < middle]
    if left and left[-1] == middle - 1:
        found[left.pop()] = lanes[..., :at].max(-1)
    _select(lanes[..., :at], before, left, found)
    _select(lanes[..., at + 1 :], middle + 1, [each for each in places if each > middle], found)


def _are_certain(lanes: Any, found: dict[int, Any]) -> bool:
    """Is none of the numbers NaN, which would be the last ones, and none that was found a zero with a sign of its
    own?"""
    last = max(found)
    if np.isnan(lanes[..., last:].max()):
        return False
    zeros = any(np.any(each == 0) for each in found.values())
    return not zeros or not np.signbit(lanes[lanes == 0]).any()
