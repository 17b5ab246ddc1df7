"""What layers with windows are told: sizes and paddings as numbers, names or one per spatial axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from futurex.errors import whole_number

Sizes = int | Sequence[int]
Padding = str | int | Sequence[int | tuple[int, int]]


def sizes_of(value: Sizes, rank: int, name: str, layer: str) -> tuple[int, ...]:
    """One number for each spatial axis. Raises ValueError or TypeError naming the layer."""
    if getattr(value, "ndim", 0):  # PyTorch's convolutions take the bias here
        raise TypeError(
            f"{layer}: {name} must be a number or one for each spatial axis, got an array of shape {value.shape}; "  # type: ignore[union-attr]
            f"a bias is added to the result: {layer}(x, w) + b"
        )
    entries = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,) * rank
    sizes = tuple(whole_number(f"{layer}: {name}", entry) for entry in entries)
    if len(sizes) != rank or min(sizes) < 1:
        raise ValueError(f"{layer}: {name}={value!r} must be one number of at least 1, or one for each of {rank} axes")
    return sizes


def padding_of(
    value: Padding, reach: Sequence[int], strides: Sequence[int], sizes: Sequence[int], layer: str
) -> tuple[tuple[int, int], ...]:
    """Low and high padding of each spatial axis, for windows that reach over ``reach`` positions. Raises ValueError."""
    if value == "valid":
        return ((0, 0),) * len(reach)
    if value == "same":
        missing = [
            max(0, (-(-size // step) - 1) * step + extent - size)
            for extent, step, size in zip(reach, strides, sizes, strict=True)
        ]
        return tuple((each // 2, each - each // 2) for each in missing)
    if isinstance(value, str):
        raise ValueError(f'{layer}: padding={value!r} is none of "valid", "same", a number, or one per spatial axis')
    entries: list[Any] = list(value) if isinstance(value, Sequence) else [value] * len(reach)
    pairs = [entry if isinstance(entry, tuple) else (entry, entry) for entry in entries]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"{layer}: padding={value!r} has a tuple that is no pair of padding before and behind an axis")
    name = f"{layer}: padding"
    pads = tuple((whole_number(name, low), whole_number(name, high)) for low, high in pairs)
    if len(pads) != len(reach) or any(side < 0 for pair in pads for side in pair):
        raise ValueError(
            f"{layer}: padding={value!r} needs a number or pair of at least 0 for each of {len(reach)} spatial axes"
        )
    return pads
