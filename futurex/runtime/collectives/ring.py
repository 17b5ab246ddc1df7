"""All-reduce (sum) over a ring, driven by the messages that arrive.

The buffer is cut into as many segments as there are ranks, each segment into chunks that travel on their own. A segment
begins at the rank of its number, is added to at each rank it passes, and is complete after `size - 1` hops; then it
travels on, unchanged, until every rank has it. So segment s is summed in the order of the ranks s, s+1, ..., s-1, one
after the other: every rank gets the same bits, in every run.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from futurex.runtime.collectives.exchange import CollectiveError, Exchange, Key, Pending
from futurex.runtime.transport import Endpoint, Header

RING_HANDLER = 16
_SPARE_CHUNKS = 8


class RingAllReduce:
    """All-reduces over one endpoint, any number at once. Create it on every rank, before the endpoint connects.

    `chunk_bytes` is the unit of pipelining and must be the same on all ranks.

    >>> ring = RingAllReduce(endpoint)  # doctest: +SKIP
    >>> ring.start(gradient, generation=1, step=7, tag=0).wait(30.0)  # doctest: +SKIP
    """

    def __init__(self, endpoint: Endpoint, *, chunk_bytes: int = 512 << 10, max_early: int = 1 << 30) -> None:
        self._endpoint = endpoint
        self._chunk_bytes = chunk_bytes
        self._exchange = Exchange(endpoint, RING_HANDLER, max_early)
        self._spare: list[NDArray[np.uint8]] = []

    def start(
        self, buffer: NDArray[Any], *, generation: int, step: int, tag: int = 0, timeout: float = 60.0
    ) -> Pending:
        """Begin to replace `buffer` by its sum over all ranks, element by element, in place; return at once.

        `buffer` is a writable contiguous vector of floats or integers, of the same size and dtype on every rank. Leave
        it alone until the operation is done. (generation, step, tag) names the operation and must be new in this
        generation.
        """
        if buffer.ndim != 1 or not buffer.flags.c_contiguous or not buffer.flags.writeable:
            raise ValueError("an all-reduce needs a writable contiguous vector: pass x.reshape(-1) of a contiguous x")
        if buffer.dtype.kind not in "fiu" or not buffer.dtype.isnative:
            raise TypeError(f"an all-reduce adds floats or integers in native byte order, not {buffer.dtype}")
        chunk = max(1, self._chunk_bytes // buffer.dtype.itemsize)
        key = generation, step, tag
        return self._exchange.begin(_Reduction(self._endpoint, key, buffer, chunk, self._spare, timeout))


class _Reduction(Pending):
    """One all-reduce. A message's part is (hop, chunk); the hop tells the segment."""

    __slots__ = ("_bounds", "_buffer", "_chunk", "_landing", "_spare")

    def __init__(
        self,
        endpoint: Endpoint,
        key: Key,
        buffer: NDArray[Any],
        chunk: int,
        spare: list[NDArray[np.uint8]],
        timeout: float,
    ) -> None:
        size = endpoint.size
        self._buffer = buffer
        self._chunk = chunk
        self._spare = spare
        self._bounds = [buffer.size * segment // size for segment in range(size + 1)]
        self._landing: dict[int, Any] = {}  # where the transport was told to put a part
        self._endpoint = endpoint
        receives = sum(self._chunks(self._segment(hop)) for hop in range(2 * size - 2))
        super().__init__("all-reduce", endpoint, key, receives, timeout)

    def launch(self) -> None:
        """Send this rank's own segment."""
        segment = self._endpoint.rank
        for chunk in range(self._chunks(segment) if self._endpoint.size > 1 else 0):
            self._forward(0, chunk, self._elements(segment, chunk))

    def place(self, header: Header) -> Any:
        """Have sums received where they belong, and terms in scratch memory."""
        hop, target = self._target(header)
        if hop >= self._endpoint.size - 1:
            landing = target.view(np.uint8)
        else:
            landing = self._scratch(header.nbytes)
        self._landing[header.part] = landing
        return landing

    def receive(self, header: Header, payload: memoryview) -> None:
        """Add a term or take a sum, and send the result on to the next rank."""
        hop, target = self._target(header)
        landing = self._landing.pop(header.part, None)
        arrived = np.frombuffer(payload, self._buffer.dtype)
        if hop < self._endpoint.size - 1:
            np.add(arrived, target, out=target)
            if landing is not None and len(self._spare) < _SPARE_CHUNKS:
                self._spare.append(landing.base)
        elif landing is None:
            target[:] = arrived
        if hop < 2 * self._endpoint.size - 3:
            self._forward(hop + 1, header.part & 0xFFFFFFFF, target)

    def awaiting(self) -> str:
        """Return which rank has not sent its part."""
        before = (self._endpoint.rank - 1) % self._endpoint.size
        return f"{self._receives} messages from rank {before} at {self._endpoint.describe(before)} have not come"

    def _forward(self, hop: int, chunk: int, elements: NDArray[Any]) -> None:
        self._post((self._endpoint.rank + 1) % self._endpoint.size, RING_HANDLER, elements, hop << 32 | chunk)

    def _segment(self, hop: int) -> int:
        """Return the segment that arrives here after `hop` hops and the one that brings it."""
        return (self._endpoint.rank - hop - 1) % self._endpoint.size

    def _chunks(self, segment: int) -> int:
        return -(-(self._bounds[segment + 1] - self._bounds[segment]) // self._chunk)

    def _elements(self, segment: int, chunk: int) -> NDArray[Any]:
        begin = self._bounds[segment] + chunk * self._chunk
        return self._buffer[begin : min(begin + self._chunk, self._bounds[segment + 1])]

    def _target(self, header: Header) -> tuple[int, NDArray[Any]]:
        """Return the hop of a message and the elements of the buffer that it is about."""
        hop, chunk = header.part >> 32, header.part & 0xFFFFFFFF
        segment = self._segment(hop)
        if hop > 2 * self._endpoint.size - 3 or chunk >= self._chunks(segment):
            expected = 0
        else:
            target = self._elements(segment, chunk)
            if target.nbytes == header.nbytes:
                return hop, target
            expected = target.nbytes
        raise CollectiveError(
            f"rank {header.source} at {self._endpoint.describe(header.source)} sent {header.nbytes} bytes where "
            f"{expected} are expected: the ranks disagree on the size or dtype of the buffer, or on chunk_bytes"
        )

    def _scratch(self, nbytes: int) -> NDArray[np.uint8]:
        try:
            memory = self._spare.pop()
        except IndexError:
            memory = np.empty(0, np.uint8)
        if memory.nbytes < nbytes:
            memory = np.empty(self._chunk * self._buffer.itemsize, np.uint8)
        return memory[:nbytes]
