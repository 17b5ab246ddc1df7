"""Axes and extents as NumPy's own code in C reads them."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple


def integer_axes_of(axes: Any, ndim: int) -> tuple[int, ...]:
    """Axes as non-negative numbers. A boolean is none, although it has an index: Python's code would take it for one.

    Raises TypeError, AxisError and ValueError as NumPy does.
    """
    if isinstance(axes, tuple | list) and any(isinstance(axis, bool | np.bool_) for axis in axes):
        raise TypeError("an integer is required for the axis")
    return normalize_axis_tuple(axes, ndim, "axis")


def known_extent(value: Any) -> int:
    """An extent that is known while tracing. Raises TypeError and ValueError as NumPy does."""
    if isinstance(value, bool):  # it has an index, but NumPy asks for more
        raise TypeError("an integer is required")
    if operator.index(value) >= 2**63:
        raise ValueError("Maximum allowed dimension exceeded")
    return operator.index(value)
