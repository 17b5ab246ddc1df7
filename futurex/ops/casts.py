"""What floats beyond an integer type become where NumPy casts them: which casts generated code may make.

C leaves it open, and NumPy takes what the processor and its compiler give. On x86-64 that is the least integer of 32
or 64 bits, of which the low bits are kept; uint64 is made in two halves. NumPy itself is asked once for each pair of
types, wherever in an array a number stands: where it gives something else, or now this and now that (uint32), the
cast stays its own.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

Dtype = np.dtype[Any]
_ODD = (
    math.nan, math.inf, -math.inf, -1.0, -300.75, 300.75, 6e4, -6e4, 2.0**31, -(2.0**31), 2.0**31 + 2.0**8,
    2.0**32 + 2.0**9, -(2.0**32) - 2.0**9, 2.0**52 + 2.0**30, 2.0**63, -(2.0**63), 2.0**63 + 2.0**40, 2.0**64,
    -(2.0**64), 1e38, -1e38,
)  # fmt: skip


def register_bits(target: Dtype) -> int:
    """Of the signed integer that a float becomes first."""
    return 32 if target.itemsize < 4 or target == np.dtype(np.int32) else 64


@functools.cache
def known(source: Dtype, target: Dtype) -> bool:
    """Does NumPy give for every float what :func:`register_bits` says?"""
    with np.errstate(all="ignore"):
        odd = np.array(_ODD, source)
        many = np.repeat(odd, 67).reshape(-1, 67)
        made = (many.astype(target), np.repeat(many, 2, axis=1)[:, ::2].astype(target))
        alone = [value.astype(target) for value in odd]
    expected = np.array([_by_registers(float(value), target) for value in odd], object)[:, None]
    return all((each.astype(object) == expected).all() for each in (*made, np.array(alone)[:, None]))


def _by_registers(value: float, target: Dtype) -> int:
    bits = register_bits(target)
    if target == np.dtype(np.uint64) and value >= 2.0**63:
        whole = _truncated(value - 2.0**63, bits) ^ (1 << 63)
    else:
        whole = _truncated(value, bits)
    whole &= (1 << 8 * target.itemsize) - 1
    return whole - (whole >> 8 * target.itemsize - 1 << 8 * target.itemsize) if target.kind == "i" else whole


def _truncated(value: float, bits: int) -> int:
    return int(value) if abs(value) < 2.0 ** (bits - 1) else -(1 << bits - 1)
