"""The state machine of an elastic run: events in, actions out, no clock, no socket and no thread of its own.

A run is a sequence of *generations*. In each of them a fixed set of workers computes together; the first thing that
goes wrong ends it. The next one is formed of the workers that answer, begins with the newest commit that one of them
holds, and has a higher number, which all its messages carry.

    WAITING --enough workers--> FORMING --all have answered--> RUNNING --all have finished--> OVER
       ^                        |  ^ |                            |
       +--too few, or not those +  +-+-- somebody is missing      +-- lost, failed, paused: FORMING or WAITING
          who hold the commit

A worker in a running generation holds a *lease*: every sign of life that is granted lets it act for ``stall`` seconds
from when it sent that sign. A worker that has said nothing for as long as that is left out, and by then its lease is
over, whether it is dead or only slow; when it speaks again it is taken in again. So every state has a deadline.

Those who answer may lack what a silent one holds: pieces of a commit that was whole, or all of it where they are new.
They are members then, and WAITING with their leases renewed, until it answers, leaves, or ``wait`` seconds are over.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Worker = str


class Mark(NamedTuple):
    """What names a commit: so many steps had been done, the last of them in this generation."""

    step: int
    generation: int


class Held(NamedTuple):
    """What a worker has of a commit: these of ``of`` pieces. Where the commit is not cut up, the one piece there is."""

    mark: Mark
    pieces: tuple[int, ...] = (0,)
    of: int = 1


@dataclass(frozen=True)
class Settings:
    """``min_workers``: fewer do not go on. ``max_workers``: more do not take part; they stand by. ``wait``: seconds for
    which too few wait for others, and enough of them for those who hold more. ``stall``: seconds without a sign of life
    after which a worker is left out. ``settle``: seconds in which workers that come are gathered, so that they
    interrupt the others once. ``attempts``: how often the program may fail at the same step before the run does.
    ``patience``: generations in a row that may end without a new commit. ``pieces``: workers hold pieces of commits, so
    those that are to leave do so one after the other.
    """

    min_workers: int = 1
    max_workers: int | None = None
    wait: float = 600.0
    stall: float = 30.0
    settle: float = 0.25
    attempts: int = 2
    patience: int = 20
    pieces: bool = False


# -- what happens ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Joined:
    """A worker has come."""

    worker: Worker


@dataclass(frozen=True)
class Left:
    """A worker has gone, and does not act any more."""

    worker: Worker


@dataclass(frozen=True)
class Leaving:
    """A worker is to leave, and goes on until it is no member any more. Where it stays after all, it has joined."""

    worker: Worker


@dataclass(frozen=True)
class Alive:
    """A sign of life."""

    worker: Worker
    generation: int


@dataclass(frozen=True)
class Formed:
    """A worker has left what it did, and is ready for a generation; ``held`` are the commits that it has parts of."""

    worker: Worker
    generation: int
    held: tuple[Held, ...] = ()


class How(enum.StrEnum):
    """How a worker's part in a generation ended."""

    FINISHED = "finished"  # the work is done
    PAUSED = "paused"  # it was asked to
    INTERRUPTED = "interrupted"  # others, or the way to them, failed
    FAILED = "failed"  # its own program did


@dataclass(frozen=True)
class Ended:
    """A worker's part in a generation has ended, ``step`` steps into the run."""

    worker: Worker
    generation: int
    how: How
    step: int
    reason: str = ""


@dataclass(frozen=True)
class Stop:
    """The user wants the run to end soon."""


Event = Joined | Left | Leaving | Alive | Formed | Ended | Stop

# -- what is to be done ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """Ask a worker to leave what it does and to get ready as ``rank`` of ``size``."""

    worker: Worker
    generation: int
    rank: int
    size: int


@dataclass(frozen=True)
class Start:
    """Tell a worker that the generation begins with a commit, or without one.

    ``sources`` are the ranks that give its pieces to the others; none where everybody has all of it.
    """

    worker: Worker
    generation: int
    mark: Mark | None
    sources: tuple[int, ...] = ()


@dataclass(frozen=True)
class Grant:
    """Answer a sign of life: the worker may go on."""

    worker: Worker
    generation: int


@dataclass(frozen=True)
class Tell:
    """Give the program of a worker a command: ``pause`` or ``stop``."""

    worker: Worker
    generation: int
    command: str


@dataclass(frozen=True)
class Note:
    """Something for the log of the run."""

    what: str
    generation: int
    workers: tuple[Worker, ...]
    step: int
    reason: str


@dataclass(frozen=True)
class Over:
    """The run has ended: well, by a program's failure on ``worker``, or because of ``reason``."""

    reason: str = ""
    worker: Worker | None = None
    missing: int = 0  # workers, where there were too few


Action = Form | Start | Grant | Tell | Note | Over


class Phase(enum.StrEnum):
    """Where a run is."""

    WAITING = "waiting"
    FORMING = "forming"
    RUNNING = "running"
    OVER = "over"


@dataclass
class Coordinator:
    """Decides for one run. Give it every event with the time, call :meth:`tick` at :attr:`deadline`, do what it says.

    >>> run = Coordinator(Settings(min_workers=1))
    >>> run.begin(["a"], now=0.0)[-1]
    Form(worker='a', generation=1, rank=0, size=1)
    >>> run.handle(Formed("a", 1), now=0.1)[-1]
    Start(worker='a', generation=1, mark=None, sources=())
    >>> run.handle(Ended("a", 1, How.FINISHED, step=7), now=9.0)[-1]
    Over(reason='', worker=None, missing=0)
    """

    settings: Settings
    phase: Phase = Phase.WAITING
    generation: int = 0
    members: tuple[Worker, ...] = ()  # of this generation, by rank
    step: int = 0  # with which the newest generation began
    _present: dict[Worker, None] = field(default_factory=dict)  # in the order in which they came
    _silent: set[Worker] = field(default_factory=set)
    _leaving: dict[Worker, None] = field(default_factory=dict)
    _until: float | None = None  # when waiting or forming ends
    _heard: dict[Worker, float] = field(default_factory=dict)
    _formed: dict[Worker, tuple[Held, ...]] = field(default_factory=dict)
    _ended: dict[Worker, How] = field(default_factory=dict)
    _worked: dict[Worker, int] = field(default_factory=dict)  # of those who are there: in which generation, the newest
    _complete_by: float | None = None  # when those who answer go on without the commit that silent ones have parts of
    _regroup: float | None = None  # when those who run are asked to pause, so that others join them
    _stopping: bool = False
    _failures: tuple[int, frozenset[int]] = (-1, frozenset())  # of the program: at which step, in which generations
    _fruitless: int = 0
    _actions: list[Action] = field(default_factory=list)

    # -- the interface -------------------------------------------------------------------------------------------------

    def begin(self, workers: Iterable[Worker], now: float) -> list[Action]:
        """Start the run with those who are there."""
        self._present = dict.fromkeys(workers)
        self._gather(now, "the run begins")
        return self._taken()

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take in an event, and return what is to be done, in order."""
        if self.phase is not Phase.OVER:
            match event:
                case Joined(worker):
                    self._joined(worker, now)
                case Left(worker):
                    self._left(worker, now)
                case Leaving(worker):
                    self._leaves(worker, now)
                case Alive(worker, generation):
                    self._alive(worker, generation, now)
                case Formed(worker, generation, held):
                    self._has_formed(worker, generation, held, now)
                case Ended():
                    self._has_ended(event, now)
                case Stop():
                    self._stop()
        return self._taken()

    def tick(self, now: float) -> list[Action]:
        """Do what is due."""
        if self.phase is Phase.WAITING and now >= self._due():
            if self.members:
                self._start(now)
            else:
                self._too_few()
        elif self.phase is Phase.FORMING and now >= self._due():
            late = [worker for worker in self.members if worker not in self._formed]
            self._silent.update(late)
            self._gather(now, f"{', '.join(late)} did not answer")
        elif self.phase is Phase.RUNNING:
            self._look(now)
        return self._taken()

    @property
    def deadline(self) -> float | None:
        """When :meth:`tick` is due; None once the run is over."""
        return None if self.phase is Phase.OVER else self._due()

    # -- events --------------------------------------------------------------------------------------------------------

    def _joined(self, worker: Worker, now: float) -> None:
        if worker not in self._present or worker in self._leaving:
            self._leaving.pop(worker, None)
            self._present[worker] = None
            self._more(now)

    def _leaves(self, worker: Worker, now: float) -> None:
        if worker in self._present:
            self._leaving[worker] = None
            if worker in self.members and self.phase is Phase.RUNNING:
                self._regroup = now

    def _left(self, worker: Worker, now: float) -> None:
        self._present.pop(worker, None)
        self._leaving.pop(worker, None)
        self._silent.discard(worker)
        self._worked.pop(worker, None)
        if worker in self.members:
            self._gather(now, f"{worker} was lost")
        elif self.phase is Phase.WAITING and self.members:
            self._start(now)  # unless others hold what it did

    def _alive(self, worker: Worker, generation: int, now: float) -> None:
        if generation == self.generation and worker in self._formed:
            self._heard[worker] = now
            self._actions.append(Grant(worker, generation))

    def _answers(self, worker: Worker, now: float) -> None:
        """A worker has left what it did: one that hangs gives signs of life, too, but no answer."""
        if worker in self._silent:
            self._silent.discard(worker)
            self._present.pop(worker, None)
            if self.phase is Phase.WAITING and self.members and worker in self._worked:
                self._present = {worker: None, **self._present}  # before those who lack what it holds
            else:
                self._present[worker] = None  # behind those who have gone on meanwhile
            self._more(now)

    def _has_formed(self, worker: Worker, generation: int, held: tuple[Held, ...], now: float) -> None:
        self._answers(worker, now)
        if self.phase is Phase.FORMING and generation == self.generation and worker in self.members:
            self._formed[worker] = held
            self._heard[worker] = now
            if len(self._formed) == len(self.members):
                self._start(now)

    def _has_ended(self, event: Ended, now: float) -> None:
        self._answers(event.worker, now)
        if event.how is How.FAILED and self._gives_up(event):  # others may have felt it and said so before
            self._end(Over(event.reason, event.worker))
        elif event.generation != self.generation or event.worker not in self.members:
            return
        elif event.how in (How.FAILED, How.INTERRUPTED):
            self._gather(now, f"{event.how} on {event.worker}: {event.reason}")
        else:
            self._ended[event.worker] = event.how
            if len(self._ended) == len(self.members):
                if How.PAUSED in self._ended.values():
                    self._gather(now, "workers leave" if self._leaving else "workers came", self._next_to_leave())
                else:
                    self._end(Over())

    def _gives_up(self, event: Ended) -> bool:
        step, generations = self._failures
        generations = generations if event.step == step else frozenset()
        self._failures = (event.step, generations | {event.generation})
        return len(self._failures[1]) >= self.settings.attempts

    def _stop(self) -> None:
        self._stopping = True
        if self.phase is Phase.WAITING:
            self._end(Over("it was stopped while it waited for workers"))
        elif self.phase is Phase.RUNNING:
            self._actions += [Tell(worker, self.generation, "stop") for worker in self.members]

    # -- generations ---------------------------------------------------------------------------------------------------

    def _more(self, now: float) -> None:
        """Somebody may take part who does not."""
        if self.phase is Phase.WAITING:
            self._gather(now, "workers came")
        elif self._regroup is None and self._may_change():
            self._regroup = now + self.settings.settle

    def _able(self, leaving: Iterable[Worker] = ()) -> tuple[Worker, ...]:
        """Who takes part in the next generation, the oldest first; of those who are to leave only members still do."""
        gone = {*leaving, *(worker for worker in self._leaving if worker not in self.members)}
        there = [worker for worker in self._present if worker not in self._silent and worker not in gone]
        return tuple(there[: self.settings.max_workers])

    def _next_to_leave(self) -> list[Worker]:
        """Of the members that are to leave those that may: what each has alone must come to the others before."""
        found = [worker for worker in self._leaving if worker in self.members]
        return found[:1] if self.settings.pieces else found

    def _may_change(self) -> bool:
        """Would others than those of now take part in another generation?"""
        return set(self._able(self._next_to_leave())) != set(self.members)

    def _gather(self, now: float, reason: str, leaving: Iterable[Worker] = ()) -> None:
        """End the generation, and form the next one of all who answer, or wait for more."""
        there = self._able(leaving)
        if len(there) < self.settings.min_workers:
            if self.phase is not Phase.WAITING or self._until is None or self.members:
                self._until = now + self.settings.wait
                self._note("waiting", there, reason)
            self.phase, self.members, self._formed = Phase.WAITING, (), {}
            return
        self.phase = Phase.FORMING
        self.generation += 1
        self.members = there
        self._formed, self._ended, self._regroup = {}, {}, None
        self._until = now + self.settings.stall  # by then the lease of whoever did not answer is over
        self._note("forming", there, reason)
        size = len(there)
        self._actions += [Form(worker, self.generation, rank, size) for rank, worker in enumerate(there)]

    def _start(self, now: float) -> None:
        held = [self._formed[worker] for worker in self.members]
        newest, sources = newest_whole(held)
        step = newest.step if newest else 0
        if others := self._who_holds_more(held, step):
            silent = [worker for worker in others if worker in self._silent]
            if silent != others and self._may_change():
                self._gather(now, "those came who may hold more")
                return
            if silent and self._complete_by is None:
                self._complete_by = now + self.settings.wait
                self._note("waiting", self.members, f"{', '.join(silent)} may hold what they lack of a newer commit")
            if silent and self._complete_by is not None and now < self._complete_by:
                self.phase, self._until = Phase.WAITING, self._complete_by
                return
        self._complete_by = None
        lost = max((each.mark.step for them in held for each in them), default=0) > step
        self._fruitless = 0 if step > self.step else self._fruitless + 1
        if self._fruitless > self.settings.patience:
            self._end(Over(f"{self._fruitless} generations ended without a new commit after step {step}"))
            return
        self.phase, self.step, self._until = Phase.RUNNING, step, None
        self._note("started", self.members, "pieces of newer commits are lost" if lost else "")
        self._worked |= dict.fromkeys(self.members, self.generation)
        for worker in self.members:
            self._actions.append(Start(worker, self.generation, newest, sources))
            if self._stopping:
                self._actions.append(Tell(worker, self.generation, "stop"))
        if self._may_change():
            self._regroup = now + self.settings.settle

    def _who_holds_more(self, held: Sequence[Sequence[Held]], step: int) -> list[Worker]:
        """Who is connected and no member, and may hold what members lack of a commit newer than that of ``step``.

        The older of a member's two commits was whole once, and one that it has alone. Where no member was in the newest
        generation nobody knows what there is.
        """
        newest = max(self._worked.values(), default=0)
        if any(self._worked.get(worker) == newest for worker in self.members):
            whole = [mark for mark in (min(each.mark for each in them) for them in held if them) if mark.step > step]
            since = min((mark.generation for mark in whole), default=None)
        else:
            since = newest
        others = [worker for worker in self._worked if worker not in self.members]
        return [] if since is None else [worker for worker in others if self._worked[worker] >= since]

    def _look(self, now: float) -> None:
        late = [worker for worker in self.members if now >= self._heard[worker] + self.settings.stall]
        if late:
            self._silent.update(late)
            self._gather(now, f"nothing was heard of {', '.join(late)} for {self.settings.stall:g} s")
        elif self._regroup is not None and now >= self._regroup:
            self._regroup = None
            if not self._may_change():  # who came has gone
                return
            self._actions += [Tell(worker, self.generation, "pause") for worker in self.members]

    def _too_few(self) -> None:
        there = len(self._able())
        missing = self.settings.min_workers - there
        self._end(Over(f"{there} of {self.settings.min_workers} workers were there", missing=missing))

    def _end(self, over: Over) -> None:
        self.phase = Phase.OVER
        self._actions.append(over)

    def _due(self) -> float:
        if self._until is not None and self.phase is not Phase.RUNNING:
            return self._until
        silence = min(self._heard[worker] for worker in self.members) + self.settings.stall
        return silence if self._regroup is None else min(silence, self._regroup)

    def _note(self, what: str, workers: tuple[Worker, ...], reason: str) -> None:
        self._actions.append(Note(what, self.generation, workers, self.step, reason))

    def _taken(self) -> list[Action]:
        taken, self._actions = self._actions, []
        return taken


def newest_whole(held: Sequence[Sequence[Held]]) -> tuple[Mark | None, tuple[int, ...]]:
    """The newest commit of which workers, by rank, have all pieces between them, and the rank that gives each piece.

    No ranks where everybody has all of it; None where there is no such commit.

    >>> new, old = Mark(6, 1), Mark(3, 1)
    >>> newest_whole([[Held(new, (0, 1), 3), Held(old, (0, 1), 3)], [Held(old, (1, 2), 3)]])
    (Mark(step=3, generation=1), (0, 0, 1))
    """
    by_mark: dict[Mark, dict[int, Held]] = {}
    for rank, them in enumerate(held):
        for each in them:
            by_mark.setdefault(each.mark, {})[rank] = each
    for mark in sorted(by_mark, reverse=True):
        holders = by_mark[mark]
        givers = {piece: rank for rank, each in reversed(holders.items()) for piece in each.pieces}
        of = next(iter(holders.values())).of
        if len(givers) == of:
            everywhere = of == 1 and len(holders) == len(held)
            return mark, () if everywhere else tuple(givers[piece] for piece in range(of))
    return None, ()


def held_of(message: Iterable[tuple[Sequence[int], Sequence[int], int]]) -> tuple[Held, ...]:
    """What a worker holds, from the lists in which it says so."""
    return tuple(Held(Mark(*mark), tuple(pieces), of) for mark, pieces, of in message)
