"""Claims convolutions, products in float32 and float64, triangular systems and shared factors for NumPy's BLAS."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.kernels.blas import lapack, triangular
from futurex.kernels.blas.conv import conv_forward, conv_input_grad, conv_weight_grad
from futurex.kernels.blas.unfold import Geometry
from futurex.kernels.registry import Kernel
from futurex.tree.aval import Aval
from futurex.tree.node import Node

Call = Callable[..., Any]
_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


class BlasBackend:
    """Convolutions of any rank, and products with a bias, on what every NumPy has; triangular systems, where its
    library is found."""

    name = "blas"

    def claim(self, node: Node, threads: int) -> Kernel | None:
        """A kernel for a node in one floating dtype; the threads are those of NumPy's BLAS
        unless a kernel says otherwise."""
        if node.op == "solve_triangular":
            return triangular.kernel_for(node)
        if node.op in lapack.OPS:
            return lapack.kernel_for(node, threads)
        build = _CLAIMS.get(node.op)
        if build is None or not node.is_static or not _one_dtype(node):
            return None
        if not all(math.prod(each.shape) for each in (node, *node.inputs)):
            return None
        call = build(node)
        return None if call is None else Kernel(call, self.name, into=True, contiguous=node.op != "matmul_epilogue")


def _one_dtype(node: Node) -> bool:
    avals = [node.aval, *(source.aval for source in node.inputs)]
    assert isinstance(node.aval, Aval)
    return node.dtype in _DTYPES and all(each.dtype == node.dtype and not each.weak for each in avals)


def _geometry(node: Node, x_shape: tuple[int, ...], w_shape: tuple[int, ...]) -> Geometry:
    attrs = node.attrs
    return Geometry(
        x_shape, w_shape, attrs["stride"], attrs["padding"], attrs["dilation"], attrs["groups"], node.dtype
    )  # fmt: skip


def _conv(node: Node) -> Call:
    x, w = node.inputs[:2]
    return conv_forward(_geometry(node, x.shape, w.shape))


def _conv_input_grad(node: Node) -> Call:
    return conv_input_grad(_geometry(node, node.attrs["input_shape"], node.inputs[1].shape))


def _conv_weight_grad(node: Node) -> Call:
    return conv_weight_grad(_geometry(node, node.inputs[0].shape, node.shape))


def _matmul_epilogue(node: Node) -> Call | None:
    def call(out: Any, x: Any, y: Any, bias: Any) -> Any:
        np.matmul(x, y, out=out)
        np.add(out, bias, out=out)
        return out

    return call


_CLAIMS: dict[str, Callable[[Node], Call | None]] = {
    "conv": _conv,
    "conv_epilogue": _conv,
    "conv_input_grad": _conv_input_grad,
    "conv_weight_grad": _conv_weight_grad,
    "matmul_epilogue": _matmul_epilogue,
}
