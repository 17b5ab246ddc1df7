"""Operators of an array and an object of another class: which of the two NumPy asks."""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.outside import is_internal_class
from futurex.frontend.tracer import Tracer

_OF_PYTHON = (np.float64, np.int64, np.bool_, np.complex128)
"""Scalars that are the same to a method as the numbers that NumPy hands it."""


def check_deferring(left: Any, right: Any, in_place: bool = False) -> None:
    """Refuses what NumPy does not leave to the object's reflected method: it makes an array of the object, or asks
    ``__array_ufunc__``."""
    if not isinstance(left, Tracer | np.generic) or is_internal_class(right) or type(right).__module__ == "numpy":
        return
    if isinstance(left, Tracer) and left.is_scalar and left.aval.weak:
        return
    kind: Any = type(right)
    if hasattr(kind, "__array_ufunc__"):
        leaves = kind.__array_ufunc__ is None and not in_place
    elif isinstance(left, Tracer) and not left.is_scalar:
        leaves = getattr(kind, "__array_priority__", -1) > 0 and not in_place
    else:  # the object's method is called by NumPy, with a number of Python's
        leaves = left.dtype.type in _OF_PYTHON and not hasattr(kind, "__array__")
    if not leaves:
        raise Escape(f"an operator of an array and a {kind.__qualname__}", "NumPy makes an array of the object")
