"""Transports over stream sockets: non-blocking, one progress thread, no copy of a large payload in Python.

Peers authenticate before anything else is read. A payload leaves from the sender's buffer, from the caller's thread if
the socket takes it, and is received into the buffer that the handler allocates. Messages that wait leave together, as
many as one system call takes; what handlers send in answer to messages that came together waits for each other, if it
is smaller than what a message costs by itself (`tune`). TCP and local sockets are different doors (`Door`): they are
opened differently, something else carries the bytes (`Wire`), and through local ones descriptors are handed over.
Endpoints may have both.
"""

import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import islice

from futurex.runtime.transport.auth import Handshake
from futurex.runtime.transport.base import Endpoint
from futurex.runtime.transport.doors import Door
from futurex.runtime.transport.errors import (
    AuthenticationError,
    PeerLost,
    ProtocolError,
    StaleGeneration,
    TransportTimeout,
)
from futurex.runtime.transport.frames import FrameParser, pack_header
from futurex.runtime.transport.message import Completion, Header, Limits
from futurex.runtime.transport.wire import Wire

_GATHERED_FRAMES = 64  # in one system call; two pieces each, far below the limit of 1024 pieces
_MOST_GIFTS = 4
_READS_PER_EVENT = 8  # then the other peers have their turn
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class _Frame:
    """A message that is being sent: the pieces that are left, in order."""

    __slots__ = ("completion", "generation", "left", "nbytes", "pieces", "started", "urgency")

    def __init__(self, header: Header, payload: memoryview, completion: Completion, urgency: float) -> None:
        packed = memoryview(pack_header(header))
        self.pieces = [packed, payload] if payload.nbytes else [packed]
        self.left = self.nbytes = len(packed) + payload.nbytes
        self.generation = header.generation
        self.completion = completion
        self.urgency = urgency
        self.started = False

    def advance(self, count: int) -> None:
        """Take note that the next `count` bytes have been sent."""
        self.started = True
        self.left -= count
        while count >= len(self.pieces[0]):
            count -= len(self.pieces.pop(0))
            if not self.pieces:
                return
        self.pieces[0] = self.pieces[0][count:]

    def detach(self) -> None:
        """Copy what is left, so that the caller's buffer is no longer needed."""
        self.pieces = [memoryview(b"".join(self.pieces))]


class _Peer:
    """The channel to one authenticated peer."""

    def __init__(self, rank: int, wire: Wire, parser: FrameParser) -> None:
        self.rank = rank
        self.wire = wire
        self.parser = parser
        self.queue: deque[_Frame] = deque()
        self.queued = 0  # bytes
        self.room = threading.Condition()  # guards the queue and the writing side of the socket
        self.error: PeerLost | None = None

    def enqueue(self, frame: _Frame) -> None:
        """Queue a frame, before those that are less urgent and have not begun to leave. Under `room`."""
        place = len(self.queue)
        while place and self.queue[place - 1].urgency < frame.urgency and not self.queue[place - 1].started:
            place -= 1
        self.queue.insert(place, frame)
        self.queued += frame.nbytes

    def write(self) -> list[_Frame]:
        """Send what the socket takes of the queue; return the frames that are done. Under `room`; may raise OSError."""
        done: list[_Frame] = []
        while self.queue or self.wire.unsent:
            pieces = [piece for frame in islice(self.queue, _GATHERED_FRAMES) for piece in frame.pieces]
            wanted = sum(map(len, pieces))
            try:
                sent = count = self.wire.send(pieces)
            except BlockingIOError:
                break
            self.queued -= sent
            while count:
                frame = self.queue[0]
                taken = min(count, frame.left)
                frame.advance(taken)
                count -= taken
                if frame.left == 0:
                    done.append(self.queue.popleft())
            if sent < wanted and self.wire.plain:
                break
        if done:
            self.room.notify_all()
        return done


class StreamEndpoint(Endpoint):
    """A rank that listens at one or more doors; its address is that of its only one."""

    def __init__(self, kind: str, rank: int, size: int, secret: bytes, limits: Limits, doors: Sequence[Door]) -> None:
        super().__init__(kind, rank, size, secret, limits)
        self._doors = list(doors)
        self.address = self._doors[0].address.encode()
        self._peers: dict[int, _Peer] = {}
        self._guests: dict[Wire, None] = {}  # those that have not authenticated, the oldest first
        self._small = 0
        self._held: dict[_Peer, None] = {}  # channels with small messages that leave before the thread waits again
        self._selector = selectors.DefaultSelector()
        self._waker, self._wakee = socket.socketpair()
        self._waker.setblocking(False)
        self._wakee.setblocking(False)
        self._selector.register(self._wakee, _READ, self._woken)
        for door in self._doors:
            door.listener.setblocking(False)
            self._selector.register(door.listener, _READ, partial(self._accept, door))

    # --- what a kind of endpoint may provide -------------------------------------------------------------------------

    def _way(self, peer: int, address: bytes) -> tuple[Door, str]:
        """Return the door through which a lower rank is reached, and the name to dial there; may raise OSError."""
        return self._doors[0], address.decode(errors="replace")

    def _gifts(self) -> list[int]:
        """Descriptors that every peer gets when it has authenticated, at doors through which they fit."""
        return []

    def _given(self, peer: int, gifts: list[int]) -> None:
        """Take what `peer` gave; on the progress thread."""

    def tune(self, small: int, unsent: int) -> None:
        """Let small messages of the progress thread leave when it has handled what has come; bound TCP's own queues."""
        self._small = small
        for channel in tuple(self._peers.values()):
            sock = channel.wire.sock
            if sock.family != socket.AF_UNIX and hasattr(socket, "TCP_NOTSENT_LOWAT"):
                with suppress(OSError):  # it may be closed already
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, unsent)

    # --- connecting --------------------------------------------------------------------------------------------------

    def _dial(self, peer: int, address: bytes, deadline: float) -> None:
        name = address.decode(errors="replace")
        gifts: list[int] = []

        def left() -> float:
            return max(0.001, deadline - time.monotonic())

        wire: Wire | None = None
        try:
            door, name = self._way(peer, address)
            wire = door.connect(name, left())
            handshake = Handshake(self.rank, self.size, self._secret, peer=peer)
            wire.sock.sendall(handshake.greeting())
            while handshake.expects:
                wire.sock.settimeout(left())
                wire.sock.sendall(handshake.feed(_receive_exactly(wire.sock, handshake.expects)))
            if door.gives:
                socket.send_fds(wire.sock, [b"\0"], self._gifts())
                gifts = _receive_gifts(wire.sock)
        except BaseException as error:
            if wire is not None:
                wire.sock.close()
            if isinstance(error, TimeoutError):
                raise TransportTimeout(f"rank {peer} at {name} did not answer rank {self.rank} in time") from None
            if isinstance(error, OSError):
                raise PeerLost(peer, name, f"the connection from rank {self.rank} failed: {error}") from error
            raise

        def attach() -> None:
            if door.gives:
                self._given(peer, gifts)
            self._attach(peer, wire, name)

        try:
            self.run_on_thread(attach, deadline - time.monotonic())
        except AuthenticationError:
            wire.sock.close()
            raise

    def _attach(self, rank: int, wire: Wire, name: str) -> None:
        wire.sock.setblocking(False)
        peer = _Peer(rank, wire, FrameParser(rank, self._admit, self._deliver))
        self._peers[rank] = peer
        self._selector.register(wire.sock, _READ, partial(self._ready, peer))
        self._join(rank, name)

    def _accept(self, door: Door, _: int) -> None:
        with suppress(OSError):  # the connection may be gone already
            sock, where = door.listener.accept()
            if len(self._guests) >= max(self.limits.max_guests, self.size):
                self._reject_guest(next(iter(self._guests)))  # a real peer is done soon: the oldest is a stranger
            sock.setblocking(False)
            try:
                wire, name = door.accepted(sock, where)
            except BaseException:
                self._counters.rejected += 1
                sock.close()
                raise
            self._guests[wire] = None
            self._selector.register(wire.sock, _READ, _Guest(self, door, wire, name).ready)
            self.call_later(self.limits.handshake_timeout, partial(self._reject_guest, wire))

    def _reject_guest(self, wire: Wire) -> None:
        if wire in self._guests:
            del self._guests[wire]
            self._selector.unregister(wire.sock)
            self._counters.rejected += 1
            wire.sock.close()

    def _welcome(self, door: Door, wire: Wire, rank: int, name: str, gifts: list[int]) -> None:
        """Turn an authenticated connection into the channel to `rank`."""
        if rank < self.rank or rank in self._peers or rank in self.lost:
            _close_all(gifts)
            self._reject_guest(wire)
            return
        if door.gives:
            self._given(rank, gifts)
        del self._guests[wire]
        self._selector.unregister(wire.sock)
        self._attach(rank, wire, name)

    # --- sending -----------------------------------------------------------------------------------------------------

    def _transmit(
        self, peer: int, header: Header, payload: memoryview, completion: Completion, deadline: float | None,
        urgency: float,
    ) -> None:  # fmt: skip
        channel = self._peers.get(peer)
        if channel is None:
            raise self.lost[peer]
        frame = _Frame(header, payload, completion, urgency)
        with channel.room:
            self._await_room(channel, frame.nbytes, deadline)
            self._refuse_stale(header)  # again: from here on `_forget_older` sees the frame
            idle = not channel.queue and not channel.wire.unsent
            channel.enqueue(frame)
            if idle and frame.nbytes <= self._small and self.on_thread():
                self._held[channel] = None
                return
            done = self._write(channel) if idle else []
            if idle and (channel.queue or channel.wire.unsent):
                self.post(partial(self._watch, channel))
        _finish(done)

    def _release_held(self) -> None:
        """Send what handlers, jobs and timers have left to each other's company."""
        while self._held:
            channel, _ = self._held.popitem()
            if channel.error is None:
                with channel.room:
                    done = self._write(channel)
                    if channel.queue or channel.wire.unsent:
                        self._watch(channel)
                _finish(done)

    def _await_room(self, channel: _Peer, nbytes: int, deadline: float | None) -> None:
        def room() -> bool:
            return channel.error is not None or not channel.queue or channel.queued + nbytes <= self.limits.max_queued

        if deadline is not None and not channel.room.wait_for(room, max(0.0, deadline - time.monotonic())):
            name = self.describe(channel.rank)
            raise TransportTimeout(
                f"rank {channel.rank} at {name} leaves {channel.queued} bytes from rank {self.rank} waiting"
            )
        if channel.error is not None:
            raise channel.error

    def _write(self, channel: _Peer) -> list[_Frame]:
        try:
            return channel.write()
        except OSError as error:
            self.post(partial(self._broken, channel, f"sending failed: {error}"))
            return []

    def _broken(self, channel: _Peer, reason: str) -> None:
        """Deliver what the peer had sent before its channel broke, then lose it."""
        if channel.error is None:
            self._read(channel)
        self._lose(channel.rank, reason)

    def _watch(self, channel: _Peer) -> None:
        if channel.error is None:
            self._selector.modify(channel.wire.sock, _READ | _WRITE, partial(self._ready, channel))

    # --- events ------------------------------------------------------------------------------------------------------

    def _poll(self, timeout: float | None) -> None:
        self._release_held()
        for key, events in self._selector.select(timeout):
            key.data(events)
        self._release_held()

    def _woken(self, _: int) -> None:
        with suppress(BlockingIOError):
            self._wakee.recv(4096)

    def _wake(self) -> None:
        with suppress(OSError):  # full: it is awake; closed: it has ended
            self._waker.send(b"\0")

    def _ready(self, channel: _Peer, events: int) -> None:
        if events & _WRITE and channel.error is None:
            with channel.room:
                done = self._write(channel)
                if not channel.queue and not channel.wire.unsent:
                    self._selector.modify(channel.wire.sock, _READ, partial(self._ready, channel))
            _finish(done)
        if events & _READ and channel.error is None:
            self._read(channel)

    def _read(self, channel: _Peer) -> None:
        reason = "it closed the connection"
        try:
            for _ in range(_READS_PER_EVENT):
                buffers = channel.parser.buffers()
                count = channel.wire.receive(buffers)
                if count == 0:
                    break
                channel.parser.received(count)
                if channel.error is not None or (channel.wire.plain and count < sum(map(len, buffers))):
                    return
            else:
                if not channel.wire.plain:  # what it has decrypted already wakes no selector
                    self.post(partial(self._read_on, channel))
                return
        except BlockingIOError:
            return
        except (OSError, ProtocolError) as error:
            reason = str(error)
        self._lose(channel.rank, reason)

    def _read_on(self, channel: _Peer) -> None:
        if channel.error is None:
            self._read(channel)

    # --- ending ------------------------------------------------------------------------------------------------------

    def _forget_older(self, generation: int, deadline: float) -> None:
        for channel in self._peers.values():
            if channel.parser.discard_older(generation):
                self._counters.stale_dropped += 1
            with channel.room:
                old = [frame for frame in channel.queue if frame.generation < generation]
                for frame in old:
                    if frame.started:
                        frame.detach()
                    else:
                        channel.queue.remove(frame)
                        channel.queued -= frame.left
                channel.room.notify_all()
            _finish(old, StaleGeneration(f"generation {generation} began before the message was sent"))

    def _disconnect(self, peer: int, error: PeerLost) -> None:
        channel = self._peers.pop(peer)
        self._selector.unregister(channel.wire.sock)
        with channel.room:
            channel.error = error
            waiting = list(channel.queue)
            channel.queue.clear()
            channel.queued = 0
            channel.wire.sock.close()
            channel.room.notify_all()
        _finish(waiting, error)

    def _release(self) -> None:
        listeners = [door.listener for door in self._doors]
        for sock in (*listeners, self._waker, self._wakee, *(wire.sock for wire in self._guests)):
            sock.close()
        self._selector.close()


class _Guest:
    """A connection that has not authenticated: never more of it is read than the handshake expects."""

    def __init__(self, endpoint: StreamEndpoint, door: Door, wire: Wire, name: str) -> None:
        self._endpoint, self._door, self._wire, self._name = endpoint, door, wire, name
        self._handshake = Handshake(endpoint.rank, endpoint.size, endpoint._secret)
        self._received = bytearray()

    def ready(self, _: int) -> None:
        """Read on; the connection becomes a channel, or is closed and counted."""
        try:
            if self._handshake.expects:
                self._read()
            else:
                self._admit(_receive_gifts(self._wire.sock))
        except BlockingIOError:
            return
        except (OSError, AuthenticationError):
            self._endpoint._reject_guest(self._wire)

    def _read(self) -> None:
        part = bytearray(self._handshake.expects - len(self._received))
        count = self._wire.receive([memoryview(part)])
        if count == 0:
            raise AuthenticationError("the connection was closed")
        self._received += part[:count]
        if len(self._received) < self._handshake.expects:
            return
        message = bytes(self._received)
        self._received.clear()
        reply = self._handshake.feed(message)
        if reply:
            self._wire.send([memoryview(reply)])
        if self._handshake.expects == 0:
            if self._door.gives:  # the peer's come back before anything else
                socket.send_fds(self._wire.sock, [b"\0"], self._endpoint._gifts())
            else:
                self._admit([])

    def _admit(self, gifts: list[int]) -> None:
        self._endpoint._welcome(self._door, self._wire, self._handshake.peer, self._name, gifts)


def _receive_gifts(sock: socket.socket) -> list[int]:
    """Take the one byte that carries descriptors, and them."""
    data, gifts, _, _ = socket.recv_fds(sock, 1, _MOST_GIFTS)
    if not data:
        _close_all(gifts)
        raise ConnectionError("it closed the connection during the handshake")
    return gifts


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _receive_exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            raise ConnectionError("it closed the connection during the handshake (another secret?)")
        data += more
    return data


def _finish(frames: list[_Frame], error: Exception | None = None) -> None:
    for frame in frames:
        frame.completion.finish(error)
