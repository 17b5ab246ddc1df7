"""The state machine of elastic runs among simulated workers: whatever comes, goes, hangs and fails, in any order."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from futurex.runtime.elastic.coordinator import (
    Alive,
    Coordinator,
    Ended,
    Form,
    Formed,
    Grant,
    Held,
    How,
    Joined,
    Leaving,
    Left,
    Mark,
    Note,
    Over,
    Phase,
    Settings,
    Start,
    Stop,
    Tell,
    newest_whole,
)

STEPS, EVERY = 9, 3
SETTINGS = Settings(min_workers=2, wait=100.0, stall=10.0, settle=1.0, patience=1000)
Lineage = tuple[int, ...]  # the generation in which each step was done: what parameters are in a real run


@dataclass
class Part:
    """What a worker does in one generation."""

    generation: int
    lease: float
    started: bool = False
    rank: int = 0
    lineage: Lineage = ()
    waiting: bool = False  # in the all-reduce of its step
    committing: bool = False  # and waiting for the piece of the rank before
    command: str = ""


@dataclass
class Worker:
    """A process: it dies, hangs, and loses nothing that it holds as long as it lives."""

    name: str
    inbox: deque = field(default_factory=deque)
    outbox: deque = field(default_factory=deque)  # pairs of an event and the time at which it was sent
    stopped: bool = False
    part: Part | None = None
    held: list[tuple[Held, Lineage]] = field(default_factory=list)  # the newer first


class Simulation:
    """Workers, the way to the coordinator and back, and a clock; everything is checked where it happens."""

    def __init__(self, workers: int, settings: Settings = SETTINGS) -> None:
        self.pieces = settings.pieces
        self.now = 0.0
        self.workers: dict[str, Worker] = {}
        self.gone: list[Worker] = []
        self.coordinator = Coordinator(settings)
        self.sizes: dict[int, int] = {}
        self.groups: dict[int, tuple[str, ...]] = {}
        self.entered: dict[tuple[int, int], dict[str, Lineage]] = {}
        self.given: dict[Mark, set[int]] = {}  # which ranks have begun a commit, and given their piece to the next one
        self.finished: dict[Mark, set[str]] = {}  # who has finished it
        self.safe: tuple[Mark, tuple[str, ...]] | None = None  # the newest that all have finished, by rank
        self.broken: set[int] = set()  # generations in which a channel has closed
        self.newest_started = 0
        self.over: Over | None = None
        self.results: list[Lineage] = []
        self.names = iter(f"w{k}" for k in range(10**6))
        first = [self.new().name for _ in range(workers)]
        self.perform(self.coordinator.begin(first, self.now))

    def new(self) -> Worker:
        worker = Worker(next(self.names))
        self.workers[worker.name] = worker
        return worker

    # -- the coordinator's side ----------------------------------------------------------------------------------------

    def perform(self, actions, sent: float = math.nan) -> None:
        for action in actions:
            match action:
                case Over():
                    assert self.over is None
                    self.over = action
                case Note():
                    pass
                case Grant(name, generation):
                    self.post(name, (generation, "grant", sent))
                case Form(name, generation, rank, size):
                    assert generation == self.coordinator.generation
                    self.sizes[generation] = size
                    self.groups[generation] = self.coordinator.members
                    self.post(name, (generation, "form", rank))
                case Start(name, generation, mark, sources):
                    self.check_start(generation, mark, sources)
                    self.post(name, (generation, "start", (mark, sources)))
                case Tell(name, generation, command):
                    self.post(name, (generation, "tell", command))
        assert self.over is not None or self.coordinator.deadline is not None, "a wait without a deadline"

    def post(self, name: str, message) -> None:
        if name in self.workers:
            self.workers[name].inbox.append(message)

    def check_start(self, generation: int, mark: Mark | None, sources: tuple[int, ...]) -> None:
        self.newest_started = generation
        members = self.coordinator.members
        held = [[each for each, _ in self.workers[name].held] if name in self.workers else [] for name in members]
        best, _ = newest_whole(held)
        assert best is None or (mark is not None and mark >= best), "a commit was lost that the members hold"
        for piece, rank in enumerate(sources):
            assert members[rank] not in self.workers or any(
                each.mark == mark and piece in each.pieces and each.of == len(sources) for each in held[rank]
            )
        if self.safe is not None and mark != self.safe[0]:
            safe, group = self.safe
            there = [name in members for name in group]
            alive = any(there) and all(there[k] or there[k - 1] for k in range(len(there)))
            assert not (alive if self.pieces else any(there)) or (mark is not None and mark > safe), "too much was lost"

    def hear(self, worker: Worker) -> None:
        """The coordinator receives the next message of a worker."""
        event, sent = worker.outbox.popleft()
        self.perform(self.coordinator.handle(event, self.now), sent)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = self.coordinator.deadline
        if due is not None and self.now >= due:
            self.perform(self.coordinator.tick(self.now))

    # -- the workers' side ---------------------------------------------------------------------------------------------

    def send(self, worker: Worker, event) -> None:
        worker.outbox.append((event, self.now))

    def read(self, worker: Worker) -> None:
        """A worker receives its next message."""
        generation, kind, detail = worker.inbox.popleft()
        part = worker.part
        if kind == "form":
            self.leave(worker)
            worker.part = Part(generation, self.now + SETTINGS.stall, rank=detail)
            self.send(worker, Formed(worker.name, generation, tuple(each for each, _ in worker.held)))
        elif part is None or part.generation != generation:
            return
        elif kind == "grant":
            part.lease = max(part.lease, detail + SETTINGS.stall)
        elif kind == "tell":
            part.command = part.command or detail
        elif kind == "start":
            self.start(worker, *detail)

    def start(self, worker: Worker, mark: Mark | None, sources: tuple[int, ...]) -> None:
        part = worker.part
        found = {held: lineage for held, lineage in worker.held if held.mark == mark}
        if sources:
            givers = [self.workers.get(self.groups[part.generation][rank]) for rank in sources]
            if not all(each and each.part and each.part.generation == part.generation for each in givers):
                self.end(worker, How.INTERRUPTED)
                return
            [part.lineage, *_] = [lineage for held, lineage in givers[0].held if held.mark == mark]
        elif mark is not None:
            [part.lineage] = found.values()
        part.started = True
        assert (mark.step if mark else 0) == len(part.lineage)
        if mark is not None:
            worker.held = list(found.items())
            if self.pieces:
                self.begin_commit(worker)
            elif not worker.held:
                worker.held = [(Held(mark), part.lineage)]

    def begin_commit(self, worker: Worker) -> None:
        part = worker.part
        part.committing = True
        worker.held = worker.held[:1]  # the memory of the older one is written to
        self.given.setdefault(Mark(len(part.lineage), part.generation), set()).add(part.rank)
        self.go_on_with_commit(worker)

    def go_on_with_commit(self, worker: Worker) -> None:
        part = worker.part
        mark, size = Mark(len(part.lineage), part.generation), self.sizes[part.generation]
        before = (part.rank - 1) % size
        if self.pieces and before not in self.given[mark]:
            if part.generation in self.broken:
                self.end(worker, How.INTERRUPTED)
            return
        part.committing = False
        self.hold(worker, mark)

    def hold(self, worker: Worker, mark: Mark) -> None:
        part, size = worker.part, self.sizes[worker.part.generation]
        pieces = tuple(sorted({part.rank, (part.rank - 1) % size}))
        held = Held(mark, pieces, size) if self.pieces and size > 1 else Held(mark)
        worker.held = [(held, part.lineage), *worker.held[:1]]
        finished = self.finished.setdefault(mark, set())
        finished.add(worker.name)
        if len(finished) == size:
            self.safe = mark, self.groups[part.generation]

    def leave(self, worker: Worker) -> None:
        if worker.part is not None:
            self.broken.add(worker.part.generation)  # its channels close: the others cannot go on without it
        worker.part = None

    def end(self, worker: Worker, how: How) -> None:
        part = worker.part
        self.send(worker, Ended(worker.name, part.generation, how, len(part.lineage), how))
        self.leave(worker)

    def work(self, worker: Worker) -> None:
        """A worker goes as far as it can without the others."""
        part = worker.part
        if self.now >= part.lease:
            self.end(worker, How.INTERRUPTED)
            return
        step = len(part.lineage)
        if part.committing:
            self.go_on_with_commit(worker)
            return
        if not part.waiting:
            if step == STEPS:
                self.results.append(part.lineage)
                self.send(worker, Ended(worker.name, part.generation, How.FINISHED, step))
                worker.part = None
                return
            if part.command and self.agreed(part):
                self.end_together(worker)
                return
            part.waiting = True
            present = self.entered.setdefault((part.generation, step), {})
            present[worker.name] = part.lineage
            assert len(set(present.values())) == 1, "localities enter one step with different parameters"
            return
        if len(self.entered[part.generation, step]) < self.sizes[part.generation]:
            if part.generation in self.broken:
                self.end(worker, How.INTERRUPTED)
            return
        assert part.generation >= self.newest_started, "a locality acts in a generation that has ended"
        part.waiting = False
        part.lineage += (part.generation,)
        if len(part.lineage) % EVERY == 0:
            self.begin_commit(worker)

    def agreed(self, part: Part) -> bool:
        """Commands count by a vote in the step before: all of a generation have heard of it, at the same step."""
        parts = [each.part for each in self.workers.values() if each.part and each.part.generation == part.generation]
        return (
            len(parts) == self.sizes[part.generation]
            and all(each.command and not each.waiting and not each.committing for each in parts)
            and len({each.lineage for each in parts}) == 1
        )

    def end_together(self, worker: Worker) -> None:
        generation = worker.part.generation
        for each in self.workers.values():
            part = each.part
            if part is not None and part.generation == generation:
                if (mark := Mark(len(part.lineage), generation)) not in [held.mark for held, _ in each.held]:
                    self.hold(each, mark)
                how = How.FINISHED if part.command == "stop" else How.PAUSED
                self.send(each, Ended(each.name, generation, how, len(part.lineage)))
                each.part = None

    def able(self) -> list[Worker]:
        return [worker for worker in self.workers.values() if not worker.stopped]

    def live(self) -> None:
        """A moment in which nothing goes wrong: everybody who can does what there is to do."""
        for worker in list(self.able()):
            while worker.inbox:
                self.read(worker)
            for _ in range(2):
                if worker.part is not None and worker.part.started:
                    self.work(worker)
            if worker.part is not None:
                self.send(worker, Alive(worker.name, worker.part.generation))
        for worker in list(self.workers.values()):
            while worker.outbox and self.over is None:
                self.hear(worker)
        if self.over is None:
            self.advance(0.5)


WHICH = st.integers(0, 10**6)


class Elastic(RuleBasedStateMachine):
    """Every rule is one thing that happens to one worker, or to the clock."""

    @initialize(
        workers=st.integers(0, 4), least=st.integers(1, 2), most=st.sampled_from([None, 2, 3]), pieces=st.booleans()
    )
    def begin(self, workers: int, least: int, most: int | None, pieces: bool) -> None:
        self.world = Simulation(
            workers, replace(SETTINGS, min_workers=least, max_workers=most, pieces=pieces)
        )  # fmt: skip
        self.leaving: set[str] = set()

    def pick(self, which: int, suits=lambda worker: True) -> Worker | None:
        found = [worker for worker in self.world.able() if suits(worker)]
        return found[which % len(found)] if found else None

    @rule(which=WHICH, times=st.integers(1, 4))
    def a_worker_reads(self, which: int, times: int) -> None:
        worker = self.pick(which, lambda each: each.inbox)
        for _ in range(times):
            if worker is not None and worker.inbox:
                self.world.read(worker)

    @rule(which=WHICH)
    def a_worker_works(self, which: int) -> None:
        worker = self.pick(which, lambda each: each.part and each.part.started)
        if worker is not None:
            self.world.work(worker)

    @rule(which=WHICH)
    def a_worker_shows_life(self, which: int) -> None:
        worker = self.pick(which, lambda each: each.part)
        if worker is not None:
            self.world.send(worker, Alive(worker.name, worker.part.generation))

    @rule(which=WHICH, times=st.integers(1, 4))
    def the_coordinator_hears(self, which: int, times: int) -> None:
        found = [worker for worker in self.world.workers.values() if worker.outbox]
        for _ in range(times):
            if found and found[which % len(found)].outbox and self.world.over is None:
                self.world.hear(found[which % len(found)])

    @rule(seconds=st.sampled_from([0.1, 1.0, 4.0, 11.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        if self.world.over is None:
            self.world.advance(seconds)

    @rule(moments=st.integers(1, 8))
    def all_goes_well(self, moments: int) -> None:
        for _ in range(moments):
            if self.world.over is None:
                self.world.live()

    @rule()
    def a_worker_joins(self) -> None:
        if len(self.world.workers) < 5:
            worker = self.world.new()
            self.world.send(worker, Joined(worker.name))

    @rule(which=WHICH, unheard=st.integers(0, 3))
    def a_worker_dies(self, which: int, unheard: int) -> None:
        """What it sent last may have arrived or not."""
        found = list(self.world.workers.values())
        if not found or self.world.over is not None:
            return
        worker = found[which % len(found)]
        while len(worker.outbox) > unheard:
            self.world.hear(worker)
            if self.world.over is not None:
                return
        del self.world.workers[worker.name]
        self.world.leave(worker)
        self.world.perform(self.world.coordinator.handle(Left(worker.name), self.world.now))

    @rule(which=WHICH)
    def a_worker_is_to_leave(self, which: int) -> None:
        found = list(self.world.workers.values())
        if found and self.world.over is None:
            worker = found[which % len(found)]
            self.leaving.add(worker.name)
            self.world.perform(self.world.coordinator.handle(Leaving(worker.name), self.world.now))

    @rule(stays=st.booleans())
    def those_leave_who_may(self, stays: bool) -> None:
        for name in sorted(self.leaving - set(self.world.coordinator.members)):
            if self.world.over is None:
                self.leaving.discard(name)
                worker = self.world.workers.get(name)
                if worker is not None and not stays:
                    del self.world.workers[name]
                    self.world.leave(worker)
                event = Joined(name) if stays and worker is not None else Left(name)
                self.world.perform(self.world.coordinator.handle(event, self.world.now))

    @rule(which=WHICH)
    def a_worker_hangs(self, which: int) -> None:
        worker = self.pick(which)
        if worker is not None:
            worker.stopped = True

    @rule()
    def those_that_hang_go_on(self) -> None:
        for worker in self.world.workers.values():
            worker.stopped = False

    @rule(which=WHICH)
    def a_channel_closes(self, which: int) -> None:
        worker = self.pick(which, lambda each: each.part and each.part.started)
        if worker is not None:
            self.world.end(worker, How.INTERRUPTED)

    @invariant()
    def generations_and_phases_fit(self) -> None:
        if not hasattr(self, "world"):
            return
        coordinator = self.world.coordinator
        if coordinator.phase in (Phase.FORMING, Phase.RUNNING):
            assert len(coordinator.members) >= coordinator.settings.min_workers
            assert len(coordinator.members) <= (coordinator.settings.max_workers or 5)
        for worker in self.world.workers.values():
            if worker.part is not None:
                assert worker.part.generation <= coordinator.generation

    def teardown(self) -> None:
        """Whatever was before, once all goes well the run comes to its end, and every step was done once."""
        if not hasattr(self, "world"):
            return
        world = self.world
        self.those_that_hang_go_on()
        for _ in range(400):
            if world.over is None:
                if len(world.workers.keys() - self.leaving) < world.coordinator.settings.min_workers:
                    worker = world.new()
                    world.send(worker, Joined(worker.name))
                world.live()
                self.those_leave_who_may(False)
        assert world.over is not None, "the run neither ends nor fails"
        if world.over == Over():
            assert len(set(world.results[-world.coordinator.settings.min_workers :])) == 1
            assert len(world.results[-1]) == STEPS
            assert list(world.results[-1]) == sorted(world.results[-1])
        else:
            assert world.over.missing > 0


TestElastic = Elastic.TestCase
TestElastic.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)


# -- single transitions ------------------------------------------------------------------------------------------------


def started(settings: Settings = SETTINGS, workers=("a", "b"), mark: Mark | None = None) -> Coordinator:
    run = Coordinator(settings)
    run.begin(workers, 0.0)
    for worker in workers:
        run.handle(Formed(worker, run.generation, (Held(mark),) if mark else ()), 0.0)
    assert run.phase is Phase.RUNNING
    return run


def test_too_few_workers_are_waited_for_and_then_named():
    run = Coordinator(Settings(min_workers=3, wait=5.0))
    [note] = run.begin(["a"], 0.0)
    assert (note.what, note.workers, run.phase, run.deadline) == ("waiting", ("a",), Phase.WAITING, 5.0)
    assert run.handle(Joined("b"), 1.0) == []
    assert run.deadline == 5.0  # those who come do not prolong it
    assert run.tick(4.9) == []
    [over] = run.tick(5.0)
    assert (over.reason, over.missing, run.deadline) == ("2 of 3 workers were there", 1, None)
    assert run.handle(Joined("c"), 6.0) == []


def test_a_lost_worker_ends_the_generation_and_the_newest_commit_is_taken():
    run = started(Settings(min_workers=1), workers=("a", "b", "c"))
    forms = [action for action in run.handle(Left("a"), 1.0) if isinstance(action, Form)]
    assert [(form.worker, form.rank, form.size, form.generation) for form in forms] == [("b", 0, 2, 2), ("c", 1, 2, 2)]
    run.handle(Formed("b", 2, (Held(Mark(10, 1)),)), 1.0)
    starts = [action for action in run.handle(Formed("c", 2, (Held(Mark(20, 1)),)), 1.0) if isinstance(action, Start)]
    assert {(start.worker, start.mark, start.sources) for start in starts} == {
        ("b", Mark(20, 1), (1,)), ("c", Mark(20, 1), (1,)),
    }  # fmt: skip


def test_equal_commits_are_not_sent():
    run = Coordinator(SETTINGS)
    run.begin(("a", "b"), 0.0)
    run.handle(Formed("a", 1, (Held(Mark(3, 1)),)), 0.0)
    starts = [action for action in run.handle(Formed("b", 1, (Held(Mark(3, 1)),)), 0.0) if isinstance(action, Start)]
    assert [start.sources for start in starts] == [(), ()]


def test_workers_that_come_together_interrupt_once():
    run = started()
    assert run.handle(Joined("c"), 1.0) == []
    assert run.handle(Joined("d"), 1.5) == []
    assert run.deadline == 2.0
    assert run.tick(2.0) == [Tell("a", 1, "pause"), Tell("b", 1, "pause")]
    run.handle(Ended("a", 1, How.PAUSED, 5), 2.1)
    forms = [action for action in run.handle(Ended("b", 1, How.PAUSED, 5), 2.2) if isinstance(action, Form)]
    assert [form.worker for form in forms] == ["a", "b", "c", "d"]  # the oldest is the first rank


def test_silence_is_noticed_and_an_answer_brings_a_worker_back():
    run = started(Settings(min_workers=1, stall=10.0, settle=1.0))
    assert run.handle(Alive("a", 1), 9.0) == [Grant("a", 1)]
    forms = [action for action in run.tick(10.0) if isinstance(action, Form)]
    assert [(form.worker, form.size) for form in forms] == [("a", 1)]
    run.handle(Formed("a", 2), 10.1)
    assert run.handle(Alive("b", 1), 11.0) == []  # alive, but perhaps still in what it did
    assert run.deadline == pytest.approx(20.1)
    run.handle(Ended("b", 1, How.INTERRUPTED, 3), 12.0)
    assert run.deadline == 13.0
    assert run.tick(13.0) == [Tell("a", 2, "pause")]


def test_a_program_that_fails_twice_at_one_step_fails_the_run_whoever_says_so_first():
    run = started(workers=("a", "b"))
    run.handle(Ended("b", 1, How.INTERRUPTED, 5, "a channel closed"), 1.0)
    assert run.generation == 2
    run.handle(Ended("a", 1, How.FAILED, 5, "IndexError"), 1.1)  # late, and counted
    assert run.phase is Phase.FORMING
    for worker in ("a", "b"):
        run.handle(Formed(worker, 2), 1.2)
    [*_, over] = run.handle(Ended("a", 2, How.FAILED, 5, "IndexError"), 2.0)
    assert over == Over("IndexError", "a")


def test_generations_without_a_new_commit_do_not_go_on_for_ever():
    run = started(Settings(min_workers=1, patience=3), workers=("a",))
    ends = []
    for _ in range(3):
        run.handle(Ended("a", run.generation, How.INTERRUPTED, 1), 1.0)
        ends = run.handle(Formed("a", run.generation), 1.0)
    assert "ended without a new commit after step 0" in ends[-1].reason


def test_a_stop_outlives_a_generation():
    run = started()
    assert run.handle(Stop(), 1.0) == [Tell("a", 1, "stop"), Tell("b", 1, "stop")]
    run.handle(Ended("a", 1, How.INTERRUPTED, 4), 1.0)
    run.handle(Formed("a", 2), 1.0)
    actions = run.handle(Formed("b", 2), 1.0)
    assert [action for action in actions if isinstance(action, Tell)] == [Tell("a", 2, "stop"), Tell("b", 2, "stop")]


def test_a_worker_that_is_to_leave_pauses_the_others_and_is_not_asked_again():
    run = started(Settings(min_workers=1), workers=("a", "b", "c"))
    assert run.handle(Leaving("b"), 1.0) == []
    assert run.deadline == 1.0
    assert {action.command for action in run.tick(1.0)} == {"pause"}
    assert "b" in run.members
    for worker in ("a", "b"):
        run.handle(Ended(worker, 1, How.PAUSED, 5), 1.1)
    actions = run.handle(Ended("c", 1, How.PAUSED, 5), 1.1)
    assert [action.worker for action in actions if isinstance(action, Form)] == ["a", "c"]
    for worker in ("a", "c"):
        run.handle(Formed(worker, 2, (Held(Mark(5, 1)),)), 1.2)
    assert run.handle(Joined("b"), 2.0) == []  # it stays after all
    assert {action.command for action in run.tick(run.deadline)} == {"pause"}


def test_workers_with_pieces_leave_one_after_the_other():
    run = started(Settings(min_workers=1, pieces=True), workers=("a", "b", "c"))
    for worker in ("b", "c"):
        run.handle(Leaving(worker), 1.0)
    sizes = []
    while len(run.members) > 1:
        run.tick(run.deadline)
        members, generation = run.members, run.generation
        for worker in members:
            run.handle(Ended(worker, generation, How.PAUSED, 5), 1.1)
        size, mark = len(members), Mark(5, generation)
        held = {worker: Held(mark, (rank, (rank - 1) % size), size) for rank, worker in enumerate(members)}
        for worker in run.members:
            actions = run.handle(Formed(worker, run.generation, (held[worker],)), 1.2)
        sizes.append([action.sources for action in actions if isinstance(action, Start)])
    assert sizes == [[(0, 1, 0)] * 2, [(0, 0)]]


def test_more_workers_than_there_may_be_stand_by():
    run = started(Settings(min_workers=1, max_workers=2))
    assert run.handle(Joined("c"), 1.0) == []
    assert run.tick(2.0) == []
    forms = [action for action in run.handle(Left("a"), 3.0) if isinstance(action, Form)]
    assert [(form.worker, form.size) for form in forms] == [("b", 2), ("c", 2)]


def test_a_commit_whose_pieces_are_lost_is_passed_over():
    new, old = Mark(6, 1), Mark(3, 1)
    assert newest_whole([[Held(new, (0, 1), 3), Held(old, (0, 1), 3)], [Held(old, (1, 2), 3)]]) == (old, (0, 0, 1))
    assert newest_whole([[Held(new, (0, 1), 3)], [Held(new, (1, 2), 3)]]) == (new, (0, 0, 1))
    assert newest_whole([[Held(new, (0, 1), 3)]]) == (None, ())
    assert newest_whole([[Held(new)], []]) == (new, (0,))
    assert newest_whole([[], []]) == (None, ())
