"""The handle of a training run."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import os
import threading
import warnings
import weakref
from collections.abc import Generator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from futurex.frontend.tracebacks import fold, settle
from futurex.partition import Placement
from futurex.runtime.alignment import aligned
from futurex.runtime.group import SpmdRun
from futurex.runtime.stall import Stall
from futurex.runtime.timeline import Timeline, merged
from futurex.runtime.traffic import FIGURES, Traffic
from futurex.training.callbacks import Callbacks
from futurex.training.checkpoint import Checkpoint, Claim, save
from futurex.training.loop import Outcome
from futurex.training.progress import Progress, figure, shown
from futurex.training.strategy.base import whole
from futurex.tree.graph import Graph
from futurex.tree.pytree import Structure, unflatten

ENDS = 12  # epochs of a long run that a notebook shows at its beginning and its end


class Run:
    """A training under way; made by :func:`futurex.fit`.

    ``history`` has one record per finished epoch; ``generations`` says of an elastic run which workers began together,
    when, with which step and why; ``step`` and ``loss`` are the latest heard of, ``graph`` is the tree of a step;
    ``counters`` says by locality what it has exchanged and how long it waited (:class:`Traffic`), of an elastic run by
    rank over all generations: with what was done again, and without the last half second of a locality that was lost;
    ``stalls`` says who kept whom waiting for longer than FUTUREX_STALL (30 s). At the end ``params`` are what
    :meth:`result` returns, ``state`` is the optimizer's, ``timeline`` holds the recorded steps of all localities on one
    clock, ``step_counters`` the counters by locality (of the last generation) of each of the last 1024 programs that it
    ran: of a step, of one of its parts, or of a batch of ``validation``, ``memory`` the bytes that each held, by what
    for, and ``saved`` is the checkpoint's folder.
    """

    def __init__(
        self, name: str, work: SpmdRun, graph: Graph, structures: tuple[Structure, Structure],
        placements: Sequence[Placement], checkpoint: Path | None, progress: Progress | None,
        history: Sequence[dict[str, Any]] = (), claim: Claim | None = None, callbacks: Callbacks | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.graph = graph
        self.history: list[dict[str, Any]] = list(history)
        self.generations: list[dict[str, Any]] = []
        self.step = 0
        self.loss: float | None = None
        self.stalls: list[str] = []
        self.timeline = Timeline()
        self._traffic: dict[tuple[int, int], Traffic] = {}  # by generation and rank
        self._size = work.size
        self.step_counters: list[list[Traffic]] = [[] for _ in range(work.size)]
        self.saved: Path | None = None
        self.params: Any = None
        self.state: Any = None
        self.memory: list[dict[str, int]] = []
        self._work, self._structures, self._placements = work, structures, placements
        self._checkpoint, self._progress, self._claim = checkpoint, progress, claim
        self._outcome: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._stopped = self._warned = False
        self._lock = threading.Lock()
        self._callbacks = Callbacks(()) if callbacks is None else callbacks
        self._callbacks.begin(self)
        self._number = next(_numbers)
        _under_way.add(self)
        work.subscribe(self._heard)
        work.add_done_callback(self._ended)

    def result(self, timeout: float | None = None) -> Any:
        """The trained parameters, a pytree of ndarrays like the one given.

        Raises what failed on a locality or in a callback, or TimeoutError after ``timeout`` seconds; the run goes on
        then.
        """
        try:
            if self._callbacks.calling and not self.done():
                raise RuntimeError(f"{self!r} waits for this callback, which cannot wait for it")
            if not concurrent.futures.wait([self._outcome], timeout).done:
                raise TimeoutError(f"{self!r} has no result after {timeout:g} s and goes on; run.stop() ends it")
            return self._outcome.result()
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(error, KeyboardInterrupt) and not self.done():
                error.add_note(f"{self!r} goes on; run.stop() ends it")
            fold(error)
            raise

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait in an asyncio task for what :meth:`result` returns. The run goes on when that task is cancelled."""
        import asyncio  # who awaits has it already

        return asyncio.shield(asyncio.wrap_future(self._outcome)).__await__()

    def done(self) -> bool:
        """True once there is a result or an error."""
        return self._outcome.done()

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events of the timeline."""
        return self.timeline.events

    @property
    def counters(self) -> list[Traffic]:
        """What each locality has exchanged."""
        with self._lock:
            totals = [Traffic()] * max([self._size, *(rank + 1 for _, rank in self._traffic)])
            for (_, rank), traffic in self._traffic.items():
                totals[rank] += traffic
            return totals

    def stop(self) -> None:
        """Ask all localities to stop after the same step; :meth:`result` then gives the parameters they have."""
        if not (self.done() or self._work.done()):
            self._work.send({"command": "stop"})

    @property
    def status(self) -> str:
        """ "running", "waiting" (for workers), "done", "stopped" (before its last epoch ended) or "failed"."""
        if not self._outcome.done():
            waits = self.generations and self.generations[-1]["what"] == "waiting"
            return "waiting" if waits else "running"
        if self._outcome.exception() is not None:
            return "failed"
        return "stopped" if self._stopped else "done"

    def _heard(self, rank: int, event: Mapping[str, Any]) -> None:
        with self._lock:
            if self.done():
                return
            if event["kind"] == "stall":
                self.stalls.append(str(Stall.heard(event)))
                return
            if event["kind"] == "traffic":
                self._traffic[event["generation"], rank] = Traffic(**{name: event[name] for name in FIGURES})
                return
            if event["kind"] == "generation":
                self.generations.append({name: value for name, value in event.items() if name != "kind"})
                return
            if event["kind"] == "epochs":
                told = self.history[-1]["epoch"] if self.history else 0
                for record in event["records"]:
                    if record["epoch"] > told:
                        self._record(record)
                return
            self.step, self.loss = event["step"], event["loss"]
            if event["kind"] == "epoch":
                self._record({name: value for name, value in event.items() if name != "kind"})
            elif self._progress is not None:
                self._progress.update(event["step"], event["epoch"], event["loss"], event["rate"])

    def _record(self, record: dict[str, Any]) -> None:
        """An epoch has ended, maybe once more."""
        self._warn_of(record)
        self.history = [*(each for each in self.history if each["epoch"] < record["epoch"]), record]
        self._callbacks.tell(record)
        if self._progress is not None:
            self._progress.epoch(record)

    def _warn_of(self, epoch: Mapping[str, Any]) -> None:
        """Say it, once, where the loss is no number any more. Threads that bring events go on, whatever filters say."""
        if np.isfinite(epoch["loss"]) or self._warned:
            return
        self._warned = True
        said = (
            f"the loss of run {self.name!r} is {epoch['loss']} in epoch {epoch['epoch']}; run.stop() ends it. A "
            "smaller learning rate may help; within `with np.errstate(divide='raise', over='raise', invalid='raise'):` "
            "fx.fit raises at the line where it begins"
        )
        with contextlib.suppress(RuntimeWarning):
            warnings.warn(said, RuntimeWarning, stacklevel=1)

    def _ended(self, work: SpmdRun) -> None:
        # Callbacks run on a thread of the group, which must not wait for a disk.
        threading.Thread(target=self._finish, name=f"finish-{self.name}", daemon=True).start()

    def _finish(self) -> None:
        try:
            outcomes: list[Outcome] = self._work.result(timeout=0)
            first = outcomes[0]
            kept = aligned(whole([outcome.kept for outcome in outcomes], self._placements))
            n = self._structures[0].n_leaves
            params, state = (
                unflatten(structure, leaves)
                for structure, leaves in zip(self._structures, (kept[:n], kept[n:]), strict=True)
            )
            best = params if first.best is None else unflatten(self._structures[0], aligned(first.best))
            self._settle(outcomes, best, state)
            if self._checkpoint is not None:
                metrics = self.history[-1]
                found = Checkpoint(first.step, params, state, metrics, first.position)
                self.saved = save(self._checkpoint, found)
            self._callbacks.end(trained=True)
        except BaseException as failure:
            error = failure if self._callbacks.error is None else self._callbacks.error
            if error is not failure:
                error.add_note(f"the run, told to stop, failed then: {failure!r}")
            self._callbacks.end(trained=False)
            if self.params is not None:
                error.add_note(f"the run made {self.step} steps: its parameters are in run.params")
            settle(error)
            self._close(error)
            self._outcome.set_exception(error)
        else:
            self._close()
            self._outcome.set_result(best)
        _under_way.discard(self)

    def _orphan(self) -> None:
        """In a child after a fork, which has none of the threads that follow the run."""
        self._lock, self._outcome = threading.Lock(), concurrent.futures.Future()  # they may have held the old ones
        self._outcome.set_exception(
            RuntimeError(
                f"run {self.name!r} was under way when the process forked, and goes on in the parent alone: wait for "
                "it there, or before the fork"
            )
        )

    def _settle(self, outcomes: list[Outcome], params: Any, state: Any) -> None:
        with self._lock:
            first = outcomes[0]
            told = max((record["epoch"] for record in self.history), default=0)
            self.history = list(first.history)
            for record in self.history:
                self._warn_of(record)
                self._callbacks.tell(record)
                if record["epoch"] > told and self._progress is not None:  # events may be slower than results
                    self._progress.epoch(record)
            self.step, self._stopped, self.params, self.state = first.step, first.stopped, params, state
            self.loss = first.history[-1]["loss"]
            last = max((each["generation"] for each in self.generations), default=0)
            self._traffic |= {(last, rank): outcome.traffic for rank, outcome in enumerate(outcomes)}
            self.step_counters = [outcome.step_traffic for outcome in outcomes]
            self.timeline = merged(outcome.timeline for outcome in outcomes)
            self.memory = [outcome.memory for outcome in outcomes]

    def _close(self, error: BaseException | None = None) -> None:
        if self._claim is not None:
            self._claim.release()
        if self._progress is not None:
            if error is not None:
                self._progress.failed(error)
            self._progress.close()

    def __repr__(self) -> str:
        loss = "" if self.loss is None else f", loss {self.loss:.4g}"
        return f"<Run {self.name!r} {self.status}, epoch {len(self.history)}, step {self.step}{loss}>"

    def _repr_html_(self) -> str:
        # A resumed run may have begun without validation, or without the accuracy, or go on without.
        names = ["epoch", *shown(*self.history)] if self.history else []
        head = "".join(f"<th scope='col'>{escape(name)}</th>" for name in names)
        lines = [
            "<tr>" + "".join(f"<td>{figure(record[name]) if name in record else ''}</td>" for name in names) + "</tr>"
            for record in self.history
        ]
        left_out = len(lines) - 2 * ENDS
        if left_out > 1:
            lines[ENDS:-ENDS] = [f"<tr><td colspan={len(names)}>… {left_out:,} more in <code>history</code></td></tr>"]
        rows = "".join(lines)
        # A cell cuts off what is wider than the window, unless it can be scrolled.
        table = f"<table><tr>{head}</tr>{rows}</table>"
        return f"<div style='overflow-x:auto'><code>{escape(repr(self))}</code>{table}</div>"


_under_way: weakref.WeakSet[Run] = weakref.WeakSet()
_numbers = itertools.count()


def under_way() -> list[Run]:
    """The runs of this process that go on, those first that began first."""
    return sorted((run for run in list(_under_way) if not run.done()), key=lambda run: run._number)


def _orphan_all() -> None:
    for run in list(_under_way):
        run._orphan()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_orphan_all)
