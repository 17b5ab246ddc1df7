"""Broadcast, all-gather and barrier for starting up: every rank sends straight to every other; for small groups."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from futurex.runtime.collectives.exchange import CollectiveError, Exchange, Key, Pending
from futurex.runtime.transport import Endpoint, Header

BROADCAST_HANDLER = 17
GATHER_HANDLER = 18
_CHUNK_BYTES = 4 << 20
_MAX_ITEM_BYTES = 1 << 20


class SmallCollectives:
    """Broadcast, all-gather and barrier over one endpoint. Create it on every rank, before the endpoint connects.

    >>> group = SmallCollectives(endpoint)  # doctest: +SKIP
    >>> group.barrier(generation=1, step=0, tag=3).wait(10.0)  # doctest: +SKIP
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._broadcasts = Exchange(endpoint, BROADCAST_HANDLER)
        self._gathers = Exchange(endpoint, GATHER_HANDLER)

    def broadcast(
        self, buffer: NDArray[Any], root: int, *, generation: int, step: int, tag: int = 0, timeout: float = 60.0
    ) -> Pending:
        """Begin to copy the contiguous `buffer` of rank `root` into `buffer` on the others; return at once."""
        if not buffer.flags.c_contiguous or not buffer.flags.writeable:
            raise ValueError("a broadcast needs a writable contiguous array")
        if not 0 <= root < self._endpoint.size:
            raise ValueError(f"root {root} is not one of the ranks 0..{self._endpoint.size - 1}")
        return self._broadcasts.begin(_Broadcast(self._endpoint, (generation, step, tag), buffer, root, timeout))

    def all_gather(self, item: bytes, *, generation: int, step: int, tag: int = 0, timeout: float = 60.0) -> "Gather":
        """Begin to collect the `item` of each rank, at most 1 MiB; `items` of the result holds them, by rank."""
        if len(item) > _MAX_ITEM_BYTES:
            raise ValueError(f"an item of an all-gather has at most {_MAX_ITEM_BYTES} bytes, not {len(item)}")
        return self._gathers.begin(Gather("all-gather", self._endpoint, (generation, step, tag), item, timeout))

    def barrier(self, *, generation: int, step: int, tag: int = 0, timeout: float = 60.0) -> Pending:
        """Begin to wait until every rank has called this; its tags are those of `all_gather`."""
        return self._gathers.begin(Gather("barrier", self._endpoint, (generation, step, tag), b"", timeout))


class Gather(Pending):
    """An all-gather in flight; `items` holds what each rank gave, once it is done."""

    __slots__ = ("_missing", "items")

    def __init__(self, name: str, endpoint: Endpoint, key: Key, item: bytes, timeout: float) -> None:
        super().__init__(name, endpoint, key, endpoint.size - 1, timeout)
        self.items: list[bytes] = [b""] * endpoint.size
        self.items[endpoint.rank] = item
        self._missing = set(_others(endpoint))

    def launch(self) -> None:
        """Send this rank's item to the others."""
        for peer in _others(self._endpoint):
            self._post(peer, GATHER_HANDLER, self.items[self._endpoint.rank])

    def place(self, header: Header) -> None:
        """Receive items in fresh memory."""

    def receive(self, header: Header, payload: memoryview) -> None:
        """Keep the item of a rank."""
        self.items[header.source] = bytes(payload)
        self._missing.discard(header.source)

    def awaiting(self) -> str:
        """Return which ranks have not sent their item."""
        missing = ", ".join(f"{rank} at {self._endpoint.describe(rank)}" for rank in sorted(self._missing))
        return f"nothing came from rank {missing}" if missing else "not every rank took the item of this one"


class _Broadcast(Pending):
    __slots__ = ("_landing", "_root", "_view")

    def __init__(self, endpoint: Endpoint, key: Key, buffer: NDArray[Any], root: int, timeout: float) -> None:
        self._view = buffer.reshape(-1).view(np.uint8)
        self._root = root
        self._landing: set[int] = set()
        receives = 0 if endpoint.rank == root else len(self._parts())
        super().__init__("broadcast", endpoint, key, receives, timeout)

    def _parts(self) -> range:
        return range(-(-self._view.size // _CHUNK_BYTES))

    def launch(self) -> None:
        """Send the buffer, if this is the root."""
        for peer in _others(self._endpoint) if self._endpoint.rank == self._root else ():
            for part in self._parts():
                self._post(peer, BROADCAST_HANDLER, self._chunk(part), part)

    def place(self, header: Header) -> NDArray[np.uint8]:
        """Receive where the part belongs."""
        target = self._target(header)
        self._landing.add(header.part)
        return target

    def receive(self, header: Header, payload: memoryview) -> None:
        """Copy a part that arrived before the broadcast began here."""
        target = self._target(header)
        if header.part not in self._landing:
            target[:] = np.frombuffer(payload, np.uint8)

    def awaiting(self) -> str:
        """Return how much the root has not sent."""
        return f"{self._receives} parts from rank {self._root} at {self._endpoint.describe(self._root)} have not come"

    def _chunk(self, part: int) -> NDArray[np.uint8]:
        return self._view[part * _CHUNK_BYTES : (part + 1) * _CHUNK_BYTES]

    def _target(self, header: Header) -> NDArray[np.uint8]:
        target = self._chunk(header.part)
        if header.source != self._root or target.nbytes != header.nbytes:
            raise CollectiveError(
                f"rank {header.source} at {self._endpoint.describe(header.source)} sent {header.nbytes} bytes "
                f"where rank {self._root} was to send {target.nbytes}: the ranks disagree on the root or the buffer"
            )
        return target


def _others(endpoint: Endpoint) -> list[int]:
    return [peer for peer in range(endpoint.size) if peer != endpoint.rank]
