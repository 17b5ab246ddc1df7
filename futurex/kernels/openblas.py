"""The OpenBLAS libraries that NumPy and SciPy bring along, and functions of theirs by name."""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_MAPS = Path("/proc/self/maps")


def libraries() -> Iterator[ctypes.CDLL]:
    """Every OpenBLAS that is loaded, NumPy's before SciPy's."""
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return
    for path in sorted({line.split(maxsplit=5)[-1] for line in lines if "openblas" in line}):
        yield ctypes.CDLL(path)


def symbol(library: ctypes.CDLL, name: str) -> Any:
    """A function of a library, or None; NumPy's and SciPy's builds have names of their own."""
    for prefix, suffix in itertools.product(("scipy_", ""), ("64_", "")):
        found = getattr(library, f"{prefix}{name}{suffix}", None)
        if found is not None:
            return found
    return None


def function(name: str) -> Any:
    """The function of the first library that has it, or None.

    >>> function("no_such_function") is None
    True
    """
    found = (symbol(library, name) for library in libraries())
    return next((each for each in found if each is not None), None)


@functools.cache
def core() -> str | None:
    """The processor whose instructions NumPy's OpenBLAS uses, such as "Haswell"; None where NumPy has another BLAS."""
    ask = function("openblas_get_corename")
    if ask is None:
        return None
    ask.restype = ctypes.c_char_p
    return str(ask().decode())
