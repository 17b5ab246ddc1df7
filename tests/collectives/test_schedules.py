"""Schedules of collective communication, carried out on numbers."""

import numpy as np
import pytest

from futurex.runtime.collectives import schedules
from futurex.runtime.collectives.model import Model
from futurex.runtime.collectives.schedules import Schedule

SIZES = [*range(1, 10), 12, 16, 17]


def carry_out(ranks: list[Schedule], blocks: list[list[float]]) -> list[list[float]]:
    """Run the schedules of all ranks; fails if one waits for ever, or a message is left."""
    places = [[0] * len(schedule.timelines) for schedule in ranks]
    sent: dict[tuple[int, int, int, int], float] = {}
    moved = True
    while moved:
        moved = False
        for rank, schedule in enumerate(ranks):
            for block, timeline in enumerate(schedule.timelines):
                while places[rank][block] < len(timeline):
                    event = timeline[places[rank][block]]
                    if event.send:
                        assert (rank, event.peer, block, event.hop) not in sent
                        sent[rank, event.peer, block, event.hop] = blocks[rank][block]
                    elif (event.peer, rank, block, event.hop) in sent:
                        arrived = sent.pop((event.peer, rank, block, event.hop))
                        blocks[rank][block] = arrived + blocks[rank][block] * event.combine
                    else:
                        break
                    places[rank][block] += 1
                    moved = True
    assert not sent
    for row, schedule in zip(places, ranks, strict=True):
        assert row == [len(timeline) for timeline in schedule.timelines]
    return blocks


def values(ranks: list[Schedule]) -> list[list[float]]:
    count = len(ranks[0].timelines)
    return [[float((rank + 1) * (block + 3)) for block in range(count)] for rank in range(len(ranks))]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", schedules.ALL_REDUCE)
def test_all_reduce(name: str, size: int) -> None:
    ranks = [schedules.ALL_REDUCE[name](rank, size) for rank in range(size)]
    start = values(ranks)
    expected = np.sum(start, axis=0).tolist()
    assert carry_out(ranks, start) == [expected] * size


@pytest.mark.parametrize("hosts", [(0,), (0, 0, 0), (0, 1), (0, 1, 1, 0, 1), (0, 0, 1, 1, 2, 2, 2), (0, 1, 2, 0, 1)])
def test_all_reduce_between_hosts(hosts: tuple[int, ...]) -> None:
    ranks = [schedules.hierarchical_all_reduce(rank, hosts) for rank in range(len(hosts))]
    start = values(ranks)
    expected = np.sum(start, axis=0).tolist()
    assert carry_out(ranks, start) == [expected] * len(hosts)
    across = {
        (rank, event.peer) for rank, each in enumerate(ranks) for timeline in each.timelines
        for event in timeline if event.send and hosts[event.peer] != hosts[rank]
    }  # fmt: skip
    assert len(across) == len(set(hosts)) * (len(set(hosts)) > 1)  # one connection leaves each host


@pytest.mark.parametrize("size", SIZES)
def test_reduce_scatter(size: int) -> None:
    ranks = [schedules.ring_reduce_scatter(rank, size) for rank in range(size)]
    start = values(ranks)
    expected = np.sum(start, axis=0).tolist()
    assert [blocks[rank] for rank, blocks in enumerate(carry_out(ranks, start))] == expected


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", schedules.ALL_GATHER)
def test_all_gather(name: str, size: int) -> None:
    ranks = [schedules.ALL_GATHER[name](rank, size) for rank in range(size)]
    start = [[float(block) if block == rank else -1.0 for block in range(size)] for rank in range(size)]
    assert carry_out(ranks, start) == [[float(block) for block in range(size)]] * size


@pytest.mark.parametrize("size", SIZES)
def test_broadcast_from_every_root(size: int) -> None:
    for root in range(size):
        ranks = [schedules.tree_broadcast(rank, size, root) for rank in range(size)]
        assert carry_out(ranks, [[float(rank == root)] for rank in range(size)]) == [[1.0]] * size
        assert all(len(schedule.timelines[0]) <= 1 + size.bit_length() for schedule in ranks)


def test_small_vectors_take_few_rounds_and_large_ones_little_bandwidth() -> None:
    model = Model(latency=50e-6, per_byte=1e-9)
    assert [model.all_reduce(8, nbytes) for nbytes in (8, 300_000, 100_000_000)] == ["doubling", "halving", "halving"]
    assert [model.all_reduce(7, nbytes) for nbytes in (8, 100_000_000)] == ["doubling", "ring"]
    assert [model.all_gather(8, nbytes) for nbytes in (8, 100_000_000)] == ["dissemination", "ring"]
    assert Model(1e-3, 1e-9).bucket_bytes(8) > Model(1e-5, 1e-9).bucket_bytes(8)
