"""Claims float32 matrix products for generated code.

Measured on two cores with AVX-512 it takes 0.6 to 1.0 of oneDNN's time on two threads (0.6: 32 x 256 x 1024, 10 x 106 x
10000; 1.0: 2048 cubed) and 0.8 to 1.05 on one: the library spends a barrier and a packing where there is little work,
and copies what is transposed.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.compiling import is_behind
from futurex.kernels.numba_ import nearest, panels, products
from futurex.kernels.numba_.backend import kernel_of
from futurex.kernels.numba_.compiler import Entry, compiled
from futurex.kernels.numba_.panels import NUMBERS, Steps
from futurex.kernels.numba_.team import Share
from futurex.kernels.numba_.tiled import updating
from futurex.kernels.registry import Kernel
from futurex.kernels.steps import Bound, Places, Step, Workspace
from futurex.kernels.threads import openmp
from futurex.ops.views import around, keep, view
from futurex.tree.node import Node, apply

_FLOAT32 = np.dtype(np.float32)
LEAST_PRODUCT = 64**3
"""Multiply-adds from which a product is worth a kernel of its own; below, it has the bits of NumPy's BLAS."""
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
_DENSE_VIEWS = ("transpose", "reshape", "frames")
"""Views whose matrices mostly have a dense axis."""
_LITTLE, _LITTLE_THIN = 1 << 25, 1 << 20
"""Multiply-adds, of one whose second operand is turned and of a thin one, up to which it is little: the library's few
per cent are less than waking its threads takes, where nothing else in a plan runs on them."""
_WAYS = 16
"""In how many ways operands may lie for which the parameters of a product are kept."""
Turned = tuple[bool, bool]


class GemmBackend:
    """Matrix products, with a bias or without. ``alone``: no library comes behind it but NumPy's BLAS, whose threads
    are others than those of compiled kernels, so that going to and fro costs more than a product that suits less."""

    name = "gemm"

    def __init__(self, *, alone: bool = False) -> None:
        self.alone = alone

    def claim(self, node: Node, threads: int) -> Kernel | None:
        """A kernel for a product that suits; None where the library is as good."""
        if not node.is_static or not panels.is_made():
            return None
        if node.op == "rank_update":
            return self._update(node, threads)
        if node.op == "matmul_store":
            return self._store(node, threads)
        return self._product(node, threads) if node.op in ("matmul", "matmul_epilogue") else None

    def _product(self, node: Node, threads: int) -> Kernel | None:
        """A product alone."""
        if min(each.ndim for each in node.inputs[:2]) < 2:
            return None
        if any(each.dtype != _FLOAT32 or each.aval.weak for each in (node, *node.inputs)):
            return None
        x, y = map(_stand_in, node.inputs[:2])
        sizes = _sizes(x, y) if x is not None and y is not None else None
        lies = [found for each in (x, y) if each is not None and (found := lie(each)) is not None]
        if sizes is None or len(lies) < 2 or _steps(lies, sizes[0]) is None:
            return None
        turned = lies[0].turned, lies[1].turned
        if not panels.reads(sizes[1], turned[0]):
            return None
        if not (math.prod(sizes) > LEAST_PRODUCT if self.alone else suits(*sizes, turned)):
            return None
        product = Product(node, sizes, turned, threads)
        return Kernel(product, self.name, into=True, late=product, bind=product.bind)

    def _store(self, node: Node, threads: int) -> Kernel | None:
        """A product that is written through a view of rows of an array."""
        kernel = self._product(apply("matmul", *node.inputs[1:]), threads)
        target = lie(view(np.empty(node.shape, _FLOAT32), node.attrs["chain"], ()))  # nobody touches its pages
        if kernel is None or target is None or target.turned:
            return None
        stored = Stored(node, kernel.call)  # type: ignore[arg-type]
        return replace(kernel, call=stored, late=stored, bind=stored.bind, inplace=(0,))

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
    tiled = narrow or (small and batch * rows * columns >= _MANY_TILES)
    if (first or (second and count > _LITTLE)) and not tiled:
        return False
    thin = _THIN if count > _LITTLE_THIN else _THINNEST
    return columns > thin and inner > (min(thin, _FEWEST - (not narrow)) if small else thin)


@dataclass(frozen=True)
class Lie:
    """How matrices lie in memory: are their axes swapped, elements from one row to the next, and of the stack, and of
    the stack of stacks, the elements from one to the next and how many there are."""

    turned: bool
    row: int
    levels: tuple[tuple[int, int], ...]

    def steps(self, together: int) -> Steps | None:
        """For stacks of so many matrices; None where these are others."""
        if len(self.levels) > 1:
            (step, count), (outer, _) = self.levels
            return Steps(self.row, step, outer) if count == together else None
        step = self.levels[0][0] if self.levels else 0
        return Steps(self.row, step, step * together)


def lie(array: Any) -> Lie | None:
    """None where neither axis is dense, or where matrices lie neither in a stack nor in a stack of stacks."""
    strides = [each // 4 for each in array.strides]
    if not array.flags.aligned or any(each % 4 or each < 0 for each in array.strides):
        return None
    turned = strides[-1] != 1 and array.shape[-1] > 1
    if turned and strides[-2] != 1:
        return None
    row = strides[-1] if turned else strides[-2]
    levels: list[tuple[int, int]] = []
    for stride, extent in zip(reversed(strides[:-2]), reversed(array.shape[:-2]), strict=True):
        if levels and stride == levels[-1][0] * levels[-1][1]:
            levels[-1] = levels[-1][0], levels[-1][1] * extent
        elif extent > 1:
            levels.append((stride, extent))
    return Lie(turned, row, tuple(levels)) if len(levels) < 3 else None


Lies = tuple[Lie, Lie, Lie]
"""Of the result and both operands."""


def together(lies: Sequence[Lie]) -> int:
    """How many matrices are in one stack, where one of these lies in a stack of stacks; 0 where none does."""
    return max((each.levels[0][1] for each in lies if len(each.levels) > 1), default=0)


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


class Product:
    """The kernel of one node; until it is compiled NumPy computes it. Operands that lie in other ways are copied."""

    def __init__(self, node: Node, sizes: tuple[int, int, int, int], likely: Turned, threads: int) -> None:
        self.node, self.sizes = node, sizes
        self.wait = not is_behind()
        self.interpreted = 0
        self.threads = threads if openmp() is not None and math.prod(sizes) >= PARALLEL_PRODUCT else 1
        self.shapes = [each.shape for each in (node, *node.inputs)]
        self.entries: dict[Turned, Entry] = {}
        self.likely = likely
        stacked, other = (each.shape for each in node.inputs[:2])
        self.flattens = len(other) == 2 and sizes[1] != stacked[-2]
        """Is a stack of first operands taken for one matrix?"""
        self.shared = len(other) == 2
        self.seen: dict[tuple[Any, ...], tuple[Turned, bytes]] = {}
        """What was found for arrays of these strides."""
        self.pack = struct.Struct(f"={len(self.shapes)}q").pack
        self.entry(self.likely, wait=False)

    def entry(self, turned: Turned, *, wait: bool) -> Entry:
        """The code for operands that lie so."""
        entry = self.entries.get(turned)
        if entry is None or (wait and not entry.ready and entry.error is None):
            form, _ = panels.form_of(self.sizes, turned, bias=len(self.shapes) > 3, shared=self.shared)
            text = products.text_of(form, openmp() is not None)
            entry = self.entries[turned] = compiled(text, wait=wait)
        return entry

    def prepare(self, sharing: Sequence[int], *, wait: bool) -> None:
        """Have the code compiled for operands as the tree has them."""
        self.entry(self.likely, wait=wait)

    @property
    def ready(self) -> bool:
        return all(entry.ready for entry in list(self.entries.values()))

    def numbers(self, lies: Lies) -> bytes:
        """The parameters before the addresses, for arrays that lie so."""
        turned = lies[1].turned, lies[2].turned
        form, count = panels.form_of(self.sizes, turned, bias=len(self.shapes) > 3, shared=self.shared)
        out, x, y = _steps(lies, self.sizes[0])  # type: ignore[misc]
        found = panels.numbers(self.sizes, form, count, self.threads, x, y, out, together(lies))
        return struct.pack(f"={NUMBERS}q", *found)

    def found(self, arrays: Sequence[Any]) -> tuple[Turned, bytes] | None:
        """How the operands lie, and the parameters; None where the code cannot read one of them. A step of training
        has other arrays each time, which lie as those before."""
        for array, shape in zip(arrays, self.shapes, strict=True):
            if array.shape != shape or array.dtype != _FLOAT32:
                raise ValueError(
                    f"{self.node.op} kernel: built for float32 arrays of shapes {self.shapes} (the result first), got "
                    f"{array.dtype} {array.shape}"
                )
        key = tuple([array.strides if array.flags.aligned else None for array in arrays])
        seen = self.seen.get(key)
        if seen is None and (lies := self.lies(arrays)) is not None:
            seen = (lies[1].turned, lies[2].turned), self.numbers(lies) + self.pack(*map(address_of, arrays))
            if len(self.seen) < _WAYS:
                self.seen[key] = seen[0], seen[1][: 8 * NUMBERS]
            return seen
        return seen and (seen[0], seen[1] + self.pack(*map(address_of, arrays)))

    def share(self, block: Any) -> Share:
        """How the tasks of a block are shared: in several parts for each thread, because one may come late."""
        return panels.share_of(self.sizes, int(np.frombuffer(block, np.int64, 1)[0]), self.threads)

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

    def __call__(self, out: Any, *inputs: Any) -> Any:
        found = self.found((out, *inputs))
        if found is None:
            inputs = tuple(np.array(array, order="C") for array in inputs)
            found = self.found((out, *inputs))
            assert found is not None
        turned, block = found
        entry = self.entry(turned, wait=self.wait)
        if not entry.ready:
            self.interpreted += 1
            np.copyto(out, self.node.record.run(inputs, self.node.attrs))
            return out
        if self.threads > 1:
            entry.on_threads(block, self.share(block))
        else:
            entry(block)
        return out

    def bind(self, workspace: Workspace) -> Bound:
        """The product as a step."""
        return BoundProduct(self)


class BoundProduct:
    """A product whose block says where arrays lie."""

    def __init__(self, product: Product) -> None:
        self.product = product
        self.entry: Entry | None = None
        self.words = np.zeros(NUMBERS + len(product.shapes), np.int64)
        self.steps: list[Step] = []

    @property
    def places(self) -> tuple[Sequence[Places], Mapping[int, Places]]:
        """Where it stands where arrays lie: the result, and inputs by position."""
        first = address_of(self.words) + 8 * NUMBERS
        out, *inputs = ([(first + 8 * k, 0)] for k in range(len(self.product.shapes)))
        return [out], dict(enumerate(inputs))

    def aim(self, out: Any, *inputs: Any) -> Sequence[Step] | None:
        """The step on these arrays; None where they lie otherwise, or the code is not there."""
        found = self.product.found((out, *inputs))
        entry = self.product.entry(found[0], wait=self.product.wait) if found else None
        if found is None or entry is None or not entry.ready:
            return None
        self.words[:] = np.frombuffer(found[1], np.int64)
        if entry is not self.entry:
            self.entry = entry
            self.steps = [entry.step(address_of(self.words), self.product.share(self.words))]
        return self.steps


class Stored:
    """The kernel of a product that is written through a view, in the array that the node makes."""

    def __init__(self, node: Node, product: Product) -> None:
        self.product, self.chain = product, node.attrs["chain"]
        self.blocks = around(node.shape, self.chain)
        self.threads = product.threads

    @property
    def interpreted(self) -> int:
        return self.product.interpreted

    @property
    def ready(self) -> bool:
        return self.product.ready

    def prepare(self, sharing: Sequence[int], *, wait: bool) -> None:
        """Have the product compiled."""
        self.product.prepare((), wait=wait)

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


def _stand_in(node: Node) -> Any:
    """An array, never written, that lies in memory as the node's will; None for views that are rarely dense."""
    if node.record.view is None or node.op in ("param", "const", "item"):
        return np.empty(node.shape, _FLOAT32)
    fixed = node.op in _DENSE_VIEWS or (node.op == "load" and len(node.inputs) == 1)
    source = _stand_in(node.inputs[node.record.view]) if fixed else None
    return None if source is None else node.record.run([source], node.attrs)
