"""The kernel of a compiled loop: packs its block, calls it, unpacks the results."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np

from futurex.kernels.loops.arrays import Array
from futurex.kernels.loops.emit import SCRATCH, STATUS, Emitter, Value
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.values import Scalar, supported
from futurex.kernels.numba_.compiler import compiled
from futurex.kernels.numba_.emit import slot_format
from futurex.kernels.registry import Kernel
from futurex.tree.graph import Graph
from futurex.tree.node import Node

LARGEST = 1 << 15
"""Elements of an array operation in a body from which NumPy's kernels, and threads, do as well."""
_MOST_NODES = 600
_ALIGNED = 64


class LoopBackend:
    """Whole loops over scalars and small arrays, compiled with all that they contain."""

    name = "loops"

    def claim(self, node: Node, threads: int) -> Kernel | None:
        """A kernel for a ``loop`` node whose call gives None where the loop has to be run another way, or None where
        the loop holds what cannot be compiled."""
        if node.op != "loop" or not 0 < _size(node) <= _MOST_NODES:
            return None
        try:
            return Kernel(CompiledLoop(node), self.name)
        except (Unsupported, RuntimeError):
            return None


def _size(node: Node) -> int:
    """How many nodes a loop has, inner graphs included; 0 if one of them is too large to profit."""
    count = 0
    graphs = [value for value in node.attrs.values() if isinstance(value, Graph)]
    while graphs:
        for each in graphs.pop().nodes:
            count += 1
            graphs += [value for value in each.attrs.values() if isinstance(value, Graph)]
            large = isinstance(each.aval, tuple) or not all(type(extent) is int for extent in each.shape)
            if each.op not in ("store", "param", "const", "item", "cond", "loop") and (large or each.size > LARGEST):
                return 0
    return count


class CompiledLoop:
    """``call(None, *inputs)`` gives the carry after the last round, in memory of its own, or None after a failure."""

    def __init__(self, node: Node) -> None:
        emitter = Emitter()
        count = len(node.attrs["body"].outs)
        self.carried = count
        self._arrays: list[tuple[int, int, tuple[int, ...], Any]] = []  # input, slot, shape, dtype
        self._scalars: list[tuple[int, int, Any]] = []  # input, slot, dtype
        inputs: list[Value] = []
        for k, source in enumerate(node.inputs):
            if source.shape:
                made = emitter.array_slot(source.aval, owned=k < count)
                self._arrays.append((k, made.place.index, made.shape, made.dtype))
                inputs.append(made)
            else:
                slot = emitter.slot()
                self._scalars.append((k, slot, supported(source.dtype)))
                inputs.append(Scalar(f"%in{slot}", source.dtype, source.aval.weak))
        results = emitter.loop(node, inputs[:count], inputs[count:])
        self._outs: list[tuple[int, Any, bool] | int] = []
        for value in results:
            if isinstance(value, Array):
                self._outs.append(value.place.index)
                continue
            slot = emitter.slot()
            address = emitter.function.emit(f"getelementptr i64, ptr %block, i64 {slot}")
            emitter.function.store(value.dtype, value.register, address)
            self._outs.append((slot, value.dtype, value.weak))
        self._entry = compiled(emitter.text([(slot, dtype) for _, slot, dtype in self._scalars]))
        self._scratch = emitter.scratch
        self._template = bytearray(8 * emitter.slots)
        self._kept = emitter.constants
        for slot, array in emitter.constants:
            struct.pack_into("=q", self._template, 8 * slot, array.ctypes.data)
        for loop, slot in emitter.inner_loops.items():
            struct.pack_into("=qq", self._template, 8 * slot, loop.address, loop.data)

    def __call__(self, out: None, *inputs: Any) -> tuple[Any, ...] | None:
        block = ctypes.create_string_buffer(bytes(self._template), len(self._template))
        scratch = np.empty(self._scratch + _ALIGNED, np.uint8)
        struct.pack_into("=q", block, 8 * SCRATCH, -(-scratch.ctypes.data // _ALIGNED) * _ALIGNED)
        arrays: dict[int, Any] = {}
        for k, slot, shape, dtype in self._arrays:
            array = np.array(inputs[k], order="C") if k < self.carried else np.ascontiguousarray(inputs[k])
            if array.shape != shape or array.dtype != dtype or not array.flags.aligned:
                raise ValueError(f"compiled loop: built for {dtype} {shape}, got {array.dtype} {array.shape}")
            arrays[slot] = array
            struct.pack_into("=q", block, 8 * slot, array.ctypes.data)
        for k, slot, dtype in self._scalars:
            value = inputs[k]
            try:
                struct.pack_into(f"={slot_format(dtype)}", block, 8 * slot, _plain(value))
            except struct.error:  # a Python int that needs more than 64 bits
                return None
        self._entry(block)
        if struct.unpack_from("=q", block, 8 * STATUS)[0]:
            return None
        return tuple(arrays[each] if isinstance(each, int) else _unpacked(block, *each) for each in self._outs)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.ndarray | np.generic) else value


def _unpacked(block: Any, slot: int, dtype: Any, weak: bool) -> Any:
    (value,) = struct.unpack_from(f"={slot_format(dtype)}", block, 8 * slot)
    return value if weak else dtype.type(value)
