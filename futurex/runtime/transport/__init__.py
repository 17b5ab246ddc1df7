"""Active messages between localities: one interface, `Endpoint`, and the transports that implement it."""

from typing import NamedTuple

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


class _Asked(NamedTuple):
    rank: int
    size: int
    secret: bytes
    limits: Limits
    host: str
    tls: Tls | None
    machine: str | None


def _inproc(asked: _Asked) -> Endpoint:
    from futurex.runtime.transport.inproc import InprocEndpoint

    return InprocEndpoint(*asked[:4])


def _local(asked: _Asked) -> Endpoint:
    from futurex.runtime.transport.local import LocalEndpoint

    return LocalEndpoint(*asked[:4])


def _tcp(asked: _Asked) -> Endpoint:
    from futurex.runtime.transport.tcp import TcpEndpoint

    return TcpEndpoint(*asked[:6])


def _auto(asked: _Asked) -> Endpoint:
    from futurex.runtime.transport.auto import AutoEndpoint

    return AutoEndpoint(*asked)


def _ucx(asked: _Asked) -> Endpoint:
    from futurex.runtime.transport.ucx import UcxEndpoint

    return UcxEndpoint(*asked[:4])


_KINDS = {"auto": _auto, "inproc": _inproc, "local": _local, "tcp": _tcp, "ucx": _ucx}


def open_endpoint(
    kind: str,
    rank: int,
    size: int,
    secret: bytes,
    *,
    limits: Limits | None = None,
    host: str = "127.0.0.1",
    tls: Tls | None = None,
    machine: str | None = None,
) -> Endpoint:
    """Open the endpoint of `rank` among `size`; `secret` is what the ranks share (at least 16 random bytes).

    `kind`: "inproc" within a process, "local" between processes of one user on one host, "tcp" on a port of `host`,
    encrypted where `tls` is given, "auto" each of these two where it fits (ranks with one `machine` are on one host;
    by default that is found out), "ucx" with UCX (MissingExtra where it is missing). Raises ValueError for any other,
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
    return make(_Asked(rank, size, secret, limits or Limits(), host, tls, machine))
