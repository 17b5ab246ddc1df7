"""What every transport must do, in one process."""

import re
import socket
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from transport_mesh import PATIENCE, SECRET, connect_all, mesh, open_or_skip

from futurex.runtime.transport import (
    AuthenticationError,
    Endpoint,
    Header,
    Limits,
    PeerLost,
    StaleGeneration,
    TransportError,
    TransportTimeout,
    open_endpoint,
)

pytestmark = pytest.mark.timeout(180)

INBOX, ALLOCATING, BLOCKING, CLOSING, COUNTING = 1, 2, 3, 4, 5


@pytest.fixture(params=["inproc", "local", "tcp", "tls", "auto", "apart", pytest.param("ucx", marks=pytest.mark.ucx)])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


class Inbox:
    """Keeps what arrives at one endpoint, and lets a test wait for it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.messages: list[tuple[Header, bytes]] = []
        self.lost: list[PeerLost] = []
        self.arrays: dict[int, np.ndarray] = {}
        self.in_place: list[bool] = []
        self.at_gate, self.gate = threading.Event(), threading.Event()
        self._changed = threading.Condition()
        endpoint.register(INBOX, self.keep)
        endpoint.register(ALLOCATING, self.keep_in_place, self.allocate)
        endpoint.register(BLOCKING, self.block)
        endpoint.register(CLOSING, lambda header, payload: (self.gate.wait(), endpoint.close()))
        endpoint.register(COUNTING, lambda header, payload: self.keep(header, b""))
        endpoint.on_peer_lost(self.lose)

    def keep(self, header: Header, payload: memoryview) -> None:
        with self._changed:
            self.messages.append((header, bytes(payload)))
            self._changed.notify_all()

    def block(self, header: Header, payload: memoryview) -> None:
        self.at_gate.set()
        self.gate.wait()
        self.keep(header, payload)

    def allocate(self, header: Header) -> np.ndarray:
        self.arrays[header.tag] = np.zeros(header.nbytes, np.uint8)
        return self.arrays[header.tag]

    def keep_in_place(self, header: Header, payload: memoryview) -> None:
        self.in_place.append(np.shares_memory(np.frombuffer(payload, np.uint8), self.arrays[header.tag]))
        self.keep(header, b"")

    def lose(self, error: PeerLost) -> None:
        with self._changed:
            self.lost.append(error)
            self._changed.notify_all()

    def wait(self, count: int, timeout: float = PATIENCE) -> list[tuple[Header, bytes]]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.messages) >= count, timeout), len(self.messages)
        return self.messages

    def wait_lost(self, timeout: float = PATIENCE) -> PeerLost:
        with self._changed:
            assert self._changed.wait_for(lambda: self.lost, timeout)
        return self.lost[0]


class Pair:
    """Two connected endpoints and what arrives at them."""

    def __init__(self, endpoints: list[Endpoint], inboxes: list[Inbox]) -> None:
        self.a, self.b = endpoints
        self.inbox_a, self.inbox_b = inboxes


@pytest.fixture
def make_pair(kind: str):
    meshes, gates = [], []

    def make(limits: Limits | None = None) -> Pair:
        inboxes: list[Inbox] = []
        meshes.append(mesh(kind, 2, lambda endpoint: inboxes.append(Inbox(endpoint)), limits))
        pair = Pair(meshes[-1].__enter__(), inboxes)
        gates.extend(inboxes)
        return pair

    yield make
    for inbox in gates:
        inbox.gate.set()  # a test that failed may have left a handler waiting
    for opened in meshes:
        opened.__exit__(None, None, None)


@pytest.fixture
def pair(make_pair) -> Pair:
    return make_pair()


def test_a_message_arrives_with_its_header(pair: Pair) -> None:
    sent = pair.a.send(1, INBOX, b"hello", generation=0, step=2**40, tag=2**64 - 1, part=7)
    sent.wait(PATIENCE)
    assert pair.inbox_b.wait(1) == [(Header(0, 0, 2**40, INBOX, 2**64 - 1, 7, 5), b"hello")]


def test_a_handler_may_reply(kind: str) -> None:
    def prepare(endpoint: Endpoint) -> None:
        inbox = Inbox(endpoint)
        inboxes.append(inbox)
        endpoint.register(9, lambda header, payload: endpoint.send(header.source, INBOX, payload, generation=0))

    inboxes: list[Inbox] = []
    with mesh(kind, 3, prepare) as endpoints:
        endpoints[0].send(2, 9, b"two", generation=0)
        endpoints[0].send(1, 9, b"one", generation=0)
        replies = {(header.source, data) for header, data in inboxes[0].wait(2)}
    assert replies == {(1, b"one"), (2, b"two")}


def test_an_empty_payload(pair: Pair) -> None:
    pair.b.send(0, INBOX, generation=0, tag=1).wait(PATIENCE)
    pair.b.send(0, ALLOCATING, generation=0, tag=2).wait(PATIENCE)
    assert [(header.tag, data) for header, data in pair.inbox_a.wait(2)] == [(1, b""), (2, b"")]


@pytest.mark.parametrize("nbytes", [1, 8 << 10, 300_001, 16 << 20])
def test_a_payload_lands_where_the_handler_allocated(pair: Pair, nbytes: int) -> None:
    payload = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    pair.a.send(1, ALLOCATING, payload, generation=0, tag=5).wait(PATIENCE)
    pair.inbox_b.wait(1)
    assert pair.inbox_b.in_place == [True]
    assert np.array_equal(pair.inbox_b.arrays[5], payload)


def test_messages_of_a_peer_keep_their_order(pair: Pair) -> None:
    sizes = np.random.default_rng(1).choice([0, 8, 1000, 9000, 70_000, 300_000], 300)
    for number, nbytes in enumerate(sizes):
        pair.a.send(1, INBOX, bytes(nbytes), generation=0, tag=number)
        pair.b.send(0, INBOX, bytes(nbytes), generation=0, tag=number)
    for inbox in (pair.inbox_a, pair.inbox_b):
        received = inbox.wait(len(sizes))
        assert [(header.tag, len(data)) for header, data in received] == list(enumerate(sizes))


def test_many_small_messages_from_many_threads(pair: Pair) -> None:
    def send(thread: int) -> None:
        for number in range(500):
            pair.a.send(1, INBOX, f"{thread}:{number}".encode(), generation=0, step=thread, tag=number)

    threads = [threading.Thread(target=send, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    received = pair.inbox_b.wait(2000)
    for thread in range(4):
        assert [data for header, data in received if header.step == thread] == [
            f"{thread}:{number}".encode() for number in range(500)
        ]
    assert pair.a.counters.messages_sent == pair.b.counters.messages_received == 2000
    assert pair.a.counters.bytes_sent == pair.b.counters.bytes_received == sum(len(data) for _, data in received)


def test_messages_of_an_ended_generation_are_dropped_and_counted(pair: Pair) -> None:
    pair.b.set_generation(3)
    pair.a.send(1, INBOX, b"old", generation=2)
    pair.a.send(1, ALLOCATING, bytes(500_000), generation=2)
    pair.a.send(1, INBOX, b"new", generation=3)
    assert [data for _, data in pair.inbox_b.wait(1)] == [b"new"]
    assert pair.b.counters.stale_dropped == 2
    assert pair.inbox_b.arrays == {}
    with pytest.raises(StaleGeneration, match="rank 1 is in generation 3"):
        pair.b.send(0, INBOX, generation=2)


def test_messages_of_a_later_generation_wait_for_it(pair: Pair) -> None:
    for number, generation in enumerate([1, 2, 1, 5, 2]):
        pair.a.send(1, INBOX, bytes(number), generation=generation, tag=number)
    pair.a.send(1, INBOX, b"now", generation=0, tag=9)
    assert [header.tag for header, _ in pair.inbox_b.wait(1)] == [9]
    pair.b.set_generation(2)
    assert [header.tag for header, _ in pair.inbox_b.messages] == [9, 1, 4]
    assert pair.b.counters.stale_dropped == 2
    pair.b.set_generation(5)
    assert [header.tag for header, _ in pair.inbox_b.messages] == [9, 1, 4, 3]
    with pytest.raises(ValueError, match="older than the current"):
        pair.b.set_generation(4)


def test_a_peer_too_far_ahead_is_lost(make_pair) -> None:
    pair = make_pair(Limits(max_ahead=1000))
    pair.a.send(1, INBOX, bytes(900), generation=1)
    pair.a.send(1, INBOX, bytes(200), generation=1)
    assert "ahead by more than the 1000 bytes" in str(pair.inbox_b.wait_lost())
    assert pair.inbox_a.wait_lost().rank == 1


def test_room_for_later_generations_is_given_back(make_pair) -> None:
    pair = make_pair(Limits(max_ahead=1000))
    for generation in range(1, 6):
        pair.a.send(1, INBOX, bytes(900), generation=generation)
        pair.a.send(1, INBOX, b"behind it", generation=generation - 1)
        pair.inbox_b.wait(2 * generation - 1)  # so the one before it has arrived, too early
        pair.b.set_generation(generation)
        pair.inbox_b.wait(2 * generation)
    assert not pair.inbox_b.lost


def test_sending_blocks_and_then_fails_while_the_peer_takes_nothing(make_pair) -> None:
    pair = make_pair(Limits(max_queued=8 << 20))
    block = bytes(4 << 20)
    pair.a.send(1, BLOCKING, generation=0)
    accepted = 0

    def flood() -> None:
        nonlocal accepted
        for _ in range(1000):  # four gigabytes: more than any socket holds
            pair.a.send(1, COUNTING, block, generation=0, timeout=0.2)
            accepted += 1

    with pytest.raises(TransportTimeout, match=r"rank 1 at .* waiting"):
        flood()
    assert accepted >= 1
    pair.inbox_b.gate.set()
    assert len(pair.inbox_b.wait(accepted + 1)) == accepted + 1
    pair.a.send(1, INBOX, b"on", generation=0).wait(PATIENCE)


def test_an_oversized_payload_is_refused_on_both_sides(kind: str) -> None:
    small, large = Limits(max_payload=1000), Limits(max_payload=100_000)
    endpoints = [open_or_skip(kind, rank, 2, limits=limits) for rank, limits in enumerate((large, small))]
    inboxes = [Inbox(endpoint) for endpoint in endpoints]
    try:
        assert connect_all(endpoints) == [None, None]
        with pytest.raises(TransportError, match="exceeds the limit of 1000"):
            endpoints[1].send(0, INBOX, bytes(1001), generation=0)
        endpoints[0].send(1, INBOX, bytes(1000), generation=0).wait(PATIENCE)
        endpoints[0].send(1, INBOX, bytes(50_000), generation=0)
        assert "announces a payload of 50000 bytes; the limit here is 1000" in str(inboxes[1].wait_lost())
        assert len(inboxes[1].messages) == 1
    finally:
        for endpoint in endpoints:
            endpoint.close()


def test_a_message_without_a_handler_ends_the_connection(pair: Pair) -> None:
    pair.a.send(1, 99, b"?", generation=0)
    assert "handler 99, which rank 1 does not have" in str(pair.inbox_b.wait_lost())
    assert pair.inbox_a.wait_lost().rank == 1


def test_an_error_in_a_handler_ends_the_connection(kind: str) -> None:
    def prepare(endpoint: Endpoint) -> None:
        inboxes.append(Inbox(endpoint))
        endpoint.register(9, lambda header, payload: 1 // 0)

    inboxes: list[Inbox] = []
    with mesh(kind, 2, prepare) as (a, _):
        a.send(1, 9, b"x", generation=0)
        assert "handler 9 of rank 1 raised ZeroDivisionError" in str(inboxes[1].wait_lost())


@pytest.mark.parametrize(
    "allocate, message",
    [
        (lambda header: bytearray(3), r"allocated 3 bytes \(writable\) where 5 writable ones are needed"),
        (lambda header: bytes(5), r"allocated 5 bytes \(read-only\)"),
        (lambda header: np.zeros((5, 2), np.uint8)[:, 0], "raised TypeError: .*contiguous"),
        (lambda header: 1 // 0, "raised ZeroDivisionError"),
    ],
)
def test_an_unsuitable_allocation_ends_the_connection(kind: str, allocate: Callable, message: str) -> None:
    def prepare(endpoint: Endpoint) -> None:
        inboxes.append(Inbox(endpoint))
        endpoint.register(9, print, allocate)

    inboxes: list[Inbox] = []
    with mesh(kind, 2, prepare) as (a, _):
        a.send(1, 9, b"12345", generation=0)
        assert re.search(message, str(inboxes[1].wait_lost()))


def test_a_failing_callback_harms_nobody_else(pair: Pair) -> None:
    lost, seen = [], []
    pair.a.on_peer_lost(lambda error: 1 // 0)
    pair.a.on_peer_lost(lost.append)
    sent = pair.a.send(1, INBOX, b"x", generation=0)
    sent.add_done_callback(lambda completion: 1 // 0)
    sent.add_done_callback(seen.append)
    sent.wait(PATIENCE)
    pair.inbox_b.wait(1)
    pair.b.close()
    pair.inbox_a.wait_lost()
    pair.a.run_on_thread(lambda: None, PATIENCE)
    assert seen == [sent]
    assert [error.rank for error in lost] == [1]


def test_a_send_without_a_timeout_never_blocks(make_pair) -> None:
    pair = make_pair(Limits(max_queued=1 << 20))
    pair.a.send(1, BLOCKING, generation=0)
    block = bytes(64 << 20)
    sends = [pair.a.send(1, COUNTING, block, generation=0, timeout=None) for _ in range(4)]
    assert not sends[-1].done()
    pair.inbox_b.gate.set()
    sends[-1].wait(PATIENCE)
    pair.inbox_b.wait(5)


def test_a_closed_endpoint_is_lost_to_its_peers(pair: Pair) -> None:
    pair.b.close()
    lost = pair.inbox_a.wait_lost()
    assert lost.rank == 1
    assert lost.address in str(lost)
    with pytest.raises(PeerLost, match="rank 1"):
        pair.a.send(1, INBOX, b"x", generation=0)
    assert pair.inbox_b.wait_lost().reason == "rank 1 closed its endpoint"
    assert pair.a.lost[1] is lost


def test_what_waits_to_be_sent_fails_when_the_peer_closes(pair: Pair) -> None:
    pair.a.send(1, CLOSING, generation=0)  # the handler closes: nothing behind it can get through first
    sends = [pair.a.send(1, INBOX, bytes(8 << 20), generation=0) for _ in range(4)]
    pair.inbox_b.gate.set()
    pair.inbox_a.wait_lost()
    with pytest.raises(PeerLost):
        sends[-1].wait(PATIENCE)


def test_a_missing_rank_is_named(kind: str) -> None:
    endpoints = [open_or_skip(kind, rank, 3) for rank in range(3)]
    try:
        with pytest.raises(TransportTimeout, match=r"no connection from ranks \[1, 2\]"):
            endpoints[0].connect([endpoint.address for endpoint in endpoints], 0.2)
    finally:
        for endpoint in endpoints:
            endpoint.close()


def test_a_peer_with_another_secret_is_refused(kind: str) -> None:
    real, rogue = open_or_skip(kind, 0, 2), open_or_skip(kind, 1, 2, b"another secret, of 32 bytes in a")
    inbox, _ = Inbox(real), Inbox(rogue)
    try:
        with pytest.raises((AuthenticationError, PeerLost, TransportTimeout)):
            rogue.connect([real.address, rogue.address], PATIENCE)
        with pytest.raises((AuthenticationError, TransportTimeout)):
            real.connect([real.address, rogue.address], 0.2)
        with pytest.raises(TransportError):
            rogue.send(0, INBOX, b"let me in", generation=0)
        assert real.counters.rejected == (0 if kind == "ucx" else 1)  # with ucx the address gives it away
        assert inbox.messages == []
    finally:
        real.close()
        rogue.close()


def test_a_buffer_may_be_used_again_once_a_generation_has_begun(pair: Pair) -> None:
    pair.a.send(1, BLOCKING, generation=0)
    assert pair.inbox_b.at_gate.wait(PATIENCE)  # else it would be of a generation that is over when it is received
    payload = np.full(32 << 20, 7, np.uint8)
    sent = pair.a.send(1, INBOX, payload, generation=0)
    assert not sent.done()
    if pair.a.kind == "ucx":
        pair.inbox_b.gate.set()  # this transport waits for what is under way
    pair.a.set_generation(1)
    payload[:] = 0
    pair.inbox_b.gate.set()
    pair.a.send(1, INBOX, b"next", generation=1)
    whole = 0 if pair.a.kind == "inproc" else 1  # the others had begun to send it
    pair.inbox_b.wait(1 + whole)
    pair.b.set_generation(1)
    blocking, *old, new = pair.inbox_b.wait(2 + whole)
    assert blocking[0].handler == BLOCKING
    assert new[1] == b"next"
    assert [data == b"\7" * (32 << 20) for _, data in old] == [True] * whole


def test_timers_run_in_the_order_of_their_times(pair: Pair) -> None:
    ran: list[str] = []
    gate, done, start = threading.Event(), threading.Event(), time.monotonic()
    pair.a.post(gate.wait)  # both are there, and due, before either may run
    pair.a.call_later(0.2, lambda: (ran.append("late"), done.set()))
    pair.a.call_later(0.0, lambda: ran.append("early"))
    took = time.monotonic() - start
    gate.set()
    assert done.wait(PATIENCE)
    pair.a.run_on_thread(lambda: None, PATIENCE)
    assert sorted(ran) == ["early", "late"]
    assert ran[0] == "early" or took > 0.2


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("carrier pigeon", 0, 1, SECRET), "choose one of 'auto', 'inproc', 'local', 'tcp', 'ucx'"),
        (("inproc", 2, 2, SECRET), r"rank 2 is not one of 0\.\.1"),
        (("inproc", 0, 1, b"short"), "at least 16"),
    ],
)
def test_what_cannot_be_opened(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_endpoint(*arguments)


def test_closing_twice_and_sending_to_nobody(kind: str) -> None:
    endpoint = open_or_skip(kind, 0, 2)
    with pytest.raises(TransportError, match="no connection to rank 1"):
        endpoint.send(1, INBOX, b"", generation=0)
    with pytest.raises(ValueError, match="registered already"):
        endpoint.register(INBOX, print), endpoint.register(INBOX, print)
    endpoint.close()
    endpoint.close()
    assert not endpoint._thread.is_alive()


@pytest.mark.skipif(not hasattr(socket, "TCP_CONGESTION"), reason="the system does not say how it paces")
@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_nothing_is_paced_inside_a_host(kind):
    with mesh(kind, 2) as endpoints:
        for endpoint in endpoints:
            for peer in endpoint._peers.values():
                found = peer.wire.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
                assert found.rstrip(b"\0") == b"reno"
