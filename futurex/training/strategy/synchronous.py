"""Every step uses the gradient of the whole batch: all-reduce, and ZeRO, which shards what an all-reduce repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from futurex.data import Sampler
from futurex.nn import random
from futurex.partition import Placement, Shard, local_part
from futurex.partition.mesh import SUM
from futurex.runtime.group import Locality
from futurex.runtime.placement import fetched
from futurex.training.batches import part_rows, split
from futurex.training.programs import VOTES, Problem, adding_program, part_program, step_program
from futurex.training.strategy.base import Known, Options, Programs, Stepper, Strategy, compiled, nbytes
from futurex.tree.pytree import flatten


@dataclass(frozen=True)
class AllReduce(Strategy):
    """Made by :func:`all_reduce`."""

    name: ClassVar[str] = "all_reduce"

    def check(self, options: Options) -> None:
        """Everything goes with it."""

    def programs(self, problem: Problem, rows: Sequence[int], options: Options) -> Programs:
        """ "step" ends a batch; "first" and "next" begin and go on with one that has several parts."""
        placements = self.placements(problem.kept(), problem.n_params)
        grads = self.gradients(flatten(problem.params)[0])
        steps: Programs = {}
        parts: Programs = {}
        for n in rows:
            part = part_rows(n, options.accumulate)
            if part == n:
                steps["step", n] = step_program(problem, n, placements)
                continue
            last = n - part * ((n - 1) // part)
            parts["first", n] = first = part_program(problem, part, part / n, grads)
            parts["next", n] = adding_program(problem, first)
            steps["step", n] = step_program(problem, last, placements, last / n, first)
        return steps | parts

    def gradients(self, params: Sequence[Any]) -> tuple[Placement, ...]:
        """How gradients lie that are summed up over the parts of a batch: nothing is exchanged before the last."""
        return (SUM,) * len(params)

    def stepper(
        self, locality: Locality, programs: Programs, kept: Sequence[Any], n_params: int, data: Sequence[Any],
        rows: Sequence[int], options: Options,
    ) -> Stepper:  # fmt: skip
        placements = self.placements(kept, n_params)
        return _Synchronous(locality, programs, kept, n_params, placements, data, options)


class _Synchronous(Stepper):
    stays = True

    def __init__(
        self, locality: Locality, programs: Programs, kept: Sequence[Any], n_params: int,
        placements: Sequence[Placement], data: Sequence[Any], options: Options,
    ) -> None:  # fmt: skip
        super().__init__(locality, kept, n_params, placements, data)
        self._accumulate = options.accumulate
        self._steps = {
            key: compiled(
                locality, program, options.compression if key[0] == "step" else None, resident=self.resident
            )
            for key, program in programs.items()
        }  # fmt: skip
        self._figures = {key: program[1].figures for key, program in programs.items()}
        self._votes = local_part(np.zeros(VOTES, np.float32), Shard(0), locality.size, locality.rank)
        self._cast, self._vote = self._ballot(0.0), 0.0
        self._sums: list[Any] = []
        self._coming: tuple[int, Sequence[Any]] | None = None

    def advance(self, chosen: Any, key: Any, vote: float) -> Known:
        n, parts = len(chosen), list(split(chosen, self._accumulate))
        for number, part in enumerate(parts[:-1]):
            before = self._sums if number else ()
            program = self._steps["next" if number else "first", n]
            outs = program([*before, *self.params, random.fold(key, number), *self._share(part)])
            self._sums = outs[: self._figures["first", n] + self.n_params]
        if len(parts) > 1:
            key = random.fold(key, len(parts) - 1)
        if vote != self._vote:  # every locality learns of it with this step's all-reduce
            self._cast, self._vote = self._ballot(vote), vote
        sums = self._sums if len(parts) > 1 else ()
        outs = self._steps["step", n]([*self.kept, key, self._cast, *sums, *self._share(parts[-1])])
        figures = self._figures["step", n]
        self.kept = outs[1 + figures : 1 + figures + len(self.kept)]  # what the step checks stands behind it
        last, self._coming = self._coming, (n, outs[: 1 + figures])
        return self._known(last) if self.resident else self.settle()

    def settle(self) -> Known:
        """A GPU is not waited for at every step: what the last one found comes with the next, or when asked for."""
        coming, self._coming = self._coming, None
        return self._known(coming)

    @staticmethod
    def _known(coming: tuple[int, Sequence[Any]] | None) -> Known:
        if coming is None:
            return Known()
        votes, *figures = (float(fetched(value)) for value in coming[1])
        return Known(coming[0], tuple(figures), votes)

    def _ballot(self, vote: float) -> Any:
        self._votes[:1] = vote
        return self.put(self._votes)

    def _share(self, rows: Any) -> list[Any]:
        return self.batches.gather(Sampler.share(rows, self.locality.rank, self.locality.size))

    def memory(self) -> dict[str, int]:
        held = {"gradients summed up": nbytes(self._sums)} if self._sums else {}
        peak = max(step.plan.memory.peak for step in self._steps.values())
        return {**super().memory(), **held, "working memory": peak}


def all_reduce() -> AllReduce:
    """The gradients of all localities are summed and every one makes the same step: the default.

    >>> import futurex as fx
    >>> fx.strategy.all_reduce().name
    'all_reduce'
    """
    return AllReduce()
