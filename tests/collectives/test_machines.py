"""Sums over ranks of several machines, which share memory inside one, against NumPy: any layout, size and dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engines import DTYPES, Ranks, in_order, operands
from transport_mesh import PATIENCE, SECRET, connect_all

from futurex.ops.comm import REDUCTIONS
from futurex.runtime.collectives import CollectiveError, CollectiveTimeout, Communicator
from futurex.runtime.transport import open_endpoint

pytestmark = pytest.mark.timeout(300)

LAYOUTS = ["aaa", "ab", "aab", "abab", "aaabb", "abcbca", "abcd"]
COUNTS = st.one_of(st.integers(0, 40), st.sampled_from([1000, 8193, 20_000, 300_001]))


@contextmanager
def machines(layout: str) -> Iterator[Ranks]:
    """Connected communicators, one for each letter, those with equal letters on one machine."""
    endpoints = [
        open_endpoint("auto", rank, len(layout), SECRET, machine=name) for rank, name in enumerate(layout)
    ]
    try:
        communicators = [Communicator(endpoint) for endpoint in endpoints]
        assert connect_all(endpoints) == [None] * len(layout)
        yield Ranks(endpoints, communicators)
    finally:
        for endpoint in endpoints:
            endpoint.close()


@pytest.fixture(scope="module")
def ranks_of() -> Iterator[Callable[[str], Ranks]]:
    with ExitStack() as stack:
        yield cache(lambda layout: stack.enter_context(machines(layout)))


def documented(reduce: str, arrays: list[np.ndarray], layout: str) -> np.ndarray:
    """In the order of ranks inside each machine; exact where the order between machines does not matter."""
    both = list(zip(arrays, layout, strict=True))
    parts = [[array for array, name in both if name == machine] for machine in dict.fromkeys(layout)]
    wide = np.float32 if arrays[0].dtype == np.float16 and reduce in ("sum", "prod") else arrays[0].dtype
    inside = [in_order(reduce, [array.astype(wide) for array in part]) for part in parts]
    with np.errstate(all="ignore"):
        return in_order(reduce, inside).astype(arrays[0].dtype)


@given(
    st.sampled_from(LAYOUTS), st.lists(COUNTS, min_size=1, max_size=3), st.sampled_from(DTYPES),
    st.sampled_from(sorted(REDUCTIONS)), st.booleans(), st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=50)
def test_all_ranks_get_one_result(
    ranks_of, layout: str, counts: list[int], dtype: str, reduce: str, arena: bool, seed: int
) -> None:
    ranks = ranks_of(layout)
    parts = [operands(ranks.size, count, dtype, seed + number) for number, count in enumerate(counts)]

    def body(rank: int, engine: Any, key: Any) -> list[np.ndarray]:
        memory = ranks.endpoints[rank].memory
        mine = [memory.empty(count, dtype) if arena else np.empty(count, dtype) for count in counts]
        for array, values in zip(mine, parts, strict=True):
            array[:] = values[rank]
        outs = mine if seed % 2 else [np.empty_like(array) for array in mine]
        engine.all_reduce(mine, outs, reduce, key, PATIENCE).wait(PATIENCE)
        if not seed % 2:
            assert all(a.tobytes() == values[rank].tobytes() for a, values in zip(mine, parts, strict=True))
        return outs

    with np.errstate(all="ignore"):
        first, *others = ranks.run(body)
    for number, arrays in enumerate(parts):
        assert all(other[number].tobytes() == first[number].tobytes() for other in others)
        exact = first[number].dtype.kind in "iu" or reduce in ("max", "min") or len(set(layout)) <= 2
        if exact:
            assert first[number].tobytes() == documented(reduce, arrays, layout).tobytes()
        elif reduce == "sum":
            total = np.sum([array.astype("f8") for array in arrays], axis=0)
            scale = np.sum([np.abs(array.astype("f8")) for array in arrays], axis=0)
            assert np.all(np.abs(first[number] - total) <= 2 * ranks.size * np.finfo(dtype).eps * scale)


@pytest.mark.parametrize("layout", ["aab", "abab", "aaa"])
def test_many_at_once_and_the_other_exchanges_between_them(ranks_of, layout: str) -> None:
    ranks = ranks_of(layout)
    size, many = ranks.size, 60

    def body(rank: int, engine: Any, key: Any) -> tuple[list[np.ndarray], list[Any]]:
        generation, step, _ = key
        arrays = [np.full(10 if tag % 3 else 20_000, rank + tag, "i8") for tag in range(many)]
        started, others = [], []
        for tag, array in enumerate(arrays):
            started.append(engine.all_reduce([array], [array], "sum", (generation, step, tag), PATIENCE))
            if tag % 10 == 0:
                gathered = np.empty((size, 3), "f4")
                mine = np.full(3, rank + tag, "f4")
                started.append(engine.all_gather(mine, list(gathered), (generation, step, many + tag), PATIENCE))
                others.append(gathered)
        for one in reversed(started):
            one.wait(PATIENCE)
        engine.barrier((generation, step, 10 * many), PATIENCE).wait(PATIENCE)
        return arrays, others

    for arrays, others in ranks.run(body):
        assert all(np.all(array == size * tag + size * (size - 1) // 2) for tag, array in enumerate(arrays))
        for number, gathered in enumerate(others):
            assert np.array_equal(gathered, np.arange(size)[:, None] + 10 * number + np.zeros((1, 3)))


@pytest.mark.parametrize("layout", ["aab", "abab"])
def test_what_travels_between_machines_is_what_one_rank_of_each_would_send(layout: str) -> None:
    with machines(layout) as ranks:
        count = 400_000
        arrays = [np.ones(count, np.float32) for _ in layout]
        before = [endpoint.counters.bytes_sent for endpoint in ranks.endpoints]
        ranks.run(lambda rank, engine, key: engine.all_reduce([arrays[rank]], [arrays[rank]], "sum", key, 60).wait(60))
        sent = [e.counters.bytes_sent - b for e, b in zip(ranks.endpoints, before, strict=True)]
        for machine in set(layout):
            mine = [nbytes for nbytes, name in zip(sent, layout, strict=True) if name == machine]
            assert sum(mine) == 4 * count  # 2 (n - 1) / n of the vector, for two machines
        if layout == "abab":
            assert all(nbytes == 2 * count for nbytes in sent)  # shared by the ranks of a machine


def test_a_rank_of_another_machine_that_is_late_is_named() -> None:
    with machines("aab") as ranks:
        array = np.ones(1000)
        started = [
            engine.all_reduce([array.copy()], [array.copy()], "sum", (0, 5, 3), 0.5) for engine in ranks.engines[:2]
        ]
        with pytest.raises(CollectiveError, match=r"step 5, tag 3\).*from rank 2 at tcp://") as caught:
            started[0].wait(PATIENCE)
        assert isinstance(caught.value, CollectiveTimeout)


def test_a_lost_rank_of_another_machine_ends_what_is_under_way() -> None:
    with machines("aabb") as ranks:
        arrays = [np.ones(100_000) for _ in range(3)]
        started = [
            ranks.engines[rank].all_reduce([arrays[rank]], [arrays[rank]], "sum", (0, 5, 0), PATIENCE)
            for rank in range(2)
        ]
        ranks.endpoints[3].close()
        for one in started:
            with pytest.raises(CollectiveError, match="rank 3 at"):
                one.wait(PATIENCE)


def test_a_generation_ends_what_is_under_way_and_the_next_one_works() -> None:
    with machines("aab") as ranks:
        arrays = [np.full(40_000, rank + 1.0) for rank in range(3)]
        stuck = ranks.engines[0].all_reduce([arrays[0].copy()], [arrays[0].copy()], "sum", (0, 1, 0), PATIENCE)
        for endpoint in ranks.endpoints:
            endpoint.set_generation(4)
        with pytest.raises(CollectiveError, match="generation 4 began"):
            stuck.wait(PATIENCE)

        def body(rank: int, engine: Any, key: Any) -> np.ndarray:
            engine.all_reduce([arrays[rank]], [arrays[rank]], "sum", key, PATIENCE).wait(PATIENCE)
            return arrays[rank]

        assert all(np.all(result == 6.0) for result in ranks.run(body))


def test_the_network_is_measured_and_the_machines_are_known() -> None:
    with machines("aab") as ranks:
        models = []
        ranks.run(lambda rank, engine, key: models.append(ranks.communicators[rank].calibrate()))
        assert len(set(models)) == 1
        assert 0 < models[0].latency < 10
        assert [engine.messages.hosts for engine in ranks.engines] == [(0, 0, 1)] * 3
        assert ranks.communicators[0].bucket_bytes >= 1 << 20
