"""Copies in C order: generated code turns large arrays that lie the other way round, in squares of registers."""

from __future__ import annotations

import functools
import struct
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.numba_.compiler import Entry, compiled
from futurex.kernels.numba_.emit import emit
from futurex.kernels.numba_.layout import MOST_LOOPS, collapse
from futurex.kernels.numba_.region import analyse
from futurex.kernels.recycling import LEAST_BYTES, kept, maker
from futurex.ops.strides import turned
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import param

_LEAST = 64 * 1024
"""Elements below which NumPy copies."""
_NUMBERS = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}
"""As what elements of so many bytes are moved."""


def in_c_order(value: Any) -> Any:
    """``value`` in memory of its own, in C order. Until the code is there, NumPy copies."""
    if not isinstance(value, np.ndarray) or value.size < _LEAST:
        return np.array(value, order="C")
    found = None
    if not value.flags.c_contiguous and value.flags.aligned and value.dtype.kind in "biufcmM":
        found = _turning(value.shape, value.strides, value.itemsize)
    if found is None or not found[0].ready:
        return kept(np.copy, value, "C") if value.nbytes >= LEAST_BYTES else np.array(value, order="C")
    entry, extents, steps = found
    out = maker(value.nbytes)(value.shape, value.dtype)
    entry(extents + struct.pack("=2q", address_of(out), address_of(value)) + steps)
    return out


@functools.lru_cache(maxsize=256)
def _turning(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> tuple[Entry, bytes, bytes] | None:
    """The kernel that copies such an array, and what its block begins and ends with; None if none is made for it."""
    dtype = np.dtype(_NUMBERS[size]) if size in _NUMBERS else None
    lying = None if dtype is None else turned(shape, strides, size)
    if dtype is None or lying is None:
        return None
    axis, dense = lying
    layout = collapse(shape, [shape, shape], {0: 0}, {0: dense})
    if len(layout.extents) > MOST_LOOPS:
        return None
    x = param(Aval(shape, dtype), "x")
    across = layout.axes[0].index(axis)
    text = emit(analyse(Graph([x], [x], "copy")), layout, (-1,), threaded=False, across=across)
    steps = [strides[each] // size for each in layout.axes[0] if each]
    extents, apart = (struct.pack(f"={len(each)}q", *each) for each in (layout.extents, steps))
    return compiled(text, wait=False), extents, apart
