"""Adding up what the ranks hold, element by element, always in the order of the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

CHUNK_BYTES = 128 << 10  # what stays in a core's cache between one operand and the next


def wide(dtype: np.dtype[Any], ufunc: np.ufunc) -> np.dtype[Any]:
    """Return the type in which to combine: half precision is summed and multiplied in single."""
    return np.dtype(np.float32) if dtype == np.float16 and ufunc in (np.add, np.multiply) else dtype


def combine(ufunc: np.ufunc, operands: Sequence[np.ndarray], out: np.ndarray) -> None:
    """Write `operands[0] op operands[1] op ...` to `out`, which may be one of them; all are vectors of one dtype.

    >>> out = np.zeros(3, np.float16)
    >>> combine(np.add, [np.array([1, 2, 3], np.float16)] * 3, out)
    >>> out
    array([3., 6., 9.], dtype=float16)
    """
    accumulator = wide(out.dtype, ufunc)
    chunk = CHUNK_BYTES // accumulator.itemsize
    first, *rest = operands
    if len(operands) == 1:
        if first is not out:
            out[:] = first
        return
    scratch = np.empty(min(chunk, out.size), accumulator) if len(rest) > 1 or accumulator != out.dtype else None
    for start in range(0, out.size, chunk):
        part = slice(start, start + chunk)
        target = out[part]
        if scratch is None:
            ufunc(first[part], rest[0][part], out=target)
            continue
        sums = scratch[: target.size]
        ufunc(first[part], rest[0][part], out=sums, dtype=accumulator)
        for operand in rest[1:-1]:
            ufunc(sums, operand[part], out=sums, dtype=accumulator)
        if len(rest) == 1:
            target[:] = sums
        elif accumulator == out.dtype:
            ufunc(sums, rest[-1][part], out=target)
        else:
            target[:] = ufunc(sums, rest[-1][part], out=sums, dtype=accumulator)
