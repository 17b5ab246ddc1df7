"""``np.pad``: constants have an operation of their own, repeated elements are read, the rest is left to NumPy."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.numpy_api.memory import laid_out
from futurex.frontend.numpy_api.registry import handles
from futurex.frontend.numpy_api.selection import take
from futurex.frontend.trace import emit
from futurex.frontend.tracer import SCALARS, Tracer, array_node, as_tracer, new_array

_REPEATING = frozenset({"edge", "reflect", "symmetric", "wrap"})
_MOST_RUNS = 8
"""Runs of neighbours that are repeated along an axis, at most, each of which is copied for itself."""


def _widths(pad_width: Any, ndim: int) -> tuple[tuple[int, int], ...]:
    if isinstance(pad_width, dict):
        pairs: list[Any] = [(0, 0)] * ndim
        for axis, width in pad_width.items():
            pairs[operator.index(axis)] = width if isinstance(width, tuple) else (width, width)
        pad_width = pairs
    widths = np.broadcast_to(np.asarray(pad_width), (ndim, 2))
    if widths.dtype.kind not in "iu":
        raise TypeError("`pad_width` must be of integral type.")
    if (widths < 0).any():
        raise ValueError("index can't contain negative values")
    return tuple((int(lo), int(hi)) for lo, hi in widths)


@handles(np.pad)
def pad(array: Any, pad_width: Any, mode: Any = "constant", **options: Any) -> Tracer:
    x = as_tracer(array)
    if x.ndim == 0:
        raise Escape("numpy.pad of an array without dimensions", "there is nothing to pad")
    widths = _widths(pad_width, x.ndim)
    if mode == "constant" and not options.keys() - {"constant_values"}:
        value = options.get("constant_values", 0)
        if type(value) in SCALARS or isinstance(value, np.generic):
            return laid_out(new_array(emit("pad", array_node(x), value, widths=widths)), x, "A")
    if mode not in _REPEATING or options or 0 in x.shape:
        raise Escape(f"numpy.pad with mode={mode!r} and these options", "they are not traced")
    places = [np.pad(np.arange(extent), width, mode=mode) for extent, width in zip(x.shape, widths, strict=True)]
    runs = [_runs(each, width) for each, width in zip(places, widths, strict=True)]
    if sum(map(len, runs)) > _MOST_RUNS * x.ndim:
        for axis, each in enumerate(places):
            x = take(x, each, axis)
        return laid_out(new_array(x._node), as_tracer(array), "A")
    result = new_array(emit("pad", array_node(x), x.dtype.type(0), widths=widths))
    for axis, found in enumerate(runs):
        before = (slice(None),) * axis
        for target, source in found:
            result[(*before, target)] = result[(*before, source)]
    return laid_out(result, x, "A")


def _runs(places: np.ndarray, width: tuple[int, int]) -> list[tuple[slice, slice]]:
    """Where the elements in front of an axis and behind it lie in the result, and where those that they repeat: runs of
    one element, or of neighbours in either direction.

    >>> _runs(np.array([2, 1, 0, 1, 2, 2]), (2, 1))
    [(slice(0, 2, None), slice(4, 2, -1)), (slice(5, 6, None), slice(4, 5, 1))]
    """
    lo, end = width[0], len(places) - width[1]
    steps = np.diff(places)
    found = []
    for start, stop in ((0, lo), (end, len(places))):
        while start < stop:
            step = int(steps[start]) if start + 1 < stop and abs(steps[start]) <= 1 else 1
            last = start
            while last + 1 < stop and steps[last] == step:
                last += 1
            first, final = int(places[start]) + lo, int(places[last]) + lo + (step or 1)
            found.append((slice(start, last + 1), slice(first, final, step or 1)))
            start = last + 1
    return found
