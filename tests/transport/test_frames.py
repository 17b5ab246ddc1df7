"""The frame parser and the handshake, without sockets."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from futurex.runtime.transport import AuthenticationError, Header, ProtocolError
from futurex.runtime.transport.auth import Handshake
from futurex.runtime.transport.frames import HEADER_BYTES, FrameParser, pack_header, unpack_header

pytestmark = pytest.mark.timeout(180)

LIMIT = 300_000
U64 = st.integers(0, 2**64 - 1)
HEADERS = st.builds(
    Header,
    source=st.just(3),
    generation=st.integers(0, 2**32 - 1),
    step=U64,
    handler=st.integers(0, 2**16 - 1),
    tag=U64,
    part=U64,
    nbytes=st.one_of(st.integers(0, 100), st.integers(60_000, 200_000)),
)


class Sink:
    """Receives from a parser; skips the messages whose handler is odd."""

    def __init__(self) -> None:
        self.parser = FrameParser(3, self.admit, self.deliver)
        self.delivered: list[tuple[Header, bytes]] = []
        self.admitted = 0

    def admit(self, header: Header) -> memoryview | None:
        if header.nbytes > LIMIT:
            raise ProtocolError("too large")
        self.admitted += 1
        return None if header.handler % 2 else memoryview(bytearray(header.nbytes))

    def deliver(self, header: Header, payload: memoryview) -> None:
        self.delivered.append((header, bytes(payload)))

    def feed(self, data: bytes, most: int = 1 << 30) -> None:
        """Feed `data`, at most `most` bytes at a time."""
        left = memoryview(data)
        while left:
            count = 0
            for buffer in self.parser.buffers():
                taken = min(len(buffer), len(left), most - count)
                buffer[:taken] = left[:taken]
                left, count = left[taken:], count + taken
            assert count, "the parser offers no room"
            self.parser.received(count)


def stream(headers: list[Header]) -> tuple[bytes, list[tuple[Header, bytes]]]:
    """Return the bytes of messages with `headers`, and what a sink should get."""
    bodies = [bytes([index % 251]) * header.nbytes for index, header in enumerate(headers)]
    data = b"".join(pack_header(header) + body for header, body in zip(headers, bodies, strict=True))
    return data, [(header, body) for header, body in zip(headers, bodies, strict=True) if header.handler % 2 == 0]


@given(HEADERS)
def test_a_header_survives_the_wire(header: Header) -> None:
    packed = pack_header(header)
    assert len(packed) == HEADER_BYTES
    assert unpack_header(packed, 3) == header


@given(st.lists(HEADERS, max_size=8), st.sampled_from([1_000, 4096, 65_537, 1 << 30]))
def test_messages_are_found_however_the_stream_is_cut(headers: list[Header], most: int) -> None:
    data, expected = stream(headers)
    sink = Sink()
    sink.feed(data, most)
    assert sink.delivered == expected
    assert sink.admitted == len(headers)


def test_messages_are_found_byte_by_byte() -> None:
    headers = [Header(3, 1, 2, handler, 4, 5, nbytes) for handler, nbytes in [(0, 3), (1, 70), (2, 0), (4, 130)]]
    data, expected = stream(headers)
    sink = Sink()
    sink.feed(data, 1)
    assert sink.delivered == expected


@given(st.binary(max_size=5000), st.integers(1, 300))
def test_random_bytes_do_nothing_worse_than_end_the_connection(data: bytes, most: int) -> None:
    sink = Sink()
    with suppress(ProtocolError):
        sink.feed(data, most)
    assert sum(HEADER_BYTES + header.nbytes for header, _ in sink.delivered) <= len(data)


def test_a_malformed_header_is_refused() -> None:
    packed = bytearray(pack_header(Header(3, 0, 0, 2, 0, 0, 0)))
    packed[14] = 1
    with pytest.raises(ProtocolError, match="malformed message header from rank 3"):
        Sink().feed(bytes(packed))


def test_an_older_generation_is_discarded_in_mid_message() -> None:
    headers = [Header(3, 1, 0, 2, 0, 0, 200_000), Header(3, 2, 0, 2, 0, 0, 10)]
    data, expected = stream(headers)
    sink = Sink()
    sink.feed(data[:150_000])
    assert not sink.parser.discard_older(1)
    assert sink.parser.discard_older(2)
    sink.feed(data[150_000:])
    assert sink.delivered == expected[1:]


SECRET = bytes(range(32))


def handshake(dialer: Handshake, acceptor: Handshake, spoil: dict[int, bytes] | None = None) -> list[bytes]:
    """Run a handshake; `spoil[i]` is what is added to its i-th message, byte by byte."""
    messages: list[bytes] = []

    def carry(message: bytes) -> bytes:
        change = (spoil or {}).get(len(messages), bytes(len(message)))
        messages.append(message)
        return bytes((byte + more) % 256 for byte, more in zip(message, change, strict=True))

    greeting = acceptor.feed(carry(dialer.greeting()))
    proof = dialer.feed(carry(greeting))
    dialer.feed(carry(acceptor.feed(carry(proof))))
    return messages


def test_both_sides_of_a_handshake_know_each_other() -> None:
    dialer, acceptor = Handshake(2, 4, SECRET, peer=1), Handshake(1, 4, SECRET)
    handshake(dialer, acceptor)
    assert (dialer.peer, acceptor.peer, dialer.expects, acceptor.expects) == (1, 2, 0, 0)
    assert dialer.token(outgoing=True) == acceptor.token(outgoing=False)
    assert dialer.token(outgoing=False) == acceptor.token(outgoing=True)
    assert dialer.token(outgoing=True) != dialer.token(outgoing=False)


@given(st.integers(0, 3), st.integers(0, 31), st.integers(1, 255))
def test_a_handshake_with_one_changed_byte_fails(which: int, where: int, change: int) -> None:
    spoiled = bytearray(len(Handshake(2, 4, SECRET, peer=1).greeting()) if which < 2 else 32)
    spoiled[-1 - where] = change
    with pytest.raises(AuthenticationError):
        handshake(Handshake(2, 4, SECRET, peer=1), Handshake(1, 4, SECRET), {which: bytes(spoiled)})


@pytest.mark.parametrize(
    "dialer, acceptor, message",
    [
        (Handshake(2, 4, SECRET, peer=1), Handshake(1, 4, SECRET[::-1]), "does not know the shared secret"),
        (Handshake(2, 4, SECRET, peer=0), Handshake(1, 4, SECRET), "greets rank 0; here is rank 1"),
        (Handshake(2, 5, SECRET, peer=1), Handshake(1, 4, SECRET), "rank 2 of 5"),
        (Handshake(7, 4, SECRET, peer=1), Handshake(1, 4, SECRET), "rank 7 of 4"),
        (Handshake(1, 4, SECRET, peer=1), Handshake(1, 4, SECRET), "rank 1 of 4 greets rank 1"),
    ],
)
def test_who_is_not_the_right_peer_is_refused(dialer: Handshake, acceptor: Handshake, message: str) -> None:
    with pytest.raises(AuthenticationError, match=message):
        handshake(dialer, acceptor)


@pytest.mark.parametrize(
    "where, message",
    [
        (0, "does not speak this protocol"),
        (8, "speaks version"),
        (10, "does not speak this protocol"),
        (12, "greets rank"),
        (16, "greets rank"),
        (20, "greets rank"),
    ],
)
def test_a_greeting_is_refused_before_anything_is_answered(where: int, message: str) -> None:
    greeting = bytearray(Handshake(2, 4, SECRET, peer=1).greeting())
    greeting[where] ^= 0x40
    with pytest.raises(AuthenticationError, match=message):
        Handshake(1, 4, SECRET).feed(bytes(greeting))


def test_another_rank_than_the_one_that_was_dialed_is_refused() -> None:
    dialer, other = Handshake(2, 4, SECRET, peer=1), Handshake(3, 4, SECRET, peer=2)
    with pytest.raises(AuthenticationError, match="rank 3 answers where rank 1 was dialed"):
        dialer.feed(other.greeting())


def test_a_proof_cannot_be_replayed() -> None:
    recorded = handshake(Handshake(2, 4, SECRET, peer=1), Handshake(1, 4, SECRET))
    acceptor = Handshake(1, 4, SECRET)
    acceptor.feed(recorded[0])
    with pytest.raises(AuthenticationError, match="secret"):
        acceptor.feed(recorded[2])
    with pytest.raises(AuthenticationError, match="where 32 are expected"):
        acceptor.feed(b"short")
