"""The transport over TCP: non-blocking sockets, one progress thread, no copy of a large payload in Python.

Peers authenticate before anything else is read; the channels are not encrypted. A payload leaves from the sender's
buffer, from the caller's thread if the socket takes it, and is received into the buffer that the handler allocates.
"""

import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice

from futurex.runtime.transport.auth import Handshake
from futurex.runtime.transport.base import Endpoint
from futurex.runtime.transport.errors import (
    AuthenticationError,
    PeerLost,
    ProtocolError,
    StaleGeneration,
    TransportTimeout,
)
from futurex.runtime.transport.frames import FrameParser, pack_header
from futurex.runtime.transport.message import Completion, Header, Limits

_SOCKET_BUFFER = 4 << 20
_PROBE_SECONDS = 5
_GATHERED_FRAMES = 64  # in one system call; two pieces each, far below the limit of 1024 pieces
_READS_PER_EVENT = 8  # then the other peers have their turn
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class _Frame:
    """A message that is being sent: the pieces that are left, in order."""

    __slots__ = ("completion", "generation", "left", "nbytes", "pieces", "started")

    def __init__(self, header: Header, payload: memoryview, completion: Completion) -> None:
        packed = memoryview(pack_header(header))
        self.pieces = [packed, payload] if payload.nbytes else [packed]
        self.left = self.nbytes = len(packed) + payload.nbytes
        self.generation = header.generation
        self.completion = completion
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

    def __init__(self, rank: int, sock: socket.socket, parser: FrameParser) -> None:
        self.rank = rank
        self.sock = sock
        self.parser = parser
        self.queue: deque[_Frame] = deque()
        self.queued = 0  # bytes
        self.room = threading.Condition()  # guards the queue and the writing side of the socket
        self.error: PeerLost | None = None

    def write(self) -> list[_Frame]:
        """Send what the socket takes of the queue; return the frames that are done. Under `room`; may raise OSError."""
        done: list[_Frame] = []
        while self.queue:
            pieces = [piece for frame in islice(self.queue, _GATHERED_FRAMES) for piece in frame.pieces]
            wanted = sum(map(len, pieces))
            try:
                sent = count = self.sock.sendmsg(pieces)
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
            if sent < wanted:
                break
        if done:
            self.room.notify_all()
        return done


class TcpEndpoint(Endpoint):
    """A rank that listens on a TCP port of `host`."""

    def __init__(self, rank: int, size: int, secret: bytes, limits: Limits, host: str) -> None:
        super().__init__("tcp", rank, size, secret, limits)
        self._listener = socket.create_server((host, 0), backlog=size + limits.max_guests)
        self._listener.setblocking(False)
        self.address = f"tcp://{host}:{self._listener.getsockname()[1]}".encode()
        self._peers: dict[int, _Peer] = {}
        self._guests: dict[socket.socket, None] = {}  # those that have not authenticated, the oldest first
        self._selector = selectors.DefaultSelector()
        self._waker, self._wakee = socket.socketpair()
        self._waker.setblocking(False)
        self._wakee.setblocking(False)
        self._selector.register(self._wakee, _READ, self._woken)
        self._selector.register(self._listener, _READ, self._accept)
        self._thread.start()

    # --- connecting --------------------------------------------------------------------------------------------------

    def _dial(self, peer: int, address: bytes, deadline: float) -> None:
        name = address.decode()
        host, _, port = name.removeprefix("tcp://").rpartition(":")
        sock = socket.socket()
        try:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            _tune(sock)
            sock.connect((host, int(port)))
            handshake = Handshake(self.rank, self.size, self._secret, peer=peer)
            sock.sendall(handshake.greeting())
            while handshake.expects:
                sock.settimeout(max(0.001, deadline - time.monotonic()))
                sock.sendall(handshake.feed(_receive_exactly(sock, handshake.expects)))
        except TimeoutError:
            sock.close()
            raise TransportTimeout(f"rank {peer} at {name} did not answer rank {self.rank} in time") from None
        except OSError as error:
            sock.close()
            raise PeerLost(peer, name, f"the connection from rank {self.rank} failed: {error}") from error
        except AuthenticationError:
            sock.close()
            raise
        self.run_on_thread(partial(self._attach, peer, sock, name), deadline - time.monotonic())

    def _attach(self, rank: int, sock: socket.socket, name: str) -> None:
        sock.setblocking(False)
        peer = _Peer(rank, sock, FrameParser(rank, self._admit, self._deliver))
        self._peers[rank] = peer
        self._selector.register(sock, _READ, partial(self._ready, peer))
        self._join(rank, name)

    def _accept(self, _: int) -> None:
        with suppress(OSError):  # the connection may be gone already
            sock, (host, port, *_rest) = self._listener.accept()
            if len(self._guests) >= self.limits.max_guests:
                self._reject_guest(next(iter(self._guests)))  # a real peer is done soon: the oldest is a stranger
            sock.setblocking(False)
            _tune(sock)
            self._guests[sock] = None
            guest = _guest(self, sock, Handshake(self.rank, self.size, self._secret), f"tcp://{host}:{port}")
            self._selector.register(sock, _READ, guest)
            self.call_later(self.limits.handshake_timeout, partial(self._reject_guest, sock))

    def _reject_guest(self, sock: socket.socket) -> None:
        if sock in self._guests:
            del self._guests[sock]
            self._selector.unregister(sock)
            self._counters.rejected += 1
            sock.close()

    def _welcome(self, sock: socket.socket, rank: int, name: str) -> None:
        """Turn an authenticated connection into the channel to `rank`."""
        if rank < self.rank or rank in self._peers or rank in self.lost:
            self._reject_guest(sock)
            return
        del self._guests[sock]
        self._selector.unregister(sock)
        self._attach(rank, sock, name)

    # --- sending -----------------------------------------------------------------------------------------------------

    def _transmit(
        self, peer: int, header: Header, payload: memoryview, completion: Completion, deadline: float | None
    ) -> None:
        channel = self._peers.get(peer)
        if channel is None:
            raise self.lost[peer]
        frame = _Frame(header, payload, completion)
        with channel.room:
            self._await_room(channel, frame.nbytes, deadline)
            self._refuse_stale(header)  # again: from here on `_forget_older` sees the frame
            idle = not channel.queue
            channel.queue.append(frame)
            channel.queued += frame.nbytes
            done = self._write(channel) if idle else []
            if idle and channel.queue:
                self.post(partial(self._watch, channel))
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
            self._selector.modify(channel.sock, _READ | _WRITE, partial(self._ready, channel))

    # --- events ------------------------------------------------------------------------------------------------------

    def _poll(self, timeout: float | None) -> None:
        for key, events in self._selector.select(timeout):
            key.data(events)

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
                if not channel.queue:
                    self._selector.modify(channel.sock, _READ, partial(self._ready, channel))
            _finish(done)
        if events & _READ and channel.error is None:
            self._read(channel)

    def _read(self, channel: _Peer) -> None:
        reason = "it closed the connection"
        try:
            for _ in range(_READS_PER_EVENT):
                buffers = channel.parser.buffers()
                count = (
                    channel.sock.recv_into(buffers[0]) if len(buffers) == 1 else channel.sock.recvmsg_into(buffers)[0]
                )
                if count == 0:
                    break
                channel.parser.received(count)
                if channel.error is not None or count < sum(map(len, buffers)):
                    return
            else:
                return
        except BlockingIOError:
            return
        except (OSError, ProtocolError) as error:
            reason = str(error)
        self._lose(channel.rank, reason)

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
        self._selector.unregister(channel.sock)
        with channel.room:
            channel.error = error
            waiting = list(channel.queue)
            channel.queue.clear()
            channel.queued = 0
            channel.sock.close()
            channel.room.notify_all()
        _finish(waiting, error)

    def _release(self) -> None:
        for sock in (self._listener, self._waker, self._wakee, *self._guests):
            sock.close()
        self._selector.close()


def _guest(endpoint: TcpEndpoint, sock: socket.socket, handshake: Handshake, name: str) -> Callable[[int], None]:
    """Return what reads the handshake of a connection that has not authenticated: never more than it expects."""
    received = bytearray()

    def ready(_: int) -> None:
        try:
            data = sock.recv(handshake.expects - len(received))
            received.extend(data)
            if not data:
                raise AuthenticationError("the connection was closed")
            if len(received) == handshake.expects:
                message = bytes(received)
                received.clear()
                sock.send(handshake.feed(message))
                if handshake.expects == 0:
                    endpoint._welcome(sock, handshake.peer, name)
        except BlockingIOError:
            return
        except (OSError, AuthenticationError):
            endpoint._reject_guest(sock)

    return ready


def _tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a host that vanishes closes no connection
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


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
