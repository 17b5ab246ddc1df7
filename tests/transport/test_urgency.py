"""What is urgent overtakes what still waits to be sent, and nothing else changes its place."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transport_mesh import PATIENCE, mesh

from futurex.runtime.collectives import Communicator
from futurex.runtime.transport import Completion, Endpoint, Header
from futurex.runtime.transport.frames import FrameParser
from futurex.runtime.transport.stream import _Frame, _Peer
from futurex.runtime.transport.wire import Wire

pytestmark = pytest.mark.timeout(180)

INBOX = 1


@contextmanager
def narrow_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two connected sockets that hold little."""
    pair = socket.socketpair()
    try:
        for sock in pair:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        yield pair
    finally:
        for sock in pair:
            sock.close()


def drain(sock: socket.socket, parser: FrameParser) -> None:
    while True:
        try:
            count = Wire(sock).receive(parser.buffers())
        except BlockingIOError:
            return
        parser.received(count)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30_000), st.booleans()), min_size=1, max_size=12))
def test_frames_leave_by_urgency_and_whole(asked: list[tuple[int, int, bool]]) -> None:
    """Each is (urgency, bytes, whether the other side reads before the next one is queued)."""
    arrived: list[tuple[int, bytes]] = []
    begun: list[set[int]] = []  # of those before, which had begun to leave when a frame was queued
    with narrow_pair() as (here, there):
        parser = FrameParser(
            0,
            lambda header: memoryview(bytearray(header.nbytes)),
            lambda header, payload: arrived.append((header.tag, bytes(payload))),
        )
        peer = _Peer(1, Wire(here), parser)
        frames: list[_Frame] = []
        for tag, (urgency, nbytes, reads) in enumerate(asked):
            begun.append({k for k, frame in enumerate(frames) if frame.started or not frame.left})
            payload = memoryview(bytes([tag]) * nbytes)
            frames.append(_Frame(Header(0, 0, 0, INBOX, tag, 0, nbytes), payload, Completion(), float(urgency)))
            with peer.room:
                peer.enqueue(frames[-1])
                peer.write()
            if reads:
                drain(there, parser)
        while peer.queue:
            drain(there, parser)
            with peer.room:
                peer.write()
        drain(there, parser)
        assert peer.queued == 0
    assert sorted(arrived) == [(tag, bytes([tag]) * nbytes) for tag, (_, nbytes, _) in enumerate(asked)]
    place = {tag: k for k, (tag, _) in enumerate(arrived)}
    for later, (urgency, _, _) in enumerate(asked):
        for earlier in range(later):
            overtakes = urgency > asked[earlier][0] and earlier not in begun[later]
            assert (place[later] < place[earlier]) == overtakes


@pytest.mark.parametrize(
    "kind", ["inproc", "local", "tcp", "tls", "auto", "apart", pytest.param("ucx", marks=pytest.mark.ucx)]
)
def test_messages_that_are_equally_urgent_keep_their_order(kind: str) -> None:
    arrived: list[tuple[int, int]] = []
    complete = threading.Event()
    count = 300

    def keep(header: Header, payload: memoryview) -> None:
        arrived.append((header.part, header.tag))
        if len(arrived) == count:
            complete.set()

    with mesh(kind, 2, lambda endpoint: endpoint.register(INBOX, keep)) as (sender, _):
        payload = np.zeros(50_000, np.uint8)
        sent = [
            sender.send(1, INBOX, payload, generation=0, tag=tag, part=tag % 3, urgency=tag % 3, timeout=None)
            for tag in range(count)
        ]
        for each in sent:
            each.wait(PATIENCE)
        assert complete.wait(PATIENCE)
    for urgency in range(3):
        assert [tag for part, tag in arrived if part == urgency] == list(range(urgency, count, 3))


@pytest.mark.parametrize("codec", ["", "bf16#test", "powersgd:1#test"])
def test_every_message_of_an_exchange_is_as_urgent_as_it(codec: str) -> None:
    sent: list[list[tuple[int, float]]] = [[], []]
    communicators: list[Communicator] = []

    def prepare(endpoint: Endpoint) -> None:
        communicators.append(Communicator(endpoint))
        real, rank = endpoint.send, endpoint.rank

        def send(*arguments: object, **options: object) -> Completion:
            sent[rank].append((int(str(options["tag"])) % (1 << 60), float(str(options["urgency"]))))
            return real(*arguments, **options)

        endpoint.send = send

    urgencies = {1: 0.5, 2: 7.0, 3: 0.0}
    with mesh("tcp", 2, prepare):
        arrays = [{tag: np.full((64, 64), rank + tag, np.float32) for tag in urgencies} for rank in range(2)]
        flights = [
            communicator.start(
                "all_reduce", {"reduce": "sum", "tag": tag, "codec": codec}, [mine[tag]], [mine[tag]], urgency
            )
            for communicator, mine in zip(communicators, arrays, strict=True)
            for tag, urgency in urgencies.items()
        ]
        for each in flights:
            each.result()
    for mine in sent:
        assert set(mine) == set(urgencies.items())
    if not codec:
        assert all((mine[tag] == 1 + 2 * tag).all() for mine in arrays for tag in urgencies)
