"""The transport between the localities of one process: a queue per endpoint, one copy per message."""

import hmac
import secrets
import threading
import time
from queue import Empty, SimpleQueue
from typing import NamedTuple
from weakref import WeakValueDictionary

from futurex.runtime.transport.base import Endpoint
from futurex.runtime.transport.errors import (
    AuthenticationError,
    PeerLost,
    ProtocolError,
    StaleGeneration,
    TransportTimeout,
)
from futurex.runtime.transport.message import Completion, Header, Limits

_endpoints: "WeakValueDictionary[bytes, InprocEndpoint]" = WeakValueDictionary()


class _Message(NamedTuple):
    header: Header
    payload: memoryview
    completion: Completion


class InprocEndpoint(Endpoint):
    """A rank whose peers are endpoints of the same process."""

    def __init__(self, rank: int, size: int, secret: bytes, limits: Limits) -> None:
        super().__init__("inproc", rank, size, secret, limits)
        self.address = b"inproc://" + secrets.token_hex(8).encode()
        self._inbox: SimpleQueue[_Message | None] = SimpleQueue()
        self._peers: dict[int, InprocEndpoint] = {}
        self._queued = [0] * size  # bytes in the inbox, by source
        self._room = threading.Condition()
        self._open = True  # changes under `_room`: nothing enters the inbox of a closed endpoint
        self._reading = threading.Lock()  # held by whoever copies out of a buffer that this endpoint sends
        _endpoints[self.address] = self
        self._thread.start()

    def _dial(self, peer: int, address: bytes, deadline: float) -> None:
        other = _endpoints.get(address)
        if other is None or not other._open:
            raise PeerLost(peer, address.decode(), "there is no such endpoint in this process")
        if not hmac.compare_digest(self._secret, other._secret):
            other._counters.rejected += 1
            raise AuthenticationError(
                f"rank {peer} at {address.decode()} does not have the same secret as rank {self.rank}"
            )
        if (other.rank, other.size) != (peer, self.size):
            raise AuthenticationError(
                f"{address.decode()} is rank {other.rank} of {other.size}, not {peer} of {self.size}"
            )
        self.run_on_thread(lambda: self._attach(other), deadline - time.monotonic())
        other.run_on_thread(lambda: other._attach(self), deadline - time.monotonic())

    def _attach(self, other: "InprocEndpoint") -> None:
        self._peers[other.rank] = other
        self._join(other.rank, other.address.decode())

    def _transmit(
        self, peer: int, header: Header, payload: memoryview, completion: Completion, deadline: float | None,
        urgency: float,
    ) -> None:  # fmt: skip
        other = self._peers[peer]
        queued, limit, me = other._queued, self.limits.max_queued, self.rank
        with other._room:
            if deadline is not None and not other._room.wait_for(
                lambda: not other._open or not queued[me] or queued[me] + header.nbytes <= limit,
                max(0.0, deadline - time.monotonic()),
            ):
                raise TransportTimeout(
                    f"rank {peer} at {self.describe(peer)} leaves {queued[me]} bytes from rank {me} waiting"
                )
            if other._open:
                queued[me] += header.nbytes
                other._inbox.put(_Message(header, payload, completion))
                return
        raise PeerLost(peer, self.describe(peer), "its endpoint is closed")

    def _poll(self, timeout: float | None) -> None:
        try:
            message = self._inbox.get(timeout=timeout) if timeout != 0 else self._inbox.get_nowait()
        except Empty:
            return
        if message is not None:
            try:
                error = self._take(message)
            except ProtocolError as problem:
                self._lose(message.header.source, str(problem))
                error = PeerLost(self.rank, self.address.decode(), str(problem))
            self._done(message, error)

    def _take(self, message: _Message) -> Exception | None:
        """Receive a message; return what its sender is to be told."""
        header = message.header
        if header.source not in self._connected:
            return PeerLost(self.rank, self.address.decode(), "it has closed the connection")
        target = self._admit(header)
        if target is None:
            return None
        sender = self._peers[header.source]
        with sender._reading:
            if header.generation < sender.generation:
                return StaleGeneration(f"generation {header.generation} ended before the message was received")
            target[:] = message.payload
        self._deliver(header, target)
        return None

    def _done(self, message: _Message, error: Exception | None) -> None:
        with self._room:
            self._queued[message.header.source] -= message.header.nbytes
            self._room.notify_all()
        message.completion.finish(error)

    def _forget_older(self, generation: int, deadline: float) -> None:
        with self._reading:
            pass  # whoever copies from here has finished, and who comes later sees the new generation

    def _disconnect(self, peer: int, error: PeerLost) -> None:
        other = self._peers.pop(peer)
        other.post(lambda: other._lose(self.rank, "it closed the connection"))

    def _wake(self) -> None:
        self._inbox.put(None)

    def _release(self) -> None:
        with self._room:
            self._open = False
            self._room.notify_all()
        while True:
            try:
                message = self._inbox.get_nowait()
            except Empty:
                return
            if message is not None:
                self._done(message, PeerLost(self.rank, self.address.decode(), "it closed its endpoint"))
