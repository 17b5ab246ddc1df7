"""Claims ``fused`` nodes: checks arrays, packs their addresses, calls the compiled loop on one or several threads."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from futurex.kernels.numba_.compiler import Entry, compiled
from futurex.kernels.numba_.emit import Region, Scalar, analyse, emit, slot_format
from futurex.kernels.numba_.layout import Layout, collapse
from futurex.kernels.onednn.primitive import address_of
from futurex.kernels.registry import Kernel
from futurex.kernels.threads import openmp
from futurex.tree.aval import Aval
from futurex.tree.node import Node

PARALLEL_BYTES = 512 * 1024
"""Bytes moved below which one thread is done before a second has started."""
_MOST_LOOPS = 4
_READABLE = 0x101  # NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED
_WRITABLE = 0x501  # ... | NPY_ARRAY_WRITEABLE


class NumbaBackend:
    """Compiled kernels for fused elementwise regions; they give NumPy's bits."""

    name = "numba"

    def claim(self, node: Node, threads: int) -> Kernel | None:
        """A kernel for a ``fused`` node, or None where its broadcasting needs too many loops or LLVM refuses it."""
        if node.op != "fused":
            return None
        graph = node.attrs["graph"]
        layout = collapse(graph.outs[0].shape, [source.shape for source in graph.params])
        if not 1 <= len(layout.extents) <= _MOST_LOOPS or 0 in layout.extents:
            return None
        try:
            loop = _Loop(node, analyse(graph), layout, threads)
            loop.entry((-1,) * len(loop.region.arrays))
        except (RuntimeError, ValueError):
            return None
        outs = node.aval if isinstance(node.aval, tuple) else (node.aval,)
        inplace = tuple(k for k in loop.region.arrays if node.inputs[k].aval in outs)
        return Kernel(loop, self.name, into=True, inplace=inplace, contiguous=True)


class _Loop:
    """The kernel of one node; for every way in which results share memory with operands it has a compiled variant.

    Any result may be given the buffer of any operand of the same shape and dtype.
    """

    def __init__(self, node: Node, region: Region, layout: Layout, threads: int) -> None:
        self.region = region
        self.layout = layout
        self.several = isinstance(node.aval, tuple)
        outs: tuple[Aval, ...] = node.aval if isinstance(node.aval, tuple) else (node.aval,)
        moved = sum(aval.nbytes for aval in outs) + sum(source.aval.nbytes for source in node.inputs)
        self.threads = min(threads, layout.extents[0]) if openmp() is not None and moved >= PARALLEL_BYTES else 1
        self.checks = tuple((aval.shape, aval.dtype, _WRITABLE) for aval in outs)
        self.checks += tuple((node.inputs[k].shape, node.inputs[k].dtype, _READABLE) for k in region.arrays)
        self.scalars = tuple(_Reader(scalar) for scalar in region.scalars)
        slots = "q" * (len(layout.extents) + len(self.checks))
        self.pack = struct.Struct(f"={slots}{''.join(slot_format(scalar.dtype) for scalar in region.scalars)}").pack
        self.variants: dict[tuple[int, ...], Entry] = {}
        self.unshared = (-1,) * len(region.arrays)

    def entry(self, aliases: tuple[int, ...]) -> Entry:
        """The compiled loop for operands that share memory with these results (-1: with none)."""
        if aliases not in self.variants:
            text = emit(self.region, self.layout, aliases, threaded=openmp() is not None)
            self.variants[aliases] = compiled(text)
        return self.variants[aliases]

    def __call__(self, out: Any, *inputs: Any) -> Any:
        outs = out if self.several else (out,)
        arrays = (*outs, *(inputs[k] for k in self.region.arrays))
        _check(arrays, self.checks)
        addresses = [address_of(array) for array in arrays]
        written, read = addresses[: len(outs)], addresses[len(outs) :]
        aliases = self.unshared
        if not set(written).isdisjoint(read):
            aliases = tuple(written.index(address) if address in written else -1 for address in read)
        entry = self.entry(aliases)
        block = self.pack(*self.layout.extents, *addresses, *(scalar(inputs) for scalar in self.scalars))
        if self.threads > 1:
            entry.on_threads(block, self.threads)
        else:
            entry(block)
        return out


class _Reader:
    """Gives the value of one scalar operand in the dtype it enters in."""

    __slots__ = ("convert", "position", "value")

    def __init__(self, scalar: Scalar) -> None:
        self.position = scalar.position
        self.convert = scalar.dtype.type
        self.value = None if scalar.position is not None else self.convert(scalar.node.value)

    def __call__(self, inputs: tuple[Any, ...]) -> Any:
        if self.position is None:
            return self.value
        value = inputs[self.position]
        return self.convert(value.item() if isinstance(value, np.ndarray) else value)


def _check(arrays: tuple[Any, ...], checks: tuple[tuple[tuple[int, ...], Any, int], ...]) -> None:
    """Compiled code believes its addresses: a wrong shape would be a write outside the array."""
    for array, (shape, dtype, flags) in zip(arrays, checks, strict=True):
        if array.shape != shape or array.dtype != dtype or array.flags.num & flags != flags:
            raise ValueError(
                f"fused kernel: built for a C-contiguous{' writable' if flags == _WRITABLE else ''} {dtype} array of "
                f"shape {shape}, got {array.dtype} {array.shape} with strides {array.strides}; copy it with "
                f"numpy.ascontiguousarray"
            )
