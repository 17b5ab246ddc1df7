"""Claims float32 matrix products for generated code.

Measured on two cores with AVX-512 it takes 0.6 to 1.0 of oneDNN's time on two threads (0.6: 32 x 256 x 1024, 10 x 106 x
10000; 1.0: 2048 cubed) and 0.8 to 1.05 on one: the library spends a barrier and a packing where there is little work,
and copies what is transposed.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.compiling import is_behind
from futurex.kernels.numba_ import compiler, products
from futurex.kernels.numba_.compiler import Entry, compiled
from futurex.kernels.registry import Kernel
from futurex.kernels.steps import Bound, Step, Workspace
from futurex.kernels.threads import openmp
from futurex.tree.node import Node

_FLOAT32 = np.dtype(np.float32)
LEAST_PRODUCT = 64**3
"""Multiply-adds from which a product is worth a kernel of its own; below, it has the bits of NumPy's BLAS."""
PARALLEL_PRODUCT = 1 << 19
"""Multiply-adds from which a second thread is worth its start."""
_TASKS, _SHORTEST = 8, 96
"""Tasks for each thread that are enough, and rows of one that are worth the packing."""
_ROWS, _FEW_ROWS, _WIDE = 16, 2, 4096
"""Rows that share what is packed: with fewer the library is as fast, unless there are so many columns."""
Turned = tuple[bool, bool]


class GemmBackend:
    """Matrix products, with a bias or without."""

    name = "gemm"

    def claim(self, node: Node, threads: int) -> Kernel | None:
        """A kernel for a product that suits; None where the library is as good."""
        if node.op not in ("matmul", "matmul_epilogue") or not node.is_static or not compiler.has_scale():
            return None
        if node.attrs.get("activation", "none") != "none" or min(each.ndim for each in node.inputs[:2]) < 2:
            return None
        if any(each.dtype != _FLOAT32 or each.aval.weak for each in (node, *node.inputs)):
            return None
        sizes = _sizes(node)
        if sizes is None or not suits(*sizes):
            return None
        lies = _lie(node.inputs[0]), _lie(node.inputs[1])
        if None in lies or (lies[0] and node.inputs[0].ndim > node.inputs[1].ndim):
            return None
        product = Product(node, sizes, bool(lies[0]), bool(lies[1]), threads)
        return Kernel(product, self.name, into=True, late=product, bind=product.bind)


def suits(batch: int, rows: int, inner: int, columns: int) -> bool:
    """Is a product faster here than in the library?"""
    fits = rows >= _ROWS or (rows >= _FEW_ROWS and columns >= _WIDE)
    return fits and batch * rows * inner * columns > LEAST_PRODUCT and min(inner, columns) > 1


def _sizes(node: Node) -> tuple[int, int, int, int] | None:
    """Batch, rows, inner size and columns; None for batches that are broadcast."""
    x, y = (each.shape for each in node.inputs[:2])
    if not math.prod(node.shape) or not x[-1]:
        return None
    if len(y) == 2:
        return 1, math.prod(x[:-1]), x[-1], y[-1]
    return (math.prod(x[:-2]), *x[-2:], y[-1]) if x[:-2] == y[:-2] else None


class Product:
    """The kernel of one node; until it is compiled NumPy computes it. Operands that lie in other ways are copied."""

    def __init__(
        self, node: Node, sizes: tuple[int, int, int, int], x_turned: bool, y_turned: bool, threads: int
    ) -> None:
        self.node, self.sizes = node, sizes
        self.wait = not is_behind()
        self.interpreted = 0
        self.threads = threads if openmp() is not None and math.prod(sizes) >= PARALLEL_PRODUCT else 1
        self.shapes = [each.shape for each in (node, *node.inputs)]
        self.entries: dict[Turned, Entry] = {}
        self.likely = x_turned, y_turned
        self.entry(self.likely, wait=False)

    def entry(self, turned: Turned, *, wait: bool) -> Entry:
        """The code for operands that lie so."""
        entry = self.entries.get(turned)
        if entry is None or (wait and not entry.ready and entry.error is None):
            _, rows, inner, columns = self.sizes
            whole, end, _ = products.panels_of(rows, columns)
            form = products.Form(whole, end, *turned, inner > products.DEEPEST, len(self.shapes) > 3)
            text = products.text_of(form, openmp() is not None)
            entry = self.entries[turned] = compiled(text, wait=wait)
        return entry

    def prepare(self, sharing: Sequence[int], *, wait: bool) -> None:
        """Have the code compiled for operands as the tree has them."""
        self.entry(self.likely, wait=wait)

    @property
    def ready(self) -> bool:
        return all(entry.ready for entry in self.entries.values())

    def block(self, turned: Turned, arrays: Sequence[Any]) -> bytes:
        """The parameters for arrays that lie so."""
        batch, rows, inner, columns = self.sizes
        whole, end, count = products.panels_of(rows, columns)
        height, chunks = rows, 1
        if batch * count < _TASKS * self.threads:
            unit = math.lcm(whole.rows, end.rows if end is not None else 1)
            height = max(_SHORTEST, -(-rows * batch * count // (_TASKS * self.threads)))
            height = -(-height // unit) * unit
            chunks = -(-rows // height)
        depth = -(-inner // -(-inner // products.DEEPEST))
        depth = -(-depth // products.LANES) * products.LANES  # what is turned while it is packed are squares
        numbers = (
            batch * count * chunks, rows, inner, depth, height, chunks, count, rows * inner, inner * columns,
            rows * columns, rows if turned[0] else inner, inner if turned[1] else columns, columns,
        )  # fmt: skip
        return struct.pack(f"={len(numbers) + len(arrays)}q", *numbers, *map(address_of, arrays))

    def lies(self, arrays: Sequence[Any]) -> Turned | None:
        """Which operands have their axes swapped in memory; None where one lies in another way."""
        for array, shape in zip(arrays, self.shapes, strict=True):
            if array.shape != shape or array.dtype != _FLOAT32:
                raise ValueError(
                    f"{self.node.op} kernel: built for float32 arrays of shapes {self.shapes} (the result first), got "
                    f"{array.dtype} {array.shape}"
                )
        if not all(array.flags.c_contiguous and array.flags.aligned for array in (arrays[0], *arrays[3:])):
            return None
        found = []
        for array in arrays[1:3]:
            turned = not array.flags.c_contiguous
            flattened = array.ndim > arrays[2].ndim  # its leading axes are taken for rows
            if not array.flags.aligned or (turned and (flattened or not array.swapaxes(-1, -2).flags.c_contiguous)):
                return None
            found.append(turned)
        return found[0], found[1]

    def __call__(self, out: Any, *inputs: Any) -> Any:
        turned = self.lies((out, *inputs))
        if turned is None:
            inputs, turned = tuple(np.array(array, order="C") for array in inputs), (False, False)
        entry = self.entry(turned, wait=self.wait)
        if not entry.ready:
            self.interpreted += 1
            np.copyto(out, self.node.record.run(inputs, self.node.attrs))
            return out
        block = self.block(turned, (out, *inputs))
        if self.threads > 1:
            entry.on_threads(block, self.threads)
        else:
            entry(block)
        return out

    def bind(self, workspace: Workspace) -> Bound:
        """The product as a step."""
        return _BoundProduct(self)


class _BoundProduct:
    """A product at fixed addresses."""

    def __init__(self, product: Product) -> None:
        self.product = product
        self.turned: Turned | None = None
        self.words = np.zeros(0, np.int64)
        self.steps: list[Step] = []

    def aim(self, out: Any, *inputs: Any) -> Sequence[Step] | None:
        """The step on these arrays; None where they lie otherwise, or the code is not there."""
        arrays = (out, *inputs)
        turned = self.product.lies(arrays)
        entry = self.product.entry(turned, wait=self.product.wait) if turned is not None else None
        if turned is None or entry is None or not entry.ready:
            return None
        block = np.frombuffer(self.product.block(turned, arrays), np.int64)
        if turned == self.turned:
            self.words[:] = block
        else:
            self.turned, self.words = turned, block.copy()
            self.steps = [entry.step(address_of(self.words), self.product.threads)]
        return self.steps


def _lie(node: Node) -> bool | None:
    """Does an operand lie with its last two axes swapped, as far as the tree says? None for other views."""
    array = _stand_in(node)
    if array is None or array.flags.c_contiguous:
        return None if array is None else False
    return True if array.swapaxes(-1, -2).flags.c_contiguous else None


def _stand_in(node: Node) -> Any:
    """An array, never written, that lies in memory as the node's will; None for views that are rarely dense."""
    if node.record.view is None or node.op in ("param", "const", "item"):
        return np.empty(node.shape, _FLOAT32)
    source = _stand_in(node.inputs[node.record.view]) if node.op in ("transpose", "reshape") else None
    if source is None or node.op == "transpose":
        return None if source is None else source.transpose(node.attrs["axes"])
    return source.reshape(node.shape)
