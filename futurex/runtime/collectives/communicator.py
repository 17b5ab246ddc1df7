"""What a plan's communication nodes talk to: arrays of any dtype over the ring of one endpoint."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from futurex.ops.comm import REDUCTIONS
from futurex.runtime import config
from futurex.runtime.collectives.exchange import Pending
from futurex.runtime.collectives.ring import RingAllReduce
from futurex.runtime.collectives.small import SmallCollectives
from futurex.runtime.transport import Endpoint

_SUMMED = "fiu"  # dtype kinds that the ring adds


class Operation:
    """A collective in flight; ``result()`` puts what arrived where the plan wants it, once."""

    def __init__(self, pending: Pending, land: Callable[[], None]) -> None:
        self._pending = pending
        self._land: Callable[[], None] | None = land

    @property
    def started(self) -> float:
        return self._pending.started

    @property
    def finished(self) -> float | None:
        return self._pending.finished

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
    seconds in which something was in flight, ``exposed`` those in which the computation waited for it.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.rank, self.size = endpoint.rank, endpoint.size
        self.small = SmallCollectives(endpoint)
        self._ring = RingAllReduce(endpoint)
        self._begin()

    def _begin(self) -> None:
        self._generation = self.endpoint.generation
        self._step = 0
        self._buffers: dict[tuple[int, str, int], np.ndarray] = {}
        self._flights: list[Operation] = []
        self.communication = 0.0
        self.exposed = 0.0

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

    def start(self, op: str, attrs: dict[str, Any], arrays: Sequence[Any], outs: Sequence[Any]) -> Operation:
        """Begin an ``all_reduce`` or ``all_gather`` node."""
        sums = op == "all_reduce" and attrs["reduce"] == "sum" and outs[0].dtype.kind in _SUMMED
        if sums and len(outs) == 1:
            operation = self._sum_in_place(arrays[0], outs[0], attrs["tag"])
        elif sums:
            operation = self._sum_bucket(arrays, outs, attrs["tag"])
        elif op == "all_reduce":
            operation = self._gather_and_reduce(arrays, outs, attrs["reduce"], attrs["tag"])
        else:
            operation = self._gather(arrays[0], outs[0], attrs["axis"], attrs["sizes"], attrs["tag"])
        self._flights.append(operation)
        return operation

    def waited(self, seconds: float) -> None:
        """The computation had nothing else to do for this long."""
        self.exposed += seconds

    def times(self) -> tuple[float, float]:
        """(communication, exposed) seconds since the beginning."""
        self._account()
        return self.communication, self.exposed

    def _account(self) -> None:
        """Add the time in which something was in flight, counting what overlaps once."""
        spans = sorted((each.started, each.finished) for each in self._flights if each.finished is not None)
        end = -math.inf
        for start, finish in spans:
            assert finish is not None
            self.communication += max(0.0, finish - max(start, end))
            end = max(end, finish)
        self._flights = [each for each in self._flights if each.finished is None]

    def _launch(self, buffer: np.ndarray, tag: int, land: Callable[[], None]) -> Operation:
        pending = self._ring.start(
            buffer, generation=self._generation, step=self._step, tag=tag, timeout=config.deadline()
        )
        return Operation(pending, land)

    def _buffer(self, tag: int, dtype: Any, size: int) -> np.ndarray:
        key = (tag, np.dtype(dtype).str, size)
        if key not in self._buffers:
            self._buffers[key] = np.empty(size, dtype)
        return self._buffers[key]

    def _sum_in_place(self, array: np.ndarray, out: np.ndarray, tag: int) -> Operation:
        if out is not array:
            np.copyto(out, array)
        return self._launch(out.reshape(-1), tag, lambda: None)

    def _sum_bucket(self, arrays: Sequence[np.ndarray], outs: Sequence[np.ndarray], tag: int) -> Operation:
        """Several arrays in one message: copied into a bucket, summed there, copied out."""
        buffer = self._buffer(tag, outs[0].dtype, sum(out.size for out in outs))
        parts = []
        position = 0
        for array in arrays:
            part = buffer[position : position + array.size].reshape(array.shape)
            np.copyto(part, array)
            parts.append(part)
            position += array.size

        def land() -> None:
            for part, out in zip(parts, outs, strict=True):
                np.copyto(out, part)

        return self._launch(buffer, tag, land)

    def _exchange_bytes(
        self, mine: Sequence[np.ndarray], sizes: Sequence[int], tag: int, land: Callable[[list[memoryview]], None]
    ) -> Operation:
        """Every rank's bytes on every rank: a ring sum of bytes over buffers that are zero but for one's own part."""
        starts = np.cumsum([0, *sizes])
        buffer = self._buffer(tag, np.uint8, int(starts[-1]))
        buffer[:] = 0
        position = int(starts[self.rank])
        for array in mine:
            raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            buffer[position : position + raw.size] = raw
            position += raw.size
        whole = memoryview(buffer.data)
        return self._launch(buffer, tag, lambda: land([whole[a:b] for a, b in itertools.pairwise(starts)]))

    def _gather_and_reduce(
        self, arrays: Sequence[np.ndarray], outs: Sequence[np.ndarray], reduce: str, tag: int
    ) -> Operation:
        """For what the ring cannot add: everybody's arrays, combined in the order of ranks."""
        ufunc = REDUCTIONS[reduce]
        nbytes = sum(array.nbytes for array in arrays)

        def land(parts: list[memoryview]) -> None:
            position = 0
            for out in outs:
                values = [_read(part, position, out.dtype, out.shape) for part in parts]
                np.copyto(out, values[0])
                for value in values[1:]:
                    ufunc(out, value, out=out)
                position += out.nbytes

        return self._exchange_bytes(arrays, [nbytes] * self.size, tag, land)

    def _gather(self, array: np.ndarray, out: np.ndarray, axis: int, sizes: Sequence[int], tag: int) -> Operation:
        row = array.itemsize * math.prod(extent for k, extent in enumerate(array.shape) if k != axis)

        def land(parts: list[memoryview]) -> None:
            shapes = [(*array.shape[:axis], size, *array.shape[axis + 1 :]) for size in sizes]
            values = [_read(part, 0, array.dtype, shape) for part, shape in zip(parts, shapes, strict=True)]
            np.concatenate(values, axis, out=out)

        return self._exchange_bytes([array], [row * size for size in sizes], tag, land)


def _read(part: memoryview, position: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    count = math.prod(shape)
    return np.frombuffer(part, dtype, count, position).reshape(shape) if count else np.empty(shape, dtype)
