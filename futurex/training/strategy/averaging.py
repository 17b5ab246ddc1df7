"""K-step averaging: localities train on their own and average what they have come to, every few steps.

Also called local SGD (Stich, *Local SGD Converges Fast and Communicates Little*, ICLR 2019) and, of few localities with
data of their own, federated averaging; with K steps as Zhou and Cong, IJCAI 2018, analyse it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from futurex.data import Sampler
from futurex.errors import whole_number
from futurex.nn import random
from futurex.partition import Placement, Replicate, tile_sizes
from futurex.partition.mesh import SUM
from futurex.runtime.group import Locality
from futurex.training.programs import Layout, Problem, Program
from futurex.training.strategy.base import Known, Options, Programs, Stepper, Strategy, compiled
from futurex.training.strategy.synchronous import AllReduce
from futurex.tree.aval import Aval, aval_of
from futurex.tree.graph import Graph
from futurex.tree.node import param


@dataclass(frozen=True)
class LocalSgd(Strategy):
    """Made by :func:`local_sgd`."""

    every: int
    name: ClassVar[str] = "local_sgd"
    bounded: ClassVar[bool] = True

    def check(self, options: Options) -> None:
        """Parameters are what is exchanged, and those are not compressed."""
        if options.compression is not None:
            raise ValueError(
                f"compression={options.compression!r} does not go with strategy local_sgd(every={self.every}): it is "
                "for gradients, which are not exchanged; leave it out, or use strategy=fx.strategy.all_reduce()"
            )

    def programs(self, problem: Problem, rows: Sequence[int], options: Options) -> Programs:
        """Those of a locality that is alone, for its share of a batch, and "average"."""
        check_shares("local_sgd", rows, problem.sizes)
        found = AllReduce().programs(problem, shares_of(rows, problem.sizes), options)
        return {**found, ("average",): _average(problem)}

    def stepper(
        self, locality: Locality, programs: Programs, kept: Sequence[Any], n_params: int, data: Sequence[Any],
        rows: Sequence[int], options: Options,
    ) -> Stepper:  # fmt: skip
        average = compiled(locality, programs["average",])
        shares = shares_of(rows, [locality.size])
        alone = {key: program for key, program in programs.items() if key[0] != "average" and key[1] in shares}
        inner = AllReduce().stepper(locality.alone(), alone, kept, n_params, data, shares, options)
        return _Averaging(locality, inner, average, self.every)


class _Averaging(Stepper):
    def __init__(self, locality: Locality, inner: Stepper, average: Any, every: int) -> None:
        self.locality, self.n_params = locality, inner.n_params
        self.placements, self.lying = inner.placements, inner.lying
        self.kept = inner.kept
        self._inner, self._average, self._every = inner, average, every
        self._steps, self._rows, self._vote = 0, 0, 0.0
        self._sums = np.zeros(0)

    def advance(self, chosen: Any, key: Any, vote: float) -> Known:
        rank, size = self.locality.rank, self.locality.size
        found = self._inner.advance(Sampler.share(chosen, rank, size), random.fold(key, rank), 0.0)
        self.kept = self._inner.kept
        self._sums = found.rows * np.array(found.values) + (self._sums if self._steps else 0.0)
        self._steps, self._rows, self._vote = self._steps + 1, self._rows + len(chosen), max(self._vote, vote)
        return self._averaged() if self._steps == self._every else Known()

    @property
    def settled(self) -> bool:
        return not self._steps

    def end_epoch(self) -> Known:
        return self._averaged() if self._steps else Known()

    def _averaged(self) -> Known:
        """Average parameters and state; add up what each locality counted."""
        places = _averaged_leaves(self.kept)
        told = np.array([self._vote, *self._sums])
        leaves = (self.kept[place] for place in places)
        told, *leaves = self._average([told, float(self.locality.size), *leaves])[: 1 + len(places)]
        for place, leaf in zip(places, leaves, strict=True):
            self.kept[place] = leaf
        self._inner.kept = self.kept
        known = Known(self._rows, tuple(float(total) / self._rows for total in told[1:]), float(told[0]))
        self._steps, self._rows, self._vote = 0, 0, 0.0
        return known

    def memory(self) -> dict[str, int]:
        return self._inner.memory()


def local_sgd(every: int) -> LocalSgd:
    """Every locality makes ``every`` steps on its own share of each batch, then all take the mean of what they have.

    The mean is that of parameters and of the optimizer's floating-point arrays (moments), all localities alike; it is
    also taken at the end of an epoch. Nothing is exchanged in between: an ``every``-th of the communication. This is
    other mathematics than a step on the whole batch; ``every=1`` with ``sgd`` and equal shares is that step. The loss
    in the history is that of the localities' own parameters. A run that is asked to stop does so at the next mean. Each
    locality has random numbers and statistics of its own. Raises ValueError for ``every`` below 1; ``fit`` refuses
    ``compression`` with it, and a last batch with fewer examples than localities.

    >>> import futurex as fx
    >>> fx.strategy.local_sgd(every=8)
    LocalSgd(every=8)
    """
    return LocalSgd(whole_number("every", every, 1))


def _averaged_leaves(kept: Sequence[Any]) -> list[int]:
    """The places of what is averaged: arrays of floats; counts and Python numbers are the same everywhere."""
    return [place for place, leaf in enumerate(kept) if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "fc"]


def _average(problem: Problem) -> Program:
    """Sums of votes and figures, and means of leaves: what every locality has is a term of them."""
    kept = problem.kept()
    told = param(Aval((2 + len(problem.model.aux_names),), np.dtype(float)), "told")
    size = param(aval_of(1.0), "localities")
    leaves = [param(aval_of(kept[place]), f"leaf{place}") for place in _averaged_leaves(kept)]
    graph = Graph([told, size, *leaves], [told, *(leaf / size for leaf in leaves)], "average")
    placements: tuple[Placement, ...] = (SUM, Replicate(), *(SUM,) * len(leaves))
    donate = tuple((1 + k, 2 + k) for k in range(len(leaves)))
    return graph, Layout(placements, donate, (Replicate(),) * len(graph.outs))


def shares_of(rows: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """How many rows localities get of batches of so many, if there are so many localities; the largest share first."""
    return sorted({share for n in rows for size in sizes for share in tile_sizes(n, size)}, reverse=True)


def check_shares(strategy: str, rows: Sequence[int], sizes: Sequence[int]) -> None:
    """Raise ValueError where a locality would get nothing of a batch."""
    if min(rows) < max(sizes):
        raise ValueError(
            f"strategy {strategy} gives each of {max(sizes)} localities examples of every batch, and one has "
            f"{min(rows)}: choose a batch_size that leaves more for the last batch"
        )
