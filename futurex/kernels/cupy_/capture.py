"""A plan's kernels as one CUDA graph: launched at once instead of one by one from Python.

A graph holds addresses and scalars as they were when it was captured. So arguments are copied to where they were then,
results are copied from there, memory comes from a pool that belongs to the graph, and a graph serves calls with the
same scalars only. It is used once a replay gave the values of the run beside it; whatever stands in the way of a
capture (a kernel that waits for the device, work on the host) leaves the plan as it was.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from futurex.kernels.cupy_.devices import EMULATED, Device

_MOST_GRAPHS = 2
_COPY_RATE = 1e12  # bytes a second, of arguments and results
Launch = Callable[[list[Any]], list[Any]]


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


class Captured:
    """One run as a graph. Raises what CuPy raises where a kernel cannot be captured."""

    def __init__(self, device: Device, launch: Launch, args: Sequence[Any]) -> None:
        self.device = device
        stream = device.xp.cuda.get_current_stream()
        pool = device.xp.cuda.MemoryPool()
        with device.xp.cuda.using_allocator(pool.malloc):
            self._inputs = [arg.copy() if device.holds(arg) else arg for arg in args]
            launch(self._inputs)  # fills the pool: a capture must not ask the driver for memory
            stream.synchronize()
            with _no_uploads(device):
                stream.begin_capture()
                try:
                    self._outputs = launch(self._inputs)
                finally:
                    self._graph = stream.end_capture()
        self._pool = pool
        self._over: Any = None  # an event: the last replay has read its arguments and written its results

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """The results for other arrays, copied from where the graph leaves them."""
        stream = self.device.xp.cuda.get_current_stream()
        if self._over is not None:
            stream.wait_event(self._over)
        for target, arg in zip(self._inputs, args, strict=True):
            if self.device.holds(arg):
                self.device.xp.copyto(target, arg)
        self._graph.launch(stream)
        results = [out.copy() if self.device.holds(out) else out for out in self._outputs]
        self._over = stream.record()
        return results


class Replays:
    """Runs a plan by graphs where that pays; ``reason`` says why not, once that is known."""

    def __init__(self, device: Device, launch: Launch, seconds: float) -> None:
        self.device, self._launch, self._seconds = device, launch, seconds
        self.reason: str | None = None
        self._graphs: dict[tuple[Any, ...], Captured] = {}
        self._lock = threading.Lock()

    def run(self, args: list[Any]) -> list[Any]:
        """The results for these arguments, which are on the device or host scalars."""
        if self.reason is not None:
            return self._launch(args)
        key = tuple((type(arg), arg) for arg in args if not self.device.holds(arg))
        with self._lock:
            found = self._graphs.get(key)
            return found(args) if found is not None else self._first(key, args)

    def _first(self, key: tuple[Any, ...], args: list[Any]) -> list[Any]:
        results = self._launch(args)
        moved = sum(value.nbytes for value in (*args, *results) if self.device.holds(value))
        if 2 * moved / _COPY_RATE > self._seconds / 2:
            self.reason = "copying arguments and results would take longer than launching the kernels"
        elif len(self._graphs) == _MOST_GRAPHS:
            self.reason = "its scalars differ from call to call"
        else:
            try:
                graph = Captured(self.device, self._launch, args)
                if all(map(self._same, graph(args), results)):
                    self._graphs[key] = graph
                else:
                    self.reason = "a replay gave other values"
            except Exception as error:  # the driver's: a capture that cannot be is no error of the run
                self.reason = f"{type(error).__name__}: {error}"
        return results

    def _same(self, first: Any, second: Any) -> bool:
        if not self.device.holds(first):
            return first is second or bool(first == second)
        here, there = self.device.to_host(first), self.device.to_host(second)
        return bool(np.array_equal(here, there, equal_nan=here.dtype.kind in "fc"))
