"""Messages on a byte stream: a fixed header, then the payload; free of I/O."""

import struct
from collections.abc import Callable

from futurex.runtime.transport.errors import ProtocolError
from futurex.runtime.transport.message import Header

_HEADER = struct.Struct("<QIHHQQQ")  # payload bytes, generation, handler, 0, step, tag, part
HEADER_BYTES = _HEADER.size
_STAGING_BYTES = 64 << 10


def pack_header(header: Header) -> bytes:
    """Return the wire form of `header`; its source is not sent, the connection tells it."""
    return _HEADER.pack(header.nbytes, header.generation, header.handler, 0, header.step, header.tag, header.part)


def unpack_header(data: bytes | memoryview, source: int, offset: int = 0) -> Header:
    """Read a header that `source` sent; raise ProtocolError if it is malformed."""
    nbytes, generation, handler, reserved, step, tag, part = _HEADER.unpack_from(data, offset)
    if reserved != 0:
        raise ProtocolError(f"a malformed message header from rank {source}")
    return Header(source, generation, step, handler, tag, part, nbytes)


class FrameParser:
    """Cuts the byte stream of one peer into messages, and has large payloads received where they belong.

    Receive into `buffers()`, in their order, then tell `received(count)`. `admit(header)` says where a payload goes: a
    writable flat view of exactly `header.nbytes` bytes, or None to skip it. `deliver(header, payload)` gets each
    complete one.
    """

    def __init__(
        self,
        source: int,
        admit: Callable[[Header], memoryview | None],
        deliver: Callable[[Header, memoryview], None],
    ) -> None:
        self._source = source
        self._admit = admit
        self._deliver = deliver
        self._staging = memoryview(bytearray(_STAGING_BYTES))
        self._filled = 0
        self._header: Header | None = None
        self._payload: memoryview | None = None  # of the message whose body is still coming
        self._missing = 0

    def buffers(self) -> list[memoryview]:
        """Return where the next bytes of the stream go."""
        if self._payload is not None:
            return [self._payload[len(self._payload) - self._missing :], self._staging]
        return [self._staging[self._filled :]]

    def received(self, count: int) -> None:
        """Take note that the next `count` bytes lie in `buffers()`; admit and deliver what they hold."""
        if self._payload is not None:
            taken = min(count, self._missing)
            self._missing -= taken
            count -= taken
            if self._missing == 0:
                self._finish()
        self._filled += count
        self._parse()

    def discard_older(self, generation: int) -> bool:
        """Skip the rest of a message that began before `generation`; return whether there was one."""
        if self._payload is None or self._header is None or self._header.generation >= generation:
            return False
        self._header = self._payload = None
        return True

    def _finish(self) -> None:
        header, payload = self._header, self._payload
        self._header = self._payload = None
        if header is not None and payload is not None:
            self._deliver(header, payload)

    def _parse(self) -> None:
        at = 0
        while at < self._filled:
            if self._missing:  # the body of a message that is skipped
                taken = min(self._missing, self._filled - at)
                self._missing -= taken
                at += taken
            elif self._filled - at < HEADER_BYTES:
                break
            else:
                at = self._begin(unpack_header(self._staging, self._source, at), at + HEADER_BYTES)
        left = self._filled - at
        if left and at:
            self._staging[:left] = self._staging[at : self._filled]
        self._filled = left

    def _begin(self, header: Header, at: int) -> int:
        """Start on the message whose body begins at `at`; return where the parser stands then."""
        payload = self._admit(header)
        if payload is None:
            self._missing = header.nbytes
            return at
        here = min(header.nbytes, self._filled - at)
        payload[:here] = self._staging[at : at + here]
        self._header, self._payload, self._missing = header, payload, header.nbytes - here
        if self._missing == 0:
            self._finish()
        return at + here
