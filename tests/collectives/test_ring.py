"""The ring all-reduce against NumPy, in one process and between processes."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transport_mesh import PATIENCE, mesh, processes
from transport_peer import Reducer, Ring, operand

from futurex.runtime.collectives import CollectiveError, CollectiveTimeout
from futurex.runtime.collectives.messages import HANDLER
from futurex.runtime.transport import Endpoint, Limits

pytestmark = pytest.mark.timeout(300)

CHUNK_BYTES = 4096
DTYPES = ["f2", "f4", "f8", "i1", "u2", "i4", "i8", "u8"]


class Rings:
    """A mesh of rings in this process, and the all-reduce of one array per rank."""

    def __init__(self, endpoints: list[Endpoint], rings: list[Ring]) -> None:
        self.endpoints = endpoints
        self.rings = rings
        self.step = 0

    def reduce(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        self.step += 1
        arrays = [array.copy() for array in arrays]
        pending = [
            ring.start(array, generation=0, step=self.step, timeout=PATIENCE)
            for ring, array in zip(self.rings, arrays, strict=True)
        ]
        for one in pending:
            one.wait(PATIENCE)
        return arrays


@pytest.fixture(scope="module")
def rings_of() -> Iterator:
    opened = []

    @cache
    def make(size: int, kind: str = "inproc") -> Rings:
        rings: list[Ring] = []
        opened.append(mesh(kind, size, lambda endpoint: rings.append(Ring(endpoint, chunk_bytes=CHUNK_BYTES))))
        return Rings(opened[-1].__enter__(), rings)

    yield make
    for one in opened:
        one.__exit__(None, None, None)


@pytest.fixture
def trio() -> Iterator[Rings]:
    """Three ranks of its own for a test that breaks them."""
    rings: list[Ring] = []
    limits = Limits(max_queued=1 << 20)
    with mesh(
        "inproc", 3, lambda endpoint: rings.append(Ring(endpoint, max_early=10_000)), limits
    ) as endpoints:
        yield Rings(endpoints, rings)


def documented_sum(arrays: list[np.ndarray]) -> np.ndarray:
    """The sum in the documented order: segment s from rank s on round the ring, left to right."""
    size, count = len(arrays), arrays[0].size
    total = np.empty_like(arrays[0])
    for segment in range(size):
        part = slice(count * segment // size, count * (segment + 1) // size)
        total[part] = arrays[segment][part]
        for hop in range(1, size):
            total[part] = total[part] + arrays[(segment + hop) % size][part]
    return total


@given(st.integers(1, 5), st.integers(0, 10_000), st.sampled_from(DTYPES), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_every_rank_gets_the_sum_bit_by_bit(rings_of, size: int, count: int, dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = [(rng.standard_normal(count) * 50).astype(dtype) for _ in range(size)]
    expected = documented_sum([array.astype("f4") for array in arrays] if dtype == "f2" else arrays).astype(dtype)
    for result in rings_of(size).reduce(arrays):
        assert result.tobytes() == expected.tobytes()
    wide = np.sum([array.astype("f8") for array in arrays], axis=0)
    if dtype in ("f4", "f8"):
        np.testing.assert_allclose(expected, wide, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("kind", ["local", "tcp", pytest.param("ucx", marks=pytest.mark.ucx)])
@pytest.mark.parametrize("count", [1, 1000, 100_000])
def test_the_transports_agree(rings_of, kind: str, count: int) -> None:
    arrays = [operand(rank, 0, count) for rank in range(3)]
    for result in rings_of(3, kind).reduce(arrays):
        assert result.tobytes() == documented_sum(arrays).tobytes()


def test_many_at_once_in_any_order(rings_of) -> None:
    rings = rings_of(4)
    arrays = [[operand(rank, tag, 100 + 37 * tag) for tag in range(30)] for rank in range(4)]
    expected = [documented_sum([arrays[rank][tag] for rank in range(4)]) for tag in range(30)]
    pending = []
    for rank, ring in enumerate(rings.rings):
        for tag in np.random.default_rng(rank).permutation(30):
            pending.append(ring.start(arrays[rank][tag], generation=0, step=10**6, tag=int(tag), timeout=PATIENCE))
    for one in pending:
        one.wait(PATIENCE)
    for rank in range(4):
        for tag in range(30):
            assert arrays[rank][tag].tobytes() == expected[tag].tobytes()


def test_a_rank_that_starts_late_gets_what_was_sent_before(rings_of) -> None:
    rings = rings_of(3)
    arrays = [operand(rank, 1, 5000) for rank in range(3)]
    expected = documented_sum(arrays)
    early = [rings.rings[rank].start(arrays[rank], generation=0, step=10**7, timeout=PATIENCE) for rank in (0, 2)]
    barrier = threading.Event()
    rings.endpoints[0].call_later(0.05, barrier.set)
    assert barrier.wait(PATIENCE)
    assert not any(one.done() for one in early)
    rings.rings[1].start(arrays[1], generation=0, step=10**7, timeout=PATIENCE).wait(PATIENCE)
    for one in early:
        one.wait(PATIENCE)
    assert all(array.tobytes() == expected.tobytes() for array in arrays)


def test_a_pending_tells_when_it_began_and_ended(rings_of) -> None:
    rings = rings_of(2)
    arrays = [operand(rank, 2, 100) for rank in range(2)]
    seen = []
    first = rings.rings[0].start(arrays[0], generation=0, step=10**8, timeout=PATIENCE)
    first.add_done_callback(seen.append)
    assert first.finished is None
    assert first.exception is None
    rings.rings[1].start(arrays[1], generation=0, step=10**8, timeout=PATIENCE).wait(PATIENCE)
    first.wait(PATIENCE)
    assert seen == [first]
    assert first.finished is not None
    assert first.started <= first.finished


def test_one_rank_has_the_sum_already() -> None:
    with mesh("inproc", 1) as (endpoint,):
        ring = Ring(endpoint)
        array = np.arange(5.0)
        pending = ring.start(array, generation=0, step=0)
        assert pending.done()
        assert np.array_equal(array, np.arange(5.0))


def test_a_missed_deadline_names_the_rank_that_is_late(trio: Rings) -> None:
    late = trio.rings[0].start(np.ones(10), generation=0, step=7, tag=3, timeout=0.1)
    with pytest.raises(CollectiveTimeout, match=r"generation 0, step 7, tag 3\) on rank 0 .* from rank 2 at inproc://"):
        late.wait(PATIENCE)


@pytest.mark.parametrize("timeouts", [(0.3, 0.05), (0.05, 0.3)])
def test_each_deadline_counts_on_its_own(trio: Rings, timeouts: tuple[float, float]) -> None:
    pending = [
        trio.rings[1].start(np.ones(10), generation=0, step=step, timeout=timeout)
        for step, timeout in enumerate(timeouts)
    ]
    for step in np.argsort(timeouts):
        with pytest.raises(CollectiveTimeout, match=f"step {step}"):
            pending[step].wait(PATIENCE)


def test_a_generation_may_be_started_before_it_is_entered(trio: Rings) -> None:
    arrays = [operand(rank, 3, 4000) for rank in range(3)]
    expected = documented_sum(arrays)
    for endpoint in trio.endpoints[:2]:
        endpoint.set_generation(1)
    pending = [
        ring.start(array, generation=1, step=0, timeout=PATIENCE)
        for ring, array in zip(trio.rings, arrays, strict=True)
    ]
    late = trio.endpoints[2]
    until = time.monotonic() + PATIENCE
    while len(late._ahead) < 3 and time.monotonic() < until:  # a term of each other segment, and the sum of its own
        time.sleep(0.005)
    assert len(late._ahead) == 3
    late.set_generation(1)
    for one in pending:
        one.wait(PATIENCE)
    assert all(array.tobytes() == expected.tobytes() for array in arrays)


def test_a_lost_peer_fails_everything_in_flight(trio: Rings) -> None:
    pending = [trio.rings[0].start(np.ones(10), generation=0, step=step, tag=step + 1) for step in range(3)]
    trio.endpoints[1].close()
    for step, one in enumerate(pending):
        with pytest.raises(
            CollectiveError, match=rf"step {step}, tag {step + 1}\) on rank 0 failed: rank 1 at inproc://"
        ):
            one.wait(PATIENCE)
        assert isinstance(one.exception, CollectiveError)
    with pytest.raises(CollectiveError, match="rank 1 at"):
        trio.rings[0].start(np.ones(10), generation=0, step=9).wait(PATIENCE)


def test_a_new_generation_fails_what_belongs_to_the_old_one(trio: Rings) -> None:
    old = trio.rings[0].start(np.ones(10), generation=0, step=0)
    trio.endpoints[0].set_generation(1)
    with pytest.raises(CollectiveError, match="generation 1 began"):
        old.wait(PATIENCE)
    arrays = [np.full(10, rank + 1.0) for rank in range(3)]
    new = [
        ring.start(array, generation=1, step=0, timeout=PATIENCE)
        for ring, array in zip(trio.rings[:1], arrays[:1], strict=True)
    ]
    for endpoint in trio.endpoints[1:]:
        endpoint.set_generation(1)
    new += [trio.rings[rank].start(arrays[rank], generation=1, step=0, timeout=PATIENCE) for rank in (1, 2)]
    for one in new:
        one.wait(PATIENCE)
    assert all(np.array_equal(array, np.full(10, 6.0)) for array in arrays)


def test_ranks_that_disagree_on_the_size_are_told(trio: Rings) -> None:
    pending = [
        ring.start(np.ones(count), generation=0, step=0, timeout=PATIENCE)
        for ring, count in zip(trio.rings, (30, 60, 30), strict=True)
    ]
    with pytest.raises(
        CollectiveError, match=r"rank 0 at .* sent 80 bytes where 160 are expected: .* disagree on the size"
    ):
        pending[1].wait(PATIENCE)


def test_too_much_for_what_has_not_begun_ends_the_connection(trio: Rings) -> None:
    pending = [trio.rings[0].start(np.ones(3000), generation=0, step=step) for step in range(3)]
    with pytest.raises(CollectiveError, match="rank 1 at"):
        pending[0].wait(PATIENCE)
    assert "ahead by more than the 10000 bytes" in str(trio.endpoints[1].lost[0])


def test_what_a_failed_one_still_gets_is_dropped(trio: Rings) -> None:
    failed = trio.rings[1].start(np.ones(30), generation=0, step=0, timeout=0.05)
    with pytest.raises(CollectiveTimeout):
        failed.wait(PATIENCE)
    for part in range(50):
        trio.endpoints[0].send(1, HANDLER, bytes(800), generation=0, step=0, part=part).wait(PATIENCE)
    assert trio.endpoints[1].lost == {}


def test_a_name_is_used_once_at_a_time(trio: Rings) -> None:
    trio.rings[0].start(np.ones(4), generation=0, step=0, tag=1)
    with pytest.raises(ValueError, match="in flight already"):
        trio.rings[0].start(np.ones(4), generation=0, step=0, tag=1)


@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["local", "tcp", pytest.param("ucx", marks=pytest.mark.ucx)])
@pytest.mark.parametrize("size", [2, 3])
def test_between_processes(kind: str, size: int) -> None:
    reducers: list[Reducer] = []
    steps, count = 5, 300_001
    with processes(kind, size, f"reduce:{steps}:{count}", lambda endpoint: reducers.append(Reducer(endpoint))):
        total = reducers[0].run(steps, count)
        expected = documented_sum([operand(rank, steps - 1, count) for rank in range(size)])
        assert total.tobytes() == expected.tobytes()
        assert reducers[0].heads(total, steps) == [expected.tobytes()[:4096]] * size


@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["local", "tcp", pytest.param("ucx", marks=pytest.mark.ucx)])
def test_a_peer_killed_in_the_middle_is_named_before_the_deadline(kind: str) -> None:
    reducers: list[Reducer] = []
    count = 1_000_000
    with processes(kind, 3, f"reduce:1000000:{count}", lambda endpoint: reducers.append(Reducer(endpoint))) as (
        _,
        peers,
    ):
        reducers[0].run(3, count)
        doomed = reducers[0].ring.start(operand(0, 3, count), generation=0, step=3, tag=0, timeout=PATIENCE)
        ahead = reducers[0].ring.start(np.zeros(count, np.float32), generation=0, step=10**9, tag=5, timeout=PATIENCE)
        peers[1].kill()
        peers[1].wait()
        with pytest.raises(CollectiveError, match=r"step 1000000000, tag 5\) on rank 0 failed: rank 2 at"):
            ahead.wait(PATIENCE)
        with suppress(CollectiveError):  # it may have ended well before
            doomed.wait(PATIENCE)


@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["local", "tcp", pytest.param("ucx", marks=pytest.mark.ucx)])
def test_a_peer_that_hangs_is_named_at_the_deadline(kind: str) -> None:
    reducers: list[Reducer] = []
    count = 4_000_000
    with processes(kind, 2, f"reduce:1000000:{count}", lambda endpoint: reducers.append(Reducer(endpoint))) as (
        _,
        peers,
    ):
        reducers[0].run(1, count)
        os.kill(peers[0].pid, signal.SIGSTOP)
        pending = reducers[0].ring.start(operand(0, 7, count), generation=0, step=10**9, tag=5, timeout=0.5)
        with pytest.raises(CollectiveTimeout, match=r"step 1000000000, tag 5\) on rank 0 .* from rank 1 at"):
            pending.wait(PATIENCE)
        reducers[0].endpoint.set_generation(1, timeout=10.0)  # for half of it UCX waits for what the peer still reads
