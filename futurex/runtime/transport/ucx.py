"""The transport over UCX active messages.

Ranks exchange worker addresses, signed with the shared secret so that nothing foreign reaches the C library; then they
authenticate by control messages. A data message carries the token of its sender and direction, which both sides have
derived: messages without a known token are dropped and counted. Large payloads go by rendezvous straight into the
buffer that the handler allocates. UCX callbacks only take notes; handlers run after the worker has been let go.
"""

import ctypes
import hashlib
import hmac
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from contextlib import suppress
from ctypes import byref
from typing import NamedTuple

import numpy as np

from futurex.runtime.transport.auth import GREETING_BYTES, Handshake
from futurex.runtime.transport.base import MAX_HANDLER, Endpoint
from futurex.runtime.transport.errors import AuthenticationError, PeerLost, ProtocolError, TransportTimeout
from futurex.runtime.transport.frames import HEADER_BYTES, pack_header, unpack_header
from futurex.runtime.transport.message import Completion, Header, Limits
from futurex.runtime.transport.ucx_library import (
    BUSY,
    DATA_IS_KEPT,
    INPROGRESS,
    RENDEZVOUS,
    ArrivalCallback,
    ErrorCallback,
    ReceivedCallback,
    RequestParam,
    SentCallback,
    Worker,
    pointer_status,
    status_text,
)

_CONTROL, _DATA = 0, 1  # active message numbers
_ENVELOPE = struct.Struct("<QQ")  # token, sequence number
_RANK = struct.Struct("<I")
_MAGIC = b"FXUCX\0\1"
_MAC_BYTES = 32
_MAX_CONTROL_BYTES = 64
_GOODBYE = MAX_HANDLER + 1  # a handler number that no user has
_SPINS = 50
_LONGEST_SLEEP = 0.5  # the worker watches over its peers only while it is progressed
_CLOSING_SECONDS = 0.5
_GREETING_SECONDS = 0.5


class _Arrival(NamedTuple):
    """What a UCX callback noted of a message; `data` is a copy, or an address if UCX keeps the payload."""

    number: int
    header: bytes
    data: bytes | int
    nbytes: int
    attributes: int


class _Message:
    """A message that is being received."""

    __slots__ = ("complete", "header", "payload")

    def __init__(self, header: Header, payload: memoryview | None) -> None:
        self.header = header
        self.payload = payload
        self.complete = False


class _Channel:
    """The way to one peer and back."""

    def __init__(self, rank: int, endpoint: int, name: str) -> None:
        self.rank = rank
        self.endpoint = endpoint
        self.name = name
        self.handshake: Handshake | None = None
        self.token_out = self.token_in = 0
        self.sent = 0  # messages
        self.expected = 0  # the sequence number of the message that is delivered next
        self.arrived: dict[int, _Message] = {}
        self.queued = 0  # bytes
        self.error: PeerLost | None = None


class _Flight(NamedTuple):
    """An operation that UCX has not finished, and what must stay alive until then."""

    channel: _Channel
    generation: int
    nbytes: int
    keep: object
    completion: Completion | None
    message: _Message | None


class UcxEndpoint(Endpoint):
    """A rank with a UCX worker."""

    def __init__(self, rank: int, size: int, secret: bytes, limits: Limits) -> None:
        super().__init__("ucx", rank, size, secret, limits)
        self._lock = threading.Lock()  # the worker, the flights and the queued bytes
        self._room = threading.Condition(self._lock)
        self._worker = Worker()
        self._library = self._worker.library
        self._handle = self._worker.handle
        self._channels: dict[int, _Channel] = {}
        self._by_token: dict[int, _Channel] = {}
        self._greetings: dict[int, bytes] = {}  # of ranks that `connect` has not prepared for yet
        self._arrivals: deque[_Arrival] = deque()
        self._ended: deque[tuple[int, int, int]] = deque()  # request, status, flight
        self._failed: deque[tuple[int, int]] = deque()  # endpoint, status
        self._flights: dict[int, _Flight] = {}
        self._next_flight = 1
        self._callbacks = (
            ArrivalCallback(lambda *args: self._note_arrival(_CONTROL, *args)),
            ArrivalCallback(lambda *args: self._note_arrival(_DATA, *args)),
            ErrorCallback(lambda _, endpoint, status: self._failed.append((endpoint, status))),
            SentCallback(lambda request, status, flight: self._ended.append((request, status, flight))),
            ReceivedCallback(lambda request, status, _, flight: self._ended.append((request, status, flight))),
        )
        self._worker.receive(_CONTROL, self._callbacks[0])
        self._worker.receive(_DATA, self._callbacks[1])
        self._sending = RequestParam.calling(self._callbacks[3])
        self._receiving = RequestParam.calling(self._callbacks[4])
        self.address = _sign(f"ucx://{socket.gethostname()}/{os.getpid()}", self._worker.address(), secret)
        self._wakefd = os.eventfd(0, os.EFD_NONBLOCK)
        self._poller = select.poll()
        self._poller.register(self._wakefd, select.POLLIN)
        self._poller.register(self._worker.efd, select.POLLIN)
        self._thread.start()

    # --- connecting --------------------------------------------------------------------------------------------------

    def _dial(self, peer: int, address: bytes, deadline: float) -> None:
        self._open(peer, address)
        self.post(lambda: self._greet(peer, deadline))

    def _greet(self, peer: int, deadline: float) -> None:
        """Begin the handshake with a lower rank; begin it again later, should a stranger interfere."""
        channel = self._channels.get(peer)
        if channel is None or peer in self._connected or time.monotonic() > deadline:
            return
        channel.handshake = Handshake(self.rank, self.size, self._secret, peer=peer)
        self._control(peer, channel.handshake.greeting())
        self.call_later(_GREETING_SECONDS, lambda: self._greet(peer, deadline))

    def _expect(self, peer: int, address: bytes) -> None:
        self._open(peer, address)
        self.post(lambda: self._greeted(peer, self._greetings.pop(peer, None)))

    def _open(self, peer: int, address: bytes) -> None:
        name, worker_address = _verify(address, self._secret, peer)
        with self._lock:
            endpoint = self._worker.endpoint(worker_address, self._callbacks[2])
            self._channels[peer] = _Channel(peer, endpoint, name)

    def _greeted(self, peer: int, greeting: bytes | None) -> None:
        if greeting is not None:
            self._authenticate(peer, greeting)

    def _control(self, peer: int, message: bytes) -> None:
        if message:
            with self._lock:
                self._submit(self._channels[peer], _CONTROL, _RANK.pack(self.rank), memoryview(message), None, 0)

    def _authenticate(self, rank: int, message: bytes) -> None:
        """Take a handshake message that claims to come from `rank`."""
        channel = self._channels.get(rank)
        if channel is None and self.rank < rank < self.size and rank not in self.lost:
            self._greetings[rank] = message
            return
        try:
            if channel is None or rank in self._connected:
                raise AuthenticationError(f"rank {rank} is not expected to authenticate")
            if rank > self.rank and len(message) == GREETING_BYTES:
                channel.handshake = Handshake(self.rank, self.size, self._secret)
            handshake = channel.handshake
            if handshake is None:
                raise AuthenticationError(f"rank {rank} did not begin with a greeting")
            reply = handshake.feed(message)
            if handshake.peer != rank:
                raise AuthenticationError(f"rank {handshake.peer} speaks for rank {rank}")
        except AuthenticationError:
            self._counters.rejected += 1
            return
        self._control(rank, reply)
        if handshake.expects == 0:
            channel.token_in = handshake.token(outgoing=False)
            channel.token_out = handshake.token(outgoing=True)
            self._by_token[channel.token_in] = channel
            self._join(rank, channel.name)

    # --- sending -----------------------------------------------------------------------------------------------------

    def _transmit(
        self, peer: int, header: Header, payload: memoryview, completion: Completion, deadline: float | None,
        urgency: float,
    ) -> None:  # fmt: skip
        channel = self._channels.get(peer)
        if channel is None:
            raise self.lost[peer]
        with self._lock:
            self._await_room(channel, payload.nbytes, deadline)
            self._refuse_stale(header)  # again: from here on `_forget_older` sees the flight
            packed = _ENVELOPE.pack(channel.token_out, channel.sent) + pack_header(header)
            channel.sent += 1
            status = self._submit(channel, _DATA, packed, payload, completion, header.generation)
        if status == 0:
            completion.finish()
        elif status == INPROGRESS:
            if not self.on_thread():
                self._wake()
        else:
            reason = f"UCX cannot send: {status_text(status)}"
            completion.finish(PeerLost(peer, channel.name, reason))
            self.post(lambda: self._lose(peer, reason))

    def _await_room(self, channel: _Channel, nbytes: int, deadline: float | None) -> None:
        def room() -> bool:
            return channel.error is not None or not channel.queued or channel.queued + nbytes <= self.limits.max_queued

        if deadline is not None and not self._room.wait_for(room, max(0.0, deadline - time.monotonic())):
            raise TransportTimeout(
                f"rank {channel.rank} at {channel.name} leaves {channel.queued} bytes from rank {self.rank} waiting"
            )
        if channel.error is not None:
            raise channel.error

    def _submit(
        self,
        channel: _Channel,
        number: int,
        header: bytes,
        payload: memoryview,
        completion: Completion | None,
        generation: int,
    ) -> int:
        """Hand a message to UCX and return its status. Under the lock."""
        array = np.frombuffer(payload, np.uint8)
        flight, self._next_flight = self._next_flight, self._next_flight + 1
        self._sending.user_data = flight
        keep = (header, array)
        self._flights[flight] = _Flight(channel, generation, len(array), keep, completion, None)
        pointer = self._library.ucp_am_send_nbx(
            channel.endpoint, number, header, len(header), _data(array), len(array), byref(self._sending)
        )
        status = pointer_status(pointer)
        if status == INPROGRESS:
            channel.queued += len(array)
        else:
            del self._flights[flight]
        return status

    # --- progress ----------------------------------------------------------------------------------------------------

    def _poll(self, timeout: float | None) -> None:
        for _ in range(_SPINS if timeout != 0 else 1):
            if self._progress():
                return
        if timeout == 0:
            return
        with self._lock:
            armed = self._library.ucp_worker_arm(self._handle)
        if armed == BUSY or self._arrivals or self._ended or self._failed:
            return
        self._poller.poll(1000 * min(_LONGEST_SLEEP, _LONGEST_SLEEP if timeout is None else timeout))
        with suppress(BlockingIOError):
            os.eventfd_read(self._wakefd)

    def _wake(self) -> None:
        with suppress(OSError):  # it has been closed
            os.eventfd_write(self._wakefd, 1)

    def _progress(self) -> bool:
        """Let the worker work once, then handle what it noted; return whether there was anything."""
        with self._lock:
            busy = self._library.ucp_worker_progress(self._handle) != 0
        noted = bool(self._arrivals or self._ended or self._failed)
        while self._ended:
            self._end(*self._ended.popleft())
        while self._arrivals:
            self._arrive(self._arrivals.popleft())
        while self._failed:
            endpoint, status = self._failed.popleft()
            for channel in [one for one in tuple(self._channels.values()) if one.endpoint == endpoint]:
                self._lose(channel.rank, f"UCX reports: {status_text(status)}")
        return busy or noted

    def _end(self, request: int, status: int, number: int) -> None:
        """Finish an operation that UCX has finished."""
        with self._lock:
            self._library.ucp_request_free(request)
            flight = self._flights.pop(number)
            if flight.message is None:
                flight.channel.queued -= flight.nbytes
                self._room.notify_all()
        channel = flight.channel
        reason = f"UCX reports: {status_text(status)}"
        if flight.completion is not None:
            error = channel.error or PeerLost(channel.rank, channel.name, reason)
            flight.completion.finish(None if status == 0 else error)
        if flight.message is not None and channel.error is None:
            if status == 0:
                self._complete(channel, flight.message)
            else:
                self._lose(channel.rank, reason)

    # --- receiving ---------------------------------------------------------------------------------------------------

    def _note_arrival(
        self, number: int, _: int, header: int, header_bytes: int, data: int, nbytes: int, param: object
    ) -> int:
        attributes: int = param[0]  # type: ignore[index]
        copied = ctypes.string_at(header, header_bytes) if header_bytes else b""
        if attributes & (DATA_IS_KEPT | RENDEZVOUS):
            self._arrivals.append(_Arrival(number, copied, data, nbytes, attributes))
            return INPROGRESS
        self._arrivals.append(_Arrival(number, copied, ctypes.string_at(data, nbytes) if nbytes else b"", nbytes, 0))
        return 0

    def _arrive(self, arrival: _Arrival) -> None:
        if arrival.number == _CONTROL:
            self._arrive_control(arrival)
            return
        channel = None
        if len(arrival.header) == _ENVELOPE.size + HEADER_BYTES:
            token, sequence = _ENVELOPE.unpack_from(arrival.header)
            channel = self._by_token.get(token)
        if channel is None:
            self._counters.rejected += 1
            self._drop(arrival)
            return
        try:
            self._arrive_data(arrival, channel, sequence)
        except ProtocolError as error:
            self._lose(channel.rank, str(error))

    def _arrive_control(self, arrival: _Arrival) -> None:
        if len(arrival.header) != _RANK.size or arrival.nbytes > _MAX_CONTROL_BYTES or arrival.attributes & RENDEZVOUS:
            self._counters.rejected += 1
            self._drop(arrival)
            return
        data = arrival.data if isinstance(arrival.data, bytes) else ctypes.string_at(arrival.data, arrival.nbytes)
        self._drop(arrival)
        self._authenticate(_RANK.unpack(arrival.header)[0], data)

    def _arrive_data(self, arrival: _Arrival, channel: _Channel, sequence: int) -> None:
        try:
            header = unpack_header(arrival.header, channel.rank, _ENVELOPE.size)
            if header.handler == _GOODBYE:
                raise ProtocolError("it closed the connection")
            if header.nbytes != arrival.nbytes or sequence < channel.expected or sequence in channel.arrived:
                raise ProtocolError(f"a malformed message from rank {channel.rank}")
            message = _Message(header, self._admit(header))
        except ProtocolError:
            self._drop(arrival)
            raise
        channel.arrived[sequence] = message
        self._receive(arrival, channel, message)

    def _receive(self, arrival: _Arrival, channel: _Channel, message: _Message) -> None:
        payload = message.payload
        if payload is None:
            self._drop(arrival)
        elif arrival.attributes & RENDEZVOUS:
            self._fetch(arrival, channel, message, np.frombuffer(payload, np.uint8))
            return
        elif isinstance(arrival.data, bytes):
            payload[:] = arrival.data
        else:
            ctypes.memmove(_data(np.frombuffer(payload, np.uint8)), arrival.data, arrival.nbytes)
            self._drop(arrival)
        self._complete(channel, message)

    def _fetch(self, arrival: _Arrival, channel: _Channel, message: _Message, target: "np.ndarray") -> None:
        """Begin to receive a payload that is still with its sender."""
        with self._lock:
            number, self._next_flight = self._next_flight, self._next_flight + 1
            self._receiving.user_data = number
            generation = message.header.generation
            self._flights[number] = _Flight(channel, generation, arrival.nbytes, target, None, message)
            pointer = self._library.ucp_am_recv_data_nbx(
                self._handle, arrival.data, _data(target), arrival.nbytes, byref(self._receiving)
            )
            status = pointer_status(pointer)
            if status != INPROGRESS:
                del self._flights[number]
        if status == 0:
            self._complete(channel, message)
        elif status != INPROGRESS:
            raise ProtocolError(f"UCX cannot receive: {status_text(status)}")

    def _drop(self, arrival: _Arrival) -> None:
        if isinstance(arrival.data, int) and arrival.data:
            with self._lock:
                self._library.ucp_am_data_release(self._handle, arrival.data)

    def _complete(self, channel: _Channel, message: _Message) -> None:
        """Take note that `message` is there, and deliver the messages whose turn it is."""
        message.complete = True
        while channel.error is None:
            first = channel.arrived.get(channel.expected)
            if first is None or not first.complete:
                return
            del channel.arrived[channel.expected]
            channel.expected += 1
            if first.payload is not None:
                try:
                    self._deliver(first.header, first.payload)
                except ProtocolError as error:
                    self._lose(channel.rank, str(error))

    # --- ending ------------------------------------------------------------------------------------------------------

    def _forget_older(self, generation: int, deadline: float) -> None:
        """Wait until UCX is done with the buffers of earlier generations; lose the peers that do not let it."""

        def holding() -> list[_Channel]:
            with self._lock:
                flights = tuple(self._flights.values())
            return [
                one.channel
                for one in flights
                if one.generation < generation and (one.completion or one.message) and one.channel.error is None
            ]

        last = time.monotonic() + (deadline - time.monotonic()) / 2
        while holding() and time.monotonic() < last:
            if not self._progress():
                time.sleep(0.0005)
        for channel in holding():
            self._lose(channel.rank, f"it did not finish its messages of the generations before {generation} in time")

    def _disconnect(self, peer: int, error: PeerLost) -> None:
        channel = self._channels.pop(peer)
        self._by_token.pop(channel.token_in, None)
        header = Header(self.rank, 0, 0, _GOODBYE, 0, 0, 0)
        with self._lock:
            channel.error = error
            packed = _ENVELOPE.pack(channel.token_out, channel.sent) + pack_header(header)
            self._submit(channel, _DATA, packed, memoryview(b""), None, 0)
            self._library.ucp_worker_progress(self._handle)
            request = self._worker.close_endpoint(channel.endpoint)
            if pointer_status(request) == INPROGRESS:
                until = time.monotonic() + _CLOSING_SECONDS
                while self._library.ucp_request_check_status(request) == INPROGRESS and time.monotonic() < until:
                    self._library.ucp_worker_progress(self._handle)
                self._library.ucp_request_free(request)
            self._room.notify_all()
            waiting = [one.completion for one in self._flights.values() if one.channel is channel and one.completion]
        for completion in waiting:
            completion.finish(error)

    def _release(self) -> None:
        with self._lock:
            self._worker.destroy()
        os.close(self._wakefd)


def _data(array: "np.ndarray") -> int:
    return array.__array_interface__["data"][0]


def _sign(name: str, worker_address: bytes, secret: bytes) -> bytes:
    """Return the blob by which others reach a worker: its name and address, with a proof of origin."""
    body = struct.pack("<H", len(name.encode())) + name.encode() + worker_address
    return _MAGIC + hmac.digest(secret, _MAGIC + body, hashlib.sha256) + body


def _verify(address: bytes, secret: bytes, peer: int) -> tuple[str, bytes]:
    """Return the name and the worker address that a blob holds; raise AuthenticationError if it is not genuine."""
    mac, body = address[len(_MAGIC) : len(_MAGIC) + _MAC_BYTES], address[len(_MAGIC) + _MAC_BYTES :]
    if not address.startswith(_MAGIC) or not hmac.compare_digest(
        mac, hmac.digest(secret, _MAGIC + body, hashlib.sha256)
    ):
        raise AuthenticationError(f"the UCX address given for rank {peer} was not made with the shared secret")
    length = 2 + struct.unpack_from("<H", body)[0]
    return body[2:length].decode(), body[length:]
