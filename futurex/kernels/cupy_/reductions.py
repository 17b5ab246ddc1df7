"""Generated reductions on arrays of the device: a region and the reduction at its end are one trip through memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from futurex.kernels.cuda_ import REDUCTIONS, Operand, reduction_source
from futurex.kernels.cuda_.source import Body
from futurex.kernels.cupy_.devices import Device
from futurex.kernels.cupy_.regions import THREADS, collapse, compiled, strides_of, values_of
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, param

_WORTH_A_PART = 4096  # elements that a block takes before it shares them with another


class Reduction:
    """The kernel of a reduction ``out`` over the one result of an elementwise region.

    Called with arrays of the device and host scalars, it gives a new array. ``threads`` is a power of two, the most in
    a block.
    Raises ValueError for a region or reduction that cannot be generated.
    """

    def __init__(self, device: Device, region: Graph, out: Node, threads: int = THREADS) -> None:
        if out.op not in REDUCTIONS:
            raise ValueError(f"{out.op} is no reduction that can be generated")
        self.device, self.region, self.out = device, region, out
        shape, axis = region.outs[0].shape, out.attrs["axis"]
        reduced = tuple(range(len(shape))) if axis is None else axis
        self._order = (*(k for k in range(len(shape)) if k not in reduced), *reduced)
        self._shape = shape
        self._kept = math.prod(shape[k] for k in range(len(shape)) if k not in reduced)
        self._reduced = math.prod(shape[k] for k in reduced)
        self.threads = min(threads, max(32, 1 << (self._reduced - 1).bit_length()))
        self._kernels: dict[tuple[Any, ...], tuple[Body, Any]] = {}
        Body(region, [Operand.DENSE] * len(region.params), 1)

    def __call__(self, *inputs: Any) -> Any:
        xp, dtype = self.device.xp, self.out.dtype
        if not self._kept or not self._reduced:
            raise ValueError("nothing to reduce")
        parts = self._parts()
        partial = xp.empty(self._kept * parts, dtype)
        self._launch(self.region, inputs, self._order, self._shape, self._reduced, parts, partial)
        if parts == 1:
            return partial.reshape(self.out.shape)
        result = xp.empty(self._kept, dtype)
        whole = param(Aval((self._kept, parts), dtype))
        self._launch(Graph([whole], [whole]), (partial,), (0, 1), (self._kept, parts), parts, 1, result)
        return result.reshape(self.out.shape)

    def _parts(self) -> int:
        """Blocks for one kept element: several where there are too few of those to fill the device."""
        wanted = -(-self.device.processors * 4 // self._kept)
        return max(1, min(wanted, self._reduced // _WORTH_A_PART, 1024))

    def _launch(
        self, region: Graph, inputs: Any, order: tuple[int, ...], shape: tuple[int, ...], reduced: int, parts: int,
        result: Any,
    ) -> None:  # fmt: skip
        forms = tuple(self._form(value, order, shape) for value in inputs)
        strided = [k for k, form in enumerate(forms) if form is Operand.STRIDED]
        walks = [tuple(strides_of(inputs[k], shape)[axis] for axis in order) for k in strided]
        extents, steps = collapse([shape[axis] for axis in order], walks)
        body, kernel = self._kernel(region, forms, len(extents) if strided else 1)
        kept = math.prod(shape) // reduced
        args = [
            np.int64(kept), np.int64(reduced), np.int64(parts),
            *(np.int64(extent) for extent in (extents[1:] if strided else ())),
            result,
            *(value for value, form in zip(inputs, forms, strict=True) if form is not Operand.VALUE),
            *(np.int64(step) for walk in steps for step in walk),
            *values_of(body, region, inputs),
        ]  # fmt: skip
        kernel((kept * parts,), (self.threads,), tuple(args), shared_mem=self.threads * result.itemsize)

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
            text = reduction_source(region, forms, loops, self.out.op, self.out.dtype)
            self._kernels[key] = Body(region, forms, loops), compiled(self.device, text)
        return self._kernels[key]
