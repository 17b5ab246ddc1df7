"""The training loop that every locality runs, in step with the others."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from futurex.data import Sampler
from futurex.nn import random
from futurex.runtime.group import Locality, Step
from futurex.runtime.timeline import Timeline
from futurex.runtime.traffic import Traffic
from futurex.training.programs import Layout
from futurex.tree.graph import Graph

EVENT_SECONDS = 0.1  # between two events about steps
TRAFFIC_SECONDS = 0.5  # between two about what a locality exchanges
WARM_UP = 2  # steps before those that are recorded
Program = tuple[Graph, Layout]
Record = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """What a run is asked to do; ``trace_steps`` steps are recorded."""

    epochs: int
    batch_size: int
    seed: int
    aux_names: tuple[str, ...] = ()
    metric_names: tuple[str, ...] = ()
    trace_steps: int = 0
    compression: str | None = None


@dataclass
class Outcome:
    """What one locality has at the end: the first one parameters, state and history, each a timeline and figures."""

    step: int
    stopped: bool
    timeline: Timeline
    params: list[Any] = field(default_factory=list)
    state: list[Any] = field(default_factory=list)
    history: list[Record] = field(default_factory=list)
    traffic: Traffic = field(default_factory=Traffic)
    step_traffic: list[Traffic] = field(default_factory=list)


def train(
    locality: Locality, task: Task, programs: dict[int, Program], evaluations: dict[int, Program], params: list[Any],
    state: list[Any], data: tuple[Any, ...], validation: tuple[Any, ...],
) -> Outcome:  # fmt: skip
    """Run a whole training on this locality. Programs are by the number of rows of a global batch."""
    return _Loop(locality, task, programs, evaluations, params, state, data, validation).run()


class _Batches:
    """This locality's share of global batches of one size, gathered into the same arrays again and again."""

    def __init__(self, data: Sequence[Any]) -> None:
        self._data = data
        self._held: dict[int, list[Any]] = {}

    def gather(self, chosen: Any) -> list[Any]:
        rows = len(chosen)
        if rows not in self._held:
            self._held[rows] = [np.empty((rows, *array.shape[1:]), array.dtype) for array in self._data]
        for array, held in zip(self._data, self._held[rows], strict=True):
            np.take(array, chosen, axis=0, out=held, mode="clip")  # "raise" would take a copy first
        return self._held[rows]


class _Epoch:
    """Sums over the steps of one epoch."""

    def __init__(self, number: int, locality: Locality) -> None:
        self.number = number
        self.samples, self.totals = 0, np.zeros(1)
        self._locality = locality
        self._start = time.perf_counter()
        self._communication, self._exposed = locality.communication_seconds, locality.exposed_seconds

    def add(self, rows: int, values: Any) -> None:
        self.samples += rows
        self.totals = self.totals + rows * np.asarray(values, np.float64)

    @property
    def rate(self) -> float:
        return self.samples / max(time.perf_counter() - self._start, 1e-9)

    def record(self, step: int, aux_names: Sequence[str]) -> Record:
        seconds = time.perf_counter() - self._start
        loss, *aux = (self.totals / self.samples).tolist()
        communication = self._locality.communication_seconds - self._communication
        exposed = self._locality.exposed_seconds - self._exposed
        record = {"epoch": self.number, "step": step, "loss": loss, **dict(zip(aux_names, aux, strict=True))}
        record |= {"finite": math.isfinite(loss), "seconds": seconds, "samples_per_second": self.samples / seconds}
        if self._locality.size > 1:
            hidden = 1.0 - min(exposed / communication, 1.0) if communication else 1.0
            record |= {
                "comm_seconds": communication, "exposed_comm_seconds": exposed, "hidden_comm_share": hidden,
            }  # fmt: skip
        return record


class _Loop:
    def __init__(
        self, locality: Locality, task: Task, programs: dict[int, Program], evaluations: dict[int, Program],
        params: list[Any], state: list[Any], data: tuple[Any, ...], validation: tuple[Any, ...],
    ) -> None:  # fmt: skip
        self._locality, self._task = locality, task
        self._steps = {rows: self._compiled(program, task.compression) for rows, program in programs.items()}
        self._evaluations = {rows: self._compiled(program) for rows, program in evaluations.items()}
        # Steps write into these in place: on a group of this process the caller's own arrays arrive here.
        self._kept = [np.array(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in (*params, *state)]
        self._n_params = len(params)
        self._sampler = Sampler(len(data[0]), task.batch_size, task.seed)
        self._batches, self._validation = _Batches(data), validation
        self._votes = np.zeros(1, np.float32)
        self._key = random.key(task.seed)
        self._step, self._stopped, self._told, self._counted, self._last = 0, False, 0.0, 0.0, math.nan
        self._tracing = ExitStack()

    def _compiled(self, program: Program, compression: str | None = None) -> Step:
        graph, layout = program
        return self._locality.compile(graph, layout.placements, dict(layout.donate), compression)

    def run(self) -> Outcome:
        history = []
        with self._tracing:
            for number in range(1, self._task.epochs + 1):
                record = self._epoch(number)
                history.append(record)
                if self._locality.rank == 0:
                    self._locality.emit({"kind": "epoch", **record})
                if self._stopped:
                    break
        ledger = self._locality.ledger
        outcome = Outcome(self._step, self._stopped, self._locality.trace())
        outcome.traffic, outcome.step_traffic = ledger.total, ledger.steps()
        if self._locality.rank == 0:
            outcome.history = history
            outcome.params, outcome.state = self._kept[: self._n_params], self._kept[self._n_params :]
        return outcome

    def _epoch(self, number: int) -> Record:
        epoch = _Epoch(number, self._locality)
        for chosen in self._sampler.epoch(number - 1):
            self._advance(epoch, chosen)
            self._tell(epoch)
            if self._stopped:
                break
        return epoch.record(self._step, self._task.aux_names) | self._evaluate()

    def _advance(self, epoch: _Epoch, chosen: Any) -> None:
        """One step on a global batch."""
        self._trace()
        if any(command.get("command") == "stop" for command in self._locality.commands()):
            self._votes[0] = 1.0  # every locality learns of it with this step's all-reduce, and all stop after it
        share = Sampler.share(chosen, self._locality.rank, self._locality.size)
        key = random.fold(self._key, self._step)
        outs = self._steps[len(chosen)]([*self._kept, key, self._votes, *self._batches.gather(share)])
        value, votes, *rest = outs
        figures = len(self._task.aux_names)
        self._kept = rest[figures : figures + len(self._kept)]  # what the step checks stands behind it
        self._step += 1
        self._stopped = float(votes) > 0
        epoch.add(len(chosen), [float(value), *map(float, rest[:figures])])
        self._last = float(value)

    def _trace(self) -> None:
        if self._task.trace_steps and self._step == WARM_UP:
            self._tracing.enter_context(self._locality.recording())
        elif self._step == WARM_UP + self._task.trace_steps:
            self._tracing.close()

    def _tell(self, epoch: _Epoch) -> None:
        now = time.perf_counter()
        if now - self._counted >= TRAFFIC_SECONDS:
            self._counted = now
            self._locality.emit({"kind": "traffic", "step": self._step, **asdict(self._locality.ledger.total)})
        if self._locality.rank or now - self._told < EVENT_SECONDS:
            return
        self._told = now
        self._locality.emit(
            {"kind": "step", "step": self._step, "epoch": epoch.number, "loss": self._last, "rate": epoch.rate}
        )

    def _evaluate(self) -> Record:
        """Loss and metrics on the validation data, by all localities together."""
        if not self._evaluations:
            return {}
        total, n = np.zeros(1 + len(self._task.metric_names)), len(self._validation[0])
        chunk = max(self._evaluations)
        for start in range(0, n, chunk):
            rows = np.arange(start, min(start + chunk, n))
            share = Sampler.share(rows, self._locality.rank, self._locality.size)
            batch = [np.ascontiguousarray(array[share]) for array in self._validation]
            values = self._evaluations[len(rows)]([*self._kept[: self._n_params], *batch])[: len(total)]
            total += len(rows) * np.array([float(value) for value in values])
        loss, *metrics = (total / n).tolist()
        return {"val_loss": loss, **dict(zip(self._task.metric_names, metrics, strict=True))}
