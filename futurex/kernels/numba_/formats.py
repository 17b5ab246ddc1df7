"""One number of single precision to and from a format of fewer bits (:mod:`futurex.ops.precision`), to the bit."""

from __future__ import annotations

import numpy as np

from futurex.kernels.numba_.scalar import Body

_SINGLE, _HALF = np.dtype(np.float32), np.dtype(np.float16)
_QUIET = 1 << 22


def narrowed(body: Body, x: str, to: str) -> str:
    """Rounded to the nearest, ties to even; NaN stays NaN."""
    if to == "float16":
        return body.cast(x, _SINGLE, _HALF)
    dropped = 16 if to == "bfloat16" else 13
    bits = body.emit(f"bitcast float {x} to i32")
    odd = body.emit(f"and i32 {body.emit(f'lshr i32 {bits}, {dropped}')}, 1")
    rounded = body.emit(f"add i32 {bits}, {body.emit(f'add i32 {odd}, {(1 << dropped - 1) - 1}')}")
    nan = body.emit(f"fcmp uno float {x}, {x}")
    kept = body.select(nan, "i32", body.emit(f"or i32 {bits}, {_QUIET}"), rounded)
    if to == "bfloat16":
        return body.emit(f"trunc i32 {body.emit(f'lshr i32 {kept}, {dropped}')} to i16")
    return body.emit(f"bitcast i32 {body.emit(f'and i32 {kept}, {-1 << dropped}')} to float")


def widened(body: Body, x: str, to: str) -> str:
    """The same number in single precision."""
    if to == "float16":
        return body.cast(x, _HALF, _SINGLE)
    if to == "tfloat32":
        return x
    bits = body.emit(f"zext i16 {x} to i32")
    return body.emit(f"bitcast i32 {body.emit(f'shl i32 {bits}, 16')} to float")
