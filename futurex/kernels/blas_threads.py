"""The threads of OpenBLAS, which NumPy and SciPy each bring along: they count against the budget of the process."""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_MAPS = Path("/proc/self/maps")


def keep_blas_within(budget: int) -> None:
    """OpenBLAS uses at most ``budget`` threads from now on, in the whole process; a smaller number stays.

    NumPy's own products have the same bits as those of plans, then: they depend on the number of threads. A library
    that is loaded later reads its number from the environment, where the user's stays.

    >>> keep_blas_within(64)
    """
    if [library for library in _loaded() if _lowered(library, budget)]:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", str(budget))


def blas_threads() -> list[int]:
    """The threads of every OpenBLAS that is loaded."""
    return [int(number()) for library in _loaded() if (number := _function(library, "get")) is not None]


def _lowered(library: ctypes.CDLL, budget: int) -> bool:
    """Was it above the budget?"""
    number, change = _function(library, "get"), _function(library, "set")
    if number is None or change is None or number() <= budget:
        return False
    change(budget)
    return True


def _function(library: ctypes.CDLL, verb: str) -> Any:
    """NumPy's and SciPy's builds have names of their own."""
    for prefix, suffix in itertools.product(("scipy_", ""), ("64_", "")):
        found = getattr(library, f"{prefix}openblas_{verb}_num_threads{suffix}", None)
        if found is not None:
            return found
    return None


def _loaded() -> Iterator[ctypes.CDLL]:
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return
    for path in sorted({line.split(maxsplit=5)[-1] for line in lines if "openblas" in line}):
        yield ctypes.CDLL(path)
