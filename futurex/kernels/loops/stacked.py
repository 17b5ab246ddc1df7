"""Products of many small matrices in generated code: the kernels that plans have for them, called by their addresses.

NumPy's loop calls BLAS once for each matrix of a stack, and BLAS takes longer to begin than to multiply. A step of
spectral elements, four products of a hundred matrices of 8 x 8 each, takes half the time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.loops import arrays
from futurex.kernels.loops.arrays import Array
from futurex.kernels.matrices import Lie, lie_of
from futurex.kernels.numba_.compiler import has_fma
from futurex.kernels.numba_.small_products import Form, text_of
from futurex.kernels.small_products import ELEMENTS, fits, lie_together, numbers

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

Dtype = np.dtype[Any]
_FEWEST = 16
"""Matrices of a stack, at least: a kernel of its own takes some time to compile."""


def stacked(e: Emitter, x: Array, y: Array, dtype: Dtype) -> Array | None:
    """``x @ y`` where such a kernel computes it; None where it does not."""
    if dtype not in ELEMENTS or not has_fma() or not x.static or not y.static:
        return None
    size = dtype.itemsize
    (x_shape, x_steps), (y_shape, y_steps) = (x.capacity, x.strides), (y.capacity, y.strides)
    if len(x_shape) == 1:
        x_shape, x_steps = (1, *x_shape), (0, *x_steps)
    if len(y_shape) == 1:
        y_shape, y_steps = (*y_shape, 1), (*y_steps, size)
    (rows, inner), columns = x_shape[-2:], y_shape[-1]
    if y_shape[-2] != inner:
        return None
    f = e.function
    stack = arrays.broadcast(f, [x_shape[:-2], y_shape[:-2]])
    count = math.prod(map(arrays.most, stack))
    x_lie, y_lie = _lie(x_shape, x_steps, count, size), _lie(y_shape, y_steps, count, size)
    if x_lie is None or y_lie is None or not lie_together(x_lie, y_lie):
        return None
    if not fits(count, rows, inner, columns, size, _FEWEST):
        return None
    form = Form(rows, inner, columns, ELEMENTS[dtype], x_lie.turned, y_lie.turned)
    out = e.fresh((*stack, *x.shape[-2:-1], *(y.shape[-1:] if len(y.shape) > 1 else ())), dtype)
    _call(e, text_of(form, False), numbers(count, form, x_lie, y_lie), [out, x, y])
    return out


def _lie(shape: Sequence[int], steps: Sequence[int], count: int, size: int) -> Lie | None:
    """How an operand's matrices lie, which are as many as those of the result, or one for all of these; None where
    they are others, or lie in stacks of stacks of stacks."""
    found = lie_of(shape, steps, size)
    if found is None or math.prod(shape[:-2]) not in (1, count):
        return None
    return found


def _call(e: Emitter, text: str, numbers: Sequence[int], operands: Sequence[Array]) -> None:
    """The kernel of this text, called with a block of words of its own."""
    f, memory = e.function, e.memory
    word = memory.word(1 + len(numbers) + len(operands))
    memory.fixed.update(enumerate(numbers, word + 1))
    for k, array in enumerate(operands, word + 1 + len(numbers)):
        if not memory.point(k, array):
            f.do(f"store ptr {array.pointer(f)}, ptr {_at(e, k)}, align 8")
    e.regions.append((word, text))
    called = f.emit(f"load ptr, ptr {_at(e, word)}, align 8")
    f.do(f"call void {called}(ptr {_at(e, word + 1)}, i64 0, i64 1)")


def _at(e: Emitter, word: int) -> str:
    return e.function.emit(f"getelementptr i64, ptr %block, i64 {word}")
