"""Memory that processes share: allocation, what may be done with a descriptor, and what a killed process leaves."""

import gc
import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transport_mesh import processes

from futurex.runtime.transport import TransportError
from futurex.runtime.transport.arena import Arena, ArenaFull, PeerMemory

pytestmark = pytest.mark.timeout(180)


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
    arena._gather()
    assert arena._free == free
    arena.close()


class _Garbage:
    def __init__(self, array: np.ndarray) -> None:
        self.array, self.itself = array, self  # it goes when garbage is collected


def test_memory_that_comes_back_while_some_is_taken_is_not_given_twice() -> None:
    """A collection of garbage in the middle of an allocation gives blocks back to the list that is looked through."""
    arena = Arena(4096)
    held = []
    before = gc.get_threshold()
    for objects in range(1, 40):  # made until a collection begins, somewhere in the allocation for some of the numbers
        gap = arena.empty(5000, np.uint8)
        held.append(arena.empty(5000, np.uint8))
        _Garbage(gap)
        del gap
        gc.set_threshold(gc.get_count()[0] + objects, 1000, 1000)
        try:
            held.append(arena.empty(3000, np.uint8))
        finally:
            gc.set_threshold(*before)
    spans = sorted((arena.offset(array), array.nbytes) for array in held)
    assert all(start + count <= following for (start, count), (following, _) in itertools.pairwise(spans))
    held.clear()
    gc.collect()
    arena._gather()
    assert len(arena._free) == 1
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


@pytest.mark.parametrize(("kind", "flag"), [("RLIMIT_FSIZE", "-f"), ("RLIMIT_AS", "-v")])
def test_limits_of_the_process_bound_it(kind: str, flag: str) -> None:
    program = f"""
import resource
from futurex.runtime.transport import TransportError, arena
def limited(nbytes):
    before = int(open("/proc/self/statm").read().split()[0]) * 4096 if {flag!r} == "-v" else 0
    resource.setrlimit(resource.{kind}, (before + nbytes, resource.getrlimit(resource.{kind})[1]))
limited(1 << 30)
found = arena.Arena(4096, 3)
assert (1 << 30) / 8 < found.nbytes <= 1 << 30, found.nbytes
found.empty(1000, "f8")[:] = 1.0
peers = [arena.PeerMemory(found.descriptor) for _ in range(2)]
try:
    found.empty(found.nbytes, "u1")
except arena.ArenaFull as error:
    assert "ulimit {flag}" in str(error)
limited(1 << 20)
try:
    arena.Arena(4096, 3)
except TransportError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert f"(ulimit {flag}) leaves" in said.stdout, said
    assert "transport='tcp'" in said.stdout, said


def test_memory_that_could_shrink_is_not_mapped() -> None:
    descriptor = os.memfd_create("open", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, 4096)
    with pytest.raises(TransportError, match="not sealed"):
        PeerMemory(descriptor)
    os.close(descriptor)


def _names(pid: int) -> set[str]:
    """The abstract names at which a process listens."""
    links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {row[7] for row in rows if len(row) > 7 and f"socket:[{row[6]}]" in links}


@pytest.mark.cluster
def test_a_killed_process_leaves_nothing_behind() -> None:
    with processes("local", 2, "echo", lambda endpoint: None) as (endpoint, peers):
        endpoint.memory.empty(1 << 20, np.uint8)[:] = 1
        for pid in (os.getpid(), peers[0].pid):
            files = {line.split()[-1] for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "rw-s" in line}
            assert not any(file.startswith("/dev/shm/") for file in files)  # what is shared has no name
        names = _names(peers[0].pid)
        assert any("futurex-" in name for name in names)
        peers[0].kill()
        peers[0].wait()
        left = Path("/proc/net/unix").read_text()
        assert not any(name in left for name in names)
        own = endpoint.address.decode().removeprefix("local://")
    assert own not in Path("/proc/net/unix").read_text()
