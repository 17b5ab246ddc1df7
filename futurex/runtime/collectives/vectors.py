"""Vectors and their parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

Arrays = Sequence[np.ndarray]


def split(vector: Any, sizes: Sequence[int]) -> Iterator[Any]:
    """Yield the vectors of `sizes` that lie one after the other in `vector`.

    >>> list(split([1, 2, 3], [2, 1]))
    [[1, 2], [3]]
    """
    start = 0
    for size in sizes:
        yield vector[start : start + size]
        start += size


def copy(source: np.ndarray, target: np.ndarray) -> None:
    """Copy a vector, unless both are the same memory."""
    if source.__array_interface__["data"] != target.__array_interface__["data"]:
        target[...] = source
