"""Small messages leave together, in one system call, where they would be sent one behind the other anyway."""

import socket
import threading

import numpy as np
import pytest
from transport_mesh import PATIENCE, mesh

from futurex.runtime.collectives import Communicator
from futurex.runtime.transport import Endpoint, Header
from futurex.runtime.transport.stream import StreamEndpoint

pytestmark = pytest.mark.timeout(180)

ASK, ANSWER = 1, 2
ANSWERS = 50


@pytest.fixture(params=["local", "tcp", "tls", "auto", "apart"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


class Round:
    """Rank 0 asks; a handler of rank 1 answers with many messages; how often that takes the system is counted."""

    def __init__(self, kind: str, small: int, sizes: list[int]) -> None:
        self.arrived: list[tuple[int, bytes]] = []
        self.calls = 0
        complete = threading.Event()
        payloads = [np.full(nbytes, tag % 251, np.uint8) for tag, nbytes in enumerate(sizes)]

        def keep(header: Header, payload: memoryview) -> None:
            self.arrived.append((header.tag, bytes(payload)))
            if len(self.arrived) == len(sizes):
                complete.set()

        def prepare(endpoint: Endpoint) -> None:
            def answer(header: Header, payload: memoryview) -> None:
                for tag, each in enumerate(payloads):
                    endpoint.send(header.source, ANSWER, each, generation=0, tag=tag)

            endpoint.register(ASK, answer)
            endpoint.register(ANSWER, keep)

        with mesh(kind, 2, prepare) as (asking, answering):
            assert isinstance(answering, StreamEndpoint)
            answering.tune(small, 1 << 20)
            wire = answering._peers[0].wire
            real = wire.send

            def send(pieces: list[memoryview]) -> int:
                self.calls += bool(pieces)
                return real(pieces)

            wire.send = send
            asking.send(1, ASK, generation=0)
            assert complete.wait(PATIENCE)
        self.expected = [(tag, payload.tobytes()) for tag, payload in enumerate(payloads)]


def test_answers_to_one_message_leave_together(kind: str) -> None:
    apart, together = Round(kind, 0, [100] * ANSWERS), Round(kind, 1000, [100] * ANSWERS)
    assert apart.arrived == together.arrived == apart.expected
    assert apart.calls == ANSWERS
    assert together.calls == 1


def test_small_and_large_messages_keep_their_order(kind: str) -> None:
    sizes = [10, 3_000_000, 10, 10, 200_000, 0, 10] * 3
    mixed = Round(kind, 1000, sizes)
    assert mixed.arrived == mixed.expected


def test_what_is_small_is_measured(kind: str) -> None:
    """By the calibration of the communicator, in which every rank takes part, and the same on all."""
    communicators: list[Communicator] = []
    with mesh(kind, 3, lambda endpoint: communicators.append(Communicator(endpoint))) as endpoints:
        threads = [threading.Thread(target=each.calibrate) for each in communicators]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        models = [each.engine.across and each.engine.across.model for each in communicators]
        assert len(set(models)) == 1
        expected = models[0].small_bytes if models[0] else 0  # in shared memory nothing is sent
        assert [endpoint._small for endpoint in endpoints] == [expected] * 3
        if models[0]:
            socks = [channel.wire.sock for endpoint in endpoints for channel in endpoint._peers.values()]
            unsent = {sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) for sock in socks}
            assert unsent == {models[0].unsent_bytes}
