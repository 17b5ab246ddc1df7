"""Generated code as a function of arrays and numbers: packs its block, runs it, unpacks the results."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from futurex.kernels.compiling import is_behind
from futurex.kernels.loops import elementwise, streams
from futurex.kernels.loops.arrays import MOST_ROWS, Array, Extent, Opaque
from futurex.kernels.loops.calls import Cell
from futurex.kernels.loops.emit import STORED, Emitter, Value
from futurex.kernels.loops.function import FAIL
from futurex.kernels.loops.instance import Instance, Source, Written
from futurex.kernels.loops.split import Split
from futurex.kernels.loops.support import Unsupported
from futurex.kernels.loops.values import Scalar, supported
from futurex.kernels.numba_.compiler import compiled
from futurex.kernels.numba_.region import slot_format
from futurex.kernels.threads import may_share
from futurex.tree.aval import Aval
from futurex.tree.dims import is_static

_INT = np.dtype(np.int64)
_PAGE = 4096
_FAILURES = 8
"""Runs one after the other that fail, of code that is of no use."""
Build = Callable[[Emitter, Sequence[Value]], Sequence[Value]]


class Given(NamedTuple):
    """An array in: the word of its address, its shape and type, and whether it may be overwritten. ``open``: how many
    rows it has stands in the next word, and ``shape`` is that of a row."""

    word: int
    shape: tuple[int, ...]
    dtype: Any
    owned: bool
    open: bool = False


Entry = Given | Opaque | None
"""An array in; an object; a number."""


class Program:
    """``call(*inputs)`` gives the results of ``build``, in memory of their own; None after a failure, and before it is
    compiled. The first ``owned`` inputs may be overwritten by the generated code: it gets copies of these arrays. Any
    number of threads may call it at once; each call has an instance of its own. With a ``split`` the code is that of
    one part, which up to ``threads`` OpenMP threads run on all of them. What owned inputs with a number in ``refilled``
    hold does not matter. Axes of results with a number in ``turned`` are given in another order. The code writes
    results that ``written`` names into arrays that the call brings, its inputs or others, when all else is done. Arrays
    of unknown extents are objects; those of which only the number of rows is not known are arrays with ``open_rows``,
    of which nothing is overwritten.
    """

    def __init__(
        self, avals: Sequence[Aval], owned: int, build: Build, split: Split | None = None, threads: int = 1,
        refilled: Collection[int] = (), open_rows: bool = False, turned: Mapping[int, tuple[int, ...]] | None = None,
        written: Mapping[int, Aval] | None = None,
    ) -> None:  # fmt: skip
        self.turned = turned or {}
        self.written = {k: Written(aval.shape, aval.dtype) for k, aval in (written or {}).items()}
        emitter = Emitter(avals)
        emitter.part = split.shape if split is not None else None
        self._open_rows = open_rows
        self.refilled = refilled
        parts = self.parts = split.parts if split is not None else 1
        self.threads = min(threads, parts) if may_share() else 1
        inputs, scalars = self._take(emitter, avals, owned, split)
        self._give(emitter, list(build(emitter, inputs)))
        self.interpreted = 0
        self.fails = any(f"label %{FAIL}" in line for line in emitter.function.lines)
        if parts > 1 and (emitter.calls or emitter.asks or not all(ours for cell, _, ours in self.outs if cell)):
            raise Unsupported("a loop whose parts need each other")
        self._text = emitter.text(scalars, parts, self.threads > 1)
        self._entry = compiled(self._text, wait=not is_behind())
        self.regions = [(word, text, compiled(text, wait=not is_behind())) for word, text in emitter.regions]
        for entry in (self._entry, *(entry for _, _, entry in self.regions)):
            if entry.error is not None:
                raise Unsupported(str(entry.error))
        memory = emitter.memory
        self.scratch = -(-memory.scratch // _PAGE) * _PAGE if self.threads > 1 else memory.scratch
        self.words = memory.words
        self.in_scratch = np.array(memory.in_scratch, np.int64).reshape(-1, 2)
        self.in_block = memory.in_block
        self.look = emitter.look
        self.calls, self.drawers = emitter.calls, emitter.drawers
        self.kept = memory.kept
        self.objects = emitter.objects
        self.template = np.zeros(memory.words, np.int64)
        for word, content in memory.fixed.items():
            self.template[word] = content
        self.own = self.threads * (self.scratch - memory.room + 8 * self.words) + 8 * self.words
        """Bytes that are kept between calls: scratch memory and blocks of one call, and the template of these. What
        tapes have room for is memory by name only, until rounds write it."""
        self.source = Source(self)
        self._instances: deque[Instance] = deque()
        self._failures = 0  # of the runs since the last one that was none

    def _take(
        self, emitter: Emitter, avals: Sequence[Aval], owned: int, split: Split | None
    ) -> tuple[list[Any], list[tuple[int, Any]]]:
        """Words of the block for the inputs: what the code knows them by, and the words of numbers with their types."""
        self.entries: list[Entry] = []
        codes = ["qq"]
        inputs: list[Any] = []
        scalars: list[tuple[int, Any]] = []
        for k, aval in enumerate(avals):
            if self._open_rows and _has_open_rows(aval) and (split is None or split.axes[k] is None):
                slot = emitter.memory.slot((1, *aval.shape[1:]), aval.dtype, owned=False)
                scalars.append((word := emitter.memory.word(), _INT))
                rows = Extent(f"%in{word}", emitter.most_rows(aval.shape[1:]) if k < owned else MOST_ROWS)
                if k < owned:  # it is carried, in memory that has to be set aside
                    emitter.function.fail_if(emitter.function.emit(f"icmp ugt i64 {rows.register}, {rows.most}"))
                inputs.append(replace(slot, shape=(rows, *aval.shape[1:])))
                self.entries.append(Given(slot.place.index, aval.shape[1:], aval.dtype, False, open=True))
                codes.append("qq")
            elif not aval.static or aval.dtype not in STORED:
                handed = streams.new(emitter) if streams.is_state(aval) else emitter.opaque()
                self.entries.append(handed)
                inputs.append(handed)
            elif aval.shape or aval.dtype.kind == "c":
                axis = split.axes[k] if split is not None else None
                if axis is None:
                    made = emitter.memory.slot(aval.shape, aval.dtype, owned=k < owned and bool(aval.shape))
                else:
                    made = emitter.memory.share(aval.shape, aval.dtype, axis, self.parts, owned=k < owned)
                    emitter.homes[made.place] = made
                self.entries.append(Given(made.place.index, aval.shape, aval.dtype, made.owned))
                codes.append("q")
                inputs.append(made if aval.shape else _number(emitter, made, aval.weak))
            else:
                word = emitter.memory.word()
                scalars.append((word, supported(aval.dtype)))
                self.entries.append(None)
                codes.append(slot_format(aval.dtype))
                inputs.append(Scalar(f"%in{word}", aval.dtype, aval.weak))
        self._targets = {k: emitter.memory.slot(*each, owned=True) for k, each in self.written.items()}
        codes.append("q" * len(self._targets))
        self.pack = struct.Struct("=" + "".join(codes)).pack_into
        return inputs, scalars

    def _give(self, emitter: Emitter, results: Sequence[Value]) -> None:
        """Words of the block for the results, and how they are read from it: numbers lie behind all that is there."""
        self.outs: list[tuple[Cell | Written | Opaque | None, Any, bool]] = []
        """An array, and whether its memory is ours; an object; a number's type."""
        unpacked = []
        taken: set[Any] = set()
        own = {entry.word for entry in self.entries if isinstance(entry, Given) and entry.owned}
        weak = [isinstance(value, Scalar) and value.weak for value in results]
        streams.check(emitter, *results)
        results = [_in_memory(emitter, value) for value in results]
        self._write(emitter, results)
        first = emitter.memory.words
        for value in results:
            if isinstance(value, Scalar):
                address = emitter.function.emit(f"getelementptr i64, ptr %block, i64 {emitter.memory.word()}")
                emitter.function.store(value.dtype, value.register, address)
                unpacked.append(slot_format(value.dtype))
                self.outs.append((None, None if value.weak else value.dtype.type, False))
        between = 8 * (first - 1) if unpacked else 0
        self.unpack = struct.Struct(f"=q{between}x{''.join(unpacked)}").unpack_from
        """The status, and the numbers among the results."""
        for k, value in enumerate(results):
            if isinstance(value, Opaque):
                self.outs.insert(k, (value, None, False))
            elif k in self.written:
                self.outs.insert(k, (self.written[k], None, False))
            elif isinstance(value, Array):
                place = value.place
                ours = not place.scratch and place.index in own and place not in taken and emitter.is_home(value)
                taken.add(place)
                self.outs.insert(k, (_cell(emitter, value, weak[k]), None, ours))

    def _write(self, emitter: Emitter, results: Sequence[Value]) -> None:
        """Copy results to where they belong, first those that lie in inputs out of the way of others."""
        sources: dict[int, Array] = {}
        for k, wanted in self.written.items():
            value = results[k]
            if not isinstance(value, Array) or (value.shape, value.dtype) != wanted:
                raise Unsupported("a result that is not what its node says")
            sources[k] = value
            if not value.place.scratch:
                sources[k] = emitter.lasting(*wanted)
                elementwise.assign(emitter, sources[k], value)
        for k, source in sources.items():
            elementwise.assign(emitter, self._targets[k], source)

    def prepare(self, sharing: Sequence[int], *, wait: bool) -> None:
        """Be done when this returns, if ``wait``."""
        if wait:
            for text in (self._text, *(text for _, text, _ in self.regions)):
                compiled(text)

    @property
    def ready(self) -> bool:
        """Is the code there?"""
        return self._entry.ready and all(entry.ready for _, _, entry in self.regions)

    def _made(self) -> Instance:
        """The memory of one call more, with the addresses of the kernels that the code calls."""
        for word, _, entry in self.regions:
            self.template[word] = entry.address
        return Instance(self, self._entry)

    def __call__(self, *inputs: Any, outs: Sequence[Any] | None = None) -> tuple[Any, ...] | None:
        """The results; ``outs``: arrays that they are written into, and None for those that have none. The code works
        on those that grow out of owned inputs."""
        if not self.ready:
            self.interpreted += 1
            return None
        try:
            instance = self._instances.pop()
        except IndexError:
            instance = self._made()
        results = instance.run(inputs, outs)
        self._instances.append(instance)
        self._failures = 0 if results is not None else self._failures + 1
        return results

    @property
    def gives_up(self) -> bool:
        """Did the last runs all end with a failure? Then others will."""
        return self._failures >= _FAILURES

    def quickly(self, inputs: Sequence[Any]) -> tuple[Any, ...] | None:
        """The results for inputs that are known to be arrays and numbers of the right kinds, in C order."""
        try:
            instance = self._instances.pop()
        except IndexError:
            return self(*inputs)
        results = instance.fitting(inputs, None)
        self._instances.append(instance)
        return results

    def release(self) -> None:
        """Keep no memory for further calls."""
        self._instances.clear()


def _has_open_rows(aval: Aval) -> bool:
    """Is at most the number of its rows not known before the run?"""
    return not aval.static and aval.dtype in STORED and is_static(aval.shape[1:])


def _number(e: Emitter, value: Array, weak: bool) -> Scalar:
    """A complex number that comes as an array without dimensions."""
    return Scalar(e.function.load(value.dtype, value.pointer(e.function)), value.dtype, weak)


def _in_memory(e: Emitter, value: Value) -> Value:
    """A result as it leaves the code: complex numbers as arrays without dimensions."""
    return e.cell(value) if isinstance(value, Scalar) and value.dtype.kind == "c" else value


def _cell(e: Emitter, value: Array, weak: bool) -> Cell:
    """A result, with words for what only the run knows of it."""
    f = e.function

    def told(register: str) -> int:
        word = e.memory.word()
        f.do(f"store i64 {register}, ptr {f.emit(f'getelementptr i64, ptr %block, i64 {word}')}, align 8")
        return word

    extents = {axis: told(extent.register) for axis, extent in enumerate(value.shape) if isinstance(extent, Extent)}
    return Cell(value, weak, told(value.offset) if value.offset[0] == "%" else None, extents)
