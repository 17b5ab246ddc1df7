"""A plan's kernels as one CUDA graph: launched at once instead of one by one from Python.

A graph holds addresses and scalars as they were when it was captured. So arguments are copied to where they were then,
results are copied from there, and memory comes from a pool that belongs to the graph. Arguments that are given away are
written in place: a graph serves those at the same addresses. Numbers that generated kernels read come from a buffer on
the device, which one copy fills before a replay; other scalars must be the same. A graph is used once a replay gave the
values of the run beside it; whatever stands in the way of a capture (a kernel that waits for the device, work on the
host) leaves the plan as it was.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any

import numpy as np

from futurex.kernels.cupy_.devices import EMULATED, Device

_MOST_GRAPHS = 2
_WORTH = 16  # replays that a capture must have served before another takes its place
_COPY_RATE = 1e12  # bytes a second, of arguments and results
Launch = Callable[[list[Any]], list[Any]]


class Entry(Enum):
    """How a value enters a run: as it is; as an array that the run may overwrite; as a number that may differ."""

    FIXED = "fixed"
    GIVEN = "given"
    NUMBER = "number"


@contextlib.contextmanager
def _no_uploads(device: Device) -> Iterator[None]:
    """Refuse copies of host arrays on this thread: a graph would read memory that holds something else by then.

    CuPy takes page-locked memory for every such copy; scalars travel as arguments of kernels.
    """
    if device.kind == EMULATED:
        yield
        return
    pool, thread = device.xp.get_default_pinned_memory_pool(), threading.get_ident()

    def refuse(size: int) -> Any:
        if threading.get_ident() == thread:
            raise RuntimeError("an array of the host is copied in the middle of the run")
        return pool.malloc(size)

    device.xp.cuda.set_pinned_memory_allocator(refuse)
    try:
        yield
    finally:
        device.xp.cuda.set_pinned_memory_allocator(pool.malloc)


class Numbers:
    """Numbers of the host in the device's memory, where kernels read them: one copy for all.

    >>> from futurex.kernels.cupy_.emulated import NAMESPACE
    >>> numbers = Numbers(Device(NAMESPACE, EMULATED), [0.5, np.float32(2)])
    >>> numbers.put([1.5, np.float32(3)])
    >>> numbers.views
    [array(1.5), array(3., dtype=float32)]
    """

    def __init__(self, device: Device, values: Sequence[Any]) -> None:
        self.device = device
        self._dtypes = [value.dtype if isinstance(value, np.generic) else np.dtype(float) for value in values]
        self._words = device.xp.zeros(max(1, len(values)), np.float64)
        raw = self._words.view(np.uint8)
        self.views = [
            raw[8 * k : 8 * k + dtype.itemsize].view(dtype).reshape(()) for k, dtype in enumerate(self._dtypes)
        ]  # fmt: skip
        self.put(values)

    def put(self, values: Sequence[Any]) -> None:
        """Let kernels launched from now on read these."""
        if not values:
            return
        words = np.zeros(len(values), np.float64)
        raw = words.view(np.uint8)
        for k, (value, dtype) in enumerate(zip(values, self._dtypes, strict=True)):
            raw[8 * k : 8 * k + dtype.itemsize].view(dtype)[0] = value
        self.device.xp.copyto(self._words, self.device.to_device(words))


class Captured:
    """One run as a graph. Raises what CuPy raises where a kernel cannot be captured."""

    def __init__(self, device: Device, launch: Launch, inputs: Sequence[Any], entries: Sequence[Entry]) -> None:
        self.device, self.entries = device, entries
        self.replays = 0
        stream = device.xp.cuda.get_current_stream()
        # Others know the run's stream: they may record and wait there meanwhile, which would end a capture of it.
        aside = device.xp.cuda.Stream(non_blocking=True)
        aside.wait_event(stream.record())
        pool = device.xp.cuda.MemoryPool()
        try:
            with aside, device.xp.cuda.using_allocator(pool.malloc):
                held, outs = self._captured(launch, inputs)
        finally:
            stream.wait_event(aside.record())
        self._pool = pool
        given = {id(value): value.data.ptr for value in self._of(inputs, Entry.GIVEN)}
        self._in_place = [given.get(id(out)) for out in outs]
        self._outputs = [None if id(out) in given else out for out in outs]  # what was given is its owner's
        self._inputs = [value if entry is Entry.FIXED else None for value, entry in zip(held, entries, strict=True)]
        self._over: Any = None  # an event: the last replay has read its arguments and written its results

    def _captured(self, launch: Launch, inputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """What the graph reads and what it gives, after its kernels were launched once and then captured."""
        device = self.device
        stream = device.xp.cuda.get_current_stream()
        before = _copies(inputs, self.entries)
        self._numbers = Numbers(device, self._of(inputs, Entry.NUMBER))
        numbers = iter(self._numbers.views)
        held = [
            next(numbers) if entry is Entry.NUMBER
            else value if entry is Entry.GIVEN else _copied(device, value)
            for value, entry in zip(inputs, self.entries, strict=True)
        ]  # fmt: skip
        launch(held)  # fills the pool: a capture must not ask the driver for memory
        put_back(device, inputs, before)
        stream.synchronize()
        with _no_uploads(device), device.captures():
            stream.begin_capture()
            try:
                outs = launch(held)
            except BaseException:
                with contextlib.suppress(Exception):  # which says that the capture failed, and not why
                    stream.end_capture()
                raise
            self._graph = stream.end_capture()
        put_back(device, inputs, before)
        return held, outs

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """The results for other values, copied from where the graph leaves them."""
        self.replays += 1
        xp = self.device.xp
        stream = xp.cuda.get_current_stream()
        if self._over is not None:
            stream.wait_event(self._over)
        self._numbers.put(self._of(inputs, Entry.NUMBER))
        for target, value, entry in zip(self._inputs, inputs, self.entries, strict=True):
            if entry is Entry.FIXED and self.device.holds(value):
                xp.copyto(target, value)
        self._graph.launch(stream)
        there = {value.data.ptr: value for value in self._of(inputs, Entry.GIVEN)}
        results = [
            there[place] if place is not None else _copied(self.device, out)
            for out, place in zip(self._outputs, self._in_place, strict=True)
        ]
        self._over = stream.record()
        return results

    def _of(self, inputs: Sequence[Any], kind: Entry) -> list[Any]:
        return [value for value, entry in zip(inputs, self.entries, strict=True) if entry is kind]


def _copied(device: Device, value: Any) -> Any:
    return value.copy() if device.holds(value) else value


def _copies(inputs: Sequence[Any], entries: Sequence[Entry]) -> dict[int, Any]:
    """What is given away, as it is before a run overwrites it, by its place."""
    return {k: inputs[k].copy() for k, entry in enumerate(entries) if entry is Entry.GIVEN}


def put_back(device: Device, inputs: Sequence[Any], before: dict[int, Any]) -> None:
    """Undo what a trial wrote."""
    for k, value in before.items():
        device.xp.copyto(inputs[k], value)


class Replays:
    """Runs a plan by graphs where that pays; ``reason`` says why not, once that is known."""

    def __init__(self, device: Device, launch: Launch, seconds: float) -> None:
        self.device, self._launch, self._seconds = device, launch, seconds
        self.reason: str | None = None
        self._graphs: dict[tuple[Any, ...], tuple[tuple[Any, ...], Captured]] = {}
        self._lock = threading.Lock()

    def run(self, inputs: list[Any], entries: Sequence[Entry]) -> list[Any]:
        """The results for these values, which are on the device or host scalars."""
        if self.reason is not None:
            return self._launch(inputs)
        key = tuple(map(self._mark, inputs, entries))
        places = tuple(value.data.ptr for value, entry in zip(inputs, entries, strict=True) if entry is Entry.GIVEN)
        with self._lock:
            there, graph = self._graphs.get(key, (None, None))
            if graph is None or there != places:
                if graph is not None and graph.replays < _WORTH:  # others' arrays, and again others' in the next call
                    return self._launch(inputs)
                return self._first(key, places, inputs, entries)
            return graph(inputs)

    def _mark(self, value: Any, entry: Entry) -> Any:
        """What must be the same in calls that a graph serves."""
        if self.device.holds(value):
            return entry, value.shape
        return (entry, type(value)) if entry is Entry.NUMBER else (type(value), repr(value))

    def _first(
        self, key: tuple[Any, ...], places: tuple[Any, ...], inputs: list[Any], entries: Sequence[Entry]
    ) -> list[Any]:  # fmt: skip
        copied = [value for value, entry in zip(inputs, entries, strict=True) if entry is Entry.FIXED]
        given = {id(value) for value, entry in zip(inputs, entries, strict=True) if entry is Entry.GIVEN}
        if key not in self._graphs and len(self._graphs) == _MOST_GRAPHS:
            self.reason = "its scalars differ from call to call"
            return self._launch(inputs)
        before = _copies(inputs, entries)
        results = self._launch(inputs)
        copied += [value for value in results if id(value) not in given]
        moved = sum(value.nbytes for value in copied if self.device.holds(value))
        if 2 * moved / _COPY_RATE > self._seconds / 2:
            self.reason = "copying arguments and results would take longer than launching the kernels"
            return results
        expected = [_copied(self.device, value) for value in results]
        try:
            put_back(self.device, inputs, before)
            graph = Captured(self.device, self._launch, inputs, entries)
            if all(map(self._same, graph(inputs), expected)):
                self._graphs[key] = places, graph
            else:
                self.reason = "a replay gave other values"
        except Exception as error:  # the driver's: a capture that cannot be is no error of the run
            self.reason = f"{type(error).__name__}: {error}"
        for value, kept in zip(results, expected, strict=True):
            if id(value) in given:
                self.device.xp.copyto(value, kept)
        return results

    def _same(self, first: Any, second: Any) -> bool:
        if not self.device.holds(first):
            return first is second or bool(first == second)
        here, there = self.device.to_host(first), self.device.to_host(second)
        return bool(np.array_equal(here, there, equal_nan=here.dtype.kind in "fc"))
