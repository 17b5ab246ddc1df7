"""The transport over TCP, between hosts: plain, or encrypted with TLS.

With TLS both sides show certificates first, then prove inside the channel that they know the shared secret: a
certificate says that a machine belongs to the cluster, the secret that the process belongs to the session.
"""

from __future__ import annotations

import socket
from typing import Any

from futurex.runtime.transport.message import Limits
from futurex.runtime.transport.stream import StreamEndpoint
from futurex.runtime.transport.wire import Tls, TlsWire, Wire

_SOCKET_BUFFER = 4 << 20
_PROBE_SECONDS = 5


class TcpEndpoint(StreamEndpoint):
    """A rank that listens on a TCP port of `host`."""

    def __init__(
        self, rank: int, size: int, secret: bytes, limits: Limits, host: str = "127.0.0.1", tls: Tls | None = None
    ) -> None:
        listener = socket.create_server((host, 0), backlog=size + limits.max_guests)
        super().__init__("tcp", rank, size, secret, limits, listener)
        self._tls = tls
        self._scheme = "tls" if tls else "tcp"
        self.address = f"{self._scheme}://{host}:{listener.getsockname()[1]}".encode()
        self._thread.start()

    def _connect(self, peer: int, name: str, timeout: float) -> Wire:
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

    def _accepted(self, sock: socket.socket, where: Any) -> tuple[Wire, str]:
        name = f"{self._scheme}://{where[0]}:{where[1]}"
        _tune(sock)
        if self._tls is None:
            return Wire(sock), name
        return TlsWire(self._tls.answer.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)), name


def _tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a host that vanishes closes no connection
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
