"""Collectives where several machines have several ranks each: memory inside a machine, messages between machines.

An all-reduce goes in three parts. In shared memory the ranks of a machine add up one slice each, in their order; the
ranks of all machines that have the same slice exchange it by messages; then everybody copies the slices of the others.
So each machine sends what one rank alone would, and all its processes share the work of sending it. As many ranks have
a slice as the smallest machine has ranks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from futurex.ops.comm import REDUCTIONS
from futurex.runtime.collectives.combine import wide
from futurex.runtime.collectives.messages import MessageCollectives
from futurex.runtime.collectives.operation import Collective, Key
from futurex.runtime.collectives.shared import SharedGroup
from futurex.runtime.collectives.shared_arrays import AllGather, SharedCollectives
from futurex.runtime.collectives.vectors import Arrays, split
from futurex.runtime.transport.auto import AutoEndpoint

_GRACE = 2.0  # seconds that the exchange between machines has to name who is late, before those inside give up


class MachineCollectives:
    """Collectives over an endpoint that chooses its way to each peer. Create it before the endpoint connects.

    On one machine everything is done in shared memory; where every rank has a machine of its own, by messages.
    """

    def __init__(self, endpoint: AutoEndpoint) -> None:
        self.endpoint = endpoint
        self.inside = SharedCollectives(SharedGroup(endpoint))
        self.messages = MessageCollectives(endpoint)

    @property
    def across(self) -> MessageCollectives | None:
        """What connects the machines; None where there is one."""
        return self.messages if len(set(self.endpoint.machines)) > 1 else None

    @property
    def _flat(self) -> SharedCollectives | MessageCollectives:
        """What does whole exchanges alone."""
        return self.messages if self.across is not None else self.inside

    def all_reduce(self, arrays: Arrays, outs: Arrays, reduce: str, key: Key, timeout: float) -> Collective:
        """Combine vectors over the ranks; `outs[k]` is `arrays[k]` itself or lies elsewhere."""
        group, total = self.inside.group, sum(out.size for out in outs)
        if self.across is None or not total or max(map(len, _by_machine(self.endpoint.machines))) == 1:
            return self._flat.all_reduce(arrays, outs, reduce, key, timeout)
        sizes = [out.size for out in outs]
        dtype = wide(outs[0].dtype, REDUCTIONS[reduce])
        vector, result = arrays[0], outs[0]
        if len(outs) > 1 or dtype != result.dtype or group.memory.offset(vector) is None:
            vector = group.memory.empty(total, dtype)
            for part, array in zip(split(vector, sizes), arrays, strict=True):
                part[:] = array
        if len(outs) > 1 or dtype != result.dtype:
            result = np.empty(total, dtype)
        parts = self._parts(total)
        mine = group.memory.empty(parts[group.rank], dtype)
        added = self.inside.reduce_scatter(vector, mine, parts, reduce, key, timeout)
        gathered = AllGather(group, key, timeout + _GRACE, mine, list(split(result, parts)))
        gathered.ready = False  # its turn is now, what it gathers comes later

        def land() -> None:
            for part, out in zip(split(result, sizes), outs, strict=True):
                out[:] = part

        gathered.land = land if result is not outs[0] else None
        group.begin(gathered)
        added.add_done_callback(lambda before: self._exchange(before, gathered, mine, reduce, key, timeout))
        return gathered

    def _exchange(
        self, before: Collective, gathered: AllGather, mine: np.ndarray, reduce: str, key: Key, timeout: float
    ) -> None:
        """Combine this rank's slice with those of the other machines, then let the ranks of this one have it."""
        group = self.inside.group

        def ended(between: Collective) -> None:
            if gathered.done():
                return  # its generation has ended, or a peer of this machine is lost
            if between.error is not None:
                group.fail(between.error)  # what stands behind it would wait for ever
                return
            gathered.ready = True
            group.look_again()

        if before.error is not None:
            gathered.finish(before.error)
        elif not mine.size:
            ended(before)
        else:
            among = tuple(members[group.rank] for members in _by_machine(self.endpoint.machines))
            try:
                self.messages.all_reduce([mine], [mine], reduce, key, timeout, among=among).add_done_callback(ended)
            except Exception as error:
                group.fail(error)

    def sum_now(self, array: np.ndarray, key: Key, timeout: float) -> None:
        """Replace a vector by its sum over the ranks, and return when that is done."""
        if self.across is None:
            self.inside.sum_now(array, key, timeout)
        else:
            self.all_reduce([array], [array], "sum", key, timeout).wait(timeout)

    def all_reduce_after(
        self, first: Collective, fill: Callable[[], None], array: np.ndarray, key: Key, timeout: float
    ) -> Collective:
        """Sum a vector in place, once `first` is done and `fill()` has written the vector."""
        return self._flat.all_reduce_after(first, fill, array, key, timeout)

    def reduce_scatter(
        self, array: np.ndarray, out: np.ndarray, parts: Sequence[int], reduce: str, key: Key, timeout: float
    ) -> Collective:
        """Combine a vector over the ranks; rank r gets its r-th part, of `parts[r]` elements."""
        return self._flat.reduce_scatter(array, out, parts, reduce, key, timeout)

    def all_gather(self, array: np.ndarray, outs: Arrays, key: Key, timeout: float) -> Collective:
        """Give every rank's vector to all; `outs[r]`, of any shape, is where that of rank r goes."""
        return self._flat.all_gather(array, outs, key, timeout)

    def broadcast(self, array: np.ndarray, root: int, key: Key, timeout: float) -> Collective:
        """Give the vector of `root` to all."""
        return self._flat.broadcast(array, root, key, timeout)

    def all_to_all(self, array: np.ndarray, outs: Arrays, key: Key, timeout: float) -> Collective:
        """Give the b-th equal block of every rank's vector to rank b; `outs[r]` is where that of rank r goes."""
        return self._flat.all_to_all(array, outs, key, timeout)

    def permute(
        self, array: np.ndarray, out: np.ndarray, source: int | None, target: int | None, key: Key, timeout: float
    ) -> Collective:
        """Send a vector to `target` and receive that of `source`; zeros where there is no source."""
        return self._flat.permute(array, out, source, target, key, timeout)

    def barrier(self, key: Key, timeout: float) -> Collective:
        """Wait until every rank has come."""
        return self._flat.barrier(key, timeout)

    def drive(self, done: Callable[[], bool]) -> None:
        """Work on what is under way, on this thread, until `done()` or for a moment."""
        if self.inside.group.size > 1:
            self.inside.drive(done)

    def _parts(self, total: int) -> list[int]:
        """Return how much of a vector each rank of this machine carries to the others."""
        carriers = min(map(len, _by_machine(self.endpoint.machines)))
        sizes = [total * (rank + 1) // carriers - total * rank // carriers for rank in range(carriers)]
        return sizes + [0] * (self.inside.group.size - carriers)


@functools.lru_cache(64)
def _by_machine(machines: tuple[int, ...]) -> list[list[int]]:
    """Return the ranks of each machine."""
    return [[rank for rank, other in enumerate(machines) if other == machine] for machine in sorted(set(machines))]
