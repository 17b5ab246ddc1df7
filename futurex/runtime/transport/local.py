"""The transport inside a host: local sockets for messages, and memory that the ranks share for what is large.

The sockets have abstract names, so nothing lies in any folder, and nothing is left when a process is killed. A peer
must run as the same user before it may even authenticate. Then the two hand each other their arena and a doorbell.
"""

from __future__ import annotations

import os
import secrets
import selectors
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from futurex.runtime.transport.arena import Arena, PeerMemory
from futurex.runtime.transport.errors import AuthenticationError, PeerLost, TransportError
from futurex.runtime.transport.message import Limits
from futurex.runtime.transport.stream import StreamEndpoint
from futurex.runtime.transport.wire import Wire

BOARD_BYTES = 4 << 20  #: at the beginning of every arena, for those who coordinate through it
_SOCKET_BUFFER = 4 << 20
_CREDENTIALS = struct.Struct("3i")  # process, user, group


class LocalEndpoint(StreamEndpoint):
    """A rank whose peers run on the same host, as the same user.

    `memory` is its arena; `peer_memory` holds those of the peers, by rank.
    """

    def __init__(self, rank: int, size: int, secret: bytes, limits: Limits) -> None:
        listener = socket.socket(socket.AF_UNIX)
        name = f"futurex-{secrets.token_hex(16)}"
        listener.bind("\0" + name)
        listener.listen(size + limits.max_guests)
        super().__init__("local", rank, size, secret, limits, listener)
        self.address = f"local://{name}".encode()
        self.memory = Arena(BOARD_BYTES)
        self.peer_memory: dict[int, PeerMemory] = {}
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._bells: dict[int, int] = {}
        self._bells_lock = threading.Lock()  # a number may stand for another descriptor once it is closed
        self._ringing: list[Callable[[], object]] = []
        self._selector.register(self._bell, selectors.EVENT_READ, self._rung)
        self._thread.start()

    def ring(self, peer: int) -> None:
        """Have the callbacks of `on_ring` run on the progress thread of `peer`; costs one system call."""
        with self._bells_lock, suppress(OSError, KeyError):  # it is full, and so rings anyway; the peer is lost
            os.eventfd_write(self._bells[peer], 1)

    def on_ring(self, callback: Callable[[], object]) -> None:
        """Call `callback()` on the progress thread when a peer has rung; rings that come together count once."""
        self._ringing.append(callback)

    def _rung(self, _: int) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        for callback in self._ringing:
            callback()

    def _connect(self, peer: int, name: str, timeout: float) -> Wire:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.settimeout(timeout)
            sock.connect("\0" + name.removeprefix("local://"))
            return self._prepared(sock)
        except BaseException:
            sock.close()
            raise

    def _accepted(self, sock: socket.socket, where: Any) -> tuple[Wire, str]:
        try:
            return self._prepared(sock), f"local://process-{_credentials(sock)[0]}"
        except BaseException:
            self._counters.rejected += 1
            sock.close()
            raise

    def _prepared(self, sock: socket.socket) -> Wire:
        if _credentials(sock)[1] != os.geteuid():
            raise PermissionError("the other process belongs to another user")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER)
        return Wire(sock)

    def _gifts(self) -> list[int]:
        return [self.memory.descriptor, self._bell]

    def _given(self, peer: int, gifts: list[int]) -> None:
        try:
            memory, bell = gifts
            self.peer_memory[peer] = PeerMemory(memory)
            self._bells[peer] = os.dup(bell)
        except (OSError, ValueError, TransportError) as error:
            raise AuthenticationError(f"rank {peer} handed over something else than memory and a bell") from error
        finally:
            for descriptor in gifts:
                os.close(descriptor)

    def _disconnect(self, peer: int, error: PeerLost) -> None:
        super()._disconnect(peer, error)
        with self._bells_lock:
            os.close(self._bells.pop(peer))

    def _release(self) -> None:
        super()._release()
        with self._bells_lock:
            for descriptor in (self._bell, *self._bells.values()):
                os.close(descriptor)
            self._bells.clear()
        self.memory.close()


def _credentials(sock: socket.socket) -> tuple[int, int, int]:
    return _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
