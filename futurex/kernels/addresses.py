"""Where the memory of an array begins, found quickly."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

ALIGNED = 0x100
IN_ORDER = 0x001 | ALIGNED
"""Of an array's flags: in C order, and aligned."""
DATA_OFFSET = object.__basicsize__
"""Bytes from an array object to the address of its first element; 0 where objects are not laid out so."""
_pointer_at = ctypes.c_size_t.from_address


def address_of(array: np.ndarray[Any, Any]) -> int:
    """The address of the first element, read from the array object (ten times faster than ``array.ctypes.data``)."""
    return _pointer_at(id(array) + DATA_OFFSET).value


def address_of_function(function: Any) -> int:
    """Where a function of a C library begins."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


_probe = np.empty(1)
if address_of(_probe) != _probe.ctypes.data:  # another Python or NumPy may lay its objects out differently
    DATA_OFFSET = 0

    def address_of(array: np.ndarray[Any, Any]) -> int:
        """The address of the first element."""
        return array.ctypes.data
