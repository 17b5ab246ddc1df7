"""The transport over TCP, between hosts: plain, or encrypted with TLS."""

from __future__ import annotations

from futurex.runtime.transport.doors import TcpDoor
from futurex.runtime.transport.message import Limits
from futurex.runtime.transport.stream import StreamEndpoint
from futurex.runtime.transport.wire import Tls


class TcpEndpoint(StreamEndpoint):
    """A rank that listens on a TCP port of `host`."""

    def __init__(
        self, rank: int, size: int, secret: bytes, limits: Limits, host: str = "127.0.0.1", tls: Tls | None = None
    ) -> None:
        super().__init__("tcp", rank, size, secret, limits, [TcpDoor(host, tls, size + limits.max_guests)])
        self._thread.start()
