"""The training loop that every locality runs, in step with the others."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from futurex.data import Sampler
from futurex.nn import random
from futurex.partition import Replicate
from futurex.runtime import points
from futurex.runtime.elastic.commits import Lying, Position
from futurex.runtime.elastic.member import ElasticLocality
from futurex.runtime.group import Locality, Once
from futurex.runtime.timeline import Timeline
from futurex.runtime.traffic import Traffic
from futurex.training.batches import chunks
from futurex.training.best import Best
from futurex.training.callbacks import Watch
from futurex.training.programs import Program
from futurex.training.saving import Saver, Saving
from futurex.training.strategy.base import Known, Options, Programs, Strategy, compiled, nbytes
from futurex.training.strategy.synchronous import all_reduce

EVENT_SECONDS = 0.1  # between two events about steps
TRAFFIC_SECONDS = 0.5  # between two about what a locality exchanges
WARM_UP = 2  # steps before those that are recorded
BEST = "best"  # of a position: the best epoch, whose parameters are the commit's last leaves
_STOP, _PAUSE = 1.0, 2.0**-12  # votes; as many as there may be localities add up exactly, and are told apart
_VOTES = {"stop": _STOP, "pause": _PAUSE}
Record = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """What a run is asked to do; ``trace_steps`` steps are recorded. ``n_params`` leaves are parameters.

    ``commit_every``: steps between commits, 0 without them. ``saving``: where checkpoints are and how often one is
    written; a run without a commit begins with one of them. ``memory_limit``: bytes that a step may take on each
    locality. ``errors``: NumPy's floating-point error state of every step, where something raises. ``watch``: by what
    the best parameters are chosen, where somebody wants them.
    """

    epochs: int
    batch_size: int
    seed: int
    n_params: int
    aux_names: tuple[str, ...] = ()
    metric_names: tuple[str, ...] = ()
    trace_steps: int = 0
    strategy: Strategy = field(default_factory=all_reduce)
    options: Options = field(default_factory=Options)
    commit_every: int = 0
    saving: Saving | None = None
    memory_limit: int | None = None
    device: str = "cpu"
    errors: dict[str, Any] = field(default_factory=dict)
    watch: Watch | None = None


@dataclass
class Outcome:
    """What a locality has at the end: its part of parameters and state, timeline, figures; the first one history too.

    ``memory`` are the bytes that it held, by what for. ``best``: on the first one, the parameters of the best epoch,
    where somebody wants them and there is one.
    """

    step: int
    stopped: bool
    timeline: Timeline
    kept: list[Any]
    memory: dict[str, int]
    history: list[Record] = field(default_factory=list)
    position: Position = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)
    step_traffic: list[Traffic] = field(default_factory=list)
    best: list[Any] | None = None


def train(
    locality: Locality, task: Task, programs: Programs, evaluations: dict[int, Program], first: Once,
    data: tuple[Any, ...], validation: tuple[Any, ...],
) -> Outcome:  # fmt: skip
    """Run a whole training on this locality. Evaluations are by the number of rows of a chunk.

    ``first`` are the leaves of parameters and state with which the run begins, where it does not go on.
    """
    return _Loop(locality, task, programs, evaluations, first, data, validation).run()


class _Epoch:
    """Sums over the steps of one epoch."""

    def __init__(
        self, number: int, locality: Locality, samples: int = 0, totals: Any = 0.0, seconds: float = 0.0,
        communication: float = 0.0, exposed: float = 0.0,
    ) -> None:  # fmt: skip
        self.number = number
        self.samples, self.totals = samples, np.atleast_1d(totals)
        self._locality = locality
        self._began = time.perf_counter() - seconds
        self._communicated = locality.communication_seconds - communication
        self._exposed = locality.exposed_seconds - exposed

    def add(self, rows: int, values: Any) -> None:
        self.samples += rows
        self.totals = self.totals + rows * np.asarray(values, np.float64)

    @property
    def rate(self) -> float:
        return self.samples / max(self.seconds, 1e-9)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began

    @property
    def communication(self) -> float:
        """Seconds of the epoch in which something was exchanged, in earlier generations too."""
        return self._locality.communication_seconds - self._communicated

    @property
    def exposed(self) -> float:
        """Seconds of the epoch in which the computation waited for that."""
        return self._locality.exposed_seconds - self._exposed

    def sums(self) -> Position:
        """What the epoch goes on from, after :meth:`record` too."""
        return {
            "samples": self.samples, "totals": self.totals.tolist(), "seconds": self.seconds,
            "communication": self.communication, "exposed": self.exposed,
        }  # fmt: skip

    def record(self, step: int, aux_names: Sequence[str]) -> Record:
        seconds, communication, exposed = self.seconds, self.communication, self.exposed
        loss, *aux = (self.totals / self.samples).tolist()
        record = {"epoch": self.number, "step": step, "loss": loss, **dict(zip(aux_names, aux, strict=True))}
        record |= {"finite": math.isfinite(loss), "seconds": seconds, "samples_per_second": self.samples / seconds}
        if self._locality.size > 1 or communication:
            hidden = 1.0 - min(exposed / communication, 1.0) if communication else 1.0
            record |= {
                "comm_seconds": communication, "exposed_comm_seconds": exposed, "hidden_comm_share": hidden,
            }  # fmt: skip
        return record


class _Loop:
    def __init__(
        self, locality: Locality, task: Task, programs: Programs, evaluations: dict[int, Program], first: Once,
        data: tuple[Any, ...], validation: tuple[Any, ...],
    ) -> None:  # fmt: skip
        self._locality, self._task = locality, task
        locality.limit, locality.device, locality.errors = task.memory_limit, task.device, task.errors
        self._elastic = locality if isinstance(locality, ElasticLocality) else None
        self._saver = Saver(task.saving) if task.saving is not None and locality.rank == 0 else None
        self._step, kept, self._begun = self._found(first)
        self._best = None
        if task.watch is not None:
            self._best = Best(task.watch, task.n_params)
            kept = self._best.begin(kept, self._begun.get(BEST))
            self._begun = {name: value for name, value in self._begun.items() if name != BEST}
        self._history: list[Record] = list(self._begun.get("history", ()))
        rows = chunks(len(data[0]), task.batch_size)
        self._stepper = task.strategy.stepper(locality, programs, kept, task.n_params, data, rows, task.options)
        self._committed = self._saved = self._step
        if self._elastic is not None and self._elastic.restored is not None and task.strategy.shards:
            self._commit(dict(self._begun))  # who is new here, or has another part than before, holds nothing yet
        self._evaluations = {rows: compiled(locality, program) for rows, program in evaluations.items()}
        self._sampler = Sampler(len(data[0]), task.batch_size, task.seed)
        self._validation = validation
        self._key = random.key(task.seed)
        self._asked, self._stopped, self._paused, self._last = 0.0, False, False, math.nan
        self._validates = False
        self._told = self._counted = 0.0
        self._tracing = ExitStack()

    def _found(self, first: Once) -> tuple[int, list[Any], Position]:
        """After how many steps, with which leaves and where this locality begins: all of them in the same way."""
        if self._elastic is not None and (commit := self._elastic.restored) is not None:
            return commit.mark.step, commit.leaves, commit.position
        saving = self._task.saving
        if saving is None:
            return 0, first.take(), {}
        step = saving.begins
        if self._elastic is not None:  # all workers may have been lost since
            newest = self._elastic.agree(-1 if self._locality.rank else saving.newest_step())
            step = step if newest < 0 else newest
        if step < 0:
            return 0, first.take(), {}
        leaves, position = saving.leaves(step)
        return step, leaves, dict(position)

    def run(self) -> Outcome:
        try:
            with np.errstate(**self._task.errors):
                return self._trained()
        except Exception as error:
            at = f"the validation behind step {self._step}" if self._validates else f"step {self._step + 1}"
            error.add_note(f"in {at}, on locality {self._locality.rank}")
            raise
        finally:
            self._tell_traffic()  # the run may go on without this locality, or in another generation

    def _trained(self) -> Outcome:
        history = self._history
        ended = self._begun
        if self._elastic is not None and self._locality.rank == 0 and history:
            # Whoever ended these epochs may have been lost before anybody heard of them.
            self._locality.emit({"kind": "epochs", "records": list(history)})
        with self._tracing:
            for number in range(len(history) + 1, self._task.epochs + 1):
                epoch = _Epoch(number, self._locality, **self._begun.get("sums", {}))
                self._begun = {}
                record = self._epoch(epoch)
                if self._best is not None:
                    self._best.look(record, self._stepper.params)
                ended = self._position(epoch)
                if self._locality.rank == 0:
                    self._locality.emit({"kind": "epoch", **record})
                if self._stopped and self._step < number * len(self._sampler):
                    history = [*history, record]  # of a part of an epoch, which may be gone on with
                    break
                history.append(record)
                ended = {"history": history}
                if self._stopped:
                    break
        with self._writing():
            if self._saver is not None:
                self._saver.wait()
        stepper, ledger = self._stepper, self._locality.ledger
        outcome = Outcome(self._step, self._stopped, self._locality.trace(), stepper.parts(), stepper.memory())
        outcome.traffic, outcome.step_traffic = ledger.total, ledger.steps()
        if self._best is not None:
            outcome.memory["best parameters"] = nbytes(self._best.leaves)
        if self._locality.rank == 0:
            outcome.history, outcome.position = history, ended
            outcome.best = self._best.found if self._best is not None else None
        return outcome

    def _position(self, epoch: _Epoch) -> Position:
        return {"history": list(self._history), "sums": epoch.sums()}

    def _epoch(self, epoch: _Epoch) -> Record:
        for chosen in self._sampler.epoch(epoch.number - 1, self._step - (epoch.number - 1) * len(self._sampler)):
            self._advance(epoch, chosen)
            self._tell(epoch)
            self._keep(epoch)
            if self._stopped:
                break
        self._learn(epoch, self._stepper.end_epoch())
        self._keep(epoch)
        return epoch.record(self._step, self._task.aux_names) | self._evaluate()

    def _advance(self, epoch: _Epoch, chosen: Any) -> None:
        """One step on a global batch."""
        self._trace()
        if self._elastic is not None:
            self._elastic.act(self._step)
        points.reach("step", self._locality)
        for command in self._locality.commands():
            self._asked = max(self._asked, _VOTES.get(command.get("command", ""), 0.0))
        known = self._stepper.advance(chosen, random.fold(self._key, self._step), self._asked)
        self._step += 1
        self._learn(epoch, known)

    def _learn(self, epoch: _Epoch, known: Known) -> None:
        if known.rows:
            epoch.add(known.rows, known.values)
            self._last = known.values[0]
        self._stopped = self._stopped or known.votes >= _STOP
        self._paused = self._paused or known.votes > 0

    def _keep(self, epoch: _Epoch) -> None:
        """Commit, write a checkpoint, pause: at the same steps on every locality, when these have a whole state."""
        last = self._stopped or self._step == self._task.epochs * len(self._sampler)
        every = self._task.saving.every if self._task.saving is not None else 0
        commits = self._elastic is not None and (self._due(self._committed, self._task.commit_every, last))
        saves = self._due(self._saved, every, last)
        if not (commits or saves or self._paused):
            return
        self._learn(epoch, self._stepper.settle())
        if not self._stepper.settled:
            return
        pauses = self._elastic is not None and self._paused and not last
        if commits or (pauses and self._committed != self._step):
            self._commit(self._position(epoch))
        if pauses:
            assert self._elastic is not None
            self._elastic.pause()
        if saves:
            self._save(epoch)

    def _due(self, before: int, every: int, last: bool) -> bool:
        """Is it time for the next one, if the latest was taken ``before``? Every so many steps, and at the end."""
        return bool(every) and self._step > before and (last or self._step // every > before // every)

    def _commit(self, position: Position) -> None:
        assert self._elastic is not None
        self._elastic.act(self._step)
        leaves, lying = self._stepper.committed(), list(self._stepper.lying)
        if self._best is not None:  # rank 0 may be lost, and the best epoch is not made again
            leaves, position = [*leaves, *self._best.leaves], {**position, BEST: self._best.at}
            lying += [Lying(Replicate(), np.shape(leaf)) for leaf in self._best.leaves]
        self._elastic.commit(self._step, leaves, position, lying)
        self._committed = self._step

    def _save(self, epoch: _Epoch) -> None:
        if self._elastic is not None:
            self._elastic.act(self._step)
        leaves = self._stepper.gathered()
        with self._writing():
            if self._saver is not None:
                self._saver.save(self._step, leaves, self._position(epoch))
        self._saved = self._step

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A checkpoint that cannot be written, as on a full disk, fails at the sound one before it, not at the step at
        which that is noticed: an elastic run, which goes on from its commits, would otherwise never fail twice at one.
        """
        try:
            yield
        except OSError:
            if self._elastic is not None and self._task.saving is not None:
                self._elastic.step = -2 - self._task.saving.newest_step()
            raise

    def _trace(self) -> None:
        if self._task.trace_steps and self._step == WARM_UP:
            self._tracing.enter_context(self._locality.recording())
        elif self._step == WARM_UP + self._task.trace_steps:
            self._tracing.close()

    def _tell(self, epoch: _Epoch) -> None:
        now = time.perf_counter()
        if now - self._counted >= TRAFFIC_SECONDS:
            self._counted = now
            self._tell_traffic()
        if self._locality.rank or now - self._told < EVENT_SECONDS:
            return
        self._told = now
        self._locality.emit(
            {
                "kind": "step", "step": self._step, "epoch": epoch.number, "loss": self._last, "rate": epoch.rate,
                "at": time.time(),
            }
        )  # fmt: skip

    def _tell_traffic(self) -> None:
        total = self._locality.ledger.total
        event = {"kind": "traffic", "generation": self._locality.generation, "step": self._step}
        self._locality.emit({**event, **asdict(total)})

    def _evaluate(self) -> Record:
        """Loss and metrics on the validation data, by all localities together."""
        if not self._evaluations:
            return {}
        total, n = np.zeros(1 + len(self._task.metric_names)), len(self._validation[0])
        chunk, self._validates = max(self._evaluations), True
        for start in range(0, n, chunk):
            rows = np.arange(start, min(start + chunk, n))
            share = Sampler.share(rows, self._locality.rank, self._locality.size)
            batch = [np.ascontiguousarray(array[share]) for array in self._validation]
            values = self._evaluations[len(rows)]([*self._stepper.params, *batch])[: len(total)]
            total += len(rows) * np.array([float(value) for value in values])
        self._validates = False
        loss, *metrics = (total / n).tolist()
        return {"val_loss": loss, **dict(zip(self._task.metric_names, metrics, strict=True))}
