"""Generated reductions on arrays of the device: a region and the reduction at its end are one trip through memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.kernels.cuda_ import COLUMNS, REDUCTIONS, Operand, columns_source, numbered, reduction_source
from futurex.kernels.cuda_.scalar import HALF
from futurex.kernels.cuda_.source import Body
from futurex.kernels.cupy_.devices import Device
from futurex.kernels.cupy_.regions import THREADS, collapse, compiled, strides_of, values_of
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, param

_WORTH_A_PART = 4096  # elements that a block takes before it shares them with another
_BLOCKS_EACH = 8  # of 256 threads: as many as a multiprocessor holds, so that enough loads are under way
MOST_BLOCKS = 2**31 - 1
"""Of a grid. CuPy hands over the lowest 32 bits of what it is asked for."""
FEWEST_COLUMNS = 16
"""Columns side by side from which a warp reads enough of what lies together."""


class Reduction:
    """The kernel of reductions ``outs`` over the results of an elementwise region, of one shape along the same axes.

    Called with arrays of the device and host scalars, it gives a new array, or several. ``threads`` is a power of two,
    the most in a block, and at least :data:`COLUMNS`. Raises ValueError for a region or reduction that cannot be
    generated.
    """

    def __init__(self, device: Device, region: Graph, *outs: Node, threads: int = THREADS) -> None:
        for out in outs:
            if out.op not in REDUCTIONS:
                raise ValueError(f"{out.op} is no reduction that can be generated")
            if out.dtype == HALF:
                raise ValueError("sums of halves are single precision until they are stored")
        self.device, self.region, self.outs = device, region, outs
        self.shape = shape = region.outs[0].shape
        axis = outs[0].attrs["axis"]
        self.axes = reduced = tuple(range(len(shape))) if axis is None else tuple(axis)
        kept = [k for k in range(len(shape)) if k not in reduced]
        self.result_shape = tuple(1 if k in reduced else extent for k, extent in enumerate(shape))
        inner = columns_of(shape, reduced)
        self._columns = math.prod(shape[k] for k in inner)
        self._by_columns = bool(inner)
        self._order = (*(k for k in kept if k not in inner), *reduced, *inner)
        self._kept = math.prod(shape[k] for k in kept if k not in inner)
        self._reduced = math.prod(shape[k] for k in reduced)
        self._elements = math.prod(shape)
        self.threads = threads if inner else min(threads, max(32, 1 << (self._reduced - 1).bit_length()))
        self._kernels: dict[tuple[Any, ...], tuple[Body, Any]] = {}
        Body(region, [Operand.DENSE] * len(region.params), 1)

    def __call__(self, *inputs: Any) -> Any:
        kept, columns = self._kept, self._columns
        if not kept or not self._reduced or not columns:
            raise ValueError("nothing to reduce")
        parts = self._parts()
        results = self._empty(parts)
        self._launch(self.region, inputs, self._order, self.shape, self._reduced, parts, results)
        if parts > 1:
            shape, partial, results = (kept, parts, columns), results, self._empty(1)
            wholes = [param(Aval(shape, out.dtype)) for out in self.outs]
            self._launch(Graph(wholes, wholes), partial, (0, 1, 2), shape, parts, 1, results)
        made = tuple(result.reshape(out.shape) for result, out in zip(results, self.outs, strict=True))
        return made if len(made) > 1 else made[0]

    def _empty(self, parts: int) -> list[Any]:
        size = self._kept * parts * self._columns
        return [self.device.xp.empty(size, out.dtype) for out in self.outs]

    @property
    def rows(self) -> int | None:
        """How many results there are, if each is that of elements that follow each other; else None."""
        return None if self._by_columns or self._order != tuple(range(len(self.shape))) else self._kept

    @property
    def _tiles(self) -> int:
        """Blocks beside each other."""
        return -(-self._columns // COLUMNS) if self._by_columns else 1

    def _parts(self) -> int:
        width = COLUMNS if self._by_columns else 1
        return parts_of(self.device, self._kept * self._tiles, self._reduced * width)

    def _launch(
        self, region: Graph, inputs: Any, order: tuple[int, ...], shape: tuple[int, ...], reduced: int, parts: int,
        results: Sequence[Any],
    ) -> None:  # fmt: skip
        forms = tuple(self._form(value, order, shape) for value in inputs)
        strided = [k for k, form in enumerate(forms) if form is Operand.STRIDED]
        walks = [tuple(strides_of(inputs[k], shape)[axis] for axis in order) for k in strided]
        extents, steps = collapse([shape[axis] for axis in order], walks)
        body, kernel = self._kernel(region, forms, len(extents) if strided else 1)
        sizes = [self._kept, reduced, *([self._columns] if self._by_columns else ()), parts]
        args = [
            *map(np.int64, [*sizes, *(extents[1:] if strided else ())]),
            *results,
            *(value for value, form in zip(inputs, forms, strict=True) if form is not Operand.VALUE),
            *(np.int64(step) for walk in steps for step in walk),
            *values_of(body, region, inputs),
        ]  # fmt: skip
        blocks = self._kept * self._tiles * parts
        if blocks > MOST_BLOCKS:
            raise ValueError(f"a grid has at most {MOST_BLOCKS} blocks, and this one {blocks}")
        widest = max(result.itemsize for result in results)
        kernel((blocks,), (self.threads,), tuple(args), shared_mem=self.threads * widest)

    def _form(self, value: Any, order: tuple[int, ...], shape: tuple[int, ...]) -> Operand:
        if not self.device.holds(value):
            return Operand.VALUE
        if value.size == 1:
            return Operand.ELEMENT
        whole = math.prod(value.shape) == math.prod(shape) and value.flags.c_contiguous
        return Operand.DENSE if whole and order == tuple(range(len(order))) else Operand.STRIDED

    def _kernel(self, region: Graph, forms: tuple[Operand, ...], loops: int) -> tuple[Body, Any]:
        key = region.hash, forms, loops
        if key not in self._kernels:
            source = columns_source if self._by_columns else reduction_source
            text = source(region, forms, loops, [(out.op, out.dtype) for out in self.outs])
            self._kernels[key] = Body(region, forms, loops), compiled(self.device, numbered(text, self._elements))
        return self._kernels[key]


def parts_of(device: Device, kept: int, elements: int) -> int:
    """Blocks for one of ``kept`` results or tiles of results, each of so many elements: several where there are too few
    of those to fill the device."""
    wanted = -(-device.processors * _BLOCKS_EACH // kept)
    return max(1, min(wanted, elements // _WORTH_A_PART, 1024))


def columns_of(shape: Sequence[int], reduced: Sequence[int]) -> tuple[int, ...]:
    """The last dimensions, if they are kept and have enough elements for a reduction of columns; else none.

    >>> columns_of((8, 5, 5, 64), (0, 1, 2)), columns_of((8, 5, 5, 64), (3,)), columns_of((99, 2), (0,))
    ((3,), (), ())
    """
    last = max(reduced, default=-1)
    inner = tuple(range(last + 1, len(shape)))
    return inner if math.prod(shape[k] for k in inner) >= FEWEST_COLUMNS else ()
