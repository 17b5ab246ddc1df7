"""A simulated world for the coordinator of elastic runs: workers that compute, commit, hang, die and lose messages."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from futurex.runtime.elastic.coordinator import (
    Alive,
    Coordinator,
    Ended,
    Form,
    Formed,
    Grant,
    Held,
    How,
    Mark,
    Note,
    Over,
    Settings,
    Start,
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
    done: int = 0  # the generation whose work it has finished: its channels stay open, for what others still need
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
        self.waiting_since = math.inf
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
                case Note(what):
                    self.waiting_since = self.now if what == "waiting" else self.waiting_since
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
            newer = mark is not None and mark > safe
            assert not (alive if self.pieces else any(there)) or newer, "too much was lost"
            silent = [name in self.workers and name in self.coordinator._silent for name in group]
            reached = [a or b for a, b in zip(there, silent, strict=True)]
            whole = all(reached[k] or reached[k - 1] for k in range(len(group))) if self.pieces else any(reached)
            waited = self.now >= self.waiting_since + self.coordinator.settings.wait
            assert not whole or newer or waited, "those who hold the rest were not waited for"
            if self.pieces:  # what members hold of older commits gives way to this one piece by piece
                self.safe = None

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
            worker.done = 0
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
            if not all(each and part.generation in (each.done, each.part and each.part.generation) for each in givers):
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
                worker.part, worker.done = None, part.generation
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
