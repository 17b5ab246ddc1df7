"""Matrix products: plain, transposed, batched, of strided views, with a bias, added to a result.

oneDNN has two roads to a product: the primitive, which chooses a microkernel (``brg``) for the shape, and sgemm.
Measured with AVX-512 on shapes from 48 cubed to 1024 x 512 x 1536, the primitive takes 0.4 (64 x 1024 x 64, second
operand transposed) to 1.0 of sgemm's time; with fewer than sixteen rows 1.1 to 2.7. Machines that have no such
microkernel take sgemm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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

_FEW_ROWS = 16
_ALIGNED = 0x100  # NPY_ARRAY_ALIGNED
_MICROKERNEL = "brg"
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
) -> Kernel | None:
    """A kernel(out, x, y[, b]) for x @ y + b; None where not for oneDNN.

    x (..., M, K) and y (..., K, N), with their last two axes stored the other way round where transposed; leading axes
    broadcast; b (N,); out (..., M, N); all float32.
    For example `matmul((128, 784), (784, 512), bias=True)`.
    """
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
    if flat.batch or bias:
        return unless_unsupported(lambda: _primitive_kernel(product, flat, inputs, bias))
    if math.prod(flat.sizes) <= _SMALL:
        return _numpy_kernel(product, inputs)
    if flat.sizes[0] >= _FEW_ROWS:
        kernel = unless_unsupported(lambda: _primitive_kernel(product, flat, inputs, bias))
        if kernel is not None and kernel.implementations[0].startswith(_MICROKERNEL):  # type: ignore[attr-defined]
            return kernel
    return _gemm_kernel(product, flat, inputs)


def matmul_of_views(
    x_shape: Shape, x_strides: Shape, y_shape: Shape, y_strides: Shape, bias: bool = False
) -> Kernel | None:
    """A kernel(out, x, y[, b]) for x @ y + b of operands that lie in memory in any way; None where not.

    Shapes are those of the views, strides count elements; an axis of stride zero repeats its only element. For example
    heads of attention, `matmul_of_views((8, 128, 64), (64, 512, 1), (8, 64, 128), (64, 1, 512))`.
    """
    product = _Product(x_shape, y_shape, False, False)
    if not math.prod(product.out_shape) or not product.sizes[1]:
        return None
    once = [_once(shape, strides)[:-2] for shape, strides in ((x_shape, x_strides), (y_shape, y_strides))]
    if np.broadcast_shapes(*once) != product.batch:  # products that are the same again and again
        return None
    if any(_overlaps(shape, strides) for shape, strides in ((x_shape, x_strides), (y_shape, y_strides))):
        return None
    inputs = [x_shape, y_shape, *([(product.sizes[2],)] if bias else [])]

    def build() -> Kernel:
        rank = len(product.out_shape)
        views = [_view(x_shape, x_strides, rank), _view(y_shape, y_strides, rank)]
        return _compiled(product.out_shape, inputs, product.out_shape, views, bias, _ALIGNED)

    kernel = unless_unsupported(build)
    if kernel is None or "ref" in kernel.implementations[0]:  # type: ignore[attr-defined]
        return None
    return _OfViews(kernel, tuple(tuple(4 * step for step in strides) for strides in (x_strides, y_strides)))


class _OfViews:
    """A kernel for operands with these strides, in bytes."""

    def __init__(self, kernel: Kernel, strides: tuple[tuple[int, ...], ...]) -> None:
        self.kernel, self.strides = kernel, strides
        self.bind = kernel.bind  # type: ignore[attr-defined]

    def __call__(self, out: np.ndarray, x: np.ndarray, y: np.ndarray, *added: np.ndarray) -> np.ndarray:
        if (x.strides, y.strides) != self.strides:
            raise ValueError(f"matmul: built for strides {self.strides}, got {x.strides} and {y.strides}")
        return self.kernel(out, x, y, *added)


def _overlaps(shape: Shape, strides: Shape) -> bool:
    """Do elements lie at one address, as those of sliding windows do? Such memory oneDNN does not describe."""
    reached = 0
    for stride, extent in sorted(zip(strides, shape, strict=True)):
        if stride and extent > 1:
            if stride <= reached:
                return True
            reached += stride * (extent - 1)
    return False


def _once(shape: Shape, strides: Shape) -> Shape:
    """The shape without repetitions."""
    return tuple(1 if stride == 0 else extent for extent, stride in zip(shape, strides, strict=True))


def _view(shape: Shape, strides: Shape, rank: int) -> Owned:
    """A view, with leading axes of size one up to `rank`; what is repeated is there once."""
    missing = rank - len(shape)
    return describe((1,) * missing + _once(shape, strides), (1,) * missing + tuple(stride or 1 for stride in strides))


def _numpy_kernel(product: _Product, inputs: list[Shape]) -> Kernel:
    checks = array_checks([product.out_shape], inputs)
    transpose_x, transpose_y = product.transpose_x, product.transpose_y

    def kernel(out: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        check_arrays((out, x, y), checks)
        np.matmul(x.T if transpose_x else x, y.T if transpose_y else y, out=out)
        return out

    return kernel


def _gemm_kernel(product: _Product, flat: _Product, inputs: list[Shape]) -> Kernel:
    checks = array_checks([product.out_shape], inputs)
    rows, inner, columns = flat.sizes
    gemm, set_threads, threads = binding.load().dnnl_sgemm, binding.thread_setter(), binding.get_threads()
    before = (b"T" if flat.transpose_x else b"N", b"T" if flat.transpose_y else b"N", rows, columns, inner, 1.0)
    x_row, y_row = flat.x_shape[-1], flat.y_shape[-1]

    def kernel(out: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        check_arrays((out, x, y), checks)
        set_threads(threads)
        status = gemm(*before, address_of(x), x_row, address_of(y), y_row, 0.0, address_of(out), columns)
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
    product: _Product, flat: _Product, inputs: list[Shape], bias: bool
) -> Kernel:
    rank = len(flat.out_shape)
    views = [_matrix(flat.x_shape, flat.transpose_x, rank), _matrix(flat.y_shape, flat.transpose_y, rank)]
    return _compiled(product.out_shape, inputs, flat.out_shape, views, bias)


def _compiled(
    out_shape: Shape, inputs: list[Shape], shape: Shape, views: Sequence[Owned], bias: bool,
    readable: int | None = None,
) -> Kernel:  # fmt: skip
    """The primitive for a result of `out_shape`, `shape` to oneDNN; `readable`: flags that inputs must have."""
    result = describe_plain(shape)
    added = describe_plain((1,) * (len(shape) - 1) + shape[-1:]) if bias else None
    program = Program([out_shape], inputs)
    if readable is not None:
        program.checks = (program.checks[0], *((each, readable) for each, _ in program.checks[1:]))
    operands = {
        ARG_RESULT: program.public(0, result),
        ARG_SOURCE: program.public(1, views[0]),
        ARG_WEIGHTS: program.public(2, views[1]),
    }
    if added:
        operands[ARG_BIAS] = program.public(3, added)
    attr = attributes()
    program.add(primitive_description("matmul", views[0], views[1], added, result, attr), operands)
    return program.finish()
