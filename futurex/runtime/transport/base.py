"""Active messages between the localities of a generation: what every transport has in common.

A message is `(generation, step, handler, tag, part, payload)`. On arrival the function registered for `handler` runs on
the endpoint's progress thread. Messages of one peer that are equally urgent are delivered in the order in which they
were sent; a more urgent one may overtake those that still wait to be sent.

Generations: a message of an older generation than the endpoint's is dropped and counted; one of a later generation is
kept, up to `Limits.max_ahead` bytes, until `set_generation` reaches it. After `set_generation` has returned, no buffer
that was handed out for an older generation is written any more, and no handler runs for one.
"""

import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from futurex.runtime import trace
from futurex.runtime.transport.auth import MIN_SECRET_BYTES, Secret
from futurex.runtime.transport.errors import PeerLost, ProtocolError, StaleGeneration, TransportError, TransportTimeout
from futurex.runtime.transport.message import Buffer, Completion, Counters, Header, Limits, as_bytes, log
from futurex.runtime.transport.progress import ProgressThread

Handler = Callable[[Header, memoryview], object]
Allocate = Callable[[Header], Buffer | None]
MAX_HANDLER = 0xFFFE
_U32, _U64 = 1 << 32, 1 << 64


def _arrow(target: int, header: Header) -> str:
    """What names a message on both sides."""
    return " ".join(map(str, (target, *header)))


def _recording(recorder: trace.Recorder, peer: int, header: Header) -> Callable[[Completion], None]:
    start = time.perf_counter()

    def sent(completion: Completion) -> None:
        about = {"bytes": header.nbytes, "to": peer, "sends": _arrow(peer, header)}
        recorder.add("message", trace.SENT, start, time.perf_counter(), about)

    return sent


class _Registered(NamedTuple):
    run: Handler
    allocate: Allocate | None


class Endpoint(ProgressThread):
    """One rank's end of a full mesh of channels; `open_endpoint` makes one.

    `address` is an opaque blob that the other ranks pass to `connect`. Register every handler before connecting: a
    message without a handler ends the connection. Handlers must not block; what they raise ends the connection to the
    sender.
    """

    address: bytes

    def __init__(self, kind: str, rank: int, size: int, secret: bytes, limits: Limits) -> None:
        if not 0 <= rank < size:
            raise ValueError(f"rank {rank} is not one of 0..{size - 1}")
        if len(secret) < MIN_SECRET_BYTES:
            raise ValueError(
                f"the shared secret has {len(secret)} bytes; make at least {MIN_SECRET_BYTES}: secrets.token_bytes(32)"
            )
        super().__init__(f"futurex {kind} endpoint of rank {rank}")
        self.kind = kind
        self.rank = rank
        self.size = size
        self.limits = limits
        self.generation = 0
        self.lost: dict[int, PeerLost] = {}
        self._secret = Secret(secret)
        self._counters = Counters()
        self._handlers: dict[int, _Registered] = {}
        self._ahead: deque[tuple[Header, memoryview]] = deque()
        self._ahead_bytes = 0
        self._names: dict[int, str] = {}
        self._connected: set[int] = set()
        self._changed = threading.Condition()
        self._lost_callbacks: list[Callable[[PeerLost], object]] = []
        self._generation_callbacks: list[Callable[[int], object]] = []

    # --- what a transport provides -----------------------------------------------------------------------------------

    @abstractmethod
    def _dial(self, peer: int, address: bytes, deadline: float) -> None:
        """Open the authenticated channel to a lower rank; `deadline` is a `time.monotonic()`."""

    def _expect(self, peer: int, address: bytes) -> None:
        """Prepare for a higher rank that will dial."""

    @abstractmethod
    def _transmit(
        self, peer: int, header: Header, payload: memoryview, completion: Completion, deadline: float | None,
        urgency: float,
    ) -> None:  # fmt: skip
        """Send a message, or queue it; while the queue is full wait until `deadline`, or not at all if it is None."""

    @abstractmethod
    def _forget_older(self, generation: int, deadline: float) -> None:
        """Take back what is being sent or received for earlier generations; on the progress thread."""

    @abstractmethod
    def _disconnect(self, peer: int, error: PeerLost) -> None:
        """Close the channel to `peer` and fail what waits to be sent to it; on the progress thread."""

    # --- the interface -----------------------------------------------------------------------------------------------

    @property
    def counters(self) -> Counters:
        """What this endpoint has moved and refused so far."""
        return self._counters

    def register(self, handler: int, fn: Handler, allocate: Allocate | None = None) -> None:
        """Run `fn(header, payload)` for each message to `handler`, a number from 0 to `MAX_HANDLER`.

        `allocate(header)` may return a writable contiguous buffer of `header.nbytes` bytes, in which the payload is
        then received; `fn` gets a flat view of it. Without one, or when it returns None, the payload arrives in fresh
        memory.
        """
        if not 0 <= handler <= MAX_HANDLER:
            raise ValueError(f"handler {handler} is not a number from 0 to {MAX_HANDLER}")
        if handler in self._handlers:
            raise ValueError(f"handler {handler} is registered already")
        self._handlers[handler] = _Registered(fn, allocate)

    def connect(self, addresses: list[bytes], timeout: float) -> None:
        """Open the channels to all the other ranks; `addresses[i]` is the `address` of rank i.

        Raises PeerLost, AuthenticationError, or TransportTimeout naming the ranks that are missing after `timeout`
        seconds.
        """
        deadline = time.monotonic() + timeout
        if len(addresses) != self.size:
            raise ValueError(f"{len(addresses)} addresses were given for {self.size} ranks")
        for peer, address in enumerate(addresses):
            if peer > self.rank:
                self._expect(peer, address)
        for peer in range(self.rank):
            self._dial(peer, addresses[peer], deadline)
        others = set(range(self.size)) - {self.rank}
        with self._changed:
            self._changed.wait_for(
                lambda: self._stopping or self.lost or self._connected >= others,
                max(0.0, deadline - time.monotonic()),
            )
            if self.lost:
                raise next(iter(self.lost.values()))
            if self._stopping:
                raise TransportError(f"rank {self.rank} closed its endpoint while it waited for others to connect")
            missing = sorted(others - self._connected)
        if missing:
            raise TransportTimeout(
                f"rank {self.rank}: no connection from ranks {missing} within {timeout:g} s; do their processes run?"
            )

    def send(
        self,
        peer: int,
        handler: int,
        payload: Buffer = b"",
        *,
        generation: int,
        step: int = 0,
        tag: int = 0,
        part: int = 0,
        timeout: float | None = 30.0,
        urgency: float = 0.0,
    ) -> Completion:
        """Send `payload` to `handler` of rank `peer` without copying it: leave it alone until the completion is done.

        Blocks at most `timeout` seconds while `Limits.max_queued` bytes wait for this peer. With None, and in a
        handler, it never blocks: for senders that bound by themselves what they have in flight. A message overtakes
        those of less `urgency` that wait. Raises PeerLost, StaleGeneration, or TransportTimeout.

        >>> endpoint.send(1, 7, gradient, generation=3, step=120).wait(10.0)  # doctest: +SKIP
        """
        view = as_bytes(payload)
        if view.nbytes > self.limits.max_payload:
            raise TransportError(
                f"a payload of {view.nbytes} bytes exceeds the limit of {self.limits.max_payload}: send it in parts"
            )
        if not (0 <= generation < _U32 and 0 <= step < _U64 and 0 <= tag < _U64 and 0 <= part < _U64):
            raise ValueError(f"generation {generation}, step {step}, tag {tag} or part {part} is out of range")
        if peer not in self._connected:
            raise self.lost.get(peer) or TransportError(f"rank {self.rank} has no connection to rank {peer}")
        completion = Completion()
        header = Header(self.rank, generation, step, handler, tag, part, view.nbytes)
        self._refuse_stale(header)
        deadline = None if timeout is None or self.on_thread() else time.monotonic() + timeout
        if (recorder := trace.active()) is not None:
            completion.add_done_callback(_recording(recorder, peer, header))
        self._transmit(peer, header, view, completion, deadline, urgency)
        with self._changed:
            self._counters.messages_sent += 1
            self._counters.bytes_sent += view.nbytes
        return completion

    def set_generation(self, generation: int, timeout: float = 30.0) -> None:
        """End the generations before `generation`: see the module's text for what that means."""
        self.run_on_thread(partial(self._set_generation, generation, time.monotonic() + timeout), timeout)

    def on_peer_lost(self, callback: Callable[[PeerLost], object]) -> None:
        """Call `callback(error)` on the progress thread once for each peer that is lost."""
        self._lost_callbacks.append(callback)

    def on_generation(self, callback: Callable[[int], object]) -> None:
        """Call `callback(generation)` on the progress thread whenever a generation begins."""
        self._generation_callbacks.append(callback)

    def tune(self, small: int, unsent: int) -> None:
        """Fit the endpoint to its network: both figures are bytes; a transport to which they mean nothing ignores them.

        Messages of up to `small` bytes cost more by themselves than by their bytes: they should leave together where
        that delays none. What is urgent cannot overtake what the system has taken already: that should hold at most
        `unsent` bytes that have not left.
        """

    def describe(self, peer: int) -> str:
        """Return the address of `peer` as text."""
        return self._names.get(peer, "an unknown address")

    def close(self, timeout: float = 5.0) -> None:
        """Close every channel; what was not sent yet fails, and the peers lose this rank. Harmless when repeated."""
        if self._stopping:
            return
        self.run_on_thread(self._lose_all, timeout)
        self._stop(timeout)
        with self._changed:
            self._changed.notify_all()

    def __enter__(self) -> "Endpoint":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _refuse_stale(self, header: Header) -> None:
        if header.generation < self.generation:
            raise StaleGeneration(
                f"rank {self.rank} is in generation {self.generation}; a message of generation {header.generation} "
                "is not sent"
            )

    # --- for the transports: all of it on the progress thread --------------------------------------------------------

    def _join(self, peer: int, name: str) -> None:
        with self._changed:
            self._names[peer] = name
            self._connected.add(peer)
            self._changed.notify_all()

    def _lose(self, peer: int, reason: str) -> None:
        if peer not in self._connected:
            return
        error = PeerLost(peer, self.describe(peer), reason)
        with self._changed:
            self._connected.discard(peer)
            self.lost[peer] = error
            self._changed.notify_all()
        self._disconnect(peer, error)
        for callback in self._lost_callbacks:
            try:
                callback(error)
            except Exception:
                log.exception("rank %d: a callback failed on the loss of rank %d", self.rank, peer)

    def _lose_all(self) -> None:
        for peer in sorted(self._connected):
            self._lose(peer, f"rank {self.rank} closed its endpoint")

    def _set_generation(self, generation: int, deadline: float) -> None:
        if generation < self.generation:
            raise ValueError(f"generation {generation} is older than the current one, {self.generation}")
        if generation == self.generation:
            return
        self.generation = generation
        for callback in self._generation_callbacks:
            callback(generation)
        kept, self._ahead, self._ahead_bytes = self._ahead, deque(), 0
        for header, payload in kept:
            try:
                self._deliver(header, payload)
            except ProtocolError as error:
                self._lose(header.source, str(error))
        self._forget_older(generation, deadline)

    def _admit(self, header: Header) -> memoryview | None:
        """Return where the payload of a message goes, None to drop it; raise ProtocolError if it is not acceptable."""
        registered = self._handlers.get(header.handler)
        if registered is None:
            raise ProtocolError(
                f"rank {header.source} sent a message to handler {header.handler}, which rank {self.rank} does not have"
            )
        if header.nbytes > self.limits.max_payload:
            raise ProtocolError(
                f"rank {header.source} announces a payload of {header.nbytes} bytes; "
                f"the limit here is {self.limits.max_payload}"
            )
        if header.generation < self.generation:
            self._counters.stale_dropped += 1
            return None
        if header.generation > self.generation:
            if self._ahead_bytes + header.nbytes > self.limits.max_ahead:
                raise ProtocolError(
                    f"rank {header.source} is ahead by more than the {self.limits.max_ahead} bytes kept here"
                )
        elif registered.allocate is not None:
            view = self._guard(header, self._allocated, registered.allocate, header)
            if view is not None:
                return view
        return np.empty(header.nbytes, np.uint8).data if header.nbytes else memoryview(bytearray())

    def _deliver(self, header: Header, payload: memoryview) -> None:
        """Run the handler of a complete message, keep the message for later, or drop it."""
        if header.generation < self.generation:
            self._counters.stale_dropped += 1
        elif header.generation > self.generation:
            self._ahead.append((header, payload))
            self._ahead_bytes += header.nbytes
        else:
            self._counters.messages_received += 1
            self._counters.bytes_received += header.nbytes
            recorder, start = trace.active(), time.perf_counter()
            self._guard(header, self._handlers[header.handler].run, header, payload)
            if recorder is not None:
                about = {"bytes": header.nbytes, "from": header.source, "receives": _arrow(self.rank, header)}
                recorder.add("message", trace.RECEIVED, start, time.perf_counter(), about)

    def _allocated(self, allocate: Allocate, header: Header) -> memoryview | None:
        buffer = allocate(header)
        if buffer is None:
            return None
        view = as_bytes(buffer)
        if (view.readonly and view.nbytes) or view.nbytes != header.nbytes:
            raise ProtocolError(
                f"handler {header.handler} of rank {self.rank} allocated {view.nbytes} bytes "
                f"({'read-only' if view.readonly else 'writable'}) where {header.nbytes} writable ones are needed"
            )
        return view

    def _guard(self, header: Header, fn: Callable[..., Buffer], *args: object) -> Buffer:
        try:
            return fn(*args)
        except ProtocolError:
            raise
        except Exception as error:
            log.exception("rank %d: handler %d failed on %s", self.rank, header.handler, header)
            raise ProtocolError(
                f"handler {header.handler} of rank {self.rank} raised {type(error).__name__}: {error}"
            ) from error
