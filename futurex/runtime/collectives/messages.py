"""Collective operations by messages, over any transport: schedules carried out as messages arrive.

Blocks are cut into chunks that travel on their own, so that what was added is on its way while the next chunk is added.
The order of additions is the schedule's: every rank gets the same bits, in every run.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from futurex.ops.comm import REDUCTIONS
from futurex.runtime.collectives import schedules
from futurex.runtime.collectives.combine import wide
from futurex.runtime.collectives.exchange import Exchange, Pending
from futurex.runtime.collectives.model import Model
from futurex.runtime.collectives.operation import PARTS, Collective, CollectiveError, Key
from futurex.runtime.collectives.schedules import Event, Schedule
from futurex.runtime.collectives.vectors import Arrays, copy, split
from futurex.runtime.transport import Endpoint, Header

HANDLER = 16
_SPARE_CHUNKS = 8
_BITS = 20  # of a message's part, for the chunk and for the block


class Transfer(Pending):
    """A schedule under way on the `blocks` of one rank. `land` runs when everything has arrived, before it is done."""

    __slots__ = (
        "_blocks", "_chunk", "_early", "_land", "_landing", "_lock", "_places", "_schedule", "_spare", "_ufunc"
    )  # fmt: skip

    def __init__(
        self, name: str, endpoint: Endpoint, key: Key, timeout: float, schedule: Schedule, blocks: Arrays,
        chunk: int, ufunc: np.ufunc, spare: list[np.ndarray], land: Callable[[], None] | None, urgency: float,
    ) -> None:  # fmt: skip
        self._blocks = blocks
        self._chunk = chunk
        self._schedule = schedule
        self._ufunc = ufunc
        self._spare = spare
        self._land = land
        self._lock: Any = threading.RLock()  # whoever starts the operation, and the progress thread, go on with it
        self._places = [[0] * self._chunks(block) for block in range(len(blocks))]
        self._early: dict[tuple[int, int], np.ndarray] = {}
        self._landing: dict[tuple[int, int], np.ndarray] = {}
        receives = sum(
            self._chunks(block) * sum(not event.send for event in timeline)
            for block, timeline in enumerate(schedule.timelines)
        )
        super().__init__(name, endpoint, key, receives, timeout)
        self.urgency = urgency

    def launch(self) -> None:
        """Send what needs nothing from others."""
        for block in range(len(self._blocks)):
            for chunk in range(self._chunks(block)):
                with self._lock:
                    self._go_on(block, chunk)

    def place(self, header: Header) -> Any:
        """Have what replaces a chunk received in its place, and what is combined in scratch memory."""
        block, chunk, target = self._target(header)
        with self._lock:
            event = self._next(block, chunk)
            if event is None or event.send or (event.hop, event.peer) != (header.part >> 2 * _BITS, header.source):
                return None
            landing = self._scratch(header.nbytes) if event.combine else target.view(np.uint8)
            self._landing[header.source, header.part] = landing
        return landing

    def receive(self, header: Header, payload: memoryview) -> None:
        """Take in a chunk, and what has come early behind it."""
        block, chunk, _ = self._target(header)
        with self._lock:
            self._early[header.source, header.part] = np.frombuffer(payload, self._blocks[block].dtype)
            self._go_on(block, chunk)

    def finish(self, error: BaseException | None = None) -> bool:
        """Deliver, then be done."""
        if error is None and self._land is not None and not self.done():
            land, self._land = self._land, None
            try:
                land()
            except Exception as problem:
                error = problem
        return super().finish(error)

    def late(self) -> list[int]:
        """Return which ranks have not sent what comes next."""
        with self._lock:
            return sorted({
                event.peer
                for block, places in enumerate(self._places)
                for chunk in range(len(places))
                if (event := self._next(block, chunk)) is not None
            })  # fmt: skip

    def awaiting(self) -> str:
        """Return which ranks have not sent their part."""
        names = ", ".join(f"rank {rank} at {self._endpoint.describe(rank)}" for rank in self.late())
        return f"{self._receives} messages from {names} have not come"

    def _next(self, block: int, chunk: int) -> Event | None:
        timeline, place = self._schedule.timelines[block], self._places[block][chunk]
        return timeline[place] if place < len(timeline) else None

    def _go_on(self, block: int, chunk: int) -> None:
        """Do what comes next with a chunk, as far as possible."""
        while (event := self._next(block, chunk)) is not None and not self.done():
            part = event.hop << 2 * _BITS | block << _BITS | chunk
            if event.send:
                elements = self._elements(block, chunk)
                self._places[block][chunk] += 1
                self._post(event.peer, HANDLER, elements.tobytes() if self._schedule.copies else elements, part)
                continue
            arrived = self._early.pop((event.peer, part), None)
            if arrived is None:
                return
            self._take(event, part, arrived, self._elements(block, chunk))
            self._places[block][chunk] += 1

    def _take(self, event: Event, part: int, arrived: np.ndarray, target: np.ndarray) -> None:
        landing = self._landing.pop((event.peer, part), None)
        if event.combine:
            self._ufunc(arrived, target, out=target)
            if landing is not None and len(self._spare) < _SPARE_CHUNKS:
                self._spare.append(landing.base if landing.base is not None else landing)
        elif landing is None:
            target[:] = arrived

    def _chunks(self, block: int) -> int:
        return -(-self._blocks[block].size // self._chunk)

    def _elements(self, block: int, chunk: int) -> np.ndarray:
        return self._blocks[block][chunk * self._chunk : (chunk + 1) * self._chunk]

    def _target(self, header: Header) -> tuple[int, int, np.ndarray]:
        """Return the block, the chunk, and the elements that a message is about."""
        mask = (1 << _BITS) - 1
        block, chunk = header.part >> _BITS & mask, header.part & mask
        expected = 0
        if block < len(self._blocks) and chunk < self._chunks(block):
            target = self._elements(block, chunk)
            if target.nbytes == header.nbytes:
                return block, chunk, target
            expected = target.nbytes
        raise CollectiveError(
            f"rank {header.source} at {self._endpoint.describe(header.source)} sent {header.nbytes} bytes where "
            f"{expected} are expected: the ranks disagree on the size or dtype of the buffer, or on how it is cut"
        )

    def _scratch(self, nbytes: int) -> np.ndarray:
        try:
            memory = self._spare.pop()
        except IndexError:
            memory = np.empty(0, np.uint8)
        if memory.nbytes < nbytes:
            memory = np.empty(nbytes, np.uint8)
        return memory[:nbytes]


class MessageCollectives:
    """Collectives over one endpoint, any number at once. Create it on every rank, before the endpoint connects.

    Everything returns at once. Keys are (generation, step, tag), and new in their generation. `model`, which chooses
    the algorithms and the size of pieces, must be the same on all ranks, as must `hosts`, and `chunk_bytes` if given.
    """

    def __init__(self, endpoint: Endpoint, *, chunk_bytes: int | None = None, max_early: int = 1 << 30) -> None:
        self.endpoint = endpoint
        self.rank, self.size = endpoint.rank, endpoint.size
        self.model = Model()
        self.hosts = (0,) * endpoint.size  # by rank
        self.urgency: dict[int, float] = {}
        """By tag: messages of an exchange overtake those of less urgent ones that wait to be sent; 0 by default."""
        self._chunk_bytes = chunk_bytes
        self._exchange = Exchange(endpoint, HANDLER, max_early)
        self._spare: list[np.ndarray] = []

    @property
    def across(self) -> MessageCollectives:
        """What goes by messages: everything."""
        return self

    def all_reduce(
        self, arrays: Arrays, outs: Arrays, reduce: str, key: Key, timeout: float, algorithm: str | None = None, *,
        among: tuple[int, ...] | None = None,
    ) -> Collective:  # fmt: skip
        """Combine vectors over the ranks; `outs[k]` is `arrays[k]` itself or lies elsewhere.

        `among`: the ranks that take part, this one too, where not all do.
        """
        ufunc = REDUCTIONS[reduce]
        accumulator = wide(outs[0].dtype, ufunc)
        land: Callable[[], None] | None = None
        if len(outs) == 1 and accumulator == outs[0].dtype:
            [vector], [array] = outs, arrays
            copy(array, vector)
        else:
            sizes = [out.size for out in outs]
            vector = np.empty(sum(sizes), accumulator)
            for part, array in zip(split(vector, sizes), arrays, strict=True):
                part[:] = array

            def land() -> None:
                for part, out in zip(split(vector, sizes), outs, strict=True):
                    out[:] = part

        hosts = len(set(self.hosts)) if among is None else 1
        algorithm = algorithm or self.model.all_reduce(len(among or self.hosts), vector.nbytes, hosts)
        if algorithm == "hierarchical":
            schedule = schedules.hierarchical_all_reduce(self.rank, self.hosts)
        else:
            schedule = schedules.all_reduce_among(algorithm, self.rank, among or tuple(range(self.size)))
        return self._begin("all-reduce", key, timeout, schedule, _equal(vector, len(schedule.timelines)), ufunc, land)

    def all_reduce_after(
        self, first: Collective, fill: Callable[[], None], array: np.ndarray, key: Key, timeout: float
    ) -> Collective:
        """Sum a vector in place as `all_reduce` does, once `first` is done and `fill()` has written the vector."""
        whole = Collective("all-reduce", self.endpoint, key, timeout)
        whole.parts = (first,)

        def ended(part: Collective) -> None:
            whole.finish(part.error)

        def begin(before: Collective) -> None:
            if before.error is not None:
                whole.finish(before.error)
                return
            try:
                fill()
                second = self.all_reduce([array], [array], "sum", key, timeout)
                whole.parts = (second,)
                second.add_done_callback(ended)
            except Exception as error:
                whole.fail(error)

        first.add_done_callback(begin)
        return whole

    def reduce_scatter(
        self, array: np.ndarray, out: np.ndarray, parts: Sequence[int], reduce: str, key: Key, timeout: float
    ) -> Collective:
        """Combine a vector over the ranks; rank r gets its r-th part, of `parts[r]` elements."""
        ufunc = REDUCTIONS[reduce]
        vector = array.astype(wide(out.dtype, ufunc))
        blocks = list(split(vector, parts))

        def land() -> None:
            out[:] = blocks[self.rank]

        schedule = schedules.ring_reduce_scatter(self.rank, self.size)
        return self._begin("reduce-scatter", key, timeout, schedule, blocks, ufunc, land)

    def all_gather(self, array: np.ndarray, outs: Arrays, key: Key, timeout: float) -> Collective:
        """Give every rank's vector to all; `outs[r]`, of any shape, is where that of rank r goes."""
        blocks = [out.reshape(-1) if out.flags.c_contiguous else np.empty(out.size, out.dtype) for out in outs]
        blocks[self.rank][:] = array

        def land() -> None:
            for block, out in zip(blocks, outs, strict=True):
                if not out.flags.c_contiguous:
                    out[...] = block.reshape(out.shape)

        algorithm = self.model.all_gather(self.size, sum(out.nbytes for out in outs))
        schedule = schedules.ALL_GATHER[algorithm](self.rank, self.size)
        return self._begin("all-gather", key, timeout, schedule, blocks, np.add, land)

    def broadcast(self, array: np.ndarray, root: int, key: Key, timeout: float) -> Collective:
        """Give the vector of `root` to all."""
        schedule = schedules.tree_broadcast(self.rank, self.size, root)
        return self._begin("broadcast", key, timeout, schedule, [array], np.add, None)

    def all_to_all(self, array: np.ndarray, outs: Arrays, key: Key, timeout: float) -> Collective:
        """Give the b-th equal block of every rank's vector to rank b; `outs[r]` is where that of rank r goes."""
        mine = _equal(array, self.size)
        outs[self.rank][:] = mine[self.rank]
        # What a rank sends to p is p's block `rank`; what it receives from p is its own block p.
        timelines = [(Event(0, peer, False),) if peer != self.rank else () for peer in range(self.size)]
        ahead = [(Event(0, peer, True),) if peer != self.rank else () for peer in range(self.size)]
        schedule = Schedule((*timelines, *ahead))
        return self._exchange.begin(
            _AllToAll(
                "all-to-all", self.endpoint, key, timeout, schedule, [*outs, *mine], self._per_chunk(array), np.add,
                self._spare, None, self._urgency(key),
            )
        )  # fmt: skip

    def permute(
        self, array: np.ndarray, out: np.ndarray, source: int | None, target: int | None, key: Key, timeout: float
    ) -> Collective:
        """Send a vector to `target` and receive that of `source`; zeros where there is no source."""
        if source in (None, self.rank):
            out[:] = 0 if source is None else array
        receipt = () if source is None or source == self.rank else (Event(0, source, False),)
        sending = () if target is None or target == self.rank else (Event(0, target, True),)
        return self._exchange.begin(
            _Permute(
                "permute", self.endpoint, key, timeout, Schedule((receipt, sending)), [out, array],
                self._per_chunk(array), np.add, self._spare, None, self._urgency(key),
            )
        )  # fmt: skip

    def barrier(self, key: Key, timeout: float) -> Collective:
        """Wait until every rank has come."""
        vector = np.zeros(1, np.uint8)
        return self.all_reduce([vector], [vector], "max", key, timeout, "doubling")

    def drive(self, done: Callable[[], bool]) -> None:
        """Messages are driven by the progress thread alone."""

    def _per_chunk(self, vector: np.ndarray) -> int:
        return max(1, (self._chunk_bytes or self.model.piece_bytes) // vector.dtype.itemsize)

    def _begin(
        self, name: str, key: Key, timeout: float, schedule: Schedule, blocks: Arrays, ufunc: np.ufunc,
        land: Callable[[], None] | None,
    ) -> Collective:  # fmt: skip
        return self._exchange.begin(
            Transfer(
                name, self.endpoint, key, timeout, schedule, blocks, self._per_chunk(blocks[0]), ufunc, self._spare,
                land, self._urgency(key),
            )
        )  # fmt: skip

    def _urgency(self, key: Key) -> float:
        return self.urgency.get(key[2] % PARTS, 0.0)


class _AllToAll(Transfer):
    """Blocks 0 to size - 1 are received, those behind are sent; what one rank calls its block is another's."""

    __slots__ = ()

    def _post(self, peer: int, handler: int, payload: Any, part: int = 0) -> None:
        chunk = part & (1 << _BITS) - 1
        super()._post(peer, handler, payload, self._endpoint.rank << _BITS | chunk)


class _Permute(Transfer):
    """Block 0 is received, block 1 is sent."""

    __slots__ = ()

    def _post(self, peer: int, handler: int, payload: Any, part: int = 0) -> None:
        super()._post(peer, handler, payload, part & (1 << _BITS) - 1)


def _equal(vector: np.ndarray, count: int) -> list[np.ndarray]:
    """Return the vector in `count` blocks that differ by one element at most."""
    bounds = [vector.size * block // count for block in range(count + 1)]
    return [vector[low:high] for low, high in itertools.pairwise(bounds)]
