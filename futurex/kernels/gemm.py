"""Claims products of real matrices for generated code, and what is one: convolutions of single positions.

Measured on two cores with AVX-512 it takes 0.6 to 1.0 of oneDNN's time on two threads (0.6: 32 x 256 x 1024, 10 x 106 x
10000; 1.0: 2048 cubed) and 0.8 to 1.05 on one: the library spends a barrier and a packing where there is little work,
and copies what is transposed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from futurex.kernels import openblas, pointwise
from futurex.kernels.addresses import address_of
from futurex.kernels.matrices import BoundProduct, Lie, Lies, OfViews, ProductKernel, Turned, lie, stand_in, together
from futurex.kernels.numba_ import matrix_unit, nearest, panels, products, unit_parts
from futurex.kernels.numba_.backend import kernel_of
from futurex.kernels.numba_.panels import NUMBERS, Form, Steps
from futurex.kernels.numba_.team import Share
from futurex.kernels.numba_.tiled import updating
from futurex.kernels.numba_.vectors import DOUBLE, SINGLE
from futurex.kernels.registry import Kernel
from futurex.kernels.small_products import small_product
from futurex.kernels.steps import Bound, Step, Workspace
from futurex.kernels.threads import may_share
from futurex.ops.matrices import by_itself
from futurex.ops.views import around, keep, view
from futurex.tree.node import Node, apply

_KINDS = {np.dtype(np.float32): SINGLE, np.dtype(np.float64): DOUBLE}
LEAST_PRODUCT = 64**3
"""Multiply-adds from which a product is worth a kernel of its own; below, it has the bits of NumPy's BLAS, which makes
it on one thread. Of more BLAS wakes its own threads, which then turn round on the processors that kernels run on."""
_MOST_TURNED = 4096
"""Rows up to which such a product of a turned first operand is made here: of more each inner element lies far away."""
_MOST_SQUARE = 128
"""Rows of a matrix times its own transpose up to which all products here take as long as half of them in a BLAS with
vectors of half the length."""
_HALF_AS_WIDE = ("Haswell", "Zen")
"""Processors as OpenBLAS calls them for which it has vectors of 32 bytes, also where they have some of 64: it gives
those names to later ones that it does not know."""
PARALLEL_PRODUCT = 1 << 19
"""Multiply-adds from which a second thread is worth its start."""
_ROWS, _FEW_ROWS, _WIDE = 16, 2, 4096
"""Rows that share what is packed: with fewer the library is as fast, unless there are so many columns."""
_THIN, _THINNEST = 16, 4
"""Columns, or elements of the inner axis, up to which the library is faster: registers would be mostly empty; and the
same for little products."""
_FEWEST = 4
"""Rows, and elements of the inner axis, from which the library is slower where the nearest cache is small, however many
multiply-adds: it has reached 0.15 to 0.9 of the rate there."""
_NARROW_ROWS = 8
"""Rows from which narrow tiles are as fast as the library, whichever operand is turned."""
_LEAST_THIN = 1 << 17
"""Multiply-adds from which a thin product is no longer NumPy's, whose BLAS is slower at those."""
_DEEPEST_TURNED = panels.LONG_TURNED, 256
"""Inner elements of a first and of a second operand that is turned above which the library is faster, but not where the
nearest cache is small: of the first a tile reads as many lines; the second is packed on its own."""
_MANY_TILES = 1 << 17
"""Elements of a result from which such a product is made here where the nearest cache is small: fewer are few tasks."""
_MANY_ROWS, _SOME_ROWS = 1024, 256
"""Rows up to which a product of a turned first operand is made here where the nearest cache is wide, because those of
more come from the last cache for each panel, and rows from which one of a second is, whose packing these share."""
_FEW_POSITIONS = 2048
"""Positions up to which a convolution is made here: more come from memory for each panel, once in the library."""
_LITTLE, _LITTLE_THIN = 1 << 25, 1 << 20
"""Multiply-adds, of one whose second operand is turned and of a thin one, up to which it is little: the library's few
per cent are less than waking its threads takes, where nothing else in a plan runs on them."""


class GemmBackend:
    """Matrix products, with a bias or without. ``alone``: no library comes behind it but NumPy's BLAS, whose threads
    are others than those of compiled kernels, so that going to and fro costs more than a product that suits less."""

    name = "gemm"

    def __init__(self, *, alone: bool = False) -> None:
        self.alone = alone

    def claim(self, node: Node, threads: int) -> Kernel | None:
        """A kernel for a product that suits; None where the library is as good."""
        if not node.is_static:
            return None
        small = small_product(node, threads)
        if small is not None or not panels.is_made():
            return small
        if node.op == "rank_update":
            return self._update(node, threads)
        if node.op == "matmul_store":
            return self._store(node, threads)
        if node.op in pointwise.OPERATIONS:
            return self._pointwise(node, threads)
        return self._product(node, threads) if node.op in ("matmul", "matmul_epilogue") else None

    def _product(self, node: Node, threads: int) -> Kernel | None:
        """A product alone."""
        if min(each.ndim for each in node.inputs[:2]) < 2:
            return None
        kind = _KINDS.get(node.dtype)
        if kind is None or any(each.dtype != node.dtype or each.aval.weak for each in (node, *node.inputs)):
            return None
        if kind is not DOUBLE and by_itself(node) and not blas_lags():
            return None
        x, y = map(stand_in, node.inputs[:2])
        sizes = _sizes(x, y) if x is not None and y is not None else None
        lies = [found for each in (x, y) if each is not None and (found := lie(each)) is not None]
        if sizes is None or len(lies) < 2 or _steps(lies, sizes[0]) is None:
            return None
        turned = lies[0].turned, lies[1].turned
        if not panels.reads(sizes[1], turned[0]):
            return None
        if not (suits_doubles(node, *sizes, turned) if kind is DOUBLE else self._suits(sizes, turned)):
            return None
        product = Product(node, sizes, turned, threads)
        return Kernel(product, self.name, into=True, late=product, bind=product.bind)

    def _suits(self, sizes: tuple[int, int, int, int], turned: Turned) -> bool:
        """Is a product in single precision faster here?"""
        if matrix_unit.is_used() and unit_parts.pays(sizes, turned):
            return True
        return math.prod(sizes) > LEAST_PRODUCT if self.alone else suits(*sizes, turned)

    def _store(self, node: Node, threads: int) -> Kernel | None:
        """A product that is written through a view of rows of an array."""
        kernel = self._product(apply("matmul", *node.inputs[1:]), threads)
        target = lie(view(np.empty(node.shape, node.dtype), node.attrs["chain"], ()))  # nobody touches its pages
        if kernel is None or target is None or target.turned:
            return None
        stored = Stored(node, kernel.call)  # type: ignore[arg-type]
        return replace(kernel, call=stored, late=stored, bind=stored.bind, inplace=(0,))

    def _pointwise(self, node: Node, threads: int) -> Kernel | None:
        """A convolution of single positions, where its products are known to be faster than the library's own."""
        few = math.prod(node.inputs[0].shape[:-1]) <= _FEW_POSITIONS
        product = pointwise.as_product(node) if few and nearest.wide() else None
        kernel = self._product(product, threads) if product is not None else None
        return kernel and pointwise.of_product(node, kernel)

    def _update(self, node: Node, threads: int) -> Kernel | None:
        """What elementwise operations make of a product, tile by tile."""
        try:
            kernel = kernel_of(node, updating(node, threads), self.name)
        except ValueError:
            return None
        return kernel and replace(kernel, inplace=tuple(k for k in kernel.inplace if k > 1))  # not the product's own


def suits(batch: int, rows: int, inner: int, columns: int, turned: Turned) -> bool:
    """Is a product faster here than in the library?"""
    small, narrow = nearest.small(), panels.is_narrow()
    fewest = _NARROW_ROWS if narrow else _FEWEST if small else _ROWS
    fits = rows >= fewest or (rows >= _FEW_ROWS and columns >= _WIDE)
    count = batch * rows * inner * columns
    least = _LEAST_THIN if min(inner, columns) <= _THIN else LEAST_PRODUCT
    first, second = (each and inner > most for each, most in zip(turned, _DEEPEST_TURNED, strict=True))
    if not fits or count <= least:
        return False
    many = batch * rows * columns >= _MANY_TILES
    tiled = narrow or (small and many)
    if nearest.wide():
        first = first and not (many and rows <= _MANY_ROWS and columns % panels.WHOLE == 0)
        second = second and rows < _SOME_ROWS
    if (first or (second and count > _LITTLE)) and not tiled:
        return False
    thin = _THIN if count > _LITTLE_THIN else _THINNEST
    return columns > thin and inner > (min(thin, _FEWEST - (not narrow)) if small else thin)


def suits_doubles(node: Node, batch: int, rows: int, inner: int, columns: int, turned: Turned) -> bool:
    """The same in double precision, where NumPy's BLAS is the alternative. Of a matrix and its own transpose that makes
    half of the products."""
    many = batch * rows * inner * columns > LEAST_PRODUCT
    least = DOUBLE.lanes if batch == 1 else 2 * DOUBLE.lanes
    whole = columns >= 2 * DOUBLE.lanes or columns % DOUBLE.lanes == 0
    fits = rows >= _ROWS and min(inner, columns) >= least and whole and not (turned[0] and rows > _MOST_TURNED)
    halved = by_itself(node) and (rows > _MOST_SQUARE or not blas_lags())
    return many and fits and not halved and not panels.is_narrow()


def blas_lags() -> bool:
    """Has NumPy's BLAS vectors of half this processor's length?"""
    return not panels.is_narrow() and openblas.core() in _HALF_AS_WIDE


def _steps(lies: Sequence[Lie], batch: int) -> list[Steps] | None:
    """From matrix to matrix; None where two of them lie in stacks of different sizes."""
    found = [each.steps(together(lies) or batch) for each in lies]
    return None if None in found else found  # type: ignore[return-value]


def _sizes(x: Any, y: Any) -> tuple[int, int, int, int] | None:
    """Batch, rows, inner size and columns; None for batches that are broadcast. Rows of a dense stack are one matrix's
    where the other operand is one matrix."""
    if not x.size or not y.size:
        return None
    if y.ndim == 2 and x.flags.c_contiguous:
        return 1, math.prod(x.shape[:-1]), x.shape[-1], y.shape[-1]
    if y.ndim > 2 and x.shape[:-2] != y.shape[:-2]:
        return None
    return math.prod(x.shape[:-2]), x.shape[-2], x.shape[-1], y.shape[-1]


class Product(ProductKernel):
    """The kernel of one product in single precision."""

    count = NUMBERS

    def __init__(self, node: Node, sizes: tuple[int, int, int, int], likely: Turned, threads: int) -> None:
        self.sizes = sizes
        stacked, other = (each.shape for each in node.inputs[:2])
        self.flattens = len(other) == 2 and sizes[1] != stacked[-2]
        """Is a stack of first operands taken for one matrix?"""
        self.shared = len(other) == 2
        self.bias = len(node.inputs) > 2
        self.kind = _KINDS[node.dtype]
        self.unit = self.kind is SINGLE and matrix_unit.is_used()
        super().__init__(node, likely, threads if may_share() and math.prod(sizes) >= PARALLEL_PRODUCT else 1)

    def form(self, turned: Turned) -> tuple[Form, int]:
        """The form for operands that lie so, and how many panels it has."""
        return panels.form_of(self.sizes, turned, bias=self.bias, shared=self.shared, unit=self.unit, kind=self.kind)

    def text(self, turned: Turned) -> str:
        return products.text_of(self.form(turned)[0], may_share())

    def numbers(self, lies: Lies) -> Sequence[int]:
        form, count = self.form((lies[1].turned, lies[2].turned))
        out, x, y = _steps(lies, self.sizes[0])  # type: ignore[misc]
        return panels.numbers(self.sizes, form, count, self.threads, x, y, out, together(lies))

    def share(self, block: Any) -> Share:
        """How the tasks of a block are shared: in several parts for each thread, because one may come late."""
        unit = self.form(self.likely)[0].unit
        return panels.share_of(self.sizes, unit, int(np.frombuffer(block, np.int64, 1)[0]), self.threads)

    def lies(self, arrays: Sequence[Any]) -> Lies | None:
        """How the result and the operands lie; None where the code cannot read one of them."""
        if not all(array.flags.c_contiguous and array.flags.aligned for array in arrays[3:]):
            return None
        out, x, y = map(lie, arrays[:3])
        if out is None or out.turned or x is None or y is None or _steps((out, x, y), self.sizes[0]) is None:
            return None
        if not panels.reads(self.sizes[1], x.turned):
            return None
        return None if self.flattens and not arrays[1].flags.c_contiguous else (out, x, y)


class Stored(OfViews):
    """The kernel of a product that is written through a view, in the array that the node makes."""

    def __init__(self, node: Node, product: Product) -> None:
        super().__init__(product)
        self.chain = node.attrs["chain"]
        self.blocks = around(node.shape, self.chain)

    def __call__(self, out: Any, base: Any, x: Any, y: Any) -> Any:
        if address_of(out) != address_of(base):
            keep(out, base, self.blocks)
        self.product(view(out, self.chain, ()), x, y)
        return out

    def bind(self, workspace: Workspace) -> Bound:
        """The product as a step."""
        return _BoundStored(self)


class _BoundStored:
    """A product into a view of an array at a fixed address."""

    def __init__(self, stored: Stored) -> None:
        self.stored, self.bound = stored, BoundProduct(stored.product)

    def aim(self, out: Any, base: Any, x: Any, y: Any) -> Sequence[Step] | None:
        """The step on these arrays; None where another array is to be copied before."""
        same = address_of(out) == address_of(base)
        return self.bound.aim(view(out, self.stored.chain, ()), x, y) if same else None
