"""Every collective against NumPy: in shared memory and by messages, for any number of ranks, sizes and dtypes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transport_mesh import PATIENCE, mesh

from futurex.ops.comm import REDUCTIONS
from futurex.runtime.collectives import CollectiveError, CollectiveTimeout, Communicator, MessageCollectives
from futurex.runtime.collectives.board import SLOTS, Board
from futurex.runtime.collectives.shared_arrays import Barrier
from futurex.runtime.transport import Endpoint, PeerLost

pytestmark = pytest.mark.timeout(300)

DTYPES = ["f2", "f4", "f8", "i1", "u2", "i4", "u4", "i8", "u8"]
COUNTS = st.one_of(st.integers(0, 40), st.sampled_from([1000, 8192, 8193, 20_000, 300_001]))
RANKS = st.one_of(st.integers(1, 4), st.integers(5, 9))


class Ranks:
    """Connected communicators in this process; ``run`` calls a function on all, a thread each."""

    def __init__(self, endpoints: list[Endpoint], communicators: list[Communicator]) -> None:
        self.endpoints = endpoints
        self.engines = [communicator.engine for communicator in communicators]
        self.communicators = communicators
        self.size = len(endpoints)
        self.step = 0

    def run(self, function: Callable[[int, Any, tuple[int, int, int]], Any]) -> list[Any]:
        """Return what ``function(rank, engine, key)`` returns on every rank; keys are new in every run."""
        self.step += 1
        results: list[Any] = [None] * self.size
        errors: list[BaseException] = []

        def body(rank: int) -> None:
            try:
                key = self.endpoints[rank].generation, self.step, 0
                results[rank] = function(rank, self.engines[rank], key)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=body, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * PATIENCE)
        if errors:
            raise errors[0]
        assert not any(thread.is_alive() for thread in threads)
        return results


@pytest.fixture(scope="module")
def ranks_of() -> Iterator[Callable[[str, int], Ranks]]:
    opened = []

    @cache
    def make(kind: str, size: int) -> Ranks:
        made: list[Communicator] = []
        opened.append(mesh(kind, size, lambda endpoint: made.append(Communicator(endpoint))))
        return Ranks(opened[-1].__enter__(), made)

    yield make
    for one in opened:
        one.__exit__(None, None, None)


@pytest.fixture
def trio() -> Iterator[Ranks]:
    """Three ranks with shared memory, for a test that breaks them."""
    made: list[Communicator] = []
    with mesh("local", 3, lambda endpoint: made.append(Communicator(endpoint))) as endpoints:
        yield Ranks(endpoints, made)


def operands(size: int, count: int, dtype: str, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal(count) * 50).astype(dtype) for _ in range(size)]


def in_order(reduce: str, arrays: list[np.ndarray]) -> np.ndarray:
    """The result in the order of ranks; half precision is added and multiplied in single."""
    dtype = arrays[0].dtype
    wide = np.float32 if dtype == np.float16 and reduce in ("sum", "prod") else dtype
    total = arrays[0].astype(wide)
    with np.errstate(all="ignore"):
        for array in arrays[1:]:
            total = REDUCTIONS[reduce](total, array.astype(wide))
        return total.astype(dtype)


@given(RANKS, COUNTS, st.sampled_from(DTYPES), st.sampled_from(sorted(REDUCTIONS)), st.booleans(), st.integers(0, 99))
@settings(max_examples=60)
def test_shared_all_reduce_is_the_sum_in_the_order_of_ranks(
    ranks_of, size: int, count: int, dtype: str, reduce: str, arena: bool, seed: int
) -> None:
    ranks = ranks_of("local", size)
    arrays = operands(size, count, dtype, seed)
    kept = [array.copy() for array in arrays]
    expected = in_order(reduce, arrays)

    def body(rank: int, engine: Any, key: Any) -> np.ndarray:
        out = engine.group.memory.empty(count, dtype) if arena else np.empty(count, dtype)
        engine.all_reduce([arrays[rank]], [out], reduce, key, PATIENCE).wait(PATIENCE)
        return out

    with np.errstate(all="ignore"):
        for result in ranks.run(body):
            assert result.tobytes() == expected.tobytes()
    assert all(array.tobytes() == before.tobytes() for array, before in zip(arrays, kept, strict=True))


@given(
    RANKS, COUNTS, st.sampled_from(DTYPES), st.sampled_from(["ring", "doubling", "halving", "tree", None]),
    st.sampled_from(sorted(REDUCTIONS)), st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=60)
def test_every_algorithm_gives_one_result_to_all(
    ranks_of, size: int, count: int, dtype: str, algorithm: str | None, reduce: str, seed: int
) -> None:
    arrays = operands(size, count, dtype, seed)

    def body(rank: int, engine: MessageCollectives, key: Any) -> np.ndarray:
        out = arrays[rank].copy()
        engine.all_reduce([out], [out], reduce, key, PATIENCE, algorithm).wait(PATIENCE)
        return out

    with np.errstate(all="ignore"):
        first, *others = ranks_of("inproc", size).run(body)
    assert all(other.tobytes() == first.tobytes() for other in others)
    if first.dtype.kind in "iu" or reduce in ("max", "min"):
        assert first.tobytes() == in_order(reduce, arrays).tobytes()
    elif reduce == "sum":
        wide = np.sum([array.astype("f8") for array in arrays], axis=0)
        scale = np.sum([np.abs(array.astype("f8")) for array in arrays], axis=0)
        assert np.all(np.abs(first - wide) <= 2 * size * np.finfo(dtype).eps * scale)


def test_between_hosts_one_rank_of_each_speaks(ranks_of) -> None:
    ranks = ranks_of("inproc", 6)
    arrays = operands(6, 30_000, "f8", 1)
    for engine in ranks.engines:
        engine.hosts = (0, 0, 1, 1, 2, 2)

    def body(rank: int, engine: MessageCollectives, key: Any) -> np.ndarray:
        out = arrays[rank].copy()
        engine.all_reduce([out], [out], "sum", key, PATIENCE).wait(PATIENCE)
        return out

    first, *others = ranks.run(body)
    assert all(other.tobytes() == first.tobytes() for other in others)
    np.testing.assert_allclose(first, np.sum(arrays, axis=0), rtol=1e-12, atol=1e-11)
    for engine in ranks.engines:
        engine.hosts = (0,) * 6


@pytest.mark.parametrize("kind", ["local", "inproc"])
@given(RANKS, st.lists(COUNTS, min_size=1, max_size=4), st.integers(0, 99))
@settings(max_examples=25)
def test_several_vectors_in_one(ranks_of, kind: str, size: int, counts: list[int], seed: int) -> None:
    parts = [operands(size, count, "i4", seed + number) for number, count in enumerate(counts)]

    def body(rank: int, engine: Any, key: Any) -> list[np.ndarray]:
        mine = [arrays[rank].copy() for arrays in parts]
        if kind == "local" and seed % 2:
            shared = [engine.group.memory.empty(array.size, array.dtype) for array in mine]
            for array, place in zip(mine, shared, strict=True):
                place[:] = array
            mine = shared
        engine.all_reduce(mine, mine, "sum", key, PATIENCE).wait(PATIENCE)
        return mine

    for results in ranks_of(kind, size).run(body):
        for result, arrays in zip(results, parts, strict=True):
            assert np.array_equal(result, np.sum(arrays, axis=0))


@pytest.mark.parametrize("kind", ["local", "inproc"])
@given(st.data())
@settings(max_examples=20)
def test_the_others(ranks_of, kind: str, data: st.DataObject) -> None:
    size = data.draw(RANKS)
    counts = data.draw(st.lists(COUNTS, min_size=size, max_size=size))
    dtype = data.draw(st.sampled_from(["f4", "i8", "u1", "c16", "?"]))
    root = data.draw(st.integers(0, size - 1))
    shift = data.draw(st.integers(0, size))
    parts = [operands(1, count, dtype, rank)[0] for rank, count in enumerate(counts)]
    whole = operands(size, sum(counts), dtype, 3)
    blocks = operands(size, size * counts[0], dtype, 4)

    def body(rank: int, engine: Any, key: Any) -> dict[str, Any]:
        generation, step, _ = key
        gathered = [np.empty(count, dtype) for count in counts]
        engine.all_gather(parts[rank], gathered, key, PATIENCE).wait(PATIENCE)
        scattered = np.empty(counts[rank], dtype)
        engine.reduce_scatter(whole[rank], scattered, counts, "sum", (generation, step, 1), PATIENCE).wait(PATIENCE)
        given_out = whole[rank].copy()
        engine.broadcast(given_out, root, (generation, step, 2), PATIENCE).wait(PATIENCE)
        exchanged = np.empty((size, counts[0]), dtype)
        engine.all_to_all(blocks[rank], list(exchanged), (generation, step, 3), PATIENCE).wait(PATIENCE)
        moved = np.full(counts[0], 1, dtype)
        target = rank + shift if rank + shift < size else None
        source = rank - shift if rank >= shift else None
        mine = blocks[rank][: counts[0]].copy()
        engine.permute(mine, moved, source, target, (generation, step, 4), PATIENCE).wait(PATIENCE)
        engine.barrier((generation, step, 5), PATIENCE).wait(PATIENCE)
        return {"all": gathered, "part": scattered, "same": given_out, "mixed": exchanged, "moved": moved}

    total = np.add.reduce(whole, axis=0, dtype=dtype)
    ends = np.cumsum(counts)
    for rank, found in enumerate(ranks_of(kind, size).run(body)):
        assert all(np.array_equal(mine, part) for mine, part in zip(found["all"], parts, strict=True))
        np.testing.assert_allclose(found["part"], total[ends[rank] - counts[rank] : ends[rank]], rtol=1e-4, atol=1e-3)
        assert np.array_equal(found["same"], whole[root])
        expected = [block.reshape(size, -1)[rank] for block in blocks]
        assert np.array_equal(found["mixed"], np.array(expected).reshape(size, -1))
        arrived = blocks[rank - shift][: counts[0]] if rank >= shift else np.zeros(counts[0], dtype)
        assert np.array_equal(found["moved"], arrived)


@pytest.mark.parametrize("apart", [(), (0, 1, 2), (1,)], ids=["shared", "apart", "mixed"])
def test_a_vector_is_summed_at_once_again_and_again(ranks_of, apart) -> None:
    ranks = ranks_of("local", 3)
    for count, times in ((5, 3 * SLOTS), (8192, 3 * SLOTS), (200_000, SLOTS), (1_700_011, 3)):  # in one to five blocks
        pattern = np.arange(count) % 251
        arrays = [
            np.empty(count, "f4") if rank in apart else engine.group.memory.empty(count, "f4")
            for rank, engine in enumerate(ranks.engines)
        ]

        def body(
            rank: int, engine: Any, key: Any, arrays: list[np.ndarray] = arrays, pattern: Any = pattern,
            times: int = times,
        ) -> bool:  # fmt: skip
            generation, step, _ = key
            right = True
            for tag in range(times):
                arrays[rank][:] = pattern + (rank + tag)
                engine.sum_now(arrays[rank], (generation, step, tag), PATIENCE)
                right = right and np.array_equal(arrays[rank], 3 * pattern + (3 * tag + 3))
            return right

        assert ranks.run(body) == [True] * 3, count


def test_sums_of_arrays_that_others_do_not_see_are_made_block_by_block(ranks_of) -> None:
    ranks = ranks_of("local", 2)
    count = 2_000_003
    sources = [np.arange(count, dtype="f8") * (rank + 1) for rank in range(2)]

    def body(rank: int, engine: Any, key: Any) -> np.ndarray:
        generation, step, _ = key
        engine.group.memory._gather()
        free = sum(room for _, room in engine.group.memory._free)
        out = np.empty(count)
        pending = engine.all_reduce([sources[rank]], [out], "sum", (generation, step, 0), PATIENCE)
        taken = free - sum(room for _, room in engine.group.memory._free)
        pending.wait(PATIENCE)
        assert taken < count * 8 / 2  # room for a few of its blocks
        return out

    for rank, out in enumerate(ranks.run(body)):
        assert np.array_equal(out, np.arange(count) * 3.0)
        assert np.array_equal(sources[rank], np.arange(count) * (rank + 1.0))  # an operand is not written to


@pytest.mark.parametrize("count", [10, 20_000])
def test_who_sleeps_is_woken_by_what_it_waits_for_alone(ranks_of, count) -> None:
    ranks = ranks_of("local", 2)
    ranks.run(lambda rank, engine, key: engine.barrier(key, PATIENCE).wait(PATIENCE))
    first = ranks.endpoints[0]
    rung: list[int] = []
    ring = first.ring
    first.ring = lambda peer: (rung.append(peer), ring(peer))  # type: ignore[method-assign]
    try:
        ranks.step += 1
        key = first.generation, ranks.step, 0
        arrays = [np.full(count, rank + 1, "f4") for rank in range(2)]
        started = [ranks.engines[0].all_reduce([arrays[0]], [arrays[0]], "sum", key, PATIENCE)]
        assert not rung  # rank 1 sleeps, and has begun nothing
        started.append(ranks.engines[1].all_reduce([arrays[1]], [arrays[1]], "sum", key, PATIENCE))
        for rank, one in enumerate(started):
            one.wait(PATIENCE)
            assert np.array_equal(arrays[rank], np.full(count, 3, "f4"))
    finally:
        del first.ring


def test_more_exchanges_than_fit_on_a_board(ranks_of) -> None:
    ranks = ranks_of("local", 3)
    many = 10 * SLOTS

    def body(rank: int, engine: Any, key: Any) -> list[np.ndarray]:
        generation, step, _ = key
        arrays = [np.full(10 if tag % 3 else 20_000, rank + tag, "i8") for tag in range(many)]
        keys = [(generation, step, tag) for tag in range(many)]
        started = [engine.all_reduce([a], [a], "sum", key, PATIENCE) for key, a in zip(keys, arrays, strict=True)]
        for one in reversed(started):
            one.wait(PATIENCE)
        return arrays

    for arrays in ranks.run(body):
        assert all(np.all(array == 3 * tag + 3) for tag, array in enumerate(arrays))


def test_nobody_needs_to_wait_for_an_exchange_to_happen(ranks_of) -> None:
    ranks = ranks_of("local", 2)
    arrays = [np.full(50_000, rank + 1.0) for rank in range(2)]
    done = [threading.Event() for _ in range(2)]
    for rank, engine in enumerate(ranks.engines):
        started = engine.all_reduce([arrays[rank]], [arrays[rank]], "sum", (0, 10**6, 0), PATIENCE)
        started.add_done_callback(lambda _, rank=rank: done[rank].set())
    assert all(event.wait(PATIENCE) for event in done)
    assert all(np.all(array == 3.0) for array in arrays)


def test_ranks_that_disagree_are_told(trio: Ranks) -> None:
    def body(rank: int, engine: Any, key: Any) -> None:
        array = np.ones(10 + rank)
        engine.all_reduce([array], [array], "sum", key, PATIENCE).wait(PATIENCE)

    with pytest.raises(CollectiveError, match=r"step 1, tag 0.*disagree on the order of their exchanges"):
        trio.run(body)


def test_a_late_rank_is_named(trio: Ranks) -> None:
    array = np.ones(10)
    started = trio.engines[0].all_reduce([array], [array], "sum", (0, 5, 3), 0.1)
    with pytest.raises(CollectiveTimeout, match=r"step 5, tag 3\) on rank 0 .*nothing came from rank 1 at local://"):
        started.wait(PATIENCE)


def test_a_lost_peer_fails_everything_in_flight_and_after(trio: Ranks) -> None:
    array = np.ones(100_000)
    started = [trio.engines[0].all_reduce([array], [array], "sum", (0, 5, tag), PATIENCE) for tag in range(3)]
    trio.endpoints[2].close()
    for one in started:
        with pytest.raises(CollectiveError, match="rank 2 at"):
            one.wait(PATIENCE)
    with pytest.raises(CollectiveError, match="rank 2 at"):
        trio.engines[0].all_reduce([array], [array], "sum", (0, 6, 0), PATIENCE).wait(PATIENCE)


@pytest.mark.parametrize("raises", [False, True])
def test_what_fails_while_it_is_being_shown_is_told(trio: Ranks, raises: bool) -> None:
    """A peer is lost, on another thread, or what is to be shown cannot be."""

    class Unlucky(Barrier):
        __slots__ = ()

        def show(self, board: Board, slot: int) -> None:
            if raises:
                raise ValueError("there is nothing to show")
            other = threading.Thread(target=self._group.fail, args=(PeerLost(1, "an address", "it was closed"),))
            other.start()
            other.join(PATIENCE)
            super().show(board, slot)

    group = trio.engines[0].group
    unlucky = Unlucky(group, (0, 1, 0), PATIENCE)
    group.begin(unlucky)
    with pytest.raises(CollectiveError, match="nothing to show" if raises else "rank 1 at an address"):
        unlucky.wait(PATIENCE)
    with pytest.raises(CollectiveError):
        trio.engines[0].barrier((0, 2, 0), PATIENCE).wait(PATIENCE)


def test_a_generation_ends_what_is_under_way_and_the_next_one_works(trio: Ranks) -> None:
    arrays = [np.full(40_000, rank + 1.0) for rank in range(3)]
    stuck = trio.engines[0].all_reduce([arrays[0]], [arrays[0]], "sum", (0, 1, 0), PATIENCE)
    for endpoint in trio.endpoints:
        endpoint.set_generation(4)
    with pytest.raises(CollectiveError, match="generation 4 began"):
        stuck.wait(PATIENCE)
    with pytest.raises(CollectiveError, match="generation 4 began"):
        trio.engines[1].all_reduce([arrays[1]], [arrays[1]], "sum", (0, 1, 0), PATIENCE).wait(PATIENCE)
    arrays[0][:] = 1.0

    def body(rank: int, engine: Any, key: Any) -> np.ndarray:
        engine.all_reduce([arrays[rank]], [arrays[rank]], "sum", key, PATIENCE).wait(PATIENCE)
        return arrays[rank]

    assert all(np.all(result == 6.0) for result in trio.run(body))


def test_peers_can_read_shared_memory_and_not_write_it(trio: Ranks) -> None:
    array = trio.endpoints[0].memory.empty(3, "f8")
    array[:] = [1.0, 2.0, 3.0]
    seen = trio.endpoints[1].peer_memory[0].array(trio.endpoints[0].memory.offset(array), "f8", 3)
    assert seen.tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="read-only"):
        seen[0] = 0.0


def test_messages_are_measured(ranks_of) -> None:
    models = []

    def body(rank: int, engine: Any, key: Any) -> None:
        models.append(ranks_of("inproc", 3).communicators[rank].calibrate())

    ranks_of("inproc", 3).run(body)
    assert len(set(models)) == 1
    assert 0 < models[0].latency < 1
    assert 0 < models[0].per_byte < 1e-6
