"""Arrays that lie in memory as others will, and take none themselves.

What an allocator gives may be memory that was used before: stand-ins of that kind kept 145 MB of pages resident, those
in which a training step of ResNet-50 had been traced and compiled.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

_LEAST = 1 << 20


class _Ground:
    """Addresses that nobody writes to, for all stand-ins of the process; a page that is read is the system's zeros."""

    def __init__(self) -> None:
        self._pages = mmap.mmap(-1, _LEAST, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def of(self, nbytes: int) -> mmap.mmap:
        """At least so many bytes of it."""
        pages = self._pages
        if len(pages) < nbytes:  # stand-ins hold on to what was there before
            pages = mmap.mmap(-1, max(nbytes, 2 * len(pages)), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._pages = pages
        return pages


_ground = _Ground()


def shadow(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """A writable array, dense in C order, that nobody must write to. Raises MemoryError where there is no room for one.

    >>> shadow((2, 3), np.dtype(float)).strides
    (24, 8)
    """
    nbytes = dtype.itemsize
    for extent in shape:
        nbytes *= extent
    try:
        return np.ndarray(shape, dtype, _ground.of(nbytes))
    except (OSError, OverflowError):
        return np.empty(shape, dtype)  # which says what NumPy says
