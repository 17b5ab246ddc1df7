"""Convolutions whose windows are single positions, and their gradients, as products of matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from futurex.kernels.matrices import BoundProduct, OfViews, ProductKernel
from futurex.kernels.registry import Kernel
from futurex.kernels.steps import Bound, Step, Workspace
from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply, param

_TURNED = {"conv": (False, False), "conv_epilogue": (False, False), "conv_input_grad": (False, True),
           "conv_weight_grad": (True, False)}  # fmt: skip
"""Which of both operands, as matrices of all positions or of the weights, are transposed in the product."""
OPERATIONS = frozenset(_TURNED)


def as_product(node: Node) -> Node | None:
    """The product that such a convolution is, of arrays of the same numbers; None for others."""
    if not _is_pointwise(node):
        return None
    operands = [param(Aval(_matrix(each.shape), each.dtype), each.op) for each in node.inputs[:2]]
    x, y = (apply("transpose", each, axes=(1, 0)) if turned else each
            for each, turned in zip(operands, _TURNED[node.op], strict=True))  # fmt: skip
    return apply("matmul_epilogue", x, y, *node.inputs[2:]) if len(node.inputs) > 2 else apply("matmul", x, y)


def _is_pointwise(node: Node) -> bool:
    attrs = node.attrs
    window = attrs["kernel_shape"] if node.op == "conv_weight_grad" else node.inputs[1].shape[:-2]
    once = {*window, *attrs["stride"], attrs["groups"]} == {1}
    return once and not any(map(any, attrs["padding"])) and len(node.inputs) < 4


def _matrix(shape: Sequence[int]) -> tuple[int, int]:
    return math.prod(shape[:-1]), shape[-1]


def of_product(node: Node, kernel: Kernel) -> Kernel:
    """The kernel of such a convolution, whose arrays are dense, by that of the product."""
    pointwise = Pointwise(node, cast(ProductKernel, kernel.call))
    return replace(kernel, call=pointwise, late=pointwise, bind=pointwise.bind, contiguous=True)


class Pointwise(OfViews):
    """A product of the matrices that dense arrays of a convolution are."""

    def __init__(self, node: Node, product: ProductKernel) -> None:
        super().__init__(product)
        self.turned = _TURNED[node.op]

    def matrices(self, out: Any, x: Any, y: Any, *bias: Any) -> Sequence[Any]:
        """The result and the operands of the product."""
        x, y = (each.reshape(_matrix(each.shape)) for each in (x, y))
        x, y = (each.T if turned else each for each, turned in zip((x, y), self.turned, strict=True))
        return out.reshape(_matrix(out.shape)), x, y, *bias

    def __call__(self, out: Any, *inputs: Any) -> Any:
        self.product(*self.matrices(out, *inputs))
        return out

    def bind(self, workspace: Workspace) -> Bound:
        """The product as a step."""
        return _BoundPointwise(BoundProduct(self.product), self.matrices)


class _BoundPointwise:
    """A product of such matrices at fixed addresses."""

    def __init__(self, bound: BoundProduct, matrices: Callable[..., Sequence[Any]]) -> None:
        self.bound, self.matrices = bound, matrices
        self.places = bound.places

    def aim(self, out: Any, *inputs: Any) -> Sequence[Step] | None:
        """The step on these arrays; None where the code is not there."""
        return self.bound.aim(*self.matrices(out, *inputs))
