"""Pooling over windows of the spatial axes of channels-last arrays."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.nn.operation import operation, shape_of
from futurex.nn.windows import Padding, Sizes, padding_of, sizes_of

Pads = tuple[tuple[int, int], ...]


def max_pool(
    x: Any, window: Sizes, stride: Sizes | None = None, padding: Padding = "valid", *, ceil: bool = False
) -> Any:
    """The largest element of each window of ``x`` (N, *spatial, C), for each channel.

    ``stride`` is the window itself unless given. Padding counts as minus infinity. With ``ceil`` a last window that
    begins inside ``x`` but ends outside counts, too. Raises ValueError for a window that does not fit, naming the
    shapes.

    >>> import numpy as np, futurex as fx
    >>> fx.nn.max_pool(np.ones((2, 62, 100)), 3).shape, fx.nn.max_pool(np.ones((2, 62, 100)), 3, ceil=True).shape
    ((2, 20, 100), (2, 21, 100))
    """
    shape, extents, strides, pads = _geometry("max_pool", x, window, stride, padding)
    if ceil:
        pads = _whole_windows(shape[1:-1], extents, strides, pads)
    return operation("max_pool", x, window=extents, stride=strides, padding=pads)


def avg_pool(
    x: Any,
    window: Sizes,
    stride: Sizes | None = None,
    padding: Padding = "valid",
    *,
    ceil: bool = False,
    count_padding: bool = True,
) -> Any:
    """The mean of each window of ``x`` (N, *spatial, C), for each channel; padding counts as zeros.

    Without ``count_padding`` the mean is that of the elements inside ``x`` alone. With ``ceil`` a last window that
    begins inside ``x`` but ends outside counts, too; what lies beyond the padding is never part of the mean.

    >>> import numpy as np, futurex as fx
    >>> x = np.arange(5.0).reshape(1, 5, 1)
    >>> np.asarray(fx.nn.avg_pool(x, 2)).ravel(), np.asarray(fx.nn.avg_pool(x, 2, ceil=True)).ravel()
    (array([0.5, 2.5]), array([0.5, 2.5, 4. ]))
    """
    shape, extents, strides, pads = _geometry("avg_pool", x, window, stride, padding)
    counted = pads if count_padding else ((0, 0),) * len(pads)
    if ceil:
        pads = _whole_windows(shape[1:-1], extents, strides, pads)
    means = operation("avg_pool", x, window=extents, stride=strides, padding=pads)
    share = _shares(shape[1:-1], extents, strides, pads, counted)
    if (share == 1).all():
        return means
    return means * share.astype(means.dtype)


def global_max_pool(x: Any) -> Any:
    """The largest element of ``x`` (N, *spatial, C) over its spatial axes, (N, C).

    >>> import numpy as np, futurex as fx
    >>> fx.nn.global_max_pool(np.ones((2, 5, 6, 3))).shape
    (2, 3)
    """
    axes = _spatial(x, "global_max_pool")
    return x.max(axis=axes)


def global_average_pool(x: Any) -> Any:
    """The mean of ``x`` (N, *spatial, C) over its spatial axes, (N, C).

    >>> import numpy as np, futurex as fx
    >>> fx.nn.global_average_pool(np.ones((2, 5, 6, 3))).shape
    (2, 3)
    """
    axes = _spatial(x, "global_average_pool")
    return x.mean(axis=axes)


def adaptive_avg_pool(x: Any, sizes: Sizes) -> Any:
    """``x`` (N, *spatial, C) as means over ``sizes`` parts of every spatial axis, (N, *sizes, C).

    Part ``i`` of ``n`` goes from ``floor(i * size / n)`` to ``ceil((i + 1) * size / n)``; parts overlap where sizes do
    not divide. ``sizes`` is a number or one per spatial axis.

    >>> import numpy as np, futurex as fx
    >>> np.asarray(fx.nn.adaptive_avg_pool(np.arange(5.0).reshape(1, 5, 1), 2)).ravel()
    array([1., 3.])
    """
    return _adaptive("adaptive_avg_pool", x, sizes, avg_pool, lambda part, axis: part.mean(axis=axis))


def adaptive_max_pool(x: Any, sizes: Sizes) -> Any:
    """``x`` (N, *spatial, C) as maxima over ``sizes`` parts of every spatial axis, (N, *sizes, C).

    The parts are those of :func:`adaptive_avg_pool`.

    >>> import numpy as np, futurex as fx
    >>> np.asarray(fx.nn.adaptive_max_pool(np.arange(5.0).reshape(1, 5, 1), 2)).ravel()
    array([2., 4.])
    """
    return _adaptive("adaptive_max_pool", x, sizes, max_pool, lambda part, axis: part.max(axis=axis))


def _adaptive(layer: str, x: Any, sizes: Sizes, pool: Callable[..., Any], reduce: Callable[..., Any]) -> Any:
    shape = shape_of(x, "x", layer)
    parts = sizes_of(sizes, len(_spatial(x, layer)), "sizes", layer)
    if any(extent < 1 for extent in shape[1:-1]):
        raise ValueError(f"{layer}: x {shape} has no elements along a spatial axis")
    if not any(extent % count for extent, count in zip(shape[1:-1], parts, strict=True)):
        return pool(x, tuple(extent // count for extent, count in zip(shape[1:-1], parts, strict=True)))
    for axis, (extent, count) in enumerate(zip(shape[1:-1], parts, strict=True), 1):
        before = (slice(None),) * axis
        spans = [slice(i * extent // count, -(-(i + 1) * extent // count)) for i in range(count)]
        x = np.stack([reduce(x[(*before, span)], axis) for span in spans], axis=axis)
    return x


def _spatial(x: Any, layer: str) -> tuple[int, ...]:
    shape = shape_of(x, "x", layer)
    if len(shape) < 3:
        raise ValueError(f"{layer} needs x (N, *spatial, C), got shape {shape}")
    return tuple(range(1, len(shape) - 1))


def _geometry(
    layer: str, x: Any, window: Sizes, stride: Sizes | None, padding: Padding
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], Pads]:
    shape, rank = shape_of(x, "x", layer), len(_spatial(x, layer))
    extents = sizes_of(window, rank, "window", layer)
    strides = extents if stride is None else sizes_of(stride, rank, "stride", layer)
    return shape, extents, strides, padding_of(padding, extents, strides, shape[1:-1], layer)


def _whole_windows(sizes: tuple[int, ...], extents: tuple[int, ...], strides: tuple[int, ...], pads: Pads) -> Pads:
    """More padding behind, for a last window that begins inside the array or the padding before it."""
    found = []
    for size, extent, step, (low, high) in zip(sizes, extents, strides, pads, strict=True):
        steps = -(-max(0, size + low + high - extent) // step)
        if steps * step >= size + low:
            steps -= 1
        found.append((low, max(high, steps * step + extent - size - low)))
    return tuple(found)


@functools.lru_cache(maxsize=64)
def _shares(
    sizes: tuple[int, ...], extents: tuple[int, ...], strides: tuple[int, ...], pads: Pads, counted: Pads
) -> np.ndarray[Any, Any]:
    """For each window its number of elements over the number that counts, (*out, 1)."""
    counts: Any = np.ones(())
    for size, extent, step, (low, high), (before, behind) in zip(sizes, extents, strides, pads, counted, strict=True):
        starts = np.arange((size + low + high - extent) // step + 1) * step - low
        inside = np.minimum(starts + extent, size + behind) - np.maximum(starts, -before)
        counts = counts[..., None] * inside
    return (math.prod(extents) / counts)[..., None]
