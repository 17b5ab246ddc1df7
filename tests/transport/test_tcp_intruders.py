"""Strangers at the doors of an endpoint, while its real peers go on."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from transport_mesh import PATIENCE, SECRET, mesh

from futurex.runtime.transport import Completion, Endpoint, Limits, TransportTimeout, open_endpoint
from futurex.runtime.transport.auth import Handshake
from futurex.runtime.transport.stream import _close_all, _receive_exactly, _receive_gifts

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def endpoints() -> Iterator[list[Endpoint]]:
    with mesh("tcp", 2) as opened:
        yield opened


def dial(endpoint: Endpoint) -> socket.socket:
    host, port = endpoint.address.decode().removeprefix("tcp://").split(":")
    sock = socket.create_connection((host, int(port)))
    sock.settimeout(PATIENCE)
    return sock


def closed(sock: socket.socket) -> bool:
    """Wait until the other side has closed `sock`; return whether it did, having said nothing."""
    try:
        return sock.recv(1 << 16) == b""
    except ConnectionError:
        return True


def assert_unharmed(endpoints: list[Endpoint], rejected: int) -> None:
    """The two ranks still talk, have lost nobody, and have counted the strangers."""
    arrived = Completion()
    endpoints[0].register(40, lambda header, payload: arrived.finish())
    endpoints[1].send(0, 40, b"still here", generation=0)
    arrived.wait(PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while endpoints[0].counters.rejected < rejected and time.monotonic() < deadline:
        time.sleep(0.01)
    assert endpoints[0].counters.rejected == rejected
    assert endpoints[0].lost == endpoints[1].lost == {}
    assert endpoints[0].counters.messages_received == 1


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n" * 10, bytes(56), b"\xff" * 4096, os.urandom(100_000)])
def test_bytes_of_another_protocol_close_the_connection(endpoints: list[Endpoint], data: bytes) -> None:
    with dial(endpoints[0]) as sock:
        with suppress(ConnectionError):
            sock.sendall(data)
        assert closed(sock)
    assert_unharmed(endpoints, rejected=1)


@pytest.mark.parametrize(
    "data", [b"", b"FUTUREX\0", Handshake(1, 2, SECRET, peer=0).greeting()[:-1]], ids=["nothing", "name", "greeting"]
)
def test_an_unfinished_handshake_is_closed_after_its_deadline(endpoints: list[Endpoint], data: bytes) -> None:
    endpoints[0].limits = Limits(handshake_timeout=0.3)  # now that the real peer is in
    with dial(endpoints[0]) as sock:
        sock.sendall(data)
        assert closed(sock)
    assert_unharmed(endpoints, rejected=1)


def test_a_stranger_without_the_secret_is_told_nothing_about_it(endpoints: list[Endpoint]) -> None:
    rogue = Handshake(1, 2, b"0123456789abcdef", peer=0)
    with dial(endpoints[0]) as sock:
        sock.sendall(rogue.greeting())
        sock.sendall(rogue.feed(_receive_exactly(sock, rogue.expects)))
        assert closed(sock)
    assert_unharmed(endpoints, rejected=1)


def test_a_second_connection_of_a_rank_is_refused(endpoints: list[Endpoint]) -> None:
    second = Handshake(1, 2, SECRET, peer=0)
    with dial(endpoints[0]) as sock:
        sock.sendall(second.greeting())
        sock.sendall(second.feed(_receive_exactly(sock, second.expects)))
        second.feed(_receive_exactly(sock, second.expects))
        assert closed(sock)
    assert_unharmed(endpoints, rejected=1)


def shake(sock: socket.socket, handshake: Handshake) -> None:
    """Do all that the other side asks of somebody who knows the secret."""
    sock.sendall(handshake.greeting())
    while handshake.expects:
        sock.sendall(handshake.feed(_receive_exactly(sock, handshake.expects)))


def wait_until(state: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not state():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_rank_that_was_lost_does_not_come_back(endpoints: list[Endpoint]) -> None:
    endpoints[1].close()
    wait_until(lambda: 1 in endpoints[0].lost)
    with dial(endpoints[0]) as sock:
        shake(sock, Handshake(1, 2, SECRET, peer=0))
        assert closed(sock)
    assert endpoints[0].counters.rejected == 1


def test_only_higher_ranks_dial() -> None:
    with open_endpoint("tcp", 1, 2, SECRET) as endpoint, dial(endpoint) as sock:
        shake(sock, Handshake(0, 2, SECRET, peer=1))
        assert closed(sock)
        assert endpoint.counters.rejected == 1


def test_a_port_that_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, open_endpoint("tcp", 1, 2, SECRET) as endpoint:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}".encode()
        with pytest.raises(TransportTimeout, match=r"rank 0 at .* did not answer rank 1 in time"):
            endpoint.connect([address, endpoint.address], 0.3)


def test_a_host_that_vanishes_is_noticed(endpoints: list[Endpoint]) -> None:
    """Nothing closes its connections: both sides ask the kernel to probe them."""
    for endpoint, peer in zip(endpoints, (1, 0), strict=True):
        sock = endpoint._peers[peer].wire.sock
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, interval, count = (
            sock.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle + interval * count <= 30


def dial_local(endpoint: Endpoint) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(PATIENCE)
    sock.connect("\0" + endpoint.address.decode().removeprefix("local://"))
    return sock


def test_a_process_of_another_user_may_not_even_authenticate(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_endpoint("local", 0, 2, SECRET, limits=Limits(handshake_timeout=1000)) as endpoint:
        mine = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: mine + 1)  # as the endpoint sees it, this process is somebody else's
        with dial_local(endpoint) as sock:
            assert closed(sock)
        wait_until(lambda: endpoint.counters.rejected == 1)


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_who_hands_over_something_else_than_memory_and_a_bell_is_refused(count: int) -> None:
    with open_endpoint("local", 0, 2, SECRET) as endpoint, dial_local(endpoint) as sock:
        ends = os.pipe()
        try:
            shake(sock, Handshake(1, 2, SECRET, peer=0))
            _close_all(_receive_gifts(sock))
            socket.send_fds(sock, [b"\0"], [ends[0]] * count)
            assert closed(sock)
        finally:
            _close_all(list(ends))
        wait_until(lambda: endpoint.counters.rejected == 1)
        assert endpoint.peer_memory == {}
        assert endpoint._connected == set()


def test_strangers_that_crowd_the_port_are_closed_the_oldest_first() -> None:
    with mesh("tcp", 2, limits=Limits(handshake_timeout=1000, max_guests=3)) as endpoints:
        strangers = [dial(endpoints[0]) for _ in range(5)]
        try:
            assert all(closed(sock) for sock in strangers[:2])
            assert_unharmed(endpoints, rejected=2)
        finally:
            for sock in strangers:
                sock.close()


def test_the_port_is_on_the_loopback_interface_unless_told_otherwise(endpoints: list[Endpoint]) -> None:
    assert all(endpoint.address.startswith(b"tcp://127.0.0.1:") for endpoint in endpoints)
    with open_endpoint("tcp", 0, 1, SECRET, host="127.0.0.2") as other:
        assert other.address.startswith(b"tcp://127.0.0.2:")
