"""What a strategy is: which programs a run is made of, and how a locality runs them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from futurex.partition import Placement, Replicate, Shard, local_part
from futurex.partition.mesh import local_shape
from futurex.runtime.elastic.commits import Lying
from futurex.runtime.futures import Resident
from futurex.runtime.group import Locality, Step
from futurex.runtime.placement import fetched, put
from futurex.training.batches import Batches
from futurex.training.programs import Problem, Program
from futurex.training.strategy.letters import Form

Programs = dict[tuple[Any, ...], Program]
_TO_FIRST = 3  # the box for parts of a checkpoint


@dataclass(frozen=True)
class Known:
    """What all localities have come to know together since the last time: means over ``rows`` rows, and the votes."""

    rows: int = 0
    values: tuple[float, ...] = ()
    votes: float = 0.0


@dataclass(frozen=True)
class Options:
    """What a strategy is combined with."""

    accumulate: int = 1
    compression: str | None = None

    def refused_by(self, strategy: str) -> None:
        """Raise ValueError if any is given: ``strategy``, as it was written, goes with none of them."""
        for field in fields(self):
            given = getattr(self, field.name)
            if given != field.default:
                raise ValueError(
                    f"{field.name}={given!r} does not go with strategy {strategy}; leave it out, or use "
                    "strategy=fx.strategy.all_reduce()"
                )


class Strategy(ABC):
    """How localities share the work of a training, and what they exchange; picklable, and compared by its options."""

    name: ClassVar[str]
    shards: ClassVar[bool] = False  # no locality has the whole state
    bounded: ClassVar[bool] = False  # the programs are for certain numbers of localities only

    @abstractmethod
    def check(self, options: Options) -> None:
        """Raise ValueError, naming both sides, for options of ``fx.fit`` that do not go with this strategy."""

    @abstractmethod
    def programs(self, problem: Problem, rows: Sequence[int], options: Options) -> Programs:
        """The programs for global batches of these numbers of rows, the usual one first; traced once, by the driver."""

    @abstractmethod
    def stepper(
        self, locality: Locality, programs: Programs, kept: Sequence[Any], n_params: int, data: Sequence[Any],
        rows: Sequence[int], options: Options,
    ) -> Stepper:  # fmt: skip
        """What runs the programs on a locality; ``kept`` are the leaves of parameters and of the optimizer's state."""

    def placements(self, kept: Sequence[Any], n_params: int) -> tuple[Placement, ...]:
        """How those leaves lie on the localities, however many there are."""
        return (Replicate(),) * len(kept)


class Stepper(ABC):
    """One locality's part in a training. ``kept`` are its own leaves of parameters and state, as of the last step."""

    stays: ClassVar[bool] = False
    """Do programs alone read ``kept``, so that it stays on a GPU from step to step?"""

    def __init__(
        self, locality: Locality, kept: Sequence[Any], n_params: int, placements: Sequence[Placement],
        data: Sequence[Any],
    ) -> None:  # fmt: skip
        self.locality, self.n_params, self.placements = locality, n_params, tuple(placements)
        self.batches = Batches(data)
        self.lying = tuple(
            Lying(placement, np.shape(leaf)) for leaf, placement in zip(kept, self.placements, strict=True)
        )
        # Steps write into these in place: on a group of this process the caller's own arrays arrive here.
        self.resident = self.stays and locality.keeps
        self.kept = [
            self.put(np.array(local_part(leaf, placement, locality.size, locality.rank), order="C"))
            if isinstance(leaf, np.ndarray)
            else leaf
            for leaf, placement in zip(kept, self.placements, strict=True)
        ]

    def put(self, array: np.ndarray) -> Any:
        """An array where programs read it."""
        return put(array, self.locality.device if self.resident else "cpu")

    @abstractmethod
    def advance(self, chosen: Any, key: Any, vote: float) -> Known:
        """Train on a global batch, given by its rows; ``vote`` is not zero where this locality was asked to stop."""

    @property
    def settled(self) -> bool:
        """Have the localities the state after the last step between them, and nothing else?"""
        return True

    def settle(self) -> Known:
        """Come to that, if it changes nothing of what is computed; every locality calls this after the same step."""
        return Known()

    def end_epoch(self) -> Known:
        """Come to that in any case."""
        return self.settle()

    def committed(self) -> list[Any]:
        """The leaves of which a commit is made, when settled: whole, or this locality's parts as ``lying`` says."""
        return self.here()

    def here(self) -> list[Any]:
        """``kept`` on the host."""
        return list(map(fetched, self.kept))

    def gathered(self) -> list[Any]:
        """On rank 0 the whole leaves, when settled; every locality calls this after the same step."""
        cut = [place for place, placement in enumerate(self.placements) if isinstance(placement, Shard)]
        size = self.locality.size
        found = self.here()
        if size == 1 or not cut:
            return found
        letters = self.locality.correspondence()
        mine = [found[place] for place in cut]
        if self.locality.rank:
            letters.post(0, _TO_FIRST, Form(0, mine).write([], mine))
            return found
        parts = {0: mine}
        while len(parts) < size:
            rank, letter = letters.take(_TO_FIRST, "the parts of the other ranks for a checkpoint")
            likes = [
                np.empty(local_shape(self.lying[place].shape, self.placements[place], size, rank), found[place].dtype)
                for place in cut
            ]
            _, parts[rank] = Form(0, likes).read(letter)
        whole_ = whole([parts[rank] for rank in range(size)], [self.placements[place] for place in cut])
        for place, leaf in zip(cut, whole_, strict=True):
            found[place] = leaf
        return found

    @property
    def params(self) -> list[Any]:
        """The leaves of the parameters."""
        return self.kept[: self.n_params]

    def parts(self) -> list[Any]:
        """What this locality has to add to the whole: its shards, and on rank 0 everything else."""
        first = self.locality.rank == 0
        return [
            fetched(leaf) if first or isinstance(placement, Shard) else None
            for leaf, placement in zip(self.kept, self.placements, strict=True)
        ]

    def memory(self) -> dict[str, int]:
        """Bytes that this locality holds, by what for."""
        return {"parameters": nbytes(self.params), "optimizer state": nbytes(self.kept[self.n_params :])}


def whole(parts: Sequence[Sequence[Any]], placements: Sequence[Placement]) -> list[Any]:
    """The whole leaves from what every locality's :meth:`Stepper.parts` gave, by rank."""
    return [
        np.concatenate(column, axis=placement.dim) if isinstance(placement, Shard) else column[0]
        for column, placement in zip(zip(*parts, strict=True), placements, strict=True)
    ]


def compiled(
    locality: Locality, program: Program, compression: str | None = None, *, resident: bool = False
) -> Step:  # fmt: skip
    """This locality's part of a program; ``resident`` results of a GPU stay there."""
    graph, layout = program
    donate, precision = dict(layout.donate), layout.precision
    return locality.compile(graph, layout.placements, donate, compression, layout.outs, resident, precision)


def nbytes(leaves: Sequence[Any]) -> int:
    """Bytes of those that are arrays, wherever they lie."""
    arrays = (leaf.array if isinstance(leaf, Resident) else leaf for leaf in leaves)
    return sum(array.nbytes for array in arrays if hasattr(array, "nbytes") and array.ndim)
