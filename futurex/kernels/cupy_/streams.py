"""One stream for each thread that runs plans, and the order between runs that pass arrays to each other."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from futurex.kernels.cupy_.devices import Device


class _Own(threading.local):
    stream: Any = None
    fetching: Any = None


_own = _Own()


def stream_of(device: Device) -> Any:
    """The calling thread's stream; it waits for no other."""
    if _own.stream is None:
        _own.stream = device.xp.cuda.Stream(non_blocking=True)
    return _own.stream


def fetching(device: Device) -> Any:
    """A stream of the calling thread's on which results are brought to the host: it does not wait for later runs."""
    if _own.fetching is None:
        _own.fetching = device.xp.cuda.Stream(non_blocking=True)
    return _own.fetching


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
    """Run on the calling thread's stream, or on ``stream``, after ``arguments`` are ready; the list gets what is ready
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
    mine = stream_of(device) if stream is None else stream
    others = [each for each in arguments if each.stream is not mine]
    for each in others:
        mine.wait_event(each.event)
    ready: list[Ready] = []
    with mine:
        yield ready
        ready.append(Ready(mine, mine.record()))
    for stream in {id(each.stream): each.stream for each in others}.values():
        stream.wait_event(ready[0].event)
