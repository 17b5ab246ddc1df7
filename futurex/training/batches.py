"""Batches as a locality sees them: its share of the rows of a global one, and consecutive parts of equal size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np


def chunks(n: int, most: int) -> list[int]:
    """The sizes that consecutive chunks of ``n`` rows have: whole ones, and the last where it is smaller.

    >>> chunks(10, 4), chunks(8, 4)
    ([4, 2], [4])
    """
    return [most, n % most] if n % most else [most]


def part_rows(rows: int, parts: int) -> int:
    """How many rows each of at most ``parts`` parts of a batch has; the last may have fewer.

    >>> part_rows(10, 4), part_rows(3, 8)
    (3, 1)
    """
    return -(-rows // parts)


def split(chosen: Any, parts: int) -> Iterator[Any]:
    """The parts of a batch in order.

    >>> [part.tolist() for part in split(np.arange(5), 2)]
    [[0, 1, 2], [3, 4]]
    """
    rows = part_rows(len(chosen), parts)
    for start in range(0, len(chosen), rows):
        yield chosen[start : start + rows]


def kept(array: np.ndarray) -> np.ndarray:
    """The array as a training may keep it while its program goes on: a copy, where anybody may write into it.

    What is mapped from a file is not copied, since it may be larger than the memory; nor is what nobody may write into.

    >>> given = np.arange(3)
    >>> kept(given) is given
    False
    >>> given.flags.writeable = False
    >>> kept(given) is given
    True
    """
    owner: Any = array
    writeable = False
    while isinstance(owner, np.ndarray):
        if isinstance(owner, np.memmap):
            return array
        writeable = writeable or owner.flags.writeable
        owner = owner.base
    steady = not writeable and (owner is None or isinstance(owner, bytes))
    return array if steady else np.array(array)


class Batches:
    """Rows of arrays, gathered into the same memory again and again."""

    def __init__(self, data: Sequence[Any]) -> None:
        self._data = data
        self._held: dict[int, list[Any]] = {}

    def gather(self, chosen: Any) -> list[Any]:
        """The chosen rows of every array; valid until as many are gathered again."""
        rows = len(chosen)
        if rows not in self._held:
            self._held[rows] = [np.empty((rows, *array.shape[1:]), array.dtype) for array in self._data]
        for array, held in zip(self._data, self._held[rows], strict=True):
            if array.flags.c_contiguous and array.flags.aligned:
                np.take(array, chosen, axis=0, out=held, mode="clip")  # "raise" would copy the rows first
            else:
                held[...] = array[chosen]  # np.take would copy the whole array first
        return self._held[rows]
