"""A compiled function over arrays and scalars: packs its block, calls it, unpacks the results."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.compiling import is_behind
from futurex.kernels.loops.arrays import Array
from futurex.kernels.loops.emit import FIRST, Call, Cell, Emitter, Value
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.values import Scalar, supported
from futurex.kernels.numba_.compiler import compiled
from futurex.kernels.numba_.emit import slot_format
from futurex.tree.aval import Aval

_ALIGNED = 64
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64)
Build = Callable[[Emitter, Sequence[Value]], Sequence[Value]]


class Program:
    """``call(*inputs)`` gives the results of ``build``, in memory of their own; None after a failure, and before it is
    compiled. The first ``owned`` inputs may be overwritten by the generated code: it gets copies of these arrays.
    """

    def __init__(self, avals: Sequence[Aval], owned: int, build: Build) -> None:
        emitter = Emitter()
        self._inputs: list[tuple[int, tuple[int, ...], Any, bool] | None] = []
        codes = ["qq"]
        inputs: list[Value] = []
        scalars: list[tuple[int, Any]] = []
        for k, aval in enumerate(avals):
            if aval.shape:
                made = emitter.array_slot(aval, owned=k < owned)
                self._inputs.append((made.place.index, made.shape, made.dtype, k < owned))
                codes.append("q")
                inputs.append(made)
            else:
                slot = emitter.slot()
                scalars.append((slot, supported(aval.dtype)))
                self._inputs.append(None)
                codes.append(slot_format(aval.dtype))
                inputs.append(Scalar(f"%in{slot}", aval.dtype, aval.weak))
        self._made: list[tuple[int, tuple[int, ...], Any]] = []
        results = self._results(emitter, build(emitter, inputs), codes)
        self._pack = struct.Struct("=" + "".join(codes)).pack_into
        self._first_scalar = emitter.slots
        self._outs: list[tuple[bool, Any]] = []  # an array's slot; or a scalar's type, None for a Python number
        unpacked = []
        for value in results:
            if isinstance(value, Array):
                self._outs.append((True, value.place.index))
                continue
            address = emitter.function.emit(f"getelementptr i64, ptr %block, i64 {emitter.slot()}")
            emitter.function.store(value.dtype, value.register, address)
            unpacked.append(slot_format(value.dtype))
            self._outs.append((False, None if value.weak else value.dtype.type))
        self._unpack = struct.Struct("=" + "".join(unpacked)).unpack_from
        self.interpreted = 0
        self._text = emitter.text(scalars)
        self._entry = compiled(self._text, wait=not is_behind())
        if self._entry.error is not None:
            raise Unsupported(str(self._entry.error))
        self._scratch = emitter.scratch + _ALIGNED
        self._kept = dict(emitter.constants)
        self._callback = emitter.callback
        self._calls = _prepared(emitter.calls)
        template = bytearray(8 * emitter.slots)
        for slot, array in emitter.constants:
            struct.pack_into("=q", template, 8 * slot, address_of(array))
        for loop, slot in emitter.inner_loops.items():
            struct.pack_into("=qq", template, 8 * slot, loop.address, loop.data)
        self._template = bytes(template)

    def _results(self, emitter: Emitter, results: Sequence[Value], codes: list[str]) -> list[Value]:
        """Arrays that are to outlive the call get memory of their own: what is owned already, or a new array."""
        own = {entry[0] for entry in self._inputs if entry is not None and entry[3]}
        taken: set[int] = set()
        moved: list[Value] = []
        for value in results:
            if isinstance(value, Array):
                place = value.place
                if place.scratch or place.index not in own or place.index in taken:
                    target = emitter.array_slot(Aval(value.shape, value.dtype), owned=True)
                    self._made.append((target.place.index, target.shape, target.dtype))
                    emitter.copy(target, value)
                    value = target
                taken.add(value.place.index)
            moved.append(value)
        return moved

    def prepare(self, sharing: Sequence[int], *, wait: bool) -> None:
        """Be done when this returns, if ``wait``."""
        if wait:
            compiled(self._text)

    @property
    def ready(self) -> bool:
        """Is the code there?"""
        return self._entry.ready

    def __call__(self, *inputs: Any) -> tuple[Any, ...] | None:
        if not self._entry.ready:
            self.interpreted += 1
            return None
        scratch = np.empty(self._scratch, np.uint8)
        memory = address_of(scratch)
        base = -(-memory // _ALIGNED) * _ALIGNED
        fields: list[Any] = [0, base]
        arrays: dict[int, Any] = {}
        for value, entry in zip(inputs, self._inputs, strict=True):
            if entry is None:
                fields.append(value.item() if isinstance(value, np.ndarray | np.generic) else value)
                continue
            slot, shape, dtype, owned = entry
            array = np.array(value, order="C") if owned else np.ascontiguousarray(value)
            if array.shape != shape or array.dtype != dtype or not array.flags.aligned:
                raise ValueError(f"compiled code: built for {dtype} {shape}, got {array.dtype} {array.shape}")
            arrays[slot] = array
            fields.append(address_of(array))
        block = ctypes.create_string_buffer(self._template, len(self._template))
        try:
            self._pack(block, 0, *fields)
        except struct.error:  # a Python int that needs more than 64 bits
            return None
        for slot, shape, dtype in self._made:
            arrays[slot] = np.empty(shape, dtype)
            struct.pack_into("=q", block, 8 * slot, address_of(arrays[slot]))
        if self._callback is None:
            self._entry(block)
        else:
            self._with_calls(block, scratch, base - memory, arrays)
        if block[0] != b"\0":
            return None
        scalars = iter(self._unpack(block, 8 * self._first_scalar))
        return tuple(
            arrays[which] if is_array else next(scalars) if which is None else which(next(scalars))
            for is_array, which in self._outs
        )

    def _with_calls(self, block: Any, scratch: Any, start: int, arrays: dict[int, Any]) -> None:
        """Run code that calls Python; what is raised there, but for errors of the computation, is raised here."""
        memory = arrays | self._kept
        ready: list[Any] = [None] * len(self._calls)
        interrupts: list[BaseException] = []

        def operand(cell: Cell) -> Any:
            if not cell.place.scratch:
                return memory[cell.place.index]
            return np.ndarray(cell.aval.shape, cell.aval.dtype, scratch, start + cell.place.index)

        def compute(number: int) -> int:
            run, ins, outs = self._calls[number]
            try:
                if ready[number] is None:
                    ready[number] = [operand(cell) for cell in ins], [operand(cell) for cell in outs]
                sources, targets = ready[number]
                result = run([
                    array if cell.aval.shape else array.item() if cell.aval.weak else array[()]
                    for array, cell in zip(sources, ins, strict=True)
                ])  # fmt: skip
                for target, value in zip(targets, result if isinstance(result, tuple) else (result,), strict=True):
                    target[...] = value
                return 0
            except Exception:
                return 1
            except BaseException as interrupt:
                interrupts.append(interrupt)
                return 1

        function = _CALLBACK(compute)
        assert self._callback is not None
        struct.pack_into("=q", block, 8 * self._callback, ctypes.cast(function, ctypes.c_void_p).value)
        self._entry(block)
        if interrupts:
            raise interrupts[0]


def _prepared(calls: Sequence[Call]) -> list[tuple[Callable[[list[Any]], Any], tuple[Cell, ...], tuple[Cell, ...]]]:
    return [(_bound(call), call.inputs, call.outs) for call in calls]


def _bound(call: Call) -> Callable[[list[Any]], Any]:
    rec, attrs = call.node.record, call.node.attrs
    return lambda inputs: rec.run(inputs, attrs)


assert FIRST == 2  # status and scratch stand before the inputs
