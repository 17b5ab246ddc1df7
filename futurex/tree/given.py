"""Arrays as users give them."""

from __future__ import annotations

from typing import Any

import numpy as np

_PLAIN = frozenset({np.ndarray, np.memmap})


def plain_array(value: Any, what: str) -> np.ndarray:
    """``np.asarray`` of what a user gave, where nothing of it is lost: an array, or what NumPy makes one of.

    Raises TypeError, with ``what`` it is, for a subclass of ndarray: it may have a mask or a unit, or be a matrix; and
    for what Dask has yet to compute.

    >>> plain_array([1.0, 2.0], "x")
    array([1., 2.])
    """
    kind = type(value)
    if isinstance(value, np.ndarray) and kind not in _PLAIN:
        plain = ".filled(...) of it" if kind is np.ma.MaskedArray else "np.asarray of it"
        raise TypeError(f"{what} is a {kind.__name__}, not a plain array: give {plain}")
    if not hasattr(kind, "__array__") and (instead := of_dask(value)):
        raise TypeError(f"{what} is {instead}")
    return np.asarray(value)


def of_dask(value: Any) -> str:
    """What a future or collection of Dask is, and what to give in its place; "" for anything else."""
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    if library == "distributed" and hasattr(kind, "result"):
        return f"Dask's {kind.__name__}, not computed yet: give .result() of it"
    if library == "dask" and hasattr(kind, "__dask_graph__"):
        return f"Dask's {kind.__name__}, not computed yet: give .compute() of it"
    return ""
