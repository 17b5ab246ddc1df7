"""Transports between real processes: integrity, and the death of a peer."""

import threading

import numpy as np
import pytest
from transport_mesh import PATIENCE, processes
from transport_peer import ECHO, REPLY

from futurex.runtime.transport import Endpoint, Header, PeerLost

pytestmark = [pytest.mark.timeout(180), pytest.mark.cluster]


@pytest.fixture(params=["local", "tcp", pytest.param("ucx", marks=pytest.mark.ucx)])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


class Replies:
    """What the peers send back to the endpoint of the test."""

    def __init__(self) -> None:
        self.messages: list[tuple[Header, bytes]] = []
        self.changed = threading.Condition()
        self.lost: list[PeerLost] = []

    def prepare(self, endpoint: Endpoint) -> None:
        endpoint.register(REPLY, self.keep)
        endpoint.on_peer_lost(self.lose)

    def keep(self, header: Header, payload: memoryview) -> None:
        with self.changed:
            self.messages.append((header, bytes(payload)))
            self.changed.notify_all()

    def lose(self, error: PeerLost) -> None:
        with self.changed:
            self.lost.append(error)
            self.changed.notify_all()

    def wait(self, count: int) -> list[tuple[Header, bytes]]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.messages) >= count, PATIENCE)
        return self.messages


def test_payloads_come_back_unchanged_and_in_order(kind: str) -> None:
    replies = Replies()
    payloads = [np.random.default_rng(n).bytes(n) for n in [8, 0, 70_000, 16 << 20, 1, 5000]]
    with processes(kind, 2, "echo", replies.prepare) as (endpoint, _):
        for tag, payload in enumerate(payloads):
            endpoint.send(1, ECHO, payload, generation=0, tag=tag)
        received = replies.wait(len(payloads))
    assert [(header.source, header.tag) for header, _ in received] == [(1, tag) for tag in range(len(payloads))]
    assert [data for _, data in received] == payloads


def test_a_killed_peer_is_noticed_and_the_others_go_on(kind: str) -> None:
    replies = Replies()
    with processes(kind, 3, "echo", replies.prepare) as (endpoint, peers):
        endpoint.send(1, ECHO, b"before", generation=0)
        replies.wait(1)
        peers[0].kill()
        peers[0].wait()
        with replies.changed:
            assert replies.changed.wait_for(lambda: replies.lost, PATIENCE)
        assert [error.rank for error in replies.lost] == [1]
        with pytest.raises(PeerLost, match="rank 1 at"):
            endpoint.send(1, ECHO, b"after", generation=0)
        endpoint.send(2, ECHO, b"on", generation=0)
        assert replies.wait(2)[1][1] == b"on"


def test_a_send_to_a_killed_peer_fails(kind: str) -> None:
    replies = Replies()
    payload = np.zeros(32 << 20, np.uint8)
    with processes(kind, 2, "echo", replies.prepare) as (endpoint, peers):
        peers[0].kill()
        peers[0].wait()

        def flood() -> None:
            for _ in range(100):
                endpoint.send(1, ECHO, payload, generation=0).wait(PATIENCE)

        with pytest.raises(PeerLost, match="rank 1 at"):
            flood()
