"""Broadcast, all-gather and barrier."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transport_mesh import mesh

from futurex.runtime.collectives import CollectiveError, CollectiveTimeout, SmallCollectives
from futurex.runtime.collectives.small import BROADCAST_HANDLER

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(params=["inproc", "tcp", pytest.param("ucx", marks=pytest.mark.ucx)])
def groups(request: pytest.FixtureRequest):
    made: list[SmallCollectives] = []
    with mesh(request.param, 3, lambda endpoint: made.append(SmallCollectives(endpoint))):
        yield made


@pytest.mark.parametrize("count", [0, 1, 1000, 3_000_000])
@pytest.mark.parametrize("root", [0, 2])
def test_broadcast(groups: list[SmallCollectives], count: int, root: int) -> None:
    source = np.arange(count, dtype=np.float32)
    arrays = [source.copy() if rank == root else np.full(count, -1, np.float32) for rank in range(3)]
    order = [root, *(rank for rank in range(3) if rank != root)]  # the others begin when parts have arrived
    pending = [groups[rank].broadcast(arrays[rank], root, generation=0, step=1, timeout=20) for rank in order]
    for one in pending:
        one.wait(20)
    assert all(np.array_equal(array, source) for array in arrays)


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4))
def test_all_gather(items: list[bytes]) -> None:
    made: list[SmallCollectives] = []
    with mesh("inproc", len(items), lambda endpoint: made.append(SmallCollectives(endpoint))):
        gathers = [
            group.all_gather(item, generation=0, step=0, timeout=20) for group, item in zip(made, items, strict=True)
        ]
        for gather in gathers:
            gather.wait(20)
        assert all(gather.items == items for gather in gathers)


def test_a_barrier_opens_when_the_last_rank_comes(groups: list[SmallCollectives]) -> None:
    opened = threading.Event()
    first = [groups[rank].barrier(generation=0, step=0, timeout=20) for rank in (0, 1)]
    first[0].add_done_callback(lambda pending: opened.set())
    assert not opened.wait(0.05)
    groups[2].barrier(generation=0, step=0, timeout=20).wait(20)
    for pending in first:
        pending.wait(20)


def test_a_late_rank_is_named(groups: list[SmallCollectives]) -> None:
    pending = [groups[rank].barrier(generation=0, step=4, timeout=0.2) for rank in (0, 1)]
    with pytest.raises(CollectiveTimeout, match=r"barrier .*step 4.* nothing came from rank 2 at"):
        pending[0].wait(20)
    waiting = groups[1].broadcast(np.ones(3), 2, generation=0, step=5, timeout=0.05)
    with pytest.raises(CollectiveTimeout, match="1 parts from rank 2 at"):
        waiting.wait(20)


def test_only_the_root_may_broadcast(groups: list[SmallCollectives]) -> None:
    group = groups[0]
    waiting = group.broadcast(np.ones(3), 2, generation=0, step=0, timeout=20)
    groups[1]._endpoint.send(0, BROADCAST_HANDLER, bytes(24), generation=0)
    with pytest.raises(CollectiveError, match=r"rank 1 at .* disagree on the root"):
        waiting.wait(20)
    with pytest.raises(ValueError, match="root 3"):
        group.broadcast(np.ones(3), 3, generation=0, step=1)
    with pytest.raises(ValueError, match="writable contiguous"):
        group.broadcast(np.ones((4, 4)).T[1:], 0, generation=0, step=1)
    with pytest.raises(ValueError, match="at most 1048576"):
        group.all_gather(bytes(2 << 20), generation=0, step=1)
