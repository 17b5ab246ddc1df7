"""Distinct integers by counting, and places in a stable order, with NumPy's results.

NumPy finds distinct integers by a table of hashes or by sorting, and orders wide ones by merging. Labels, days, ranks
and pixels lie close together: a table with an entry for each number between the smallest and the largest is filled in
one trip, and the numbers as sixteen bits are ordered by their digits, as NumPy itself does with narrow types.

Other numbers it brings in some order much faster than in the stable one. They differ where numbers are equal: places of
those are sorted afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

LEAST = 1024
"""Elements from which that is faster."""
_DIGIT, _MOST_ROWS = 1 << 16, 1 << 62
_RUN = 16
"""Numbers in order, in the mean, from which merging takes less."""


def unique_of_few(x: Any, extras: Sequence[str]) -> tuple[Any, ...] | None:
    """What ``np.unique(x, ...)`` gives, with ``extras`` of "index", "inverse" and "counts"; None where numbers lie too
    far apart, and for other types than integers.

    >>> unique_of_few(np.repeat([7, 5], 600), ["index", "counts"])
    (array([5, 7]), array([600,   0]), array([600, 600]))
    """
    found = _above_least(x)
    if found is None:
        return None
    places, least, extent = found
    if extent > places.size:
        return None
    places = places.ravel()
    counts = np.bincount(places, minlength=extent)
    there = np.flatnonzero(counts)
    values = (there.astype(np.int64) + _wrapped(least)).astype(x.dtype)
    results = {"counts": counts[there]} if "counts" in extras else {}
    if "inverse" in extras:
        rank = np.cumsum(counts > 0) - 1
        results["inverse"] = rank[places].reshape(x.shape)
    if "index" in extras:
        first = np.full(extent, x.size)
        np.minimum.at(first, places, np.arange(x.size))
        results["index"] = first[there]
    return values, *(results[name] for name in extras)


def unique_of_rows(x: Any, extras: Sequence[str]) -> tuple[Any, ...] | None:
    """What ``np.unique(x, axis=0, ...)`` gives of a matrix of integers each of whose rows one number of 64 bits can
    stand for; None for others. NumPy compares rows element by element.

    >>> unique_of_rows(np.repeat([[7, 5], [0, 9]], 600, 0), ["index"])
    (array([[0, 9],
           [7, 5]]), array([600,   0]))
    """
    if x.ndim != 2 or x.dtype.kind not in "iub" or not x.dtype.isnative or x.size < LEAST:
        return None
    least, most = ([int(each) for each in ends] for ends in (x.min(0), x.max(0)))
    extents = [high - low + 1 for low, high in zip(least, most, strict=True)]
    if math.prod(extents) > _MOST_ROWS:
        return None
    number = np.zeros(len(x), np.int64)
    for column, low, extent in zip(x.T, least, extents, strict=True):
        number = number * extent + (column.astype(np.int64) - _wrapped(low))
    found = unique_of_few(number, extras)
    if found is None:
        found = np.unique(number, **{f"return_{name}": True for name in extras})  # type: ignore[call-overload]
    rest, *results = found if isinstance(found, tuple) else (found,)
    values = np.empty((len(rest), x.shape[1]), x.dtype)
    for k in reversed(range(len(extents))):
        rest, here = np.divmod(rest, extents[k])
        values[:, k] = here + _wrapped(least[k])
    return values, *results


def stable_order(x: Any, axis: int) -> Any | None:
    """What ``np.argsort(x, axis, "stable")`` gives, of wide integers that need few bits, and of a row of other wide
    numbers; None for others, and for a row that consists of long runs in order, which NumPy merges.

    >>> stable_order(np.repeat([7, 5], 600), 0)[[0, 600]]
    array([600,   0])
    >>> stable_order(np.tile([0.7, 0.5], 600), 0)[[0, 1, 600]]
    array([1, 3, 0])
    """
    found = _above_least(x) if x.dtype.itemsize > 2 else None
    if found is None:
        return _repaired(x)
    places, _, extent = found
    low = places.astype(np.uint16)
    if extent <= _DIGIT:
        return np.argsort(low, axis, "stable")
    if extent > _DIGIT**2 or x.ndim > 1:
        return _repaired(x)
    order = np.argsort(low, 0, "stable")
    return order[np.argsort((places >> 16).astype(np.uint16)[order], 0, "stable")]


def _repaired(x: Any) -> Any | None:
    """Any order, in which those of equal numbers are sorted."""
    if x.ndim != 1 or x.dtype.kind not in "iuf" or x.dtype.itemsize not in (4, 8) or not x.dtype.isnative:
        return None
    descents = np.count_nonzero(x[1:] < x[:-1])
    if x.size < LEAST or min(descents, x.size - descents) * _RUN < x.size:
        return None
    order = np.argsort(x)
    values = x[order]
    same = np.zeros(x.size + 1, bool)  # as the one before
    np.equal(values[1:], values[:-1], out=same[1:-1])
    if values[-1] != values[-1]:  # those that are none come last
        same[np.searchsorted(values, values[-1]) + 1 : -1] = True
    if same.any():
        tied = np.flatnonzero(same[1:] | same[:-1])
        run = np.cumsum(~same[tied])
        bits = int(x.size).bit_length()
        places = run << bits | order[tied]
        places.sort()
        order[tied] = places & (1 << bits) - 1
    return order


def _above_least(x: Any) -> tuple[Any, int, int] | None:
    """Integers counted from the smallest one, that, and how many numbers lie between it and the largest, with both;
    None for few of them, and for such as lie farther apart than 64 bits tell."""
    if x.dtype.kind not in "iub" or not x.dtype.isnative or x.size < LEAST:
        return None
    least, most = int(x.min()), int(x.max())
    if most - least > _DIGIT**2:
        return None
    return x.astype(np.int64) - _wrapped(least), least, most - least + 1


def _wrapped(number: int) -> np.int64:
    """A number of 64 bits, with a sign or without, as additions see it that wrap around."""
    return np.uint64(number % 2**64).astype(np.int64)
