"""The collectives of arrays in shared memory: what each shows, and what it makes of what the others show."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from futurex.kernels.shared import Status
from futurex.ops.comm import REDUCTIONS
from futurex.runtime.collectives.board import ALIGN, EAGER_BYTES, NOWHERE, Board, signature
from futurex.runtime.collectives.combine import combine
from futurex.runtime.collectives.compiled import RING, CompiledSum, compilable
from futurex.runtime.collectives.operation import Collective, Key
from futurex.runtime.collectives.shared import SharedExchange, SharedGroup
from futurex.runtime.collectives.vectors import Arrays, copy, split

_NAMES = ("barrier", "broadcast", "all-gather", "all-to-all", "permute", *REDUCTIONS)
_KINDS = {name: code for code, name in enumerate(_NAMES)}
_BLOCK_BYTES, _MOST_BLOCKS = 512 << 10, 200  # a rank's share of a block stays in its core's cache
_MOST_PREPARED = 64
_CACHED_BYTES = 8 << 20  # what all ranks have of a block, of which two are in use, stays in the cache that they share
_MASK = (1 << 64) - 1


class Shown(SharedExchange):
    """An exchange of vectors: every rank shows some, of the same sizes unless `sizes` says otherwise by rank.

    Whether they lie on the board is decided from what all ranks know, `most` bytes: the largest that one of them shows.
    """

    __slots__ = ("_offsets", "_shown", "dtype", "kind", "sizes")

    def __init__(
        self, name: str, group: SharedGroup, key: Key, timeout: float, shown: Arrays, dtype: np.dtype[Any],
        sizes: Sequence[Sequence[int]], code: int,
    ) -> None:  # fmt: skip
        super().__init__(name, group, key, timeout)
        self._shown = shown
        self.dtype = dtype
        self.sizes = sizes
        most = max(sum(each) for each in sizes) * dtype.itemsize
        self.closing = most > EAGER_BYTES
        self._offsets: Any = None
        _, step, tag = key
        self.kind = hash((code, dtype.num, *map(sum, sizes))) & _MASK
        self.signature = signature(self.kind, step, tag)

    def show(self, board: Board, slot: int) -> None:
        _, step, tag = self.key
        first = second = NOWHERE
        if not self.closing:
            start = 0
            for array in self._shown:
                board.eager(slot, self.dtype, start + array.size)[start:] = array
                start += array.size
        elif self._shown:
            first, second = self._place()
        mine = self.sizes[self._group.rank] if len(self.sizes) > 1 else self.sizes[0]
        board.set_facts(slot, self.signature, step, tag, sum(mine) * self.dtype.itemsize, first, second)

    def _place(self) -> tuple[int, int]:
        """Return where the arrays lie: the place of a single one, or the place of a table of places."""
        memory = self._group.memory
        places = [memory.offset(array) for array in self._shown]
        if None in places:  # copied where the others can see it
            whole = memory.empty(sum(array.size for array in self._shown), self.dtype)
            np.concatenate([array.reshape(-1) for array in self._shown], out=whole)
            self._shown = list(split(whole, [array.size for array in self._shown]))
            places = [memory.offset(array) for array in self._shown]
        if len(places) == 1:
            return int(places[0] or 0), NOWHERE
        self._offsets = memory.empty(len(places), np.uint64)
        self._offsets[:] = places
        return NOWHERE, int(memory.offset(self._offsets) or 0)

    def seen(self, rank: int, slot: int) -> Arrays:
        """Return the vectors that `rank` shows."""
        if rank == self._group.rank and self.closing:
            return self._shown
        board = self._group.boards()[rank]
        sizes = self.sizes[rank] if len(self.sizes) > 1 else self.sizes[0]
        if not self.closing:
            return list(split(board.eager(slot, self.dtype, sum(sizes)), sizes))
        facts = board.facts(slot)
        places = [facts.first] if facts.second == NOWHERE else board.memory.array(facts.second, np.uint64, len(sizes))
        return [board.memory.array(int(at), self.dtype, size) for at, size in zip(places, sizes, strict=True)]


class AllReduce(Shown):
    """Every rank's vectors, combined, on every rank: in one stage on the board, in slices and blocks elsewhere.

    In stage s the ranks add up block s, a slice each, and copy what the others have added up of the block before.
    """

    __slots__ = ("_block", "_outs", "_source", "_sum", "_ufunc")

    def __init__(
        self, group: SharedGroup, key: Key, timeout: float, arrays: Arrays, outs: Arrays, reduce: str,
        room: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        sizes = tuple(out.size for out in outs)
        blocks, self._block = 0, 0
        self._source: np.ndarray | None = None
        alone = reduce == "sum" and len(outs) == 1 and outs[0].size > 0
        compiles = alone and group.size > 1 and compilable(outs[0])
        if sum(sizes) * outs[0].itemsize > EAGER_BYTES:
            blocks, self._block = blocks_of(sum(sizes), outs[0].itemsize, group)
            if compiles and group.memory.offset(outs[0]) is None:
                [self._source] = arrays
                length = min(blocks, RING) * self._block
                arrays = [group.memory.empty(length, outs[0].dtype) if room is None else room]
            else:
                arrays = _seen_by_others(group, arrays, outs)
        super().__init__("all-reduce", group, key, timeout, arrays, outs[0].dtype, (sizes,), _KINDS[reduce])
        self.stages = blocks + 1
        self._outs = outs
        self._ufunc = REDUCTIONS[reduce]
        self._sum: CompiledSum | None = None
        if compiles:
            self._sum = CompiledSum(
                group.boards(), group.rank, self._shown[0], outs[0], closing=self.closing, stages=self.stages,
                block=self._block, kind=self.kind, yields=group.yields, source=self._source,
            )  # fmt: skip

    def show(self, board: Board, slot: int) -> None:
        if self._source is not None:
            first = self._source[: self._block]
            self._shown[0][: first.size] = first
        super().show(board, slot)

    def _place(self) -> tuple[int, int]:
        first, second = super()._place()
        return first, second if self._source is None else RING

    def proceed(self, slot: int, spins: int) -> Status | None:
        if self._sum is None:
            return None
        _, step, tag = self.key
        status = self._sum.call(self.number, self.stage, step, tag, spins, whole=False)
        self.stage = self._sum.stage
        return status

    def run(self, stage: int, slot: int) -> None:
        ranks = range(self._group.size)
        me = self._group.rank
        seen = [self.seen(rank, slot) for rank in ranks]
        if not self.closing:
            for number, out in enumerate(self._outs):
                combine(self._ufunc, [arrays[number] for arrays in seen], out)
            return
        if stage > 1:
            for rank in (*ranks[me:], *ranks[:me]):  # not all from one at once
                for number, part in self._slice(stage - 2, rank):
                    copy(seen[rank][number][part], self._outs[number][part])
        if stage < self.stages:
            for number, part in self._slice(stage - 1, me):
                combine(self._ufunc, [arrays[number][part] for arrays in seen], self._shown[number][part])

    def _slice(self, block: int, rank: int) -> Iterator[tuple[int, slice]]:
        """Yield (vector, part) for what `rank` adds up of a block."""
        first = block * self._block
        low, high = bounds(min(self._block, sum(self.sizes[0]) - first), self._group.size, rank)
        start = -first
        for number, size in enumerate(self.sizes[0]):
            begin, end = max(low - start, 0), min(high - start, size)
            if begin < end:
                yield number, slice(begin, end)
            start += size


class _Prepared:
    """A sum in place that is made again and again: its compiled form, None where there is none for its dtype."""

    def __init__(self, group: SharedGroup, array: np.ndarray, key: Key, timeout: float) -> None:
        self.array = array
        self._group = group
        self._outs = [array]
        exchange = AllReduce(group, key, timeout, self._outs, self._outs, "sum")
        self.sums = exchange._sum
        self._room = self.sums.data if self.sums is not None else None

    def call(self, number: int, key: Key) -> Status:
        """Run all of it, as far as the peers allow."""
        assert self.sums is not None
        _, step, tag = key
        return self.sums.call(number, 0, step, tag, self._group.spins, whole=True)

    def exchange(self, key: Key, timeout: float) -> AllReduce:
        """Return the same as an exchange: one that has not begun, or goes on with what the others see already."""
        return AllReduce(self._group, key, timeout, self._outs, self._outs, "sum", self._room)

    @property
    def stage(self) -> int:
        """The stage that the last call came to."""
        return self.sums.stage if self.sums is not None else 0


class ReduceScatter(Shown):
    """Every rank's vector, combined; each rank gets the part that `bounds` gives it."""

    __slots__ = ("_out", "_starts", "_ufunc")

    def __init__(
        self, group: SharedGroup, key: Key, timeout: float, array: np.ndarray, out: np.ndarray,
        parts: Sequence[int], reduce: str,
    ) -> None:  # fmt: skip
        code = len(_KINDS) + _KINDS[reduce]
        super().__init__("reduce-scatter", group, key, timeout, [array], out.dtype, ((array.size,),), code)
        self._out = out
        self._starts = (0, *itertools.accumulate(parts))
        self._ufunc = REDUCTIONS[reduce]

    def run(self, stage: int, slot: int) -> None:
        me = self._group.rank
        part = slice(self._starts[me], self._starts[me + 1])
        combine(self._ufunc, [self.seen(rank, slot)[0][part] for rank in range(self._group.size)], self._out)


class AllGather(Shown):
    """Every rank's vector on every rank: `outs[rank]` is where one goes, in any shape."""

    __slots__ = ("_outs",)

    def __init__(self, group: SharedGroup, key: Key, timeout: float, array: np.ndarray, outs: Arrays) -> None:
        sizes = tuple((out.size,) for out in outs)
        super().__init__("all-gather", group, key, timeout, [array], array.dtype, sizes, _KINDS["all-gather"])
        self._outs = outs

    def run(self, stage: int, slot: int) -> None:
        for rank, out in enumerate(self._outs):
            [array] = self.seen(rank, slot)
            out[...] = array.reshape(out.shape)


class Broadcast(Shown):
    """The root's vector on every rank."""

    __slots__ = ("_array", "_root")

    def __init__(self, group: SharedGroup, key: Key, timeout: float, array: np.ndarray, root: int) -> None:
        shown = [array] if group.rank == root else []
        code = 100 * (root + 1) + _KINDS["broadcast"]
        super().__init__("broadcast", group, key, timeout, shown, array.dtype, ((array.size,),), code)
        self._array, self._root = array, root

    def run(self, stage: int, slot: int) -> None:
        if self._group.rank != self._root:
            copy(self.seen(self._root, slot)[0], self._array)


class AllToAll(Shown):
    """Block b of rank a becomes block a of rank b; all blocks have one size."""

    __slots__ = ("_outs",)

    def __init__(self, group: SharedGroup, key: Key, timeout: float, array: np.ndarray, outs: Arrays) -> None:
        super().__init__(
            "all-to-all", group, key, timeout, [array], array.dtype, ((array.size,),), _KINDS["all-to-all"]
        )
        self._outs = outs

    def run(self, stage: int, slot: int) -> None:
        me, count = self._group.rank, self._outs[0].size
        for rank, out in enumerate(self._outs):
            out[:] = self.seen(rank, slot)[0][me * count : (me + 1) * count]


class Permute(Shown):
    """The vector of `source` here, and zeros where there is none."""

    __slots__ = ("_out", "_source")

    def __init__(
        self, group: SharedGroup, key: Key, timeout: float, array: np.ndarray, out: np.ndarray, source: int | None
    ) -> None:
        super().__init__("permute", group, key, timeout, [array], array.dtype, ((array.size,),), _KINDS["permute"])
        self._out, self._source = out, source

    def run(self, stage: int, slot: int) -> None:
        self._out[:] = 0 if self._source is None else self.seen(self._source, slot)[0]


class Barrier(Shown):
    """Nothing, from everybody."""

    __slots__ = ()

    def __init__(self, group: SharedGroup, key: Key, timeout: float) -> None:
        super().__init__("barrier", group, key, timeout, [], np.dtype(np.uint8), ((0,),), _KINDS["barrier"])


class SharedCollectives:
    """Starts the exchanges of a group; everything returns at once. Keys are (generation, step, tag)."""

    across = None  # nothing goes by messages

    def __init__(self, group: SharedGroup) -> None:
        self.group = group
        self._prepared: dict[int, _Prepared] = {}

    def all_reduce(self, arrays: Arrays, outs: Arrays, reduce: str, key: Key, timeout: float) -> Collective:
        """Combine vectors over the ranks; `outs[k]` is `arrays[k]` itself or lies elsewhere."""
        return self._begin(AllReduce(self.group, key, timeout, arrays, outs, reduce))

    def sum_now(self, array: np.ndarray, key: Key, timeout: float) -> None:
        """Replace a vector by its sum over the ranks, and return when that is done: the fastest way for small ones."""
        prepared = self._prepared.get(id(array))
        if prepared is None or prepared.array is not array:
            if len(self._prepared) == _MOST_PREPARED:
                self._prepared.clear()
            prepared = self._prepared[id(array)] = _Prepared(self.group, array, key, timeout)
        if prepared.sums is None:
            self.all_reduce([array], [array], "sum", key, timeout).wait(timeout)
        else:
            pending = self.group.at_once(prepared, key, timeout)
            if pending is not None:
                pending.wait(timeout)

    def all_reduce_after(
        self, first: Collective, fill: Callable[[], None], array: np.ndarray, key: Key, timeout: float
    ) -> Collective:
        """Sum a vector in place as `all_reduce` does, once `first` is done and `fill()` has written the vector.

        It has its turn among the exchanges from now on, and those behind it wait.
        """
        shared = self.group.memory.empty(array.size, array.dtype)
        exchange = AllReduce(self.group, key, timeout, [shared], [shared], "sum")
        exchange.ready = False
        exchange.land = functools.partial(np.copyto, array, shared)

        def begin(before: Collective) -> None:
            if before.error is not None:
                exchange.finish(before.error)
                return
            try:
                fill()
            except Exception as error:
                self.group.fail(error)  # those behind it would wait for ever
                return
            shared[:] = array
            exchange.ready = True
            self.group.look_again()

        self._begin(exchange)
        first.add_done_callback(begin)
        return exchange

    def reduce_scatter(
        self, array: np.ndarray, out: np.ndarray, parts: Sequence[int], reduce: str, key: Key, timeout: float
    ) -> Collective:
        """Combine a vector over the ranks; rank r gets its r-th part, of `parts[r]` elements."""
        return self._begin(ReduceScatter(self.group, key, timeout, array, out, parts, reduce))

    def all_gather(self, array: np.ndarray, outs: Arrays, key: Key, timeout: float) -> Collective:
        """Give every rank's vector to all; `outs[r]`, of any shape, is where that of rank r goes."""
        return self._begin(AllGather(self.group, key, timeout, array, outs))

    def broadcast(self, array: np.ndarray, root: int, key: Key, timeout: float) -> Collective:
        """Give the vector of `root` to all."""
        return self._begin(Broadcast(self.group, key, timeout, array, root))

    def all_to_all(self, array: np.ndarray, outs: Arrays, key: Key, timeout: float) -> Collective:
        """Give the b-th equal block of every rank's vector to rank b; `outs[r]` is where that of rank r goes."""
        return self._begin(AllToAll(self.group, key, timeout, array, outs))

    def permute(
        self, array: np.ndarray, out: np.ndarray, source: int | None, target: int | None, key: Key, timeout: float
    ) -> Collective:
        """Send a vector to `target` and receive that of `source`; zeros where there is no source."""
        return self._begin(Permute(self.group, key, timeout, array, out, source))

    def barrier(self, key: Key, timeout: float) -> Collective:
        """Wait until every rank has come."""
        return self._begin(Barrier(self.group, key, timeout))

    def drive(self, done: Callable[[], bool]) -> None:
        """Work on what is under way, on this thread, until `done()` or for a moment."""
        self.group.drive(done)

    def _begin(self, exchange: Shown) -> Collective:
        self.group.begin(exchange)
        return exchange


def blocks_of(count: int, itemsize: int, group: SharedGroup) -> tuple[int, int]:
    """Return how many blocks an all-reduce has, and the elements in one."""
    group.boards()
    cached = min(_BLOCK_BYTES * group.size, _CACHED_BYTES // group.size) // itemsize
    block = -(-max(cached, -(-count // _MOST_BLOCKS)) // ALIGN) * ALIGN
    return -(-count // block), block


def bounds(total: int, parts: int, part: int) -> tuple[int, int]:
    """Return where a part of `total` elements begins and ends; parts differ by at most one cache line or two.

    >>> [bounds(100, 3, part) for part in range(3)]
    [(0, 32), (32, 64), (64, 100)]
    """
    units = total // ALIGN
    begin = units * part // parts * ALIGN
    return begin, total if part == parts - 1 else units * (part + 1) // parts * ALIGN


def _seen_by_others(group: SharedGroup, arrays: Arrays, outs: Arrays) -> Arrays:
    """Return the vectors that are shown and in which sums are made: the results where they lie in shared memory."""
    if all(group.memory.offset(out) is not None for out in outs):
        for array, out in zip(arrays, outs, strict=True):
            copy(array, out)
        return outs
    whole = group.memory.empty(sum(out.size for out in outs), outs[0].dtype)
    shown = list(split(whole, [out.size for out in outs]))
    for array, part in zip(arrays, shown, strict=True):
        copy(array, part)
    return shown
