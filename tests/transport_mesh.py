"""Meshes of endpoints for tests: in this process, or with real processes as peers."""

import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from futurex.errors import MissingExtra
from futurex.runtime.transport import Endpoint, Limits, Tls, open_endpoint

SECRET = b"the secret of the tests, 32 byte"
CERTIFICATES = Path(__file__).with_name("certificates")
PEER = Path(__file__).with_name("transport_peer.py")
PATIENCE = 60.0  #: seconds after which something that must happen counts as not happening, however slow the machine


def tls(own: str = "rank.pem") -> Tls:
    """Return contexts as Dask makes them: each side shows a certificate of one authority, whatever host it names."""

    def context(purpose: ssl.Purpose) -> ssl.SSLContext:
        made = ssl.create_default_context(purpose, cafile=str(CERTIFICATES / "ca.pem"))
        made.check_hostname = False
        made.verify_mode = ssl.CERT_REQUIRED
        made.load_cert_chain(CERTIFICATES / own)
        return made

    return Tls(context(ssl.Purpose.SERVER_AUTH), context(ssl.Purpose.CLIENT_AUTH))


def open_or_skip(kind: str, rank: int, size: int, secret: bytes = SECRET, limits: Limits | None = None) -> Endpoint:
    """Open an endpoint; skip the test where the library for `kind` is missing.

    "tls" is encrypted TCP, "apart" the transport that chooses, with every rank on a machine of its own, encrypted.
    """
    try:
        if kind == "tls":
            return open_endpoint("tcp", rank, size, secret, limits=limits, tls=tls())
        if kind == "apart":
            return open_endpoint("auto", rank, size, secret, limits=limits, tls=tls(), machine=f"{rank}")
        return open_endpoint(kind, rank, size, secret, limits=limits)
    except MissingExtra as error:
        pytest.skip(str(error))


def connect_all(endpoints: list[Endpoint], timeout: float = PATIENCE) -> list[BaseException | None]:
    """Connect the endpoints with each other; return what each `connect` raised."""
    outcomes: list[BaseException | None] = [None] * len(endpoints)
    addresses = [endpoint.address for endpoint in endpoints]

    def connect(index: int) -> None:
        try:
            endpoints[index].connect(addresses, timeout)
        except BaseException as error:
            outcomes[index] = error

    threads = [threading.Thread(target=connect, args=(index,)) for index in range(len(endpoints))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


@contextmanager
def mesh(
    kind: str, size: int, prepare: Callable[[Endpoint], object] = lambda endpoint: None, limits: Limits | None = None
) -> Iterator[list[Endpoint]]:
    """Open `size` connected endpoints in this process, each passed to `prepare` before it connects."""
    endpoints = []
    try:
        for rank in range(size):
            endpoints.append(open_or_skip(kind, rank, size, limits=limits))
            prepare(endpoints[rank])
        assert connect_all(endpoints) == [None] * size
        yield endpoints
    finally:
        for endpoint in endpoints:
            endpoint.close()


@contextmanager
def processes(
    kind: str, size: int, role: str, prepare: Callable[[Endpoint], object]
) -> Iterator[tuple[Endpoint, list[subprocess.Popen[str]]]]:
    """Connect an endpoint of rank 0 in this process with processes that play `role` as the ranks 1..size-1."""
    endpoint = open_or_skip(kind, 0, size)
    prepare(endpoint)
    peers = [_start(kind, rank, size, role) for rank in range(1, size)]
    try:
        addresses = [endpoint.address.hex(), *(_line(peer) for peer in peers)]
        for peer in peers:
            assert peer.stdin is not None
            peer.stdin.write(" ".join(addresses) + "\n")
            peer.stdin.flush()
        endpoint.connect([bytes.fromhex(address) for address in addresses], PATIENCE)
        assert [_line(peer) for peer in peers] == ["connected"] * len(peers)
        yield endpoint, peers
    finally:
        for peer in peers:
            peer.kill()
            peer.communicate()
        endpoint.close()


def listening() -> set[str]:
    """The ports at which this process listens."""
    links = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile, by another thread
            links.add(os.readlink(link))
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return {row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in links}


def _start(kind: str, rank: int, size: int, role: str) -> "subprocess.Popen[str]":
    command = [sys.executable, str(PEER), kind, str(rank), str(size), role]
    root = str(PEER.parents[1])
    environment = {**os.environ, "PYTHONPATH": root}
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root, env=environment
    )


def _line(peer: "subprocess.Popen[str]") -> str:
    assert peer.stdout is not None
    return peer.stdout.readline().strip()
