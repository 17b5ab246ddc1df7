"""Where an endpoint is reached: at a port, plain or with TLS, or under a name inside the host.

With TLS both sides show certificates first, then prove inside the channel that they know the shared secret: a
certificate says that a machine belongs to the cluster, the secret that the process belongs to the session. Local
sockets have abstract names, so nothing lies in any folder, and nothing is left when a process is killed; a peer must
run as the same user before it may even authenticate.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

from futurex.runtime.transport.wire import Tls, TlsWire, Wire

_SOCKET_BUFFER = 4 << 20
_PROBE_SECONDS = 5
_WITHOUT_PACING = b"reno"  # every Linux has it, and lets everybody choose it
_CREDENTIALS = struct.Struct("3i")  # process, user, group


class Door(ABC):
    """A listening socket, and how to reach others of its kind. `address`: what they dial.

    `gives`: whether the two sides hand descriptors to each other once they have authenticated.
    """

    gives = False
    address: str
    listener: socket.socket

    @abstractmethod
    def connect(self, name: str, timeout: float) -> Wire:
        """Open a connection to the door called `name`, in blocking mode; may raise OSError."""

    @abstractmethod
    def accepted(self, sock: socket.socket, where: Any) -> tuple[Wire, str]:
        """Prepare an accepted connection and name its other end; may raise OSError."""


class TcpDoor(Door):
    """A TCP port of `host`, encrypted where `tls` is given."""

    def __init__(self, host: str, tls: Tls | None, backlog: int) -> None:
        self.listener = socket.create_server((host, 0), backlog=backlog)
        self._tls = tls
        self._scheme = "tls" if tls else "tcp"
        self.address = f"{self._scheme}://{host}:{self.listener.getsockname()[1]}"

    def connect(self, name: str, timeout: float) -> Wire:
        """Open a connection, shaking hands where it is encrypted."""
        scheme, _, rest = name.partition("://")
        if scheme != self._scheme:
            raise ConnectionError(f"this side speaks {self._scheme}, not {scheme}")
        host, _, port = rest.rpartition(":")
        sock = socket.create_connection((host, int(port)), timeout)
        try:
            _tune(sock)
            if self._tls is None:
                return Wire(sock)
            return TlsWire(self._tls.dial.wrap_socket(sock))
        except BaseException:
            sock.close()
            raise

    def accepted(self, sock: socket.socket, where: Any) -> tuple[Wire, str]:
        """Prepare an accepted connection; where it is encrypted, hands are shaken by its first reads."""
        name = f"{self._scheme}://{where[0]}:{where[1]}"
        _tune(sock)
        if self._tls is None:
            return Wire(sock), name
        return TlsWire(self._tls.answer.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)), name


class LocalDoor(Door):
    """A local socket, for processes of the same user."""

    gives = True

    def __init__(self, backlog: int) -> None:
        name = f"futurex-{secrets.token_hex(16)}"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind("\0" + name)
        self.listener.listen(backlog)
        self.address = f"local://{name}"

    def connect(self, name: str, timeout: float) -> Wire:
        """Open a connection to a process of the same user."""
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.settimeout(timeout)
            sock.connect("\0" + name.removeprefix("local://"))
            return _of_the_same_user(sock)
        except BaseException:
            sock.close()
            raise

    def accepted(self, sock: socket.socket, where: Any) -> tuple[Wire, str]:
        """Prepare a connection that a process of the same user has opened."""
        return _of_the_same_user(sock), f"local://process-{_credentials(sock)[0]}"


def _tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a host that vanishes closes no connection
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    if hasattr(socket, "TCP_CONGESTION") and sock.getsockname()[0] == sock.getpeername()[0]:
        with suppress(OSError):  # inside a host nothing is congested: what paces by a model of the path only delays
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _WITHOUT_PACING)


def _of_the_same_user(sock: socket.socket) -> Wire:
    if _credentials(sock)[1] != os.geteuid():
        raise PermissionError("the other process belongs to another user")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER)
    return Wire(sock)


def _credentials(sock: socket.socket) -> tuple[int, int, int]:
    return _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
