"""Matrix products: plain, transposed, batched, of strided views, with a bias, added to a result.

oneDNN has two roads to a product: the primitive, which chooses a microkernel (``brg``) for the shape, and sgemm.
Measured with AVX-512 on shapes from 48 cubed to 1024 x 512 x 1536, the primitive takes 0.4 (64 x 1024 x 64, second
operand transposed) to 1.0 of sgemm's time; with fewer than sixteen rows 1.1 to 2.7. Machines that have no such
microkernel take sgemm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from futurex.kernels.numba_.team import BRIEF_PRODUCT
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
    array_checks,
    attributes,
    check_arrays,
    contiguous_strides,
    cut,
    describe,
    describe_plain,
    is_quick,
    primitive_description,
    unless_unsupported,
    zero_kernel,
)

_FEW_ROWS = 16
LEAST_SHARED = 1 << 19
"""Multiply-adds from which a product is shared among threads."""
_ALIGNED = 0x100  # NPY_ARRAY_ALIGNED
_MICROKERNEL = "brg"
_ROWS, _COLUMNS = 16, 64  # rows and columns that a part of a result has at least, and mostly a multiple of
_SMALL = 40**3  # multiply-adds up to which a call through ctypes costs more than NumPy's single-threaded BLAS


Tile = tuple[slice, ...]
"""A part of a result: from where to where along each axis."""
EVERY = slice(None)


@dataclass(frozen=True)
class Laid:
    """How an operand lies in memory: strides count elements; axes of size one are repeated."""

    shape: Shape
    strides: Shape

    def describe(self) -> Owned:
        """For oneDNN."""
        return describe(self.shape, self.strides)

    def part(self, *places: slice) -> tuple[Laid, int]:
        """What lies there, and where that begins, in bytes."""
        found = [range(extent)[place] if extent > 1 else range(1)
                 for extent, place in zip(self.shape, places, strict=True)]  # fmt: skip
        begin = sum(each.start * stride for each, stride in zip(found, self.strides, strict=True))
        return Laid(tuple(map(len, found)), self.strides), 4 * begin


def tiles_of(shape: Shape, threads: int) -> list[Tile]:
    """A result of this shape in parts, for so many threads: by matrices, where there are enough of them, else by rows
    and columns, so that as little as can be is read twice.

    >>> tiles_of((64, 256), 2)
    [(slice(0, 64, None), slice(0, 128, None)), (slice(0, 64, None), slice(128, 256, None))]
    """
    *batch, rows, columns = shape
    if batch and batch[0] >= threads:
        ways = [(threads, 1, 1)]
    else:
        most = max(1, rows // _ROWS), max(1, columns // _COLUMNS)
        fits = [(1, a, -(-threads // a)) for a in range(1, min(threads, most[0]) + 1) if -(-threads // a) <= most[1]]
        ways = fits or [(1, min(threads, most[0]), min(threads, most[1]))]
    count, above, beside = min(ways, key=lambda way: way[1] * columns + way[2] * rows)
    return [
        (*([slice(*first), *map(_all_of, batch[1:])] if batch else []), slice(*row), slice(*column))
        for first in (cut(batch[0], count) if batch else [(0, 1)])
        for row in _cut(rows, above, _ROWS)
        for column in _cut(columns, beside, _COLUMNS)
    ]


def _all_of(extent: int) -> slice:
    return slice(0, extent)


def _cut(extent: int, parts: int, unit: int) -> list[tuple[int, int]]:
    """Parts of which all but the last are whole units, where there are as many units as parts."""
    if parts == 1 or extent < parts * unit:
        return cut(extent, parts)
    return [(unit * begin, min(unit * end, extent)) for begin, end in cut(-(-extent // unit), parts)]


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
    *,
    threads: int = 1,
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
        return _primitive_kernel(product, flat, inputs, bias, threads)
    if math.prod(flat.sizes) <= _SMALL:
        return _numpy_kernel(product, inputs)
    if flat.sizes[0] >= _FEW_ROWS:
        kernel = _primitive_kernel(product, flat, inputs, bias, threads)
        if kernel is not None and kernel.implementations[0].startswith(_MICROKERNEL):  # type: ignore[attr-defined]
            return kernel
    return _gemm_kernel(product, flat, inputs, threads)


def matmul_of_views(
    x_shape: Shape, x_strides: Shape, y_shape: Shape, y_strides: Shape, bias: bool = False, *, threads: int = 1
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

    if not binding.available():
        return None
    rank = len(product.out_shape)
    views = [_view(x_shape, x_strides, rank), _view(y_shape, y_strides, rank)]
    kernel = _compiled(product.out_shape, inputs, product.out_shape, views, bias, threads, _ALIGNED)
    if kernel is None or not is_quick(kernel):
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


def _view(shape: Shape, strides: Shape, rank: int) -> Laid:
    """A view, with leading axes of size one up to `rank`; what is repeated is there once."""
    missing = rank - len(shape)
    return Laid((1,) * missing + _once(shape, strides), (1,) * missing + tuple(stride or 1 for stride in strides))


def _numpy_kernel(product: _Product, inputs: list[Shape]) -> Kernel:
    checks = array_checks([product.out_shape], inputs)
    transpose_x, transpose_y = product.transpose_x, product.transpose_y

    def kernel(out: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        check_arrays((out, x, y), checks)
        np.matmul(x.T if transpose_x else x, y.T if transpose_y else y, out=out)
        return out

    return kernel


def _gemm_kernel(product: _Product, flat: _Product, inputs: list[Shape], threads: int) -> Kernel | None:
    rows, inner, columns = flat.sizes
    letters = [ord("T" if turned else "N") for turned in (flat.transpose_x, flat.transpose_y)]
    x_row, y_row = flat.x_shape[-1], flat.y_shape[-1]

    def build(tiles: Sequence[Tile], threads: int) -> Kernel:
        program = Program([product.out_shape], inputs, threads, brief=_is_brief(flat))
        for above, beside in tiles:
            program.ticket()
            sizes = above.stop - above.start, beside.stop - beside.start, inner
            x_begin = above.start * (1 if flat.transpose_x else x_row)
            y_begin = beside.start * (y_row if flat.transpose_y else 1)
            out_begin = above.start * columns + beside.start
            places = (1, 4 * x_begin), (2, 4 * y_begin), (0, 4 * out_begin)
            program.multiply((*letters, *sizes, x_row, y_row, columns), places)
        return program.finish()

    return _in_tiles((rows, columns), rows * inner * columns, threads, build)


def _is_brief(product: _Product) -> bool:
    return math.prod(product.out_shape) * product.sizes[1] < BRIEF_PRODUCT


def _in_tiles(
    shape: Shape, products: int, threads: int, build: Callable[[Sequence[Tile], int], Kernel]
) -> Kernel | None:
    """The kernel that is built of tiles; whole, for one thread, where that is small or cannot be cut."""
    tiles = tiles_of(shape, threads) if threads > 1 and products >= LEAST_SHARED else []
    kernel = unless_unsupported(lambda: build(tiles, threads)) if len(tiles) > 1 else None
    if kernel is not None and is_quick(kernel):
        return kernel
    return unless_unsupported(lambda: build([tuple(map(_all_of, shape))], 1))


def _matrix(shape: Shape, transposed: bool, rank: int) -> Laid:
    """Logical (..., rows, columns) of a stored array, with leading axes of size one up to `rank`."""
    shape = (1,) * (rank - len(shape)) + shape
    strides = contiguous_strides(shape)
    if transposed:
        shape, strides = (*shape[:-2], shape[-1], shape[-2]), (*strides[:-2], strides[-1], strides[-2])
    return Laid(shape, strides)


def _primitive_kernel(
    product: _Product, flat: _Product, inputs: list[Shape], bias: bool, threads: int
) -> Kernel | None:
    rank = len(flat.out_shape)
    views = [_matrix(flat.x_shape, flat.transpose_x, rank), _matrix(flat.y_shape, flat.transpose_y, rank)]
    return _compiled(product.out_shape, inputs, flat.out_shape, views, bias, threads)


def _compiled(
    out_shape: Shape, inputs: list[Shape], shape: Shape, views: Sequence[Laid], bias: bool, threads: int,
    readable: int | None = None,
) -> Kernel | None:  # fmt: skip
    """The primitive for a result of `out_shape`, `shape` to oneDNN; `readable`: flags that inputs must have."""
    products = math.prod(shape) * views[0].shape[-1]

    def build(tiles: Sequence[Tile], threads: int) -> Kernel:
        program = Program([out_shape], inputs, threads, brief=products < BRIEF_PRODUCT)
        if readable is not None:
            program.checks = (program.checks[0], *((each, readable) for each, _ in program.checks[1:]))
        result = Laid(shape, contiguous_strides(shape))
        for tile in tiles:
            program.ticket()
            x, y, out = views[0].part(*tile[:-1], EVERY), views[1].part(*tile[:-2], EVERY, tile[-1]), result.part(*tile)
            described = [each.describe() for each, _ in (x, y, out)]
            columns = out[0].shape[-1]
            added = describe_plain((1,) * (len(shape) - 1) + (columns,)) if bias else None
            operands = {
                ARG_RESULT: program.public(0, described[2], out[1]),
                ARG_SOURCE: program.public(1, described[0], x[1]),
                ARG_WEIGHTS: program.public(2, described[1], y[1]),
            }
            if added:
                operands[ARG_BIAS] = program.public(3, added, 4 * tile[-1].start)
            program.add(primitive_description("matmul", *described[:2], added, described[2], attributes()), operands)
        return program.finish()

    return _in_tiles(shape, products, threads, build)
