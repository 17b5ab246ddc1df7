"""Memory that processes share: allocation, what may be done with a descriptor, and what a killed process leaves."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transport_mesh import processes

from futurex.runtime.transport import TransportError
from futurex.runtime.transport.arena import Arena, ArenaFull, PeerMemory

pytestmark = pytest.mark.timeout(60)


@given(st.lists(st.tuples(st.integers(1, 50_000), st.booleans()), max_size=40))
def test_arrays_do_not_overlap_and_come_back(requests: list[tuple[int, bool]]) -> None:
    arena = Arena(4096)
    free = list(arena._free)
    held: list[np.ndarray] = []
    for number, (count, keep) in enumerate(requests):
        array = arena.empty(count, np.int32)
        array[:] = number
        if keep:
            held.append(array)
    assert [set(array.tolist()) == {array[0]} for array in held] == [True] * len(held)
    assert len({int(array[0]) for array in held}) == len(held)
    del held, requests
    array = None
    assert arena._free == free
    arena.close()


def test_a_view_keeps_its_memory() -> None:
    arena = Arena(0)
    view = arena.empty((10, 10), np.float64)[3:5, ::2]
    view[:] = 7.0
    others = [arena.empty(100, np.float64) for _ in range(5)]
    for other in others:
        other[:] = 0.0
    assert np.all(view == 7.0)
    assert arena.offset(np.ascontiguousarray(view)) is None
    arena.close()


def test_what_does_not_fit_is_refused() -> None:
    arena = Arena(0)
    with pytest.raises(ArenaFull, match=r"no .* contiguous bytes are free"):
        arena.empty(arena.nbytes + 1, np.uint8)
    arena.close()


def test_memory_that_could_shrink_is_not_mapped() -> None:
    descriptor = os.memfd_create("open", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, 4096)
    with pytest.raises(TransportError, match="not sealed"):
        PeerMemory(descriptor)
    os.close(descriptor)


def _shared_files() -> set[Path]:
    """Files of shared memory; the semaphores of other processes, which come and go, are none."""
    return {path for path in Path("/dev/shm").iterdir() if not path.name.startswith("sem.")}


@pytest.mark.cluster
def test_a_killed_process_leaves_nothing_behind() -> None:
    before = _shared_files()
    with processes("local", 2, "echo", lambda endpoint: None) as (endpoint, peers):
        endpoint.memory.empty(1 << 20, np.uint8)[:] = 1
        peers[0].kill()
        peers[0].wait()
        name = endpoint.address.decode().removeprefix("local://")
    assert _shared_files() <= before
    assert name not in Path("/proc/net/unix").read_text()
