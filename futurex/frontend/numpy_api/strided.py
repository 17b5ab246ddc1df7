"""``as_strided``: views by steps in memory, as the windows, parts and repetitions of a traced array that they are."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.layout import c_strides
from futurex.frontend.numpy_api.registry import handles
from futurex.frontend.tracer import Tracer, as_tracer

Shares = list[list[tuple[int, int]]]
"""For each axis of an array the axes of the view that go along it, and how many elements each of their steps is."""


@handles(np.lib.stride_tricks.as_strided)
def as_strided(
    x: Any, shape: Any = None, strides: Any = None, subok: bool = False, writeable: bool = True
) -> Tracer:
    array = as_tracer(x)
    if array.is_scalar or not array.aval.static or array.strides_in_memory is None:
        raise _refused("where the array lies is not known before the run")
    steps = array.strides_in_memory if strides is None else _numbers(strides)
    extents = array.shape if shape is None else _numbers(shape)
    if len(extents) != len(steps) or 0 in extents or min(extents, default=1) < 0 or 0 in array.shape:
        raise _refused("there are no elements, or NumPy refuses it")
    moving = [place for place, extent in enumerate(extents) if extent > 1 and steps[place]]
    shares = _shares(array, extents, steps, moving)
    if shares is None and array.strides_in_memory == c_strides(array.aval):
        array = array.reshape(-1)
        shares = _shares(array, extents, steps, moving)
    if shares is None:
        raise _refused("it is no window or part along the axes of the array")
    return _view(array, extents, steps, shares, writeable)


def _refused(why: str) -> Escape:
    return Escape("as_strided", why, "sliding_window_view, or indexing")


def _numbers(values: Any) -> tuple[int, ...]:
    values = values if isinstance(values, tuple | list) else (values,)
    if not all(isinstance(value, int | np.integer) for value in values):
        raise _refused("its numbers are not known before the run")
    return tuple(map(operator.index, values))


def _shares(array: Tracer, extents: Sequence[int], steps: Sequence[int], moving: list[int]) -> Shares | None:
    """Which axes go along which: each along that with the longest step that divides its own. None if one leaves it."""
    lies = array.strides_in_memory or ()
    shares: Shares = [[] for _ in lies]
    for place in moving:
        asked = steps[place]
        axes = [axis for axis, step in enumerate(lies) if array.shape[axis] > 1 and step and asked % step == 0]
        axis = max((each for each in axes if asked // lies[each] > 0), key=lambda each: abs(lies[each]), default=None)
        if axis is None:
            return None
        shares[axis].append((place, asked // lies[axis]))
    for share, extent in zip(shares, array.shape, strict=True):
        share.sort(key=operator.itemgetter(1))
        if len(share) > 2 or sum((extents[place] - 1) * many for place, many in share) >= extent:
            return None
    return shares


def _view(array: Tracer, extents: Sequence[int], steps: Sequence[int], shares: Shares, writeable: bool) -> Tracer:
    """The view itself: windows along the axes that have two shares, every so many of them, in the order asked for."""
    overlaps = [axis for axis, share in enumerate(shares) if len(share) == 2]
    inner = [shares[axis][0] for axis in overlaps]
    sizes = [(extents[place] - 1) * many + 1 for place, many in inner]
    windows = array._extended(*(("windows", axis, size) for axis, size in zip(overlaps, sizes, strict=True)))
    outer = [share[-1] if share else None for share in shares]
    index = [0 if share is None else slice(None, (extents[share[0]] - 1) * share[1] + 1, share[1]) for share in outer]
    picked = windows[(*index, *(slice(None, None, many) for _, many in inner), ...)]  # a view, also of one element
    places = [share[0] for share in (*outer, *inner) if share is not None]
    ordered = picked.transpose(*sorted(range(len(places)), key=places.__getitem__)) if places else picked
    spread = ordered[tuple(slice(None) if place in places else None for place in range(len(extents)))]
    repeats = math.prod(extents) > math.prod(extents[place] for place in places)
    if repeats:
        spread = spread._extended(("broadcast_to", tuple(extents)))
    # What overlaps may be written to in NumPy, which is told by NumPy itself.
    return spread.readonly() if repeats or overlaps or not writeable else spread
