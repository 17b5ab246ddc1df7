"""Active messages between localities: one interface, `Endpoint`, and the transports that implement it."""

from collections.abc import Callable

from futurex.runtime.transport.base import Allocate, Endpoint, Handler
from futurex.runtime.transport.errors import (
    AuthenticationError,
    PeerLost,
    ProtocolError,
    StaleGeneration,
    TransportError,
    TransportTimeout,
)
from futurex.runtime.transport.message import Completion, Counters, Header, Limits
from futurex.runtime.transport.wire import Tls

__all__ = [
    "Allocate",
    "AuthenticationError",
    "Completion",
    "Counters",
    "Endpoint",
    "Handler",
    "Header",
    "Limits",
    "PeerLost",
    "ProtocolError",
    "StaleGeneration",
    "Tls",
    "TransportError",
    "TransportTimeout",
    "open_endpoint",
]


def _inproc(rank: int, size: int, secret: bytes, limits: Limits, host: str, tls: Tls | None) -> Endpoint:
    from futurex.runtime.transport.inproc import InprocEndpoint

    return InprocEndpoint(rank, size, secret, limits)


def _local(rank: int, size: int, secret: bytes, limits: Limits, host: str, tls: Tls | None) -> Endpoint:
    from futurex.runtime.transport.local import LocalEndpoint

    return LocalEndpoint(rank, size, secret, limits)


def _tcp(rank: int, size: int, secret: bytes, limits: Limits, host: str, tls: Tls | None) -> Endpoint:
    from futurex.runtime.transport.tcp import TcpEndpoint

    return TcpEndpoint(rank, size, secret, limits, host, tls)


def _ucx(rank: int, size: int, secret: bytes, limits: Limits, host: str, tls: Tls | None) -> Endpoint:
    from futurex.runtime.transport.ucx import UcxEndpoint

    return UcxEndpoint(rank, size, secret, limits)


_Open = Callable[[int, int, bytes, Limits, str, Tls | None], Endpoint]
_KINDS: dict[str, _Open] = {"inproc": _inproc, "local": _local, "tcp": _tcp, "ucx": _ucx}


def open_endpoint(
    kind: str,
    rank: int,
    size: int,
    secret: bytes,
    *,
    limits: Limits | None = None,
    host: str = "127.0.0.1",
    tls: Tls | None = None,
) -> Endpoint:
    """Open the endpoint of `rank` among `size`; `secret` is what the ranks share (at least 16 random bytes).

    `kind`: "inproc" within a process, "local" between processes of one user on one host, "tcp" on a port of `host`,
    encrypted where `tls` is given, "ucx" with UCX (MissingExtra where it is missing). Raises ValueError for any other,
    and for `tls` with "ucx", which cannot encrypt.
    Register the handlers, hand `address` to the other ranks, then `connect`.

    >>> a, b = (open_endpoint("inproc", rank, 2, b"0123456789abcdef") for rank in range(2))
    >>> a.register(1, lambda header, payload: a.send(1, 2, bytes(payload)[::-1], generation=0))
    >>> b.register(2, lambda header, payload: done.finish())
    >>> b.connect([a.address, b.address], 5.0)
    >>> a.connect([a.address, b.address], 5.0)
    >>> done = Completion()
    >>> b.send(0, 1, b"ping", generation=0).wait(5.0)
    >>> done.wait(5.0)
    >>> a.close(), b.close()
    (None, None)
    """
    try:
        make = _KINDS[kind]
    except KeyError:
        raise ValueError(f"there is no transport {kind!r}; choose one of {', '.join(map(repr, _KINDS))}") from None
    if tls is not None and kind == "ucx":
        raise ValueError("UCX cannot encrypt what it sends: use 'tcp' where encryption is required")
    return make(rank, size, secret, limits or Limits(), host, tls)
