"""Matrix products: plain, transposed, batched, with bias and activation, added to a result."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from futurex.kernels.onednn import binding
from futurex.kernels.onednn.binding import Owned
from futurex.kernels.onednn.primitive import (
    ARG_BIAS,
    ARG_RESULT,
    ARG_SOURCE,
    ARG_WEIGHTS,
    Kernel,
    Program,
    Shape,
    activated,
    address_of,
    array_checks,
    attributes,
    check_arrays,
    contiguous_strides,
    describe,
    describe_plain,
    primitive_description,
    unless_unsupported,
    zero_kernel,
)

_SMALL = 40**3  # multiply-adds up to which a call through ctypes costs more than NumPy's single-threaded BLAS


@dataclass(frozen=True)
class _Product:
    """One product: x (*batch, M, K) and y (*batch, K, N), their last two axes swapped in memory where transposed."""

    x_shape: Shape
    y_shape: Shape
    transpose_x: bool
    transpose_y: bool

    @property
    def sizes(self) -> tuple[int, int, int]:
        """M, K, N; ValueError where the inner sizes differ."""
        rows, inner = self.x_shape[-2:][:: -1 if self.transpose_x else 1]
        again, columns = self.y_shape[-2:][:: -1 if self.transpose_y else 1]
        if inner != again:
            raise ValueError(
                f"matmul: x {self.x_shape}{' transposed' * self.transpose_x} has inner size {inner} but "
                f"y {self.y_shape}{' transposed' * self.transpose_y} has {again}; they must be equal"
            )
        return rows, inner, columns

    @property
    def batch(self) -> Shape:
        return np.broadcast_shapes(self.x_shape[:-2], self.y_shape[:-2])

    @property
    def out_shape(self) -> Shape:
        rows, _, columns = self.sizes
        return (*self.batch, rows, columns)

    def flattened(self) -> _Product:
        """The same memory with as few batch axes as can be: none where y is one matrix, one where both have equal."""
        x_shape, y_shape = self.x_shape, self.y_shape
        if len(y_shape) == 2 and not self.transpose_x:
            x_shape = (math.prod(x_shape[:-1]), x_shape[-1])
        elif x_shape[:-2] == y_shape[:-2] and self.batch:
            count = math.prod(self.batch)
            x_shape, y_shape = (count, *x_shape[-2:]), (count, *y_shape[-2:])
        return _Product(x_shape, y_shape, self.transpose_x, self.transpose_y)


def matmul(
    x_shape: Shape,
    y_shape: Shape,
    transpose_x: bool = False,
    transpose_y: bool = False,
    bias: bool = False,
    activation: str = "none",
    accumulate: bool = False,
) -> Kernel | None:
    """A kernel(out, x, y[, b]) for activation(x @ y + b), or out + x @ y with `accumulate`; None where not for oneDNN.

    x (..., M, K) and y (..., K, N), with their last two axes stored the other way round where transposed; leading axes
    broadcast; b (N,); out (..., M, N); all float32. `accumulate` excludes bias and activation.
    For example `matmul((128, 784), (784, 512), bias=True, activation="relu")`.
    """
    if accumulate and (bias or activation != "none"):
        raise ValueError("matmul: accumulate cannot be combined with bias or activation; add the bias first")
    if min(len(x_shape), len(y_shape)) < 2:
        return None
    product = _Product(x_shape, y_shape, transpose_x, transpose_y)
    _, inner, columns = product.sizes
    inputs = [x_shape, y_shape, *([(columns,)] if bias else [])]
    if not math.prod(product.out_shape):
        return zero_kernel([product.out_shape], inputs)
    if not inner or not binding.available():
        return None
    flat = product.flattened()
    if activation == "relu" and not bias:
        plain = matmul(x_shape, y_shape, transpose_x, transpose_y)
        return plain and activated(plain, activation)
    if flat.batch or bias or activation != "none":
        return unless_unsupported(lambda: _primitive_kernel(product, flat, inputs, bias, activation, accumulate))
    if math.prod(flat.sizes) <= _SMALL and not accumulate:
        return _numpy_kernel(product, inputs)
    return _gemm_kernel(product, flat, inputs, accumulate)


def _numpy_kernel(product: _Product, inputs: list[Shape]) -> Kernel:
    checks = array_checks([product.out_shape], inputs)
    transpose_x, transpose_y = product.transpose_x, product.transpose_y

    def kernel(out: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        check_arrays((out, x, y), checks)
        np.matmul(x.T if transpose_x else x, y.T if transpose_y else y, out=out)
        return out

    return kernel


def _gemm_kernel(product: _Product, flat: _Product, inputs: list[Shape], accumulate: bool) -> Kernel:
    checks = array_checks([product.out_shape], inputs)
    rows, inner, columns = flat.sizes
    gemm, set_threads, threads = binding.load().dnnl_sgemm, binding.thread_setter(), binding.get_threads()
    before = (b"T" if flat.transpose_x else b"N", b"T" if flat.transpose_y else b"N", rows, columns, inner, 1.0)
    x_row, y_row, beta = flat.x_shape[-1], flat.y_shape[-1], float(accumulate)

    def kernel(out: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        check_arrays((out, x, y), checks)
        set_threads(threads)
        status = gemm(*before, address_of(x), x_row, address_of(y), y_row, beta, address_of(out), columns)
        if status:
            raise binding.OneDNNError("dnnl_sgemm", status)
        return out

    return kernel


def _matrix(shape: Shape, transposed: bool, rank: int) -> Owned:
    """Logical (..., rows, columns) of a stored array, with leading axes of size one up to `rank`."""
    shape = (1,) * (rank - len(shape)) + shape
    strides = contiguous_strides(shape)
    if transposed:
        shape, strides = (*shape[:-2], shape[-1], shape[-2]), (*strides[:-2], strides[-1], strides[-2])
    return describe(shape, strides)


def _primitive_kernel(
    product: _Product, flat: _Product, inputs: list[Shape], bias: bool, activation: str, accumulate: bool
) -> Kernel:
    rank = len(flat.out_shape)
    source = _matrix(flat.x_shape, flat.transpose_x, rank)
    weights = _matrix(flat.y_shape, flat.transpose_y, rank)
    result = describe_plain(flat.out_shape)
    added = describe_plain((1,) * (rank - 1) + flat.out_shape[-1:]) if bias else None
    program = Program([product.out_shape], inputs)
    operands = {
        ARG_RESULT: program.public(0, result),
        ARG_SOURCE: program.public(1, source),
        ARG_WEIGHTS: program.public(2, weights),
    }
    if added:
        operands[ARG_BIAS] = program.public(3, added)
    attr = attributes(activation, accumulate)
    program.add(primitive_description("matmul", source, weights, added, result, attr), operands)
    return activated(program.finish(), activation)
