"""Products on a GPU by cuBLAS: of singles and doubles, and in narrow formats with sums in single precision.

One call of ``cublasGemmStridedBatchedEx`` a product. cuBLAS reads matrices by columns, so ``x @ y`` by rows is
``y.T @ x.T`` by columns of the same memory; a transposed operand is read where it lies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.kernels.cupy_.blas import library
from futurex.kernels.cupy_.devices import Device
from futurex.kernels.cupy_.formats import convert
from futurex.ops.precision import STORAGE
from futurex.tree.node import Node

PRODUCTS = frozenset(("matmul", "dot"))
PLAIN = frozenset(np.dtype(name) for name in ("float16", "float32", "float64"))
_PLAIN, _TURNED = 0, 1  # cublasOperation_t
_LARGEST = 2**31 - 1

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Task:
    """A stack of products (rows x inner) @ (inner x columns), in a dtype or a format of :mod:`futurex.ops.precision`.

    ``x`` and ``y`` are the shapes that the operands are brought to, stack first; ``out`` is that of the result.
    """

    x: Shape
    y: Shape
    out: Shape
    to: str


def task_of(node: Node) -> Task | None:
    """What cuBLAS is to do for a node; None where it is not asked."""
    product, to = (node.attrs["product"], node.attrs["to"]) if node.op == "narrow_product" else (node.op, "")
    if product not in PRODUCTS or not node.is_static:
        return None
    if not to:
        if node.dtype not in PLAIN or any(source.dtype != node.dtype for source in node.inputs):
            return None
        to = str(node.dtype)
    x, y = (source.shape for source in node.inputs)
    if min(len(x), len(y)) < 1 or 0 in (*x, *y, *node.shape):
        return None
    if product == "dot" and len(y) > 2:
        return None
    if len(y) <= 2:  # all rows of x, one after the other, against one matrix
        inner = x[-1]
        task = Task((1, math.prod(x[:-1]), inner), (1, inner, math.prod(y[1:])), node.shape, to)
    else:
        rows = x[-2] if len(x) > 1 else 1
        stack = node.shape[: len(node.shape) - (2 if len(x) > 1 else 1)]
        task = Task((*stack, rows, x[-1]), (*stack, *y[-2:]), node.shape, to)
    return task if max(*task.x, *task.y, math.prod(task.x[:-2])) <= _LARGEST else None


class Product:
    """A task's kernel on arrays of the device."""

    def __init__(self, device: Device, task: Task) -> None:
        self.device, self.task, self._library = device, task, library(device)

    def __call__(self, x: Any, y: Any) -> tuple[Any, ...]:
        task, (rows, inner), columns = self.task, self.task.x[-2:], self.task.y[-1]
        out = self.device.xp.empty(task.out, STORAGE.get(task.to, task.to))
        x, turned_x, step_x = self._laid(x, task.x)
        y, turned_y, step_y = self._laid(y, task.y)
        self._library.product(
            task.to, (turned_y, turned_x), (columns, rows, inner), y, inner if turned_y else columns, step_y,
            x, rows if turned_x else inner, step_x, out, math.prod(task.x[:-2]),
        )  # fmt: skip
        return (convert(self.device, "narrow", task.to, out) if task.to == "tfloat32" else out,)

    def _laid(self, value: Any, shape: Shape) -> tuple[Any, int, int]:
        """The operand in memory that cuBLAS can read, whether its matrices lie transposed, and elements from one to the
        next."""
        xp, step = self.device.xp, shape[-2] * shape[-1]
        if value.size == math.prod(shape):
            value = value.reshape(shape)
        elif math.prod(value.shape[:-2]) == 1 and value.ndim > 1:  # one matrix for the whole stack
            value, step = value.reshape(shape[-2:]), 0
        else:
            value = xp.broadcast_to(value, shape)
        if value.flags.c_contiguous:
            return value, _PLAIN, step
        if xp.swapaxes(value, -1, -2).flags.c_contiguous:
            return value, _TURNED, step
        return xp.ascontiguousarray(value), _PLAIN, step


def kernel_for(device: Device, node: Node) -> Callable[..., tuple[Any, ...]] | None:
    """cuBLAS's kernel for a node, or None where the op or the library is another."""
    task = task_of(node)
    if task is None:
        return None
    try:
        return Product(device, task)
    except (ImportError, OSError, AttributeError):
        return None
