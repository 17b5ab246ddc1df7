"""Streams that runs borrow, and the order between runs that pass arrays to each other."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from futurex.kernels.cupy_.devices import Device

LANES = 4
"""Streams among which runs that have nothing to do with each other take turns."""


class Streams:
    """The streams of a device that are lent to runs, one at a time.

    A run takes the stream on which its arguments were made, if nobody else has it: then neither waits for the other,
    and memory that the one gave back to CuPy's pool, which keeps it by streams, is the other's. So a training has one
    stream, whichever threads its steps run on. Others take the one that was given back first.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._idle: deque[Any] = deque()
        self._made = 0

    @contextlib.contextmanager
    def lent(self, preferred: Sequence[Any]) -> Iterator[Any]:
        """A stream, one of ``preferred`` if one of them is free."""
        mine = self._taken(preferred)
        try:
            yield mine
        finally:
            with self._lock:
                self._idle.append(mine)

    def _taken(self, preferred: Sequence[Any]) -> Any:
        with self._lock:
            for stream in preferred:
                for place, idle in enumerate(self._idle):
                    if idle is stream:
                        del self._idle[place]
                        return idle
            if self._idle and self._made >= LANES:
                return self._idle.popleft()
            self._made += 1
        return self._make()


@functools.cache
def streams_of(device: Device) -> Streams:
    """Those of a device."""
    return Streams(lambda: device.xp.cuda.Stream(non_blocking=True))


@functools.cache
def placing(device: Device) -> Any:
    """The stream on which constants of plans are brought to the device, whichever thread compiles them."""
    return device.xp.cuda.Stream(non_blocking=True)


_own = threading.local()


def fetching(device: Device) -> Any:
    """A stream of the calling thread's on which results are brought to the host: it does not wait for later runs."""
    streams = vars(_own)
    if device.kind not in streams:
        streams[device.kind] = device.xp.cuda.Stream(non_blocking=True)
    return streams[device.kind]


@dataclass(frozen=True, slots=True)
class Ready:
    """Work on ``stream`` up to ``event``: after it an array is there."""

    stream: Any
    event: Any

    def read(self) -> Ready:
        """After this all have read the array that were given it so far: it may be overwritten."""
        return Ready(self.stream, self.stream.record())


@contextlib.contextmanager
def lane(device: Device, arguments: Sequence[Ready], stream: Any = None) -> Iterator[list[Ready]]:
    """Run on a stream that is lent, or on ``stream``, after ``arguments`` are ready; the list gets what is ready
    at the end.

    CuPy gives memory that was freed to the next user on the stream it was made on. So the streams of the arguments wait
    at the end, too: memory that this run still reads is not given away there.

    >>> from futurex.kernels.cupy_.devices import Device
    >>> from futurex.kernels.cupy_.emulated import NAMESPACE
    >>> with lane(Device(NAMESPACE, "emulated"), []) as ready:
    ...     pass
    >>> len(ready)
    1
    """
    lending = streams_of(device).lent([each.stream for each in arguments])
    with lending if stream is None else contextlib.nullcontext(stream) as mine:
        others = [each for each in arguments if each.stream is not mine]
        for each in others:
            mine.wait_event(each.event)
        ready: list[Ready] = []
        with mine:
            yield ready
            ready.append(Ready(mine, mine.record()))
        for other in {id(each.stream): each.stream for each in others}.values():
            other.wait_event(ready[0].event)
