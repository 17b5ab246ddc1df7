"""Sliding windows over the spatial axes of channels-last arrays: sizes, padding and shifted views.

A window operation is a loop over the positions inside the window; each position reads one strided view of the padded
array. Spatial axes are all axes but the first (batch) and the last (channels).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

Sizes = tuple[int, ...]
Padding = tuple[tuple[int, int], ...]
Slices = tuple[slice, ...]


def out_sizes(sizes: Sizes, window: Sizes, stride: Sizes, padding: Padding, dilation: Sizes) -> Sizes:
    """Spatial sizes of the result. Raises ValueError for arguments of the wrong length or a window that does not fit.

    >>> out_sizes((8,), (3,), (2,), ((1, 1),), (1,))
    (4,)
    """
    for name, value in (("window", window), ("stride", stride), ("padding", padding), ("dilation", dilation)):
        if len(value) != len(sizes):
            raise ValueError(f"{name}={value} needs one entry for each of the spatial dimensions {sizes}")
    if min((*window, *stride, *dilation)) < 1 or min(side for pair in padding for side in pair) < 0:
        raise ValueError(
            f"window={window}, stride={stride} and dilation={dilation} must be at least 1, padding={padding} at least 0"
        )
    result = []
    for size, extent, step, (low, high), spread in zip(sizes, window, stride, padding, dilation, strict=True):
        room = size + low + high - ((extent - 1) * spread + 1)
        if room < 0:
            raise ValueError(
                f"a window of {window} with dilation {dilation} does not fit into spatial sizes {sizes} "
                f"padded by {padding}; pad more or use a smaller window"
            )
        result.append(room // step + 1)
    return tuple(result)


def padded(x: Any, padding: Padding, value: Any = 0) -> Any:
    """``x`` with its spatial axes padded by ``value`` (``x`` itself where there is nothing to pad)."""
    if not any(side for pair in padding for side in pair):
        return x
    return np.pad(x, ((0, 0), *padding, (0, 0)), constant_values=value)


def padded_zeros(shape: Sizes, padding: Padding, dtype: Any) -> tuple[Any, Any]:
    """A zeroed buffer for an array of ``shape`` with padding around it, and the view of its inside."""
    sides = tuple(zip(shape[1:-1], padding, strict=True))
    buffer = np.zeros((shape[0], *(size + low + high for size, (low, high) in sides), shape[-1]), dtype)
    return buffer, buffer[(slice(None), *(slice(low, low + size) for size, (low, _) in sides))]


def shifts(window: Sizes, stride: Sizes, dilation: Sizes, out: Sizes) -> Iterator[tuple[Sizes, Slices]]:
    """Every position inside the window in row-major order, with the slices of a padded array that it reads."""
    for position in itertools.product(*map(range, window)):
        spans = [
            slice(at * spread, at * spread + (count - 1) * step + 1, step)
            for at, spread, step, count in zip(position, dilation, stride, out, strict=True)
        ]
        yield position, (slice(None), *spans)


def spatial_names(prefix: str, count: int) -> str:
    """Factor names of spatial dimensions that must be whole, followed by a space.

    >>> spatial_names("s", 2)
    '!s0 !s1 '
    """
    return "".join(f"!{prefix}{k} " for k in range(count))


def dense(window: Sequence[int]) -> Sizes:
    """The dilation of a window without gaps."""
    return (1,) * len(window)
