"""Generated code as a function of arrays and numbers: packs its block, runs it, unpacks the results."""

from __future__ import annotations

import ctypes
import struct
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of
from futurex.kernels.compiling import is_behind
from futurex.kernels.loops.arrays import Array, Extent, Opaque
from futurex.kernels.loops.calls import Calls, Cell
from futurex.kernels.loops.emit import STORED, Emitter, Value
from futurex.kernels.loops.function import FAIL
from futurex.kernels.loops.split import Split
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.values import Scalar, supported
from futurex.kernels.numba_.compiler import Entry as CompiledEntry
from futurex.kernels.numba_.compiler import compiled
from futurex.kernels.numba_.emit import slot_format
from futurex.kernels.threads import openmp
from futurex.tree.aval import Aval

_ALIGNED = 64
_PAGE = 4096
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64)
Build = Callable[[Emitter, Sequence[Value]], Sequence[Value]]
Entry = tuple[int, tuple[int, ...], Any, bool] | Opaque | None
"""Word, shape, dtype and ownership of an array in; an object; a number."""


class Program:
    """``call(*inputs)`` gives the results of ``build``, in memory of their own; None after a failure, and before it is
    compiled. The first ``owned`` inputs may be overwritten by the generated code: it gets copies of these arrays. Any
    number of threads may call it at once; each call has an instance of its own. With a ``split`` the code is that of
    one part, which up to ``threads`` OpenMP threads run on all of them. What owned inputs with a number in ``refilled``
    hold does not matter.
    """

    def __init__(
        self, avals: Sequence[Aval], owned: int, build: Build, split: Split | None = None, threads: int = 1,
        refilled: Collection[int] = (),
    ) -> None:  # fmt: skip
        emitter = Emitter()
        self.refilled = refilled
        parts = self.parts = split.parts if split is not None else 1
        self.threads = min(threads, parts) if openmp() is not None else 1
        self.entries: list[Entry] = []
        codes = ["qq"]
        inputs: list[Any] = []
        scalars: list[tuple[int, Any]] = []
        for k, aval in enumerate(avals):
            if not aval.static or aval.dtype not in STORED or (aval.weak and aval.dtype.kind == "c"):
                handed = emitter.opaque()
                self.entries.append(handed)
                inputs.append(handed)
            elif aval.shape or aval.dtype.kind == "c":
                axis = split.axes[k] if split is not None else None
                if axis is None:
                    made = emitter.memory.slot(aval.shape, aval.dtype, owned=k < owned)
                else:
                    made = emitter.memory.share(aval.shape, aval.dtype, axis, parts, owned=k < owned)
                    emitter.homes[made.place] = made
                self.entries.append((made.place.index, aval.shape, aval.dtype, k < owned))
                codes.append("q")
                inputs.append(made)
            else:
                word = emitter.memory.word()
                scalars.append((word, supported(aval.dtype)))
                self.entries.append(None)
                codes.append(slot_format(aval.dtype))
                inputs.append(Scalar(f"%in{word}", aval.dtype, aval.weak))
        self.pack = struct.Struct("=" + "".join(codes)).pack_into
        results = list(build(emitter, inputs))
        self.first_scalar = emitter.memory.words
        self.outs: list[tuple[Cell | Opaque | None, Any, bool]] = []
        """An array, and whether its memory is ours; an object; a number's type."""
        unpacked = []
        taken: set[Any] = set()
        own = {entry[0] for entry in self.entries if isinstance(entry, tuple) and entry[3]}
        for value in results:
            if isinstance(value, Scalar):
                address = emitter.function.emit(f"getelementptr i64, ptr %block, i64 {emitter.memory.word()}")
                emitter.function.store(value.dtype, value.register, address)
                unpacked.append(slot_format(value.dtype))
                self.outs.append((None, None if value.weak else value.dtype.type, False))
        self.unpack = struct.Struct("=" + "".join(unpacked)).unpack_from
        for k, value in enumerate(results):
            if isinstance(value, Opaque):
                self.outs.insert(k, (value, None, False))
            if isinstance(value, Array):
                place = value.place
                ours = not place.scratch and place.index in own and place not in taken and emitter.is_home(value)
                taken.add(place)
                self.outs.insert(k, (_cell(emitter, value), None, ours))
        self.interpreted = 0
        self.fails = any(f"label %{FAIL}" in line for line in emitter.function.lines)
        if parts > 1 and (emitter.callback is not None or not all(ours for cell, _, ours in self.outs if cell)):
            raise Unsupported("a loop whose parts need each other")
        self._text = emitter.text(scalars, parts, self.threads > 1)
        self._entry = compiled(self._text, wait=not is_behind())
        if self._entry.error is not None:
            raise Unsupported(str(self._entry.error))
        memory = emitter.memory
        self.scratch = -(-memory.scratch // _PAGE) * _PAGE if self.threads > 1 else memory.scratch
        self.words = memory.words
        self.in_scratch = np.array(memory.in_scratch, np.int64).reshape(-1, 2)
        self.in_block = memory.in_block
        self.callback = emitter.callback
        self.calls = emitter.calls
        self.kept = memory.kept
        self.objects = emitter.objects
        self.template = np.zeros(memory.words, np.int64)
        for word, content in memory.fixed.items():
            self.template[word] = content
        self._instances: deque[Instance] = deque()

    def prepare(self, sharing: Sequence[int], *, wait: bool) -> None:
        """Be done when this returns, if ``wait``."""
        if wait:
            compiled(self._text)

    @property
    def ready(self) -> bool:
        """Is the code there?"""
        return self._entry.ready

    def __call__(self, *inputs: Any, outs: Sequence[Any] | None = None) -> tuple[Any, ...] | None:
        """The results; ``outs`` are arrays for those that grow out of owned inputs, whose memory they may have."""
        if not self._entry.ready:
            self.interpreted += 1
            return None
        try:
            instance = self._instances.pop()
        except IndexError:
            instance = Instance(self)
        results = instance.run(self._entry, inputs, outs)
        self._instances.append(instance)
        return results


def _cell(e: Emitter, value: Array) -> Cell:
    """A result, with words for what only the run knows of it."""
    f = e.function

    def told(register: str) -> int:
        word = e.memory.word()
        f.do(f"store i64 {register}, ptr {f.emit(f'getelementptr i64, ptr %block, i64 {word}')}, align 8")
        return word

    extents = {axis: told(extent.register) for axis, extent in enumerate(value.shape) if isinstance(extent, Extent)}
    return Cell(value, False, told(value.offset) if value.offset[0] == "%" else None, extents)


def _is_fixed(cell: Cell) -> bool:
    """Is it known where a result lies?"""
    return cell.array.place.scratch and not cell.extents and cell.offset is None


class Instance:
    """Block and scratch memory of one call at a time."""

    def __init__(self, program: Program) -> None:
        self._program = program
        room = np.empty(program.scratch * program.threads + _ALIGNED, np.uint8)
        start = -address_of(room) % _ALIGNED
        self._scratch = room[start:]
        self._blocks = np.tile(program.template, (program.threads, 1))
        self._words = self._blocks[0]
        self._bases = [address_of(self._scratch) + number * program.scratch for number in range(program.threads)]
        for words, base in zip(self._blocks, self._bases, strict=True):
            if len(program.in_scratch):
                words[program.in_scratch[:, 0]] = program.in_scratch[:, 1] + base
            words[program.in_block] = address_of(words)
        self._block = (ctypes.c_char * (8 * self._blocks.size)).from_buffer(self._blocks.data)
        self._calls = Calls(program.calls, self._scratch, self._words)
        if program.callback is not None:
            self._function = _CALLBACK(self._calls)
            self._words[program.callback] = ctypes.cast(self._function, ctypes.c_void_p).value or 0
        self._constants = program.kept
        self._views = [
            self._calls.view(cell) if isinstance(cell, Cell) and _is_fixed(cell) else None
            for cell, _, _ in program.outs
        ]  # fmt: skip

    def run(
        self, entry: CompiledEntry, inputs: Sequence[Any], outs: Sequence[Any] | None
    ) -> tuple[Any, ...] | None:
        program = self._program
        fields: list[Any] = [0, self._bases[0]]
        arrays, objects = dict(self._constants), dict(program.objects)
        copies = []
        for k, (value, wanted) in enumerate(zip(inputs, program.entries, strict=True)):
            if wanted is None:
                fields.append(value.item() if isinstance(value, np.ndarray | np.generic) else value)
                continue
            if isinstance(wanted, Opaque):
                objects[wanted.index] = value
                continue
            word, shape, dtype, owned = wanted
            array = value
            if owned and outs is not None:
                array = outs[k]
                if address_of(array) != address_of(value) and k not in program.refilled:
                    copies.append((array, value))
            elif owned or not isinstance(value, np.ndarray) or not value.flags.c_contiguous or not value.flags.aligned:
                array = np.array(value, order="C")
            if array.shape != shape or array.dtype != dtype:
                raise ValueError(f"compiled code: built for {dtype} {shape}, got {array.dtype} {array.shape}")
            arrays[word] = array
            fields.append(address_of(array))
        try:
            for number, fields[1] in enumerate(self._bases):
                program.pack(self._block, 8 * number * program.words, *fields)
        except struct.error:  # a Python int that needs more than 64 bits
            return None
        for target, value in copies:
            np.copyto(target, value)
        self._calls.arrays, self._calls.objects = arrays, objects
        if program.threads > 1:
            entry.on_threads(self._block, program.threads)
        else:
            entry(self._block)
        if self._calls.interrupts:
            raise self._calls.interrupts.pop()
        results = self._results(arrays) if not self._blocks[:, 0].any() else None
        self._calls.arrays, self._calls.objects = {}, {}
        return results

    def _results(self, arrays: dict[int, Any]) -> tuple[Any, ...]:
        program, calls = self._program, self._calls
        scalars = iter(program.unpack(self._block, 8 * program.first_scalar))
        results = []
        for (cell, kind, ours), view in zip(program.outs, self._views, strict=True):
            if cell is None:
                value = next(scalars)
                results.append(value if kind is None else kind(value))
            elif isinstance(cell, Opaque):
                results.append(calls.objects[cell.index])
            elif ours:
                results.append(arrays[cell.array.place.index])
            else:
                made = (calls.view(cell) if view is None else view).copy()
                results.append(made if cell.array.shape else made[()])
        return tuple(results)
