"""Gradients that are still on their way when a step ends: the next one waits for each where its forward pass needs it.

The barrier between steps is what Peng et al. (*A Generic Communication Scheduler for Distributed DNN Training
Acceleration*, SOSP 2019) and BytePS take away. Here the loop is turned by half a step: a run begins with the update by
the gradients of the batch before, and ends with new gradients. Some of them leave during the backward pass; the others,
those of what the forward pass needs first, would only leave at its end, and are summed at the beginning of the next run
in the order in which it needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from futurex.data import Sampler
from futurex.frontend import lower
from futurex.partition import Placement, Replicate, Shard, local_part
from futurex.partition.mesh import SUM
from futurex.runtime.group import Locality
from futurex.training.programs import (
    VOTES,
    Layout,
    Problem,
    Program,
    check_update,
    in_place,
    placed,
    stand_ins,
    update_program,
)
from futurex.training.strategy.base import Known, Options, Programs, Stepper, Strategy, compiled
from futurex.tree.graph import Graph
from futurex.tree.pytree import flatten, leaf_paths


@dataclass(frozen=True)
class CrossBarrier(Strategy):
    """Made by :func:`cross_barrier`."""

    share: float
    name: ClassVar[str] = "cross_barrier"

    def check(self, options: Options) -> None:
        """A step is turned around one batch, and the codecs' memory belongs to sums at its end."""
        options.refused_by(f"cross_barrier(share={self.share:g})")

    def programs(self, problem: Problem, rows: Sequence[int], options: Options) -> Programs:
        """ "next" updates and goes on, "first" has nothing to update with yet, "last" only updates."""
        first = {("first", n): _program(problem, n) for n in rows}
        nbytes = [leaf.nbytes for leaf in flatten(problem.params)[0]]
        graph, _ = first["first", rows[0]]
        carried = self._carried(Graph(graph.params, [graph.outs[len(nbytes) + 1]]), nbytes)
        nexts = {("next", n): _program(problem, n, carried) for n in rows}
        begun = {key: (graph, _lying(graph, layout, carried)) for key, (graph, layout) in first.items()}
        return {**nexts, **begun, ("last",): update_program(problem, carried)}

    def _carried(self, forward: Graph, nbytes: Sequence[int]) -> tuple[Placement, ...]:
        """How gradients lie between steps: those of what the forward pass reads first are still to be summed."""
        order: dict[int, None] = {}
        places = {node: place for place, node in enumerate(forward.params[: len(nbytes)])}
        for node in forward.nodes:
            order.update((places[source], None) for source in node.inputs if source in places)
        carried, taken = set(), 0
        for place in order:
            if taken < self.share * sum(nbytes):
                carried.add(place)
                taken += nbytes[place]
        return tuple(SUM if place in carried else Replicate() for place in range(len(nbytes)))

    def stepper(
        self, locality: Locality, programs: Programs, kept: Sequence[Any], n_params: int, data: Sequence[Any],
        rows: Sequence[int], options: Options,
    ) -> Stepper:  # fmt: skip
        return _Turned(locality, programs, kept, n_params, self.placements(kept, n_params), data)


class _Turned(Stepper):
    def __init__(
        self, locality: Locality, programs: Programs, kept: Sequence[Any], n_params: int,
        placements: Sequence[Placement], data: Sequence[Any],
    ) -> None:  # fmt: skip
        super().__init__(locality, kept, n_params, placements, data)
        self._steps = {key: compiled(locality, program) for key, program in programs.items()}
        self._figures = max(program[1].figures for program in programs.values())
        self._votes = local_part(np.zeros(VOTES, np.float32), Shard(0), locality.size, locality.rank)
        self._grads: list[Any] = []
        self._held = 0

    def advance(self, chosen: Any, key: Any, vote: float) -> Known:
        self._votes[:1] = vote
        n = len(chosen)
        batch = self.batches.gather(Sampler.share(chosen, self.locality.rank, self.locality.size))
        if self._grads:
            outs = self._steps["next", n]([*self.kept, *self._grads, key, self._votes, *batch])
            self.kept, outs = outs[: len(self.kept)], outs[len(self.kept) :]
        else:
            outs = self._steps["first", n]([*self.params, key, self._votes, *batch])
            # A gradient without dimensions may be a scalar, over which the next step could not write.
            outs = [*map(np.asarray, outs[: self.n_params]), *outs[self.n_params :]]
        self._grads = outs[: self.n_params]
        self._held = sum(array.nbytes for array in self._grads)
        votes, *figures = outs[self.n_params : self.n_params + 1 + self._figures]
        return Known(n, tuple(map(float, figures)), float(votes))

    @property
    def settled(self) -> bool:
        return not self._grads

    def settle(self) -> Known:
        if self._grads:
            self.kept = self._steps["last",]([*self.kept, *self._grads])[: len(self.kept)]
            self._grads = []
        return Known()

    def memory(self) -> dict[str, int]:
        peak = max(step.plan.memory.peak for step in self._steps.values())
        return {**super().memory(), "gradients": self._held, "working memory": peak}


def cross_barrier(share: float = 1 / 3) -> CrossBarrier:
    """As :func:`all_reduce`, and the exchange also overlaps with the forward pass of the next step.

    Gradients are exchanged as the backward pass makes them, except for ``share`` of their bytes: those of the
    parameters that the forward pass needs first, which come last. These are exchanged at the beginning of the next step
    in the order of need, and each layer waits for its own alone. The steps are those of one locality to rounding. It
    keeps a copy of the gradients between steps. Raises ValueError for a share outside 0 to 1; ``fit`` refuses
    ``accumulate`` and ``compression`` with it.

    >>> import futurex as fx
    >>> fx.strategy.cross_barrier(0.5)
    CrossBarrier(share=0.5)
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share must lie in 0 to 1, not {share}")
    return CrossBarrier(float(share))


def _program(problem: Problem, rows: int, before: tuple[Placement, ...] | None = None) -> Program:
    """Inputs: parameters, and with ``before`` state and gradients; key, votes, batch.

    Outputs: with ``before`` parameters and state; gradients, the sum of the votes, loss and figures.
    """
    gradient, update = problem.gradient(1.0), problem.update()

    def turned(params: Any, state: Any, grads: Any, key: Any, votes: Any, batch: Any) -> Any:
        if grads is not None:
            params, state = update(params, grads, state)
        (value, aux), fresh = gradient(params, batch, key)
        kept = () if grads is None else (params, state)
        return kept, fresh, votes.sum(), (value, *aux.values())

    turned.__name__ = f"step_of_{problem.model.name}"
    empty = before is None
    program = lower(
        turned, params=problem.params, state=None if empty else problem.state, grads=None if empty else problem.params,
        key=np.uint64(0), votes=np.zeros(VOTES, np.float32), batch=stand_ins(problem.data, rows),
    )  # fmt: skip
    graph, n, m = program.graph, problem.n_params, len(problem.kept())
    figures = 1 + len(problem.model.aux_names)
    ends: tuple[Placement, ...] = (Replicate(), Shard(0), *(Shard(0),) * len(problem.data))
    if before is None:
        return graph, Layout((*(Replicate(),) * n, *ends), (), None, figures, problem.model.precision)
    check_update(graph, 0, leaf_paths(flatten({"params": problem.params, "state": problem.state})[1]))
    whole: tuple[Placement, ...] = (Replicate(),) * m
    outs = placed(graph, (*whole, *before, *(Replicate(),) * (1 + figures)))
    return graph, Layout((*whole, *before, *ends), in_place(graph, m + n), outs, figures, problem.model.precision)


def _lying(graph: Graph, layout: Layout, grads: tuple[Placement, ...]) -> Layout:
    """The layout of a first step whose gradients lie as given."""
    outs = placed(graph, (*grads, *(Replicate(),) * (1 + layout.figures)))
    return Layout(layout.placements, (), outs, layout.figures, layout.precision)
