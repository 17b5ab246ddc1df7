"""What carries the bytes of a stream: a plain socket, or TLS over one."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from typing import NamedTuple

_RECORD_BATCH = 256 << 10


class Tls(NamedTuple):
    """What a rank dials and answers with. Both sides must ask for a certificate of the other."""

    dial: ssl.SSLContext
    answer: ssl.SSLContext


class Wire:
    """A connected socket as it is. `unsent`: whether it still holds bytes that it took; `plain`: that it does not."""

    plain = True
    unsent = False

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def send(self, pieces: list[memoryview]) -> int:
        """Take some of `pieces`, in order, and return how many bytes; BlockingIOError while it can take none."""
        return self.sock.sendmsg(pieces)

    def receive(self, buffers: list[memoryview]) -> int:
        """Fill `buffers`, in order; return how many bytes came, 0 at the end; BlockingIOError while there are none."""
        return self.sock.recv_into(buffers[0]) if len(buffers) == 1 else self.sock.recvmsg_into(buffers)[0]


class TlsWire(Wire):
    """TLS over a socket. What is sent is copied once, in batches: a record that was begun must go out unchanged."""

    plain = False
    sock: ssl.SSLSocket

    def __init__(self, sock: ssl.SSLSocket) -> None:
        super().__init__(sock)
        self._held = b""
        self._shaken = False
        self._lock = threading.Lock()  # one connection must not read and write at the same time

    @property
    def unsent(self) -> bool:  # type: ignore[override]
        """Whether a batch is under way."""
        return bool(self._held)

    def send(self, pieces: list[memoryview]) -> int:
        """Finish the batch before, then take the next one."""
        self._flush()
        batch, room = [], _RECORD_BATCH
        for piece in pieces:
            batch.append(piece[:room])
            room -= len(batch[-1])
            if not room:
                break
        self._held = b"".join(batch)
        taken = len(self._held)
        with suppress(BlockingIOError):
            self._flush()
        return taken

    def receive(self, buffers: list[memoryview]) -> int:
        """Shake hands first where that has not ended; then decrypt into the first buffer that has room."""
        try:
            with self._lock:
                if not self._shaken:
                    self.sock.do_handshake()
                    self._shaken = True
                return self.sock.recv_into(buffers[0])
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def _flush(self) -> None:
        while self._held:
            try:
                with self._lock:
                    self._held = self._held[self.sock.send(self._held) :]
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise BlockingIOError from None
