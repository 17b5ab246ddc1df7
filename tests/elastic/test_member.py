"""Members and their coordinator in one process: real threads, endpoints and collectives, and what goes wrong."""

from __future__ import annotations

import pickle
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from futurex.partition import Replicate, Shard, local_part
from futurex.runtime import points
from futurex.runtime.elastic.commits import Commits, Lying
from futurex.runtime.elastic.coordinator import Mark, Settings
from tests.elastic.bus import Bus

STEPS, EVERY = 12, 3
SOON = Settings(min_workers=1, wait=60.0, stall=60.0, settle=0.01)


class Program:
    """Counts in every step how often it was done, on all localities together, and stops at gates on the way."""

    def __init__(self, steps: int = STEPS) -> None:
        self.steps = steps
        self.faults: dict[int, list] = {}  # by step: functions (locality) that are called once
        self.lock = threading.Lock()
        self.done: list[tuple[int, int, int]] = []  # generation, rank, step

    def __call__(self, locality):
        counts = np.zeros(self.steps)
        step = 0
        if locality.restored is not None:
            step = locality.restored.mark.step
            counts[:] = locality.restored.leaves[0]
            assert locality.restored.position == {"step": step}
        while step < self.steps:
            locality.act(step)
            self.meet(locality, step)
            votes = [command["command"] for command in locality.commands()]
            # every rank adds its share of 1 to the count of this step; the last element is the vote
            vector = np.zeros(self.steps + 1)
            vector[step] = 1.0 / locality.size
            vector[-1] = bool(votes)
            if locality.communicator is not None:
                key = locality.generation, locality.communicator.begin_step(), 1
                locality.communicator.engine.all_reduce([vector], [vector], "sum", key, 60.0).wait(60.0)
            counts += vector[:-1]
            step += 1
            locality.act(step)
            with self.lock:
                self.done.append((locality.generation, locality.rank, step))
            if step % EVERY == 0 or vector[-1]:
                locality.commit(step, [counts, 0.5], {"step": step})
            if vector[-1] and step < self.steps:
                locality.pause()
        return counts

    def meet(self, locality, step: int) -> None:
        with self.lock:
            waiting = self.faults.get(step, [])
            fault = waiting.pop(0) if waiting else None
        if fault is not None:
            fault(locality)


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture
def start():
    buses = []

    def begin(program, *names, settings=SOON, kind="inproc"):
        bus = Bus(settings, program, kind)
        buses.append(bus)
        bus.begin(*names)
        return bus

    yield begin
    for bus in buses:
        bus.close()


def finished(bus, steps: int = STEPS):
    assert bus.ended.wait(60), "the run does not end"
    assert bus.over.reason == ""
    for name in bus.coordinator.members:
        np.testing.assert_allclose(pickle.loads(bus.results[name]), np.ones(steps), rtol=1e-12)
    return [(note.generation, len(note.workers), note.step) for note in bus.notes if note.what == "started"]


@pytest.mark.parametrize("kind", ["inproc", "local", "tcp"])
def test_nothing_goes_wrong(start, kind):
    assert finished(start(Program(), "a", "b", "c", kind=kind)) == [(1, 3, 0)]


def test_a_locality_alone(start):
    assert finished(start(Program(), "a")) == [(1, 1, 0)]


@pytest.mark.parametrize("kind", ["inproc", "local", "tcp"])
@pytest.mark.parametrize("victim", ["a", "b"])
def test_a_member_dies_in_a_step_and_the_others_go_on_from_the_commit(start, victim, kind):
    program = Program()
    ready = threading.Event()

    def die(locality):
        ready.wait(60)
        bus.lose(victim)
        time.sleep(0.01)

    program.faults[7] = [die]
    bus = start(program, "a", "b", kind=kind)
    ready.set()
    first, last = finished(bus)
    assert first == (1, 2, 0)
    assert last[1:] == (1, 6)


def _close_channels(locality):
    locality.communicator.endpoint.close()


def _raise(locality):
    raise ZeroDivisionError("on purpose")


@pytest.mark.parametrize("kind", ["inproc", "local", "tcp"])
@pytest.mark.parametrize("fault", [_close_channels, _raise])
def test_a_fault_that_nobody_dies_of(start, kind, fault):
    program = Program()
    program.faults[4] = [fault]
    assert finished(start(program, "a", "b", kind=kind)) == [(1, 2, 0), (2, 2, 3)]


def test_who_joins_gets_the_state_before_anything_else(start):
    program = Program()
    ready = threading.Event()

    def wait(locality):
        ready.wait(60)
        until(lambda: {"b", "c"} <= set(bus.coordinator._present) and bus.told)

    program.faults[5] = [wait]
    bus = start(program, "a")
    bus.join("b")
    bus.join("c")
    ready.set()
    generations = finished(bus)  # they pause after the step in which they hear of it, with a commit
    assert generations[-1][1] == 3
    steps = [step for _, rank, step in program.done if rank == 0]
    assert steps == list(range(1, STEPS + 1))


def test_a_member_that_falls_silent_is_left_out_may_not_act_and_comes_back(start):
    program = Program(steps=400)
    bus = None
    silent = threading.Event()

    def fall_silent(locality):
        silent.wait(60)
        bus.silenced.add("b")

    def tarry(locality):
        time.sleep(0.05)

    program.faults[5] = [fall_silent]
    program.faults |= {step: [tarry] * 100 for step in range(8, 60)}
    bus = start(program, "a", "b", settings=Settings(min_workers=1, stall=1.0, settle=0.01))
    silent.set()
    until(lambda: any(note.what == "started" and note.workers == ("a",) for note in bus.notes))
    bus.hear_again()
    finished(bus, 400)


def test_who_is_heard_again_waits_no_longer_for_those_who_are_not(start):
    """Both fall silent in one step, in which one waits for the other, which is stopped."""
    program = Program()
    silent, awake = threading.Event(), threading.Event()

    def stop(locality):
        silent.wait(60)
        bus.silenced.update("ab")
        awake.wait(60)

    program.faults[5] = [stop]
    bus = start(program, "a", "b", settings=Settings(min_workers=1, stall=0.5, settle=0.01))
    silent.set()
    until(lambda: any(note.what == "waiting" for note in bus.notes))
    before = len(bus.notes)
    bus.hear_again()
    until(lambda: any(note.what == "forming" for note in bus.notes[before:]))  # of the one that is not stopped
    awake.set()
    finished(bus)


def test_a_program_that_always_fails_ends_the_run_with_its_error(start):
    program = Program()
    program.faults[4] = [_raise] * 10
    bus = start(program, "a", "b")
    assert bus.ended.wait(60)
    assert bus.over.reason == "ZeroDivisionError: on purpose"
    assert isinstance(pickle.loads(bus.results[bus.over.worker]), ZeroDivisionError)


def test_commits_are_copies_whose_memory_is_used_again():
    commits = Commits()
    array = np.arange(3.0)
    commits.take(Mark(1, 1), [array, 0.5], {})
    first = commits.newest.leaves[0]
    array += 1
    np.testing.assert_array_equal(first, [0, 1, 2])
    commits.take(Mark(2, 1), [array, 0.5], {})
    array += 1
    assert commits.newest.leaves[0] is not first
    commits.take(Mark(3, 1), [array, 0.25], {"epoch": 1})
    assert commits.newest.leaves[0] is first
    np.testing.assert_array_equal(first, [2, 3, 4])
    assert (commits.newest.mark, commits.newest.leaves[1], commits.newest.position) == (Mark(3, 1), 0.25, {"epoch": 1})


def test_shared_commits_come_bit_for_bit(start):
    """Whatever dtypes and shapes there are, NaN and infinities included."""
    leaves = [
        np.float32([[1.5, np.nan], [-0.0, np.inf]]), np.zeros((0, 3)), np.arange(4, dtype=np.int8),
        np.complex64(1 + 2j), np.float16(3.5), float("nan"), -0.0, 1e-310, 3.0,
    ]  # fmt: skip
    seen = {}

    def program(locality):
        if locality.restored is None:
            locality.commit(5, leaves, {"a": [1, None]})
            until(locality.commands)
            locality.pause()
        seen[locality.rank] = locality.restored

    bus = start(program, "a")
    bus.join("b")
    assert bus.ended.wait(60)
    for commit in seen.values():
        assert (commit.mark.step, commit.position) == (5, {"a": [1, None]})
        for got, want in zip(commit.leaves, leaves, strict=True):
            assert np.asarray(got).dtype == np.asarray(want).dtype
            assert np.asarray(got).shape == np.asarray(want).shape
            assert np.asarray(got).tobytes() == np.asarray(want).tobytes()
    assert len(seen) == 2


# -- state that is cut up ----------------------------------------------------------------------------------------------

WHOLE = np.arange(21.0).reshape(7, 3)
LYING = (Lying(Shard(0), (7, 3)), Lying(Shard(1), (7, 3)), Lying(Replicate(), (2,)), Lying(Replicate()))


class Cut(Program):
    """Adds one a step to arrays of which each locality has a part."""

    def __call__(self, locality):
        step, leaves = 0, [WHOLE, -WHOLE, np.zeros(2), 0.5]
        if locality.restored is not None:
            step, leaves = locality.restored.mark.step, locality.restored.leaves
            assert [np.shape(leaf) for leaf in leaves] == [each.shape for each in LYING]
        parts = [
            np.array(local_part(leaf, lies.placement, locality.size, locality.rank))
            for leaf, lies in zip(leaves[:3], LYING, strict=False)
        ]
        if locality.restored is not None:
            locality.commit(step, [*parts, 0.5], {"step": step}, LYING)
        while step < self.steps:
            locality.act(step)
            self.meet(locality, step)
            vector = np.array([float(bool(locality.commands()))])
            if locality.communicator is not None:
                key = locality.generation, locality.communicator.begin_step(), 1
                locality.communicator.engine.all_reduce([vector], [vector], "sum", key, 60.0).wait(60.0)
            for part in parts:
                part += 1
            step += 1
            locality.act(step)
            if step % EVERY == 0 or vector[0]:
                locality.commit(step, [*parts, 0.5], {"step": step}, LYING)
            if vector[0] and step < self.steps:
                locality.pause()
        return parts


def whole_at_the_end(bus, steps: int = STEPS):
    assert bus.ended.wait(60), "the run does not end"
    assert bus.over.reason == ""
    first, second, both = zip(*(pickle.loads(bus.results[name]) for name in bus.coordinator.members), strict=True)
    np.testing.assert_array_equal(np.concatenate(first), WHOLE + steps)
    np.testing.assert_array_equal(np.concatenate(second, axis=1), steps - WHOLE)
    np.testing.assert_array_equal(both, [[steps, steps]] * len(both))
    return [(len(note.workers), note.step) for note in bus.notes if note.what == "started"]


@pytest.mark.parametrize("kind", ["inproc", "local", "tcp"])
@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "c"), ("a", "b", "c", "d")])
def test_a_lost_part_is_with_the_next_locality(start, names, kind):
    program, ready = Cut(), threading.Event()

    def die(locality):
        ready.wait(60)
        bus.lose(names[1])

    program.faults[7] = [die]
    bus = start(program, *names, kind=kind, settings=replace(SOON, pieces=True))
    ready.set()
    first, last = whole_at_the_end(bus)
    assert first == (len(names), 0)
    assert last == (len(names) - 1, 6)


def test_parts_are_cut_anew_for_more_localities(start):
    program, ready = Cut(), threading.Event()

    def wait(locality):
        ready.wait(60)
        until(lambda: {"b", "c"} <= set(bus.coordinator._present) and bus.told)

    program.faults[5] = [wait]
    bus = start(program, "a", settings=replace(SOON, pieces=True))
    bus.join("b")
    bus.join("c")
    ready.set()
    assert whole_at_the_end(bus)[-1][0] == 3


def test_two_neighbours_lost_at_once_are_too_many_and_the_run_says_so(start):
    program, ready = Cut(), threading.Event()

    def die(locality):
        ready.wait(60)
        bus.lost.update("ab")
        for name in "ab":
            bus.members[name].close()
        for name in "ab":
            bus._inbox.put((name, {"is": "left"}))

    program.faults[7] = [die]
    bus = start(program, "a", "b", "c", "d", settings=replace(SOON, pieces=True))
    ready.set()
    generations = whole_at_the_end(bus)
    assert generations[-1] == (2, 0)
    assert [note.reason for note in bus.notes if note.what == "started"][-1] == "pieces of newer commits are lost"


def test_an_unfinished_commit_is_left_for_the_one_before(start):
    """One locality dies after the others have begun a commit that they cannot finish without it."""
    program = Cut()
    bus = None

    class Dies(Exception):
        pass

    def begin(point, where):
        if point == "commit" and where.step == 6 and where.rank == 1 and where.generation == 1:
            ready.wait(60)
            bus.lose("b")
            raise Dies

    ready = threading.Event()
    points.hook = begin
    try:
        bus = start(program, "a", "b", "c", settings=replace(SOON, pieces=True))
        ready.set()
        generations = whole_at_the_end(bus)
    finally:
        points.hook = None
    assert generations[0] == (3, 0)
    assert generations[-1] == (2, 3)
