"""Claims float32 nodes for oneDNN: one row per op, from a node to a kernel of :mod:`futurex.kernels.onednn`.

What oneDNN computes otherwise than NumPy is not claimed: its ReLU and its maximum pooling turn NaN into a number. Nor
is normalisation, which generated kernels do beside what stands around it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from futurex.kernels import onednn
from futurex.kernels.gemm import blas_lags
from futurex.kernels.registry import Kernel
from futurex.kernels.steps import Bound, Step, Workspace
from futurex.kernels.threads import may_share
from futurex.ops.matrices import by_itself
from futurex.tree.aval import Aval
from futurex.tree.node import Node

Call = Callable[..., Any]
_FLOAT32 = np.dtype(np.float32)
LEAST_PRODUCT = 64**3
"""Multiply-adds from which a matrix product is oneDNN's; NumPy's single-threaded BLAS is faster below."""
_THIN, _LEAST_THIN = 16, 2**17
"""An extent up to which a product is thin, and the same for those, which BLAS is slower at."""


class OneDNNBackend:
    """Convolution, average pooling and matrix products in float32."""

    name = "onednn"

    @classmethod
    def if_available(cls) -> OneDNNBackend | None:
        """The backend, or None where the library is not installed."""
        return cls() if onednn.available() else None

    def claim(self, node: Node, threads: int) -> Kernel | None:
        """A kernel for a float32 node that oneDNN implements for these shapes."""
        row = _CLAIMS.get(node.op)
        if row is None or not node.is_static or not all(_plain_float32(each.aval) for each in (node, *node.inputs)):
            return None
        call = row(node, threads if may_share() else 1)
        if call is None:
            return None
        contiguous = node.op not in _TAKE_VIEWS
        bind = getattr(call, "bind", None)
        scratch = int(getattr(call, "scratch", 0))
        used = int(getattr(call, "threads", 1))
        return Kernel(
            call, self.name, into=True, contiguous=contiguous, exclusive=True, threads=used, bind=bind, scratch=scratch
        )


def _plain_float32(aval: Aval | tuple[Aval, ...]) -> bool:
    avals = aval if isinstance(aval, tuple) else (aval,)
    return all(each.dtype == _FLOAT32 and not each.weak for each in avals)


class _Product:
    """A matrix product whose operands may be views: each way in which they lie in memory has its own kernel.

    Only what oneDNN cannot read as it lies is copied: rows that are not dense either way, steps backwards.
    """

    def __init__(self, node: Node, threads: int) -> None:
        self.shapes = node.inputs[0].shape, node.inputs[1].shape
        self.bias = len(node.inputs) > 2
        self.asked = threads
        self.kernels: dict[tuple[Lie, Lie], Call | None] = {}
        self.plain = self._kernel((False, False))

    @property
    def scratch(self) -> int:
        """Bytes that a call needs, where operands lie in one of the ways that have a kernel already."""
        return max((int(getattr(each, "scratch", 0)) for each in self.kernels.values()), default=0)

    @property
    def threads(self) -> int:
        """On how many threads a call runs."""
        return int(getattr(self.plain, "threads", 1))

    def _kernel(self, lies: tuple[Lie, Lie]) -> Call | None:
        if lies not in self.kernels:
            self.kernels[lies] = self._made(lies)
        return self.kernels[lies]

    def _made(self, lies: tuple[Lie, Lie]) -> Call | None:
        (x, y), (x_lies, y_lies) = self.shapes, lies
        if isinstance(x_lies, bool) and isinstance(y_lies, bool):
            x, y = (_swapped(each) if turned else each for each, turned in zip((x, y), lies, strict=True))
            return onednn.matmul(x, y, x_lies, y_lies, self.bias, threads=self.asked)
        x_strides, y_strides = map(_strides, (x, y), lies)
        return onednn.matmul_of_views(x, x_strides, y, y_strides, self.bias, threads=self.asked)

    def __call__(self, out: Any, x: Any, y: Any, *bias: Any) -> Any:
        found = self.operands(x, y)
        if found is None:
            return self.plain(out, _dense(x), _dense(y), *map(_dense, bias))  # type: ignore[misc]
        _, x, y, kernel = found
        return kernel(out, x, y, *map(_dense, bias))

    def operands(self, x: Any, y: Any) -> tuple[Any, Any, Any, Call] | None:
        """How these lie, the arrays to give to the kernel for that, and the kernel; None where copies are needed."""
        lies = _lies(x), _lies(y)
        kernel = self._kernel(lies) if None not in lies else None  # type: ignore[arg-type]
        if kernel is None:
            return None
        dense = isinstance(lies[0], bool) and isinstance(lies[1], bool)
        x, y = (each.swapaxes(-1, -2) if dense and lie else each for each, lie in zip((x, y), lies, strict=True))
        return lies, x, y, kernel

    def bind(self, workspace: Workspace) -> Bound:
        """The product as calls of machine code."""
        return _BoundProduct(self, workspace)


class _BoundProduct:
    """A product of operands that lie as they did when it was first aimed."""

    def __init__(self, product: _Product, workspace: Workspace) -> None:
        self.product, self.workspace = product, workspace
        self.lies: Any = None
        self.bound: Bound | None = None

    def aim(self, out: Any, x: Any, y: Any, *bias: Any) -> Sequence[Step] | None:
        """The steps on these arrays; None where a copy would be needed, or BLAS."""
        found = self.product.operands(x, y)
        if found is None:
            return None
        lies, x, y, kernel = found
        if lies != self.lies:
            bind = getattr(kernel, "bind", None)
            self.lies, self.bound = lies, bind(self.workspace) if bind is not None else None
        return self.bound.aim(out, x, y, *bias) if self.bound is not None else None


Lie = bool | tuple[int, ...]
"""How an operand lies in memory: whether the last two axes of a dense array are swapped, or its strides in elements."""


def _swapped(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2])


def _strides(shape: tuple[int, ...], lies: Lie) -> tuple[int, ...]:
    """In elements, of an operand of this shape."""
    if not isinstance(lies, bool):
        return lies
    dense = onednn.contiguous_strides(_swapped(shape) if lies else shape)
    return _swapped(dense) if lies else dense


def _dense(x: Any) -> Any:
    return x if x.flags.c_contiguous and x.flags.aligned else np.array(x, order="C")


def _lies(x: Any) -> Lie | None:
    """None where oneDNN would not read it: it wants one of the last two axes dense and no steps backwards."""
    if not x.flags.aligned:  # as arrays may be that were received by others
        return None
    if x.flags.c_contiguous:
        return False
    if x.swapaxes(-1, -2).flags.c_contiguous:
        return True
    strides = tuple(step // x.itemsize for step in x.strides)
    readable = min(strides) >= 0 and 1 in strides[-2:] and 0 not in strides[-2:]
    return strides if readable and all(step % x.itemsize == 0 for step in x.strides) else None


def _matmul(node: Node, threads: int) -> Call | None:
    x, y = node.inputs[:2]
    if min(x.ndim, y.ndim) < 2 or (by_itself(node) and not blas_lags()):
        return None
    least = _LEAST_THIN if min(*x.shape[-2:], y.shape[-1]) <= _THIN else LEAST_PRODUCT
    if node.size * x.shape[-1] <= least:
        return None
    if y.shape[-1] == 1 or (x.shape[-2] == 1 and (node.ndim == 2 or y.ndim > 2)):
        return None  # a matrix times a vector, or a stack of them: BLAS has a routine of its own for it
    product = _Product(node, threads)
    return product if product.plain is not None else None


def _conv(node: Node, threads: int) -> Call | None:
    x, w = node.inputs[:2]
    return onednn.conv_forward(x.shape, w.shape, **node.attrs, bias=len(node.inputs) > 2, threads=threads)


def _conv_input_grad(node: Node, threads: int) -> Call | None:
    attrs = dict(node.attrs)
    return onednn.conv_input_grad(attrs.pop("input_shape"), node.inputs[1].shape, **attrs, threads=threads)


def _conv_weight_grad(node: Node, threads: int) -> Call | None:
    attrs = {name: value for name, value in node.attrs.items() if name != "kernel_shape"}
    return onednn.conv_weight_grad(node.inputs[0].shape, node.shape, **attrs, threads=threads)


def _avg_pool_grad(node: Node, threads: int) -> Call | None:
    attrs = dict(node.attrs)
    return onednn.avg_pool_grad(attrs.pop("input_shape"), **attrs, threads=threads)


def _unless_empty(build: Callable[[Node, int], Call | None]) -> Callable[[Node, int], Call | None]:
    return lambda node, threads: build(node, threads) if all(math.prod(x.shape) for x in node.inputs) else None


_CLAIMS: dict[str, Callable[[Node, int], Call | None]] = {
    name: _unless_empty(build)
    for name, build in {
        "matmul": _matmul,
        "matmul_epilogue": _matmul,
        "conv": _conv,
        "conv_epilogue": _conv,
        "conv_input_grad": _conv_input_grad,
        "conv_weight_grad": _conv_weight_grad,
        "avg_pool": lambda node, threads: onednn.avg_pool(
            node.inputs[0].shape, **node.attrs, threads=threads
        ),
        "avg_pool_grad": _avg_pool_grad,
    }.items()
}
_TAKE_VIEWS = frozenset(("matmul", "matmul_epilogue"))
