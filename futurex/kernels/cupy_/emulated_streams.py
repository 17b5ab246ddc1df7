"""Streams and graphs of the emulated device.

Work is done at once; what is captured is done again, into the same memory, when the graph is launched. A library that
works on its own, as NCCL does, adds to a stream what is still to come: then who waits for an event does wait.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from weakref import WeakValueDictionary


class _State(threading.local):
    def __init__(self) -> None:
        self.stream = Stream()
        self.capture: list[Callable[[], Any]] | None = None


class Stream:
    """Work in order; ``log`` keeps what was waited for."""

    def __init__(self, non_blocking: bool = False) -> None:
        self.log: list[tuple[str, Any]] = []
        self.coming: list[Any] = []  # futures
        self.captured = False
        self.ptr = id(self)
        _streams[self.ptr] = self

    def __enter__(self) -> Stream:
        self._before, _state.stream = _state.stream, self
        return self

    def __exit__(self, *_: Any) -> None:
        _state.stream = self._before

    def record(self) -> Any:
        self.coming = [each for each in self.coming if not each.done()]
        event = Event(self, tuple(self.coming), self.captured)
        self.log.append(("record", event))
        return event

    def wait_event(self, event: Any) -> None:
        if event.captured != self.captured:
            raise RuntimeError("cudaErrorStreamCaptureIsolation: dependency on uncaptured work in another stream")
        self.log.append(("wait", event))
        event.synchronize()

    def synchronize(self) -> None:
        waits()
        self.log.append(("synchronize", None))

    def begin_capture(self) -> None:
        _state.capture, self.captured = [], True

    def end_capture(self) -> Graph:
        assert _state.capture is not None
        graph, _state.capture, self.captured = Graph(_state.capture), None, False
        return graph


class Event:
    """A place in a stream; one that was recorded in a capture is part of it."""

    def __init__(self, stream: Stream, coming: tuple[Any, ...], captured: bool) -> None:
        self.stream, self._coming, self.captured = stream, coming, captured

    @property
    def done(self) -> bool:
        return all(each.done() for each in self._coming)

    def synchronize(self) -> None:
        """Wait until all before it is done; what failed is done."""
        for each in self._coming:
            each.exception()


_streams: WeakValueDictionary[int, Stream] = WeakValueDictionary()


def stream_at(ptr: int) -> Stream:
    """The stream of this address, for what stands for a library."""
    return _streams[ptr]


class Graph:
    """What was captured."""

    def __init__(self, actions: list[Callable[[], Any]]) -> None:
        self._actions = actions

    def launch(self, stream: Stream) -> None:
        stream.log.append(("launch", self))
        for action in self._actions:
            action()


_state = _State()
TRAFFIC: Counter[str] = Counter()
"""How many arrays went ``"to device"`` and ``"to host"``, and their bytes, in all threads."""


def travelled(way: str, nbytes: int) -> None:
    """An array was copied between the host's memory and the device's."""
    TRAFFIC.update({way: 1, f"bytes {way}": nbytes})


def noted(action: Callable[[], Any]) -> None:
    """Work that was just done; a graph that is being captured does it again."""
    if _state.capture is not None:
        _state.capture.append(action)


def capturing() -> bool:
    """Is a graph being captured on this thread?"""
    return _state.capture is not None


def in_order() -> None:
    """Said by what reads an array: what this thread's stream has before it is done first."""
    for each in _state.stream.coming:
        each.exception()


def waits() -> None:
    """Said by what waits for the device. Raises RuntimeError during a capture, as CUDA does."""
    if _state.capture is not None:
        raise RuntimeError("cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing")


@contextlib.contextmanager
def _using_allocator(allocator: Any) -> Iterator[None]:
    yield


CUDA = SimpleNamespace(
    Stream=Stream, get_current_stream=lambda: _state.stream, using_allocator=_using_allocator,
    MemoryPool=lambda: SimpleNamespace(malloc=None),
    Device=lambda: SimpleNamespace(synchronize=waits),
)  # fmt: skip
"""What stands for ``cupy.cuda``."""
