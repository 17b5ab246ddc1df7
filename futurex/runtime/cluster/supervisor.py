"""Elastic runs as the scheduler sees them: it decides, passes messages on, and keeps what outlives drivers and workers.

What it keeps (the program, its data, events, results) stays pickled here: the scheduler never runs any of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Any

from distributed import Scheduler, SchedulerPlugin
from distributed.comm import CommClosedError

from futurex.runtime.elastic.coordinator import (
    Action,
    Alive,
    Coordinator,
    Ended,
    Event,
    Form,
    Formed,
    Grant,
    How,
    Joined,
    Leaving,
    Left,
    Note,
    Over,
    Settings,
    Start,
    Stop,
    Tell,
    held_of,
)
from futurex.runtime.transport.auth import Secret

OP = "futurex_elastic"
TOPIC = "futurex-elastic"  # of the events of all these runs
KEPT_RUNS = 8  # how many that have ended are remembered, for those who attach later
KEPT_BYTES = 1 << 28  # of their results; those of the last one are there in any case
_RETIRING = frozenset({"close_workers", "remove", "stimulus_id"})  # how; other options say which
PASSING = frozenset({"step", "traffic"})  # events of which only the newest of a rank, or of it in a generation, matters


class SupervisedRun:
    """One run: its coordinator, and everything around it that is no decision."""

    def __init__(
        self, name: str, token: str, spec: bytes, handed: list[bytes], about: bytes, settings: Settings,
        scheduler: Scheduler,
    ) -> None:  # fmt: skip
        self.name, self.token, self.spec, self.handed, self.about = name, token, spec, handed, about
        self.coordinator = Coordinator(settings)
        self.over: dict[str, Any] | None = None
        self.results: list[bytes] = []
        self._scheduler = scheduler
        self._events: list[tuple[int, int, dict[str, Any]]] = []  # number, rank, event
        self._numbered = 0
        self._changed = asyncio.Event()
        self._addresses: dict[str, bytes] = {}
        self._left_behind: dict[str, bytes] = {}  # results, or pickled errors, by worker
        self._secret = Secret()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self._perform(self.coordinator.begin(list(self._scheduler.workers), time.monotonic()))

    def handle(self, event: Event, sent: float | None = None) -> None:
        self._perform(self.coordinator.handle(event, time.monotonic()), sent)

    def told(self, worker: str, message: dict[str, Any]) -> None:
        """A worker's message."""
        generation = message["generation"]
        match message["is"]:
            case "alive":
                self.handle(Alive(worker, generation), message["sent"])
            case "formed":
                self._addresses[worker] = message["address"]
                self.handle(Formed(worker, generation, held_of(message["held"])))
            case "ended":
                if message["result"] is not None:
                    self._left_behind[worker] = message["result"]
                how = How(message["how"])
                self.handle(Ended(worker, generation, how, message["step"], message["reason"]))
            case "event":
                late = generation != self.coordinator.generation
                if not late or message["event"].get("kind") == "traffic":  # what was exchanged was exchanged
                    self.publish(message["rank"], message["event"])

    def publish(self, rank: int, event: dict[str, Any]) -> None:
        """Keep an event for whoever follows the run, now or later."""
        if event.get("kind") in PASSING:
            name = _name(rank, event)
            self._events = [each for each in self._events if _name(*each[1:]) != name]
        self._events.append((self._numbered, rank, event))
        self._numbered += 1
        self._scheduler.log_event(TOPIC, {"run": self.name, "rank": rank, "event": event})  # for the dashboard
        self._wake()

    def engages(self, worker: str) -> bool:
        """Is a worker needed by the generation of now?"""
        return self.over is None and worker in self.coordinator.members

    @property
    def wanted(self) -> int:
        """How many workers the run would like to have: as many as may take part, or those it has."""
        return self.coordinator.settings.max_workers or len(self.coordinator.members) if self.over is None else 0

    async def dismiss(self, workers: Iterable[str]) -> None:
        """Have workers go on until the others have what only they had; they are let go in any case after a while."""
        names = list(workers)
        end = time.monotonic() + self.coordinator.settings.stall
        for worker in names:
            self.handle(Leaving(worker))
        while any(self.engages(worker) for worker in names) and time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), end - time.monotonic())

    async def watch(self, since: int, patience: float) -> dict[str, Any]:
        """The events from number ``since`` on; waits for one as long as ``patience`` seconds."""
        if since >= self._numbered and self.over is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), patience)
        events = [[rank, event] for number, rank, event in self._events if number >= since]
        return {"events": events, "next": self._numbered, "over": self.over}

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _perform(self, actions: Iterable[Action], sent: float | None = None) -> None:
        for action in actions:
            match action:
                case Form(worker, generation, rank, size):
                    if rank == 0:
                        self._secret = Secret(secrets.token_bytes(32))
                    self._post(
                        worker, do="form", generation=generation, rank=rank, size=size, secret=self._secret,
                        stall=self.coordinator.settings.stall,
                    )  # fmt: skip
                case Start(worker, generation, mark, sources):
                    addresses = [self._addresses[each] for each in self.coordinator.members]
                    self._post(
                        worker, do="start", generation=generation, addresses=addresses, mark=mark, sources=sources
                    )  # fmt: skip
                case Grant(worker, generation):
                    self._post(worker, do="grant", generation=generation, sent=sent)
                case Tell(worker, generation, command):
                    self._post(worker, do="tell", generation=generation, command={"command": command})
                case Note(what, generation, workers, step, reason):
                    self.publish(0, {
                        "kind": "generation", "what": what, "generation": generation, "workers": list(workers),
                        "step": step, "reason": reason, "time": time.time(),
                    })  # fmt: skip
                case Over():
                    self._end(action)
        if self._timer is not None:
            self._timer.cancel()
        due = self.coordinator.deadline
        if due is not None:
            seconds = max(0.0, due - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(seconds, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._perform(self.coordinator.tick(time.monotonic()))

    def _end(self, over: Over) -> None:
        if over.worker is not None:
            self.results = [self._left_behind.get(over.worker, b"")]
        elif not over.reason:
            self.results = [self._left_behind[worker] for worker in self.coordinator.members]
        self.over = {"reason": over.reason, "failed": over.worker, "missing": over.missing}
        self.spec, self.handed, self._left_behind = b"", [], {}
        for worker in list(self._scheduler.workers):
            self._post(worker, do="over")
        self._wake()

    def _post(self, worker: str, **message: Any) -> None:
        stream = self._scheduler.stream_comms.get(worker)
        if stream is not None:  # otherwise it has left; the coordinator hears of that, and of closed channels
            with contextlib.suppress(CommClosedError):
                stream.send({"op": OP, "run": self.name, **message})


def _name(rank: int, event: dict[str, Any]) -> tuple[Any, ...]:
    """Of two passing events with one name the newer counts."""
    return rank, event.get("kind"), event.get("generation")


class ElasticPlugin(SchedulerPlugin):
    """The elastic runs of a scheduler: workers and drivers talk to it, and it hears who comes and goes."""

    name = "futurex-elastic"
    idempotent = True  # whoever connects later finds the runs of those before

    def __init__(self) -> None:
        self._runs: dict[str, SupervisedRun] = {}

    async def start(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        scheduler.handlers[OP] = self.asked
        scheduler.stream_handlers[OP] = self.told
        self._retire, self._target = scheduler.retire_workers, scheduler.adaptive_target
        scheduler.handlers["retire_workers"] = self.retire_workers
        scheduler.handlers["adaptive_target"] = self.adaptive_target

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        self._everywhere(Joined(worker))

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:
        self._everywhere(Left(worker))

    async def retire_workers(
        self, workers: Sequence[Any] | None = None, *, names: Sequence[Any] | None = None, **options: Any
    ) -> Any:
        """What Dask does when a cluster shrinks; before that the runs commit what they have come to, and go on without.

        The arguments are those of ``distributed.Scheduler.retire_workers``. Clusters that are scaled give names as
        ``workers``, too; Dask does nothing then, and they close these workers themselves.
        """
        chosen = workers if names is None else names
        if chosen is None:
            which = {name: each for name, each in options.items() if name not in _RETIRING}
            options = {name: each for name, each in options.items() if name in _RETIRING}
            chosen = workers = self._scheduler.workers_to_close(**which)
        called = set(map(str, chosen))
        there = {each.address: str(each.name) for each in self._scheduler.workers.values()}
        leaving = [address for address, name in there.items() if {address, name, name.rpartition("-")[0]} & called]
        await asyncio.gather(*(run.dismiss(leaving) for run in self._runs.values() if run.over is None))
        retired = await self._retire(workers, names=names, **options)
        for worker in leaving:
            asked = names is not None or worker in called
            if asked and worker not in retired and worker in self._scheduler.workers:  # Dask cannot spare it
                self._everywhere(Joined(worker))
        return retired

    async def adaptive_target(self, target_duration: float | None = None) -> int:
        """How many workers a cluster that adapts is to have: runs are no tasks, of which Dask would know."""
        return max([self._target(target_duration), *(run.wanted for run in self._runs.values())])

    def told(self, worker: str, run: str, **message: Any) -> None:
        """A worker's message about a run."""
        if run in self._runs:
            self._runs[run].told(worker, message)

    async def asked(self, do: str, run: str, **details: Any) -> Any:
        """A request: begin, spec, handed, about, watch, results or stop. Raises LookupError for an unknown run."""
        if do == "begin":
            self._begin(run, **details)
            return None
        found = self._runs.get(run)
        if found is None:
            there = ", ".join(map(repr, self._runs)) or "none"
            raise LookupError(f"the scheduler has no elastic run {run!r}; it has {there}")
        match do:
            case "watch":
                return await found.watch(**details)
            case "spec":
                return found.spec
            case "handed":
                return found.handed[details["name"]]
            case "about":
                return found.about
            case "results":
                return found.results
            case "stop":
                found.handle(Stop())
        return None

    def _begin(
        self, run: str, token: str, spec: bytes, handed: list[bytes], about: bytes, settings: dict[str, Any]
    ) -> None:
        if run in self._runs and self._runs[run].token == token:
            return  # whoever asked has lost the answer
        if run in self._runs and self._runs[run].over is None:
            raise ValueError(f"there is an elastic run {run!r} already, and it has not ended: choose another name")
        self._runs.pop(run, None)
        ended = [name for name, each in self._runs.items() if each.over is not None]
        kept = 0
        for number, name in enumerate(reversed(ended)):
            kept += sum(map(len, self._runs[name].results))
            if number >= KEPT_RUNS - 1 or (number and kept > KEPT_BYTES):
                del self._runs[name]
        self._runs[run] = SupervisedRun(run, token, spec, handed, about, Settings(**settings), self._scheduler)
        self._runs[run].begin()

    def _everywhere(self, event: Event) -> None:
        for run in list(self._runs.values()):
            run.handle(event)
