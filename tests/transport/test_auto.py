"""The transport that chooses: memory inside a machine, TCP between machines, both in one mesh."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from transport_mesh import PATIENCE, SECRET, connect_all, listening, tls

from futurex.runtime.transport import Completion, Endpoint, PeerLost, open_endpoint
from futurex.runtime.transport.auto import machine_name

pytestmark = pytest.mark.timeout(180)


@contextmanager
def machines(names: Sequence[str], encrypted: bool = False) -> Iterator[list[Endpoint]]:
    """Connected endpoints, one for each name of a machine."""
    options = {"tls": tls()} if encrypted else {}
    endpoints = [
        open_endpoint("auto", rank, len(names), SECRET, machine=name, **options) for rank, name in enumerate(names)
    ]
    try:
        for endpoint in endpoints:
            endpoint.received = []
            endpoint.register(1, lambda header, payload, to=endpoint: to.received.append((header.source, header.tag)))
            endpoint.register(2, lambda header, payload, to=endpoint: to.send(header.source, 3, payload, generation=0))
        yield endpoints
    finally:
        for endpoint in endpoints:
            endpoint.close()


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("names", ["aab", "abab", "abc", "aaa"])
def test_each_pair_of_ranks_takes_its_way(names: str, encrypted: bool) -> None:
    size = len(names)
    with machines(names, encrypted) as endpoints:
        assert connect_all(endpoints) == [None] * size
        for rank, endpoint in enumerate(endpoints):
            near = {peer for peer in range(size) if names[peer] == names[rank]} - {rank}
            assert set(endpoint.peer_memory) == near
            assert endpoint.machines == tuple("".join(dict.fromkeys(names)).index(name) for name in names)
            scheme = "tls://" if encrypted else "tcp://"
            for peer in set(range(size)) - {rank}:
                assert endpoint.describe(peer).startswith("local://" if peer in near else scheme)


def test_messages_of_both_ways_meet_in_one_endpoint_in_order() -> None:
    with machines("aba") as endpoints:
        done = [Completion() for _ in endpoints]
        for rank, endpoint in enumerate(endpoints):
            endpoint.register(3, lambda header, payload, rank=rank: done[rank].finish())
        assert connect_all(endpoints) == [None] * 3
        for tag in range(200):
            for peer in (0, 1):
                endpoints[2].send(peer, 1, bytes(tag * 100), generation=0, tag=tag)
        for peer in (0, 1):
            endpoints[2].send(peer, 2, b"", generation=0)
        done[2].wait(PATIENCE)
        endpoints[0].send(2, 2, b"", generation=0)
        endpoints[1].send(2, 2, b"", generation=0)
        for rank in (0, 1):
            done[rank].wait(PATIENCE)
        for peer in (0, 1):
            deadline = time.monotonic() + PATIENCE
            while len(endpoints[peer].received) < 200:
                assert time.monotonic() < deadline, endpoints[peer].received
                endpoints[peer].run_on_thread(lambda: None, PATIENCE)
            assert endpoints[peer].received == [(2, tag) for tag in range(200)]


def test_no_port_stays_open_where_nobody_is_elsewhere() -> None:
    before = listening()
    with machines("aa") as endpoints:
        assert len(listening() - before) == 2
        assert connect_all(endpoints) == [None, None]
        assert not listening() - before  # what other tests have left may be closed meanwhile
    with machines("ab") as endpoints:
        assert connect_all(endpoints) == [None, None]
        assert len(listening() - before) == 2


def test_an_address_of_another_transport_is_named() -> None:
    with machines("ab") as (_, b), pytest.raises(PeerLost, match=r"rank 0 at tcp://127\.0\.0\.1:9.*transport 'auto'"):
        b.connect([b"tcp://127.0.0.1:9", b.address], 1.0)


def test_processes_of_a_machine_agree_on_its_name() -> None:
    code = "from futurex.runtime.transport.auto import machine_name; print(machine_name())"

    def elsewhere(**environment: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=True,
            timeout=110,
        ).stdout.strip()  # fmt: skip

    assert elsewhere() == machine_name()
    assert elsewhere(FUTUREX_MACHINE="another") == machine_name("another") != machine_name()
