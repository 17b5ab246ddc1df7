"""What workers and a parameter server write to each other: some numbers and some arrays as one vector of bytes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

_ALIGN = 64


class Form:
    """The places of ``numbers`` floats and of arrays like ``arrays`` in a vector of bytes.

    >>> form = Form(2, [np.zeros(3, np.float32)])
    >>> letter = form.write([1.0, 2.0], [np.ones(3, np.float32)])
    >>> form.read(letter)
    ([1.0, 2.0], [array([1., 1., 1.], dtype=float32)])
    """

    def __init__(self, numbers: int, arrays: Sequence[Any]) -> None:
        self._likes = [(array.shape, array.dtype) for array in arrays]
        sizes = [8 * numbers, *(array.nbytes for array in arrays)]
        *self._starts, self.nbytes = itertools.accumulate((-(-size // _ALIGN) * _ALIGN for size in sizes), initial=0)
        self._numbers = numbers

    def write(self, numbers: Sequence[float], arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Return a new vector."""
        letter = np.zeros(self.nbytes, np.uint8)
        letter[: 8 * self._numbers].view(np.float64)[:] = numbers
        for array, place in zip(arrays, self._views(letter), strict=True):
            place[...] = array
        return letter

    def read(self, letter: np.ndarray) -> tuple[list[float], list[np.ndarray]]:
        """Return the numbers, and the arrays as views. Raises ValueError for a vector of another size."""
        if letter.nbytes != self.nbytes:
            raise ValueError(f"a letter of {letter.nbytes} bytes was written in another form, of {self.nbytes} bytes")
        return letter[: 8 * self._numbers].view(np.float64).tolist(), self._views(letter)

    def _views(self, letter: np.ndarray) -> list[np.ndarray]:
        return [
            letter[start : start + int(np.prod(shape)) * dtype.itemsize].view(dtype).reshape(shape)
            for start, (shape, dtype) in zip(self._starts[1:], self._likes, strict=True)
        ]
