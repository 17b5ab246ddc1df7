"""A parameter server: the first locality keeps the parameters, the others send it gradients and get them back.

Li et al., *Scaling Distributed Machine Learning with the Parameter Server*, OSDI 2014; bounded staleness after Ho et
al., *More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server*, NIPS 2013.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from futurex.data import Sampler
from futurex.errors import whole_number
from futurex.nn import random
from futurex.partition.mesh import SUM
from futurex.runtime import config
from futurex.runtime.collectives import Correspondence
from futurex.runtime.group import Locality
from futurex.training.programs import Problem, part_program, update_program
from futurex.training.strategy.averaging import check_shares, shares_of
from futurex.training.strategy.base import Known, Options, Programs, Stepper, Strategy, compiled
from futurex.training.strategy.letters import Form
from futurex.training.strategy.synchronous import AllReduce

SERVER = 0  #: the rank that keeps the parameters, and works as the others do
_TO_SERVER, _TO_WORKER = 1, 2  # boxes
_STEP, _LAST = 0.0, 1.0  # what a worker writes: the gradient of a step, or that its epoch has ended
LOGGED = 1024  # updates of which a server keeps who made them


@dataclass(frozen=True)
class ParameterServer(Strategy):
    """Made by :func:`parameter_server`."""

    staleness: int | None
    name: ClassVar[str] = "parameter_server"
    bounded: ClassVar[bool] = True

    def check(self, options: Options) -> None:
        """Gradients are not summed by a collective, and come once a step."""
        options.refused_by(f"parameter_server(staleness={self.staleness})")

    def programs(self, problem: Problem, rows: Sequence[int], options: Options) -> Programs:
        """ "part" is the gradient of a locality's share, "update" what the server does, "step" that of one alone."""
        check_shares("parameter_server", rows, problem.sizes)
        several, grads = [size for size in problem.sizes if size > 1], (SUM,) * problem.n_params
        found: Programs = {("part", n): part_program(problem, n, 1.0, grads) for n in shares_of(rows, several)}
        if several:
            found["update",] = update_program(problem, grads)
        if 1 in problem.sizes:
            found |= AllReduce().programs(problem, rows, options)
        return found

    def stepper(
        self, locality: Locality, programs: Programs, kept: Sequence[Any], n_params: int, data: Sequence[Any],
        rows: Sequence[int], options: Options,
    ) -> Stepper:  # fmt: skip
        if locality.size == 1:
            steps = {key: program for key, program in programs.items() if key[0] == "step"}
            return AllReduce().stepper(locality, steps, kept, n_params, data, rows, options)
        shares = shares_of(rows, [locality.size])
        mine = {key: program for key, program in programs.items() if key == ("update",) or key[1] in shares}
        return Worker(locality, mine, kept, n_params, self.placements(kept, n_params), data, self)


class Worker(Stepper):
    """A locality that computes gradients; the first one also has the server, in a thread of its own.

    ``log`` are the latest updates on the server: whose gradient, of which step, at which version of the parameters.
    """

    def __init__(
        self, locality: Locality, programs: Programs, kept: Sequence[Any], n_params: int, placements: Any,
        data: Sequence[Any], strategy: ParameterServer,
    ) -> None:  # fmt: skip
        super().__init__(locality, kept, n_params, placements, data)
        alone = locality.alone()
        self._programs = {key[1]: compiled(alone, each) for key, each in programs.items() if key[0] == "part"}
        self._figures = next(each[1].figures for key, each in programs.items() if key[0] == "part")
        self._letters = locality.correspondence()
        self._to_server = Form(4 + self._figures, self.params)
        self._to_worker = Form(4 + self._figures, self.params)
        numbers, arrays = _told_apart(kept[n_params:])
        self._to_heirs = Form(len(numbers), arrays)
        self._are_arrays = [_is_array(leaf) for leaf in kept[n_params:]]
        self._clock, self._version = 0, 0.0
        self._known = np.zeros(1 + self._figures)
        self.log: deque[tuple[int, int, int]] = deque(maxlen=LOGGED)
        self._server: _Server | None = None
        if locality.rank == SERVER:
            self._update = compiled(alone, programs["update",]).plan.run  # no step of this locality's work
            self._strategy = strategy
        else:
            self.kept[n_params:] = [None] * (len(kept) - n_params)  # the state is the server's alone

    def advance(self, chosen: Any, key: Any, vote: float) -> Known:
        self._serve()
        share = Sampler.share(chosen, self.locality.rank, self.locality.size)
        program = self._programs[len(share)]
        outs = program([*self.params, random.fold(key, self.locality.rank), *self.batches.gather(share)])
        self._clock += 1
        figures, grads = outs[: self._figures], outs[self._figures : self._figures + self.n_params]
        return self._exchange(_STEP, len(share), vote, [float(each) for each in figures], grads)

    @property
    def settled(self) -> bool:
        return self._clock == 0

    def settle(self) -> Known:
        """Wait until the server has every locality's gradients, and take what it has come to."""
        if self.settled:
            return Known()
        self._serve()
        known = self._exchange(_LAST, 0, 0.0, [0.0] * self._figures, self.params)
        if self._server is not None:
            self._server.join(config.deadline())
            self.kept = self._server.kept
            self._server = None
        self._clock, self._version, self._known = 0, 0.0, np.zeros(1 + self._figures)
        return known

    def committed(self) -> list[Any]:
        """Every locality gets the state: the server may be the one that is lost."""
        state = self.kept[self.n_params :]
        if self.locality.rank == SERVER:
            letter = self._to_heirs.write(*_told_apart(state))
            for rank in range(self.locality.size):
                if rank != SERVER:
                    self._letters.post(rank, _TO_WORKER, letter)
            return self.kept
        numbers, arrays = self._to_heirs.read(self._letters.take(_TO_WORKER, "the state of the server, rank 0")[1])
        found = iter(numbers), iter(arrays)
        return [*self.params, *(next(found[is_array]) for is_array in self._are_arrays)]

    def _serve(self) -> None:
        if self.locality.rank == SERVER and self._server is None:
            served, forms = self.kept, (self._to_server, self._to_worker)
            self.kept = [*(leaf.copy() for leaf in self.params), *self.kept[self.n_params :]]
            self._server = _Server(
                self._letters, self.locality.size, self._update, served, self.n_params, forms, self._figures,
                self._strategy.staleness, self.log,
            )  # fmt: skip
            self._server.start()

    def _exchange(self, kind: float, rows: int, vote: float, figures: list[float], grads: Sequence[Any]) -> Known:
        start = time.perf_counter()
        letter = self._to_server.write([kind, rows, vote, self._version, *figures], grads)
        self._letters.post(SERVER, _TO_SERVER, letter)
        _, answer = self._letters.take(_TO_WORKER, "the parameters of the server, rank 0")
        self._letters.spent(letter.nbytes, time.perf_counter() - start)
        (stop_at, self._version, *told), params = self._to_worker.read(answer)
        self.kept[: self.n_params] = params
        fresh = np.array(told[1:]) - self._known
        self._known = self._known + fresh
        stopped = told[0] if self._clock >= stop_at or kind == _LAST else 0.0
        rows = int(fresh[0])
        return Known(rows, tuple((fresh[1:] / rows).tolist()) if rows else (), stopped)


class _Server(threading.Thread):
    """The parameters during one epoch, until every worker has said that it is over."""

    def __init__(
        self, letters: Correspondence, size: int, update: Any, kept: list[Any], n_params: int,
        forms: tuple[Form, Form], figures: int, staleness: int | None, log: deque[tuple[int, int, int]],
    ) -> None:  # fmt: skip
        super().__init__(name="parameter server", daemon=True)
        self.kept = kept
        self._letters, self._size, self._update, self._n_params = letters, size, update, n_params
        self._from_worker, self._to_worker = forms
        self._staleness, self._log = staleness, log
        self._clocks, self._ended, self._waiting = [0] * size, [False] * size, [False] * size
        self._gradients: dict[int, tuple[float, list[np.ndarray]]] = {}  # of the step that is not complete
        self._version, self._vote, self._stop_at = 0, 0.0, float("inf")
        self._totals = np.zeros(1 + figures)

    def run(self) -> None:
        try:
            while not all(self._ended) or any(self._waiting):
                worker, letter = self._letters.take(_TO_SERVER, "gradients of the workers")
                self._hear(worker, *self._from_worker.read(letter))
                for each in range(self._size):
                    if self._waiting[each] and self._may_go(each):
                        self._answer(each)
        except BaseException as error:
            self._letters.fail(_TO_WORKER, error)  # the worker here raises it, and the run fails

    def _hear(self, worker: int, numbers: list[float], grads: list[np.ndarray]) -> None:
        kind, rows, vote, version, *figures = numbers
        self._waiting[worker] = True
        if kind == _LAST:
            self._ended[worker] = True
            return
        self._clocks[worker] += 1
        self._totals += [rows, *(rows * each for each in figures)]
        self._vote = max(self._vote, vote)
        if self._vote and self._stop_at == float("inf"):  # after the furthest step that somebody has begun
            self._stop_at = max(
                clock + (not waits) for clock, waits in zip(self._clocks, self._waiting, strict=True)
            )
        self._log.append((worker, self._clocks[worker], int(version)))
        if self._staleness != 0:
            self._apply(grads)
            return
        self._gradients[worker] = rows, grads
        if len(self._gradients) == self._size:
            self._apply(self._mean())
            self._gradients.clear()

    def _mean(self) -> list[np.ndarray]:
        """The gradient of the whole batch, summed in the order of the ranks."""
        given = [self._gradients[rank] for rank in range(self._size)]
        total = sum(rows for rows, _ in given)
        shares = [[grad * (rows / total) for grad in grads] for rows, grads in given]
        return [np.asarray(sum(column[1:], column[0])) for column in zip(*shares, strict=True)]

    def _apply(self, grads: Sequence[np.ndarray]) -> None:
        self.kept = self._update([*self.kept, *grads])[: len(self.kept)]
        self._version += 1

    def _may_go(self, worker: int) -> bool:
        if self._ended[worker]:
            return all(self._ended)
        return self._staleness is None or self._clocks[worker] - min(self._clocks) <= self._staleness

    def _answer(self, worker: int) -> None:
        self._waiting[worker] = False
        numbers = [self._stop_at, self._version, self._vote, *self._totals]
        self._letters.post(worker, _TO_WORKER, self._to_worker.write(numbers, self.kept[: self._n_params]))


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray | np.generic)


def _told_apart(leaves: Sequence[Any]) -> tuple[list[float], list[Any]]:
    return [leaf for leaf in leaves if not _is_array(leaf)], [leaf for leaf in leaves if _is_array(leaf)]


def parameter_server(staleness: int | None = 0) -> ParameterServer:
    """The first locality keeps the parameters: all send it their gradients and get parameters back.

    ``staleness`` 0: the server waits for the gradients of all, and makes the step of one locality on the whole batch.
    From 1 on it is other mathematics: every gradient, of a locality's share of a batch, is an update of its own as soon
    as it comes, computed with parameters that others may have changed since; no locality begins a step while another is
    more than ``staleness`` steps behind. None: nobody waits for anybody (asynchronous). An epoch ends when all have
    ended it. Results then depend on who is faster. Everything goes through one locality, 2 P bytes for each other one
    and step; it is what the ring of :func:`all_reduce` is measured against. A checkpoint has the server's state. Random
    numbers and statistics are each locality's own. Raises ValueError for a negative ``staleness``; ``fit`` refuses
    ``accumulate`` and ``compression`` with it, and a batch with fewer examples than localities.

    >>> import futurex as fx
    >>> fx.strategy.parameter_server(staleness=2)
    ParameterServer(staleness=2)
    """
    return ParameterServer(None if staleness is None else whole_number("staleness (None for no bound)", staleness, 0))
