"""The threads of OpenBLAS, which NumPy and SciPy each bring along: they count against the budget of the process."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from futurex.kernels.openblas import libraries, symbol


def keep_blas_within(budget: int) -> None:
    """OpenBLAS uses at most ``budget`` threads from now on, in the whole process; a smaller number stays.

    NumPy's own products have the same bits as those of plans, then: they depend on the number of threads. A library
    that is loaded later reads its number from the environment, where the user's stays.

    >>> keep_blas_within(64)
    """
    if [library for library in libraries() if _lowered(library, budget)]:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", str(budget))


def blas_threads() -> list[int]:
    """The threads of every OpenBLAS that is loaded."""
    return [int(number()) for library in libraries() if (number := _function(library, "get")) is not None]


def _lowered(library: ctypes.CDLL, budget: int) -> bool:
    """Was it above the budget?"""
    number, change = _function(library, "get"), _function(library, "set")
    if number is None or change is None or number() <= budget:
        return False
    change(budget)
    return True


def _function(library: ctypes.CDLL, verb: str) -> Any:
    return symbol(library, f"openblas_{verb}_num_threads")
