"""Operations that complete by messages: how they are told apart, kept when early, and failed."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

from futurex.runtime.collectives.operation import Alarm, Collective, CollectiveError, Key
from futurex.runtime.transport import (
    Completion,
    Endpoint,
    Header,
    PeerLost,
    ProtocolError,
    StaleGeneration,
    TransportError,
)


class Pending(Collective, ABC):
    """An operation that messages complete."""

    __slots__ = ("_counting", "_receives", "_sends", "urgency")

    def __init__(self, name: str, endpoint: Endpoint, key: Key, receives: int, timeout: float) -> None:
        super().__init__(name, endpoint, key, timeout)
        self._counting = threading.Lock()
        self._receives = receives
        self._sends = 1  # for `launch` itself
        self.urgency = 0.0

    @abstractmethod
    def launch(self) -> None:
        """Send what this rank can send at once."""

    @abstractmethod
    def place(self, header: Header) -> Any:
        """Return the buffer in which a message is received, or None for fresh memory."""

    @abstractmethod
    def receive(self, header: Header, payload: memoryview) -> None:
        """Take in a message, and send what it makes possible."""

    def _post(self, peer: int, handler: int, payload: Any, part: int = 0) -> None:
        """Send a message of this operation; the operation is not done before it has left."""
        generation, step, tag = self.key
        with self._counting:
            self._sends += 1
        try:
            sent = self._endpoint.send(
                peer, handler, payload, generation=generation, step=step, tag=tag, part=part, timeout=None,
                urgency=self.urgency,
            )  # fmt: skip
        except TransportError as error:
            self.fail(error)
        else:
            sent.add_done_callback(self._sent)

    def _sent(self, completion: Completion) -> None:
        if completion.error is not None:
            self.fail(completion.error)
        else:
            self._count(sends=1)

    def _count(self, *, sends: int = 0, receives: int = 0) -> None:
        with self._counting:
            self._sends -= sends
            self._receives -= receives
            complete = self._sends == 0 and self._receives == 0
        if complete:
            self.finish()


P = TypeVar("P", bound=Pending)


class Exchange:
    """The operations in flight that share one handler of an endpoint. Create it before the endpoint connects.

    Messages for an operation that has not begun here are kept, up to `max_early` bytes; beyond that the sender is lost.
    Keys must not be used again within a generation. When a peer is lost, a generation ends or a deadline passes, the
    operations concerned fail.
    """

    def __init__(self, endpoint: Endpoint, handler: int, max_early: int = 1 << 30) -> None:
        self.endpoint = endpoint
        self.handler = handler
        self._max_early = max_early
        self._lock = threading.Lock()
        self._pending: dict[Key, Pending] = {}
        self._early: defaultdict[Key, list[tuple[Header, memoryview]]] = defaultdict(list)
        self._early_bytes = 0
        self._failed: set[Key] = set()  # of this generation; what still arrives for them is dropped
        self._alarm = Alarm(endpoint, self._expire)
        endpoint.register(handler, self._arrived, self._place)
        endpoint.on_peer_lost(self._peer_lost)
        endpoint.on_generation(self._generation_began)

    def begin(self, pending: P) -> P:
        """Start `pending`: launch it and give it the messages that were early."""
        key = pending.key
        with self._lock:
            if key in self._pending:
                raise ValueError(f"{pending.describe()} is in flight already: every one needs its own tag")
            self._pending[key] = pending
            early = self._early.pop(key, [])
            self._early_bytes -= sum(header.nbytes for header, _ in early)
        pending.add_done_callback(self._forget)
        self._alarm.at(pending.deadline)
        for error in tuple(self.endpoint.lost.values()):
            pending.fail(error)
        if key[0] < self.endpoint.generation:  # it may have nothing to send, and so would not be refused
            pending.fail(StaleGeneration(f"generation {self.endpoint.generation} began"))
        if not pending.done():
            pending.launch()
        for header, payload in early:
            self._receive(pending, header, payload)
        pending._count(sends=1)
        return pending

    def _find(self, header: Header) -> Pending | None:
        return self._pending.get((header.generation, header.step, header.tag))

    def _place(self, header: Header) -> Any:
        pending = self._find(header)
        if pending is None or pending.done():
            return None
        try:
            return pending.place(header)
        except CollectiveError as error:
            pending.fail(error)
            return None

    def _arrived(self, header: Header, payload: memoryview) -> None:
        key = header.generation, header.step, header.tag
        with self._lock:
            pending = self._pending.get(key)
            if pending is None:
                self._keep(key, header, payload)
                return
        self._receive(pending, header, payload)

    def _keep(self, key: Key, header: Header, payload: memoryview) -> None:
        if key in self._failed:
            return
        self._early_bytes += header.nbytes
        if self._early_bytes > self._max_early:
            raise ProtocolError(f"rank {header.source} is ahead by more than the {self._max_early} bytes kept for it")
        self._early[key].append((header, payload))

    def _receive(self, pending: Pending, header: Header, payload: memoryview) -> None:
        if pending.done():
            return
        try:
            pending.receive(header, payload)
        except CollectiveError as error:
            pending.fail(error)
        else:
            pending._count(receives=1)

    def _forget(self, pending: Pending) -> None:
        with self._lock:
            self._pending.pop(pending.key, None)
            if pending.error is not None and pending.key[0] >= self.endpoint.generation:
                self._failed.add(pending.key)

    def _where(self, concerned: Callable[[Pending], bool]) -> list[Pending]:
        with self._lock:
            return [pending for pending in self._pending.values() if concerned(pending)]

    def _peer_lost(self, error: PeerLost) -> None:
        for pending in self._where(lambda pending: True):
            pending.fail(error)

    def _generation_began(self, generation: int) -> None:
        for pending in self._where(lambda pending: pending.key[0] < generation):
            pending.fail(StaleGeneration(f"generation {generation} began"))
        with self._lock:
            self._early.clear()
            self._early_bytes = 0
            self._failed = {key for key in self._failed if key[0] >= generation}

    def _expire(self, now: float) -> float | None:
        for pending in self._where(lambda pending: pending.deadline <= now):
            pending.expire()
        with self._lock:
            return min((pending.deadline for pending in self._pending.values()), default=None)
