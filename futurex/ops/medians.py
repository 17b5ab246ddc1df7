"""Medians of a few numbers each, for many of them at once: by exchanges, whole rows at a time."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

_LONGEST, _FEWEST = 16, 256
"""Numbers in a median up to which exchanges pay, and medians from which on they do."""
_BLOCK = 2048  # medians at a time: their numbers stay in the cache


def is_by_exchanges(x: Any, axis: tuple[int, ...]) -> bool:
    """Do exchanges pay?"""
    count = math.prod(x.shape[k] for k in axis)
    return 2 < count <= _LONGEST and x.size >= _FEWEST * count and x.dtype.kind in "iuf"


def median_by_exchanges(x: Any, axis: tuple[int, ...]) -> Any:
    """``np.median(x, axis)``, or None where NumPy's own way is to be taken.

    That is also where zeros of both signs meet: which of them is the median is NumPy's secret.
    """
    if not is_by_exchanges(x, axis):
        return None
    rest = [k for k in range(np.ndim(x)) if k not in axis]
    shape = [x.shape[k] for k in rest]
    count, lanes = math.prod(x.shape[k] for k in axis), math.prod(shape)
    rows = np.ascontiguousarray(x.transpose(*axis, *rest)).reshape(count, lanes)
    if x.dtype.kind == "f" and (np.signbit(rows) & (rows == 0)).any():
        return None
    middle = (count // 2,) if count % 2 else (count // 2 - 1, count // 2)
    found = np.empty((len(middle), lanes), x.dtype)
    for start in range(0, lanes, _BLOCK):
        block = slice(start, start + _BLOCK)
        ordered = list(rows[:, block])
        for low, high, least, greatest in _exchanges(count, middle):
            one, two = ordered[low], ordered[high]
            if least:
                ordered[low] = np.minimum(one, two)
            if greatest:
                ordered[high] = np.maximum(one, two)
        for k, place in enumerate(middle):
            found[k, block] = ordered[place]
    return np.mean(found, axis=0).reshape(shape)


def room_of_exchanges(x: Any, axis: tuple[int, ...]) -> int | None:
    """Bytes that :func:`median_by_exchanges` allocates beside its result for an array of this kind, or None."""
    if not is_by_exchanges(x, axis):
        return None
    count = math.prod(x.shape[k] for k in axis)
    lanes = x.size // count
    copied = 0 if axis == tuple(range(len(axis))) else x.nbytes
    look = 2 * x.size - 8 * lanes if x.dtype.kind == "f" else 0
    middle, held = 2 - count % 2, count + (1 if lanes <= _BLOCK else 4)  # what an exchange reads, of the last block too
    return copied + max(look, (middle * lanes + held * min(lanes, _BLOCK)) * x.dtype.itemsize)


@functools.lru_cache(maxsize=64)
def _exchanges(count: int, wanted: tuple[int, ...]) -> tuple[tuple[int, int, bool, bool], ...]:
    """Pairs of places to be put in order, and which of the two are read later: a sorting network without its rest."""
    live, kept = set(wanted), []
    for low, high in reversed(_network(count)):
        least, greatest = low in live, high in live
        if least or greatest:
            kept.append((low, high, least, greatest))
            live |= {low, high}
    return tuple(reversed(kept))


def _network(count: int) -> list[tuple[int, int]]:
    """Batcher's merge exchange (1968; Knuth, The Art of Computer Programming 3, algorithm 5.2.2M)."""
    found = []
    top = 1 << (count - 1).bit_length() - 1
    p = top
    while p:
        q, r, d = top, 0, p
        while d:
            found += [(i, i + d) for i in range(count - d) if i & p == r]
            d, q, r = (q - p, q >> 1, p) if q != p else (0, q, r)
        p >>= 1
    return found
