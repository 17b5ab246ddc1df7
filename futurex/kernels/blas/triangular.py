"""Triangular systems by BLAS's ``trsm``, and many little ones by substitution in all of them at once.

A call from Python takes two microseconds, in which some hundred numbers are substituted: little matrices of a long
stack go row by row, each step one NumPy call for the whole stack.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.kernels.openblas import function
from futurex.kernels.registry import Kernel
from futurex.tree.node import Node

_LITTLE, _MANY = 12, 4
"""Rows of matrices up to which, and matrices for each row from which, a stack is solved row by row."""
_ROWS, _PLAIN, _TURNED, _DIAGONAL = 101, 111, 112, 131
_SIDES = {False: 141, True: 142}
_HALVES = {False: 121, True: 122}
_LETTERS: dict[str, tuple[str, Any]] = {
    "f": ("s", ctypes.c_float(1.0)), "d": ("d", ctypes.c_double(1.0)),
    "F": ("c", (ctypes.c_float * 2)(1.0, 0.0)), "D": ("z", (ctypes.c_double * 2)(1.0, 0.0)),
}  # fmt: skip
"""BLAS's letters for dtypes, and the number one, which it takes by address where it is complex."""
_INT, _PLACE = ctypes.c_int64, ctypes.c_void_p
"""Where BLAS takes 32 bits, it reads the lower half of the register, or of the eight bytes on the stack of Linux."""


def kernel_for(node: Node) -> Kernel | None:
    """A kernel for a node whose operands have one dtype; None where no BLAS is found."""
    if any(each.dtype != node.dtype or each.aval.weak for each in node.inputs):
        return None
    trsm = _trsm(node.dtype.char)
    if trsm is None:
        return None
    call = functools.partial(_solve, trsm, **node.attrs)
    return Kernel(call, "blas", into=node.is_static, inplace=(1,) if node.is_static else ())


@functools.cache
def _trsm(char: str) -> Callable[..., None] | None:
    """The function of matrices in rows: sizes, the triangle and the right side, which becomes the solution."""
    if char not in _LETTERS:
        return None
    letter, factor = _LETTERS[char]
    found = function(f"cblas_{letter}trsm")
    if found is None:
        return None
    by_value = _PLACE if isinstance(factor, ctypes.Array) else type(factor)
    kind = ctypes.CFUNCTYPE(None, *[_INT] * 7, by_value, _PLACE, _INT, _PLACE, _INT)
    call = kind(ctypes.cast(found, _PLACE).value or 0)

    def trsm(side: int, half: int, turned: int, shape: tuple[int, int], a: int, step: int, b: int) -> None:
        call(_ROWS, side, half, turned, _DIAGONAL, *shape, factor, a, step, b, shape[1])

    return trsm


def _solve(trsm: Callable[..., None], out: Any, a: Any, b: Any, *, lower: bool, right: bool) -> Any:
    """Into ``out``, which may be ``b``."""
    stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if out is None:
        out = np.empty((*stack, *b.shape[-2:]), b.dtype)
    if not out.size:
        return out
    if not np.diagonal(a, axis1=-2, axis2=-1).all():
        raise np.linalg.LinAlgError("Singular matrix")
    if out is not b:
        np.copyto(out, b)
    count, extent = math.prod(stack), a.shape[-1]
    if math.prod(a.shape[:-2]) == 1:
        _with_one(trsm, out, a.reshape(extent, extent) if a.ndim > 2 else a, lower, right)
        return out
    a = np.broadcast_to(a, (*stack, extent, extent))
    if extent <= _LITTLE and count >= _MANY * extent:
        _row_by_row(out, a, lower, right)
        return out
    for place in np.ndindex(stack):
        _call(trsm, out[place], a[place], lower, right)
    return out


def _with_one(trsm: Callable[..., None], out: Any, a: Any, lower: bool, right: bool) -> None:
    """One triangle for all right sides: rows of a stack are rows of one matrix, and so are single columns."""
    extent = a.shape[-1]
    if right:
        _call(trsm, out.reshape(-1, extent), a, lower, right)
    elif out.shape[-1] == 1:
        _call(trsm, out.reshape(-1, extent), a.T, not lower, True)
    else:
        for side in out.reshape(-1, *out.shape[-2:]):
            _call(trsm, side, a, lower, right)


def _call(trsm: Callable[..., None], out: Any, a: Any, lower: bool, right: bool) -> None:
    """One matrix of right sides, in rows one behind the other."""
    size, extent, (down, along) = a.itemsize, len(a), a.strides
    if a.flags.c_contiguous or (along == size and down >= extent * size and not down % size):
        turned, step = False, max(down // size, extent)
    elif a.flags.f_contiguous or (down == size and along >= extent * size and not along % size):
        turned, step = True, max(along // size, extent)
    else:
        _call(trsm, out, np.ascontiguousarray(a), lower, right)
        return
    half, way = _HALVES[lower != turned], _TURNED if turned else _PLAIN
    trsm(_SIDES[right], half, way, out.shape, a.ctypes.data, step, out.ctypes.data)


def _row_by_row(out: Any, a: Any, lower: bool, right: bool) -> None:
    """By substitution in all matrices of a stack, whose numbers in one place lie side by side for it."""
    if right:
        a, out, lower = np.swapaxes(a, -1, -2), np.swapaxes(out, -1, -2), not lower
    factors, rows = (np.ascontiguousarray(np.moveaxis(each, (-2, -1), (0, 1))) for each in (a, out))
    extent, term = len(rows), np.empty_like(rows[0])
    for k in range(extent) if lower else reversed(range(extent)):
        for known in range(k) if lower else range(k + 1, extent):
            np.multiply(factors[k, known], rows[known], out=term)
            rows[k] -= term
        rows[k] /= factors[k, k]
    out[...] = np.moveaxis(rows, (0, 1), (-2, -1))
