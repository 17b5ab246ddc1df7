"""Encryption: who shows no certificate of the authority gets nowhere, and nothing is readable on the way."""

import socket
import ssl
from contextlib import suppress

import numpy as np
import pytest
from transport_mesh import PATIENCE, SECRET, mesh, tls

from futurex.runtime.transport import Completion, PeerLost, TransportError, open_endpoint

pytestmark = pytest.mark.timeout(180)


def address_of(endpoint) -> tuple[str, int]:
    host, port = endpoint.address.decode().removeprefix("tls://").split(":")
    return host, int(port)


def test_large_and_small_messages_arrive_whole_and_in_order() -> None:
    sizes = [0, 5, 70_000, 3_000_000, 1, 16_384, 16_385, 900_000]
    payloads = [np.random.default_rng(size).bytes(size) for size in sizes]
    received, done = [], Completion()

    def keep(header, payload) -> None:
        received.append(bytes(payload))
        if len(received) == len(payloads):
            done.finish()

    with mesh("tls", 2, lambda endpoint: endpoint.register(1, keep)) as (a, _):
        for payload in payloads:
            a.send(1, 1, payload, generation=0)
        done.wait(PATIENCE)
    assert received == payloads


def test_a_peer_whose_certificate_is_not_of_the_authority_is_refused() -> None:
    with (
        open_endpoint("tcp", 0, 2, SECRET, tls=tls()) as real,
        open_endpoint("tcp", 1, 2, SECRET, tls=tls("stranger.pem")) as stranger,
    ):
        with pytest.raises(TransportError):
            stranger.connect([real.address, stranger.address], PATIENCE)
        with pytest.raises(TransportError):
            real.connect([real.address, stranger.address], 0.2)


def test_plain_and_encrypted_sides_do_not_mix() -> None:
    with open_endpoint("tcp", 0, 2, SECRET, tls=tls()) as real, open_endpoint("tcp", 1, 2, SECRET) as plain:
        with pytest.raises(PeerLost, match="this side speaks tcp, not tls"):
            plain.connect([real.address, plain.address], PATIENCE)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", bytes(56), b"\x16\x03\x01" + bytes(600)])
def test_what_is_not_tls_is_closed_and_counted(data: bytes) -> None:
    with mesh("tls", 2) as (a, b):
        with socket.create_connection(address_of(a)) as sock:
            sock.settimeout(PATIENCE)
            sock.sendall(data)
            with suppress(ConnectionError):
                while sock.recv(4096):
                    pass
        rung = Completion()
        a.register(9, lambda header, payload: rung.finish())
        b.send(0, 9, b"still here", generation=0)
        rung.wait(PATIENCE)
        assert a.counters.rejected == 1


def test_a_certificate_alone_is_not_enough() -> None:
    with open_endpoint("tcp", 0, 2, SECRET, tls=tls()) as real:
        with (
            socket.create_connection(address_of(real)) as sock,
            tls().dial.wrap_socket(sock) as channel,
        ):
            channel.settimeout(PATIENCE)
            channel.sendall(bytes(60))
            with suppress(ConnectionError, ssl.SSLError):
                assert channel.recv(100) == b""
        with pytest.raises(TransportError):
            real.connect([real.address, b"tls://127.0.0.1:1"], 0.2)
        assert real.counters.rejected == 1


def test_ucx_cannot_encrypt() -> None:
    with pytest.raises(ValueError, match="UCX cannot encrypt"):
        open_endpoint("ucx", 0, 1, SECRET, tls=tls())
