"""The header of a message, its completion, and the limits and counters of an endpoint."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from futurex.runtime.transport.errors import TransportTimeout

log = logging.getLogger("futurex.transport")

Buffer = Any  #: bytes, bytearray, memoryview, or a contiguous ndarray: whatever has the buffer protocol.


class Header(NamedTuple):
    """Who sent a message, what it belongs to, and how long its payload is.

    `handler` selects the function that runs on arrival; `tag` and `part` are the handler's own.
    """

    source: int
    generation: int
    step: int
    handler: int
    tag: int
    part: int
    nbytes: int


@dataclass(frozen=True)
class Limits:
    """The bounds of one endpoint, in bytes and seconds.

    `max_payload`: the largest payload of one message. `max_queued`: what may wait to be sent to one peer before `send`
    blocks. `max_ahead`: what is kept of generations that have not begun here. `handshake_timeout` and `max_guests`: how
    long, and how many at once, connections may stay unauthenticated.
    """

    max_payload: int = 256 << 20
    max_queued: int = 64 << 20
    max_ahead: int = 256 << 20
    handshake_timeout: float = 5.0
    max_guests: int = 64


@dataclass
class Counters:
    """What an endpoint has moved and refused since it was opened."""

    bytes_sent: int = 0
    bytes_received: int = 0
    messages_sent: int = 0
    messages_received: int = 0
    rejected: int = 0  #: connections and messages refused because they did not authenticate
    stale_dropped: int = 0  #: messages dropped because their generation had ended


def as_bytes(buffer: Buffer) -> memoryview:
    """Return `buffer` as a flat view of its bytes, without a copy; raise TypeError if it is not contiguous.

    >>> as_bytes(b"abc").nbytes
    3
    """
    view = memoryview(buffer)
    if not view.c_contiguous:
        raise TypeError("the buffer of a message must be contiguous in memory: pass numpy.ascontiguousarray(x)")
    if view.nbytes == 0:
        return memoryview(bytearray())
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


class Completion:
    """A promise that an operation finishes: wait for it, or be called back.

    The callbacks run on the thread that finishes the operation, which may be the caller's own.
    """

    __slots__ = ("_callbacks", "_done", "_event", "error")
    _lock = threading.RLock()  # held for a few instructions, so that one serves them all; finalizers may run meanwhile

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._done = False
        self._event: threading.Event | None = None
        self._callbacks: list[Callable[[Any], object]] = []

    def done(self) -> bool:
        """Return whether the operation has finished, well or not."""
        return self._done

    def finish(self, error: BaseException | None = None) -> bool:
        """Mark the operation as finished, failed if `error` is given; return False if it had finished before."""
        with Completion._lock:
            if self._done:
                return False
            self.error = error
            self._done = True
            event, callbacks = self._event, self._callbacks
            self._callbacks = []
        if event is not None:
            event.set()
        for callback in callbacks:
            self._call(callback)
        return True

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call `fn(self)` when the operation finishes, or now if it has."""
        with Completion._lock:
            if not self._done:
                self._callbacks.append(fn)
                return
        self._call(fn)

    def wait(self, timeout: float) -> None:
        """Wait at most `timeout` seconds; raise what the operation failed with, or TransportTimeout."""
        with Completion._lock:
            if not self._done and self._event is None:
                self._event = threading.Event()
        if not self._done and self._event is not None and not self._event.wait(timeout):
            raise TransportTimeout(f"{self.describe()} did not finish within {timeout:g} s")
        if self.error is not None:
            raise self.error

    def describe(self) -> str:
        """Return what this operation is, for error messages."""
        return "a send"

    def _call(self, fn: Callable[[Any], object]) -> None:
        try:
            fn(self)
        except Exception:
            log.exception("a callback of %s failed", self.describe())
