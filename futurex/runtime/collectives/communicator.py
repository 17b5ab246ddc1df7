"""What a plan's communication nodes talk to: arrays of any shape and dtype, among the ranks of one endpoint."""

from __future__ import annotations

import copy
import hashlib
import math
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.partition.buckets import BUCKET
from futurex.runtime import config, points
from futurex.runtime.collectives.board import ORDERED
from futurex.runtime.collectives.compression import Compression
from futurex.runtime.collectives.machines import MachineCollectives
from futurex.runtime.collectives.mailbox import Correspondence, Mailbox
from futurex.runtime.collectives.messages import MessageCollectives
from futurex.runtime.collectives.model import Model
from futurex.runtime.collectives.operation import Collective, Key
from futurex.runtime.collectives.pieces import counts, gathered, joined, parted, parts_of, scattered
from futurex.runtime.collectives.shared import SharedGroup
from futurex.runtime.collectives.shared_arrays import SharedCollectives
from futurex.runtime.collectives.vectors import split
from futurex.runtime.stall import Late, Stall, log
from futurex.runtime.traffic import Tally
from futurex.runtime.transport import Endpoint
from futurex.runtime.transport.arena import Arena
from futurex.runtime.transport.auto import AutoEndpoint
from futurex.runtime.transport.clock import Clock
from futurex.runtime.transport.local import LocalEndpoint
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.kernels.cupy_ import Device
    from futurex.runtime.collectives.on_device import DeviceCollectives

_TRIALS = 5
_LARGE = 4 << 20


class Operation:
    """A collective in flight; ``result()`` puts what arrived where the plan wants it, once."""

    def __init__(self, pending: Collective, land: Callable[[], None] | None = None) -> None:
        self._pending = pending
        self._land = land

    @property
    def key(self) -> Key:
        """Generation, step and tag."""
        return self._pending.key

    @property
    def started(self) -> float:
        return self._pending.started

    @property
    def finished(self) -> float | None:
        return self._pending.finished

    def late(self) -> list[int]:
        """The ranks that have not done their part."""
        return self._pending.late()

    def awaiting(self) -> str:
        """What is missing, in words."""
        return self._pending.awaiting()

    def add_done_callback(self, fn: Callable[..., Any]) -> None:
        self._pending.add_done_callback(fn)

    def result(self) -> None:
        """Wait (the plan calls this when it is done), raise what the operation failed with, deliver."""
        self._pending.wait(config.deadline())
        if self._land is not None:
            land, self._land = self._land, None
            land()


class Communicator:
    """The collectives of one rank in one generation.

    Every run of a plan is a *step*; (generation, step, tag) names one exchange on all ranks. ``communication`` sums the
    seconds in which something was in flight, ``exposed`` those in which the computation waited for it. ``memory`` is
    where arrays that are exchanged are best made; None where that does not matter. ``clock`` tells rank 0's time,
    ``on_stall`` is told when the computation waits for long.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.rank, self.size = endpoint.rank, endpoint.size
        self.memory: Arena | None = None
        self.clock = Clock(endpoint)
        self._mailbox = Mailbox(endpoint)
        self.on_stall: Callable[[Stall], object] = lambda stall: None
        self._devices: dict[str, DeviceCollectives] = {}  # of all generations: a ring is made once
        self.engine: SharedCollectives | MessageCollectives | MachineCollectives
        if isinstance(endpoint, LocalEndpoint) and ORDERED:
            self.memory = endpoint.memory
            if isinstance(endpoint, AutoEndpoint):
                self.engine = MachineCollectives(endpoint)
            else:
                self.engine = SharedCollectives(SharedGroup(endpoint))
        else:
            self.engine = MessageCollectives(endpoint)
        self._begin()

    def _begin(self) -> None:
        self._generation = self.endpoint.generation
        self._step = 0
        self._flights: list[Operation] = []
        self._compression = Compression(self.engine, self.endpoint)
        self.communication = 0.0
        self.exposed = 0.0
        self._exchanges = self._exchanged_bytes = self._waits = 0
        self._moved_before = self._moved()

    @property
    def generation(self) -> int:
        """The generation to which this communicator belongs."""
        return self._generation

    def begin_step(self) -> int:
        """Number the next run of a plan; the same on every rank, since all run the same plans in the same order."""
        self._account()
        self._step += 1
        return self._step

    def begin_generation(self, generation: int) -> Communicator:
        """Leave whatever is in flight behind; returns the communicator of the new generation.

        This one stays with its own: what a thread that has not noticed yet starts on it fails as stale.
        """
        self.endpoint.set_generation(generation)
        begun = copy.copy(self)
        begun._begin()
        return begun

    def calibrate(self) -> Model:
        """Measure what messages cost, and use it from now on; every rank calls this at the same time."""
        engine, step = self.engine.across, 0
        if engine is None or self.size == 1:
            return Model()
        small, large = np.zeros(1), np.zeros(_LARGE, np.uint8)
        engine.hosts = self.endpoint.machines if isinstance(self.endpoint, AutoEndpoint) else self._hosts(engine)

        def seconds(vector: np.ndarray, algorithm: str, first: int) -> float:
            spans = []
            for trial in range(_TRIALS):
                start = time.perf_counter()
                key = self._generation, step, first + trial
                engine.all_reduce([vector], [vector], "max", key, 30.0, algorithm).wait(30.0)
                spans.append(time.perf_counter() - start)
            return sorted(spans)[_TRIALS // 2]

        rounds = math.ceil(math.log2(self.size)) + (2 if self.size & (self.size - 1) else 0)
        latency = seconds(small, "doubling", 0) / rounds
        hops = 2 * (self.size - 1)
        per_byte = max(1e-12, (seconds(large, "ring", _TRIALS) - hops * latency) * self.size / hops / _LARGE)
        found = np.array([latency, per_byte])
        engine.all_reduce([found], [found], "max", (self._generation, step, 2 * _TRIALS), 30.0, "ring").wait(30.0)
        engine.model = Model(*found.tolist()).rounded()
        self.endpoint.tune(engine.model.small_bytes, engine.model.unsent_bytes)
        return engine.model

    def _hosts(self, engine: MessageCollectives) -> tuple[int, ...]:
        """Ask every rank for its host; hosts are numbered in the order of their first ranks."""
        mine = np.frombuffer(hashlib.sha256(f"{uuid.getnode()} {socket.gethostname()}".encode()).digest(), np.uint8)
        names = np.empty((self.size, mine.size), np.uint8)
        engine.all_gather(mine, list(names), (self._generation, 0, 2 * _TRIALS + 1), 30.0).wait(30.0)
        found: dict[bytes, int] = {}
        return tuple(found.setdefault(name.tobytes(), len(found)) for name in names)

    @property
    def bucket_bytes(self) -> int:
        """How much is best sent at once; the same on every rank."""
        engine = self.engine.across
        if engine is None:
            return BUCKET
        hosts = len(set(engine.hosts))
        return engine.model.bucket_bytes(hosts if hosts > 1 else self.size)

    def on_device(self, device: Device) -> DeviceCollectives:
        """The collectives of arrays that lie on a device."""
        from futurex.runtime.collectives.on_device import DeviceCollectives

        return self._devices.setdefault(device.kind, DeviceCollectives(device))

    def gathered(self, mine: np.ndarray) -> list[np.ndarray]:
        """What every rank gives, by rank, in a step of its own."""
        found = [np.empty_like(mine) for _ in range(self.size)]
        key = self._key(0, self.begin_step())
        self.engine.all_gather(mine, found, key, config.deadline()).wait(config.deadline())
        self.begin_step()
        return found

    def exchanged(self, nbytes: int) -> None:
        """An exchange went another way than messages."""
        self._exchanges += 1
        self._exchanged_bytes += nbytes

    def barrier(self, timeout: float) -> None:
        """Wait until every rank has come."""
        self.engine.barrier(self._key(0, self.begin_step()), timeout).wait(timeout)

    def start(
        self, op: str, attrs: dict[str, Any], arrays: Sequence[Any], outs: Sequence[Any], urgency: float = 0.0
    ) -> Operation:
        """Begin a communication node: see ``futurex.ops.comm`` for what each does.

        Its messages overtake those of less ``urgency`` that still wait to be sent.
        """
        key, timeout = self._key(attrs["tag"], self._step), config.deadline()
        if self.engine.across is not None:
            self.engine.across.urgency[attrs["tag"]] = urgency
        operation = _STARTS[op](self, attrs, arrays, outs, key, timeout)
        self._flights.append(operation)
        points.reach("all-reduce", self)
        self._exchanges += 1
        self._exchanged_bytes += sum([array.nbytes for array in arrays])
        return operation

    def drive(self, done: Callable[[], bool]) -> None:
        """Work on what is in flight, on this thread, until ``done()`` or for a moment."""
        self.engine.drive(done)

    def waited(self, seconds: float) -> None:
        """The computation had nothing else to do for this long."""
        self.exposed += seconds
        self._waits += 1

    def correspondence(self) -> Correspondence:
        """Letters between single ranks, of this generation."""
        return Correspondence(self._mailbox, self._generation, self._apart)

    def _apart(self, nbytes: int, seconds: float) -> None:
        """An exchange by letters, beside which nothing went on."""
        self._exchanges += 1
        self._exchanged_bytes += nbytes
        self.communication += seconds
        self.waited(seconds)

    def stalled(self, seconds: float, waiting: Iterable[tuple[Node, Late]]) -> Stall:
        """The computation has waited this long for these exchanges: say so, and return what was said."""
        stall = Stall.of(self.rank, seconds, waiting)
        log.warning("%s", stall)
        self.on_stall(stall)
        return stall

    def tally(self) -> Tally:
        """What was exchanged since the generation began: the figures of ``Traffic`` from ``exchanges`` on."""
        self._account()
        moved = [now - before for now, before in zip(self._moved(), self._moved_before, strict=True)]
        return self._exchanges, self._exchanged_bytes, *moved, self._waits, self.communication, self.exposed

    def times(self) -> tuple[float, float]:
        """(communication, exposed) seconds since the beginning."""
        self._account()
        return self.communication, self.exposed

    def _moved(self) -> tuple[int, int, int, int]:
        counters = self.endpoint.counters
        return (
            counters.messages_sent, counters.messages_received, counters.bytes_sent, counters.bytes_received
        )  # fmt: skip

    def _key(self, tag: int, step: int) -> Key:
        return self._generation, step, tag

    def _account(self) -> None:
        """Add the time in which something was in flight, counting what overlaps once."""
        spans = sorted((each.started, each.finished) for each in self._flights if each.finished is not None)
        end = -math.inf
        for start, finish in spans:
            assert finish is not None
            self.communication += max(0.0, finish - max(start, end))
            end = max(end, finish)
        self._flights = [each for each in self._flights if each.finished is None]

    # -- the nodes -----------------------------------------------------------------------------------------------------

    def _all_reduce(self, attrs: Any, arrays: Any, outs: Any, key: Key, timeout: float) -> Operation:
        if attrs.get("codec"):
            return Operation(self._compression.all_reduce(attrs["codec"], arrays, outs, key, timeout))
        flat = [array.reshape(-1) for array in arrays], [out.reshape(-1) for out in outs]
        return Operation(self.engine.all_reduce(*flat, attrs["reduce"], key, timeout))

    def _reduce_scatter(self, attrs: Any, arrays: Any, outs: Any, key: Key, timeout: float) -> Operation:
        axes, sizes = attrs["axes"], attrs["sizes"]
        whole = gathered(arrays, axes, sizes, self.memory)
        part = outs[0].reshape(-1) if len(outs) == 1 else np.empty(sum(out.size for out in outs), outs[0].dtype)
        pending = self.engine.reduce_scatter(
            whole, part, counts(arrays, axes, sizes), attrs["reduce"], key, timeout
        )
        return Operation(pending, (lambda: parted(part, outs)) if len(outs) > 1 else None)

    def _all_gather(self, attrs: Any, arrays: Any, outs: Any, key: Key, timeout: float) -> Operation:
        axes, sizes = attrs["axes"], attrs["sizes"]
        mine = joined(arrays, self.memory)
        if len(outs) == 1:
            return Operation(self.engine.all_gather(mine, parts_of(outs[0], axes[0], sizes[0]), key, timeout))
        whole = np.empty(sum(out.size for out in outs), mine.dtype)
        pending = self.engine.all_gather(mine, list(split(whole, counts(outs, axes, sizes))), key, timeout)
        return Operation(pending, lambda: scattered(whole, outs, axes, sizes))

    def _broadcast(self, attrs: Any, arrays: Any, outs: Any, key: Key, timeout: float) -> Operation:
        [array], [out] = arrays, outs
        if self.rank == attrs["root"]:
            np.copyto(out, array)
        return Operation(self.engine.broadcast(out.reshape(-1), attrs["root"], key, timeout))

    def _all_to_all(self, attrs: Any, arrays: Any, outs: Any, key: Key, timeout: float) -> Operation:
        blocks = list(outs[0].reshape(self.size, -1))
        return Operation(self.engine.all_to_all(arrays[0].reshape(-1), blocks, key, timeout))

    def _permute(self, attrs: Any, arrays: Any, outs: Any, key: Key, timeout: float) -> Operation:
        targets = dict(attrs["pairs"])
        source = next((a for a, b in attrs["pairs"] if b == self.rank), None)
        flat = arrays[0].reshape(-1), outs[0].reshape(-1)
        return Operation(self.engine.permute(*flat, source, targets.get(self.rank), key, timeout))


_STARTS: dict[str, Callable[..., Operation]] = {
    "all_reduce": Communicator._all_reduce,
    "reduce_scatter": Communicator._reduce_scatter,
    "all_gather": Communicator._all_gather,
    "broadcast": Communicator._broadcast,
    "all_to_all": Communicator._all_to_all,
    "permute": Communicator._permute,
}
