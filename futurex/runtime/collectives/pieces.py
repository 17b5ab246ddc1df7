"""Several arrays that are cut along axes into a part for every rank, as one vector: a rank's parts lie together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from futurex.runtime.collectives.vectors import split

Sizes = Sequence[Sequence[int]]  #: by array, the extent of every rank's part


def parts_of(array: np.ndarray, axis: int, sizes: Sequence[int]) -> list[np.ndarray]:
    """Return every rank's part of an array, as views.

    >>> [part.shape for part in parts_of(np.zeros((2, 5)), 1, (2, 3))]
    [(2, 2), (2, 3)]
    """
    ends = itertools.accumulate(sizes, initial=0)
    return [array[(slice(None),) * axis + (slice(a, b),)] for a, b in itertools.pairwise(ends)]


def counts(arrays: Sequence[np.ndarray], axes: Sequence[int], sizes: Sizes) -> list[int]:
    """Return by rank how many elements its parts of whole arrays have together."""
    rows = [math.prod(array.shape) // max(1, array.shape[axis]) for array, axis in zip(arrays, axes, strict=True)]
    return [sum(each[rank] * n for each, n in zip(sizes, rows, strict=True)) for rank in range(len(sizes[0]))]


def gathered(arrays: Sequence[np.ndarray], axes: Sequence[int], sizes: Sizes, memory: Any) -> np.ndarray:
    """Return the elements of whole arrays as one vector, the parts of rank 0 first; it lies in ``memory`` if given.

    A single array that is cut along its first axis lies so already.
    """
    [first, *others] = arrays
    if not others and axes[0] == 0:
        return first.reshape(-1)
    total = sum(array.size for array in arrays)
    vector = np.empty(total, first.dtype) if memory is None else memory.empty(total, first.dtype)
    for place, part in _places(vector, arrays, axes, sizes):
        place[...] = part
    return vector


def scattered(vector: np.ndarray, arrays: Sequence[np.ndarray], axes: Sequence[int], sizes: Sizes) -> None:
    """Write a vector that :func:`gathered` made into whole arrays."""
    for place, part in _places(vector, arrays, axes, sizes):
        part[...] = place


def joined(parts: Sequence[np.ndarray], memory: Any) -> np.ndarray:
    """Return one rank's parts as one vector; a single one as it lies."""
    [first, *others] = parts
    if not others:
        return first.reshape(-1)
    total = sum(part.size for part in parts)
    vector = np.empty(total, first.dtype) if memory is None else memory.empty(total, first.dtype)
    return np.concatenate([part.reshape(-1) for part in parts], out=vector)


def parted(vector: np.ndarray, parts: Sequence[np.ndarray]) -> None:
    """Write a vector that :func:`joined` made into one rank's parts."""
    for piece, part in zip(split(vector, [part.size for part in parts]), parts, strict=True):
        part[...] = piece.reshape(part.shape)


def _places(
    vector: np.ndarray, arrays: Sequence[np.ndarray], axes: Sequence[int], sizes: Sizes
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    by_array = [parts_of(array, axis, each) for array, axis, each in zip(arrays, axes, sizes, strict=True)]
    start = 0
    for parts in zip(*by_array, strict=True):
        for part in parts:
            yield vector[start : start + part.size].reshape(part.shape), part
            start += part.size
