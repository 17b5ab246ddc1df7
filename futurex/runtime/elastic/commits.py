"""Commits: what a locality keeps in memory of a state of the run, and how another one gets it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.partition import Placement, Replicate, Shard, local_part
from futurex.partition.mesh import local_shape
from futurex.runtime import config
from futurex.runtime.collectives import Communicator
from futurex.runtime.elastic.coordinator import Held, Mark

Position = dict[str, Any]  #: where a program was, in JSON's terms


@dataclass(frozen=True)
class Lying:
    """How a leaf lies on the localities, and the shape it has as a whole; what is no array is replicated."""

    placement: Placement
    shape: tuple[int, ...] = ()


@dataclass
class Commit:
    """A copy of arrays and Python floats after ``mark.step`` steps; ``position`` is what else the program needs.

    Of a leaf that is cut up this locality, ``rank`` of ``size``, has its own part, and in ``received`` the bytes of
    that of the locality before it: together they lose nothing unless two that follow each other are lost at once.
    """

    mark: Mark
    leaves: list[Any]
    position: Position
    lying: tuple[Lying, ...]
    rank: int = 0
    size: int = 1
    received: tuple[np.ndarray, ...] = ()

    @property
    def sharded(self) -> list[int]:
        """The places of the leaves that are cut up."""
        return _sharded(self.lying) if self.size > 1 else []

    def held(self) -> Held:
        """Which pieces of the commit these are."""
        if not self.sharded:
            return Held(self.mark)
        return Held(self.mark, tuple(sorted({self.rank, (self.rank - 1) % self.size})), self.size)

    def piece(self, place: int, piece: int) -> np.ndarray:
        """Piece number ``piece`` of a leaf."""
        mine: np.ndarray = self.leaves[place]
        if self.size == 1 or piece == self.rank:
            return mine
        lies = self.lying[place]
        shape = local_shape(lies.shape, lies.placement, self.size, piece)
        nbytes = math.prod(shape) * mine.itemsize
        return self.received[self.sharded.index(place)][:nbytes].view(mine.dtype).reshape(shape)


class Commits:
    """The two newest commits of a locality: while the next is taken, into the memory of the older one, the newer stays.

    Of commits that are cut up no locality knows at once whether all others have finished theirs; when it takes the
    next one they have, since the steps between have needed all of them.

    >>> commits = Commits()
    >>> commits.take(Mark(10, 1), [np.ones(2), 0.5], {"epoch": 1})
    >>> commits.newest.mark.step
    10
    """

    def __init__(self) -> None:
        self.newest: Commit | None = None
        self.restored: Commit | None = None  #: that with which the generation began, of whole leaves
        self._before: Commit | None = None
        self._spare: Commit | None = None  # memory

    def held(self) -> list[Held]:
        """What this locality can give."""
        return [each.held() for each in (self.newest, self._before) if each is not None]

    def take(
        self, mark: Mark, leaves: Sequence[Any], position: Position, lying: Sequence[Lying] | None = None,
        communicator: Communicator | None = None,
    ) -> None:  # fmt: skip
        """Copy a state, which the caller may change afterwards; what is cut up also goes to the next locality."""
        memory, self._before, self._spare = self._before or self._spare, None, None
        spare = memory.leaves if memory is not None and len(memory.leaves) == len(leaves) else [None] * len(leaves)
        lying = tuple(Lying(Replicate(), np.shape(leaf)) for leaf in leaves) if lying is None else tuple(lying)
        commit = Commit(mark, [_copied(*each) for each in zip(leaves, spare, strict=True)], position, lying)
        if communicator is not None and _sharded(lying):
            commit.rank, commit.size = communicator.rank, communicator.size
            commit.received = _received(commit, communicator, memory.received if memory is not None else ())
        self._before, self.newest, self.restored = self.newest, commit, None

    def begin(self, communicator: Communicator | None, mark: Mark | None, sources: Sequence[int]) -> None:
        """Begin a generation with the commit of this name, or without one; every rank calls this.

        The ranks ``sources`` give its pieces to all; where there are none, every rank has the whole commit.
        """
        found = [each for each in (self.newest, self._before) if each is not None]
        self.restored = mine = next((each for each in found if each.mark == mark), None)
        if mark is None:
            return  # what is left of older commits stays: a worker that falls silent may come back with the rest
        self._spare = next((each for each in found if each is not mine), None)
        self.newest, self._before = mine, None
        if sources:
            self.restored = _shared(communicator, mine, mark, sources)
            if not _sharded(self.restored.lying):
                self.newest = self.restored


def _shared(communicator: Communicator | None, mine: Commit | None, mark: Mark, sources: Sequence[int]) -> Commit:
    """The whole of a commit, of which these ranks give one piece each: this one alone where there are no others."""
    rank, first = communicator.rank if communicator is not None else 0, sources[0]
    described = ""
    if rank == first:
        assert mine is not None
        kinds = [_described(*each) for each in zip(mine.leaves, mine.lying, strict=True)]
        described = json.dumps([kinds, mine.position])
    size = np.array([len(described.encode())], np.int64)
    broadcast(communicator, first, size)
    text = np.frombuffer(described.encode(), np.uint8).copy() if described else np.empty(size[0], np.uint8)
    broadcast(communicator, first, text)
    kinds, position = json.loads(text.tobytes())
    leaves, lying = [], []
    for place, kind in enumerate(kinds):
        leaf, dim = _empty(kind), kind[2] if isinstance(kind, list) else None
        placement = Replicate() if dim is None else Shard(dim)
        for piece, source in enumerate(sources if dim is not None else sources[:1]):
            part = local_part(leaf, placement, len(sources), piece)
            if not isinstance(part, np.ndarray) or not part.nbytes:
                continue
            if rank == source:
                assert mine is not None
                np.copyto(part, mine.piece(place, piece) if dim is not None else mine.leaves[place])
            vector = np.ascontiguousarray(part)
            broadcast(communicator, source, vector.reshape(-1).view(np.uint8))
            if vector is not part and not np.shares_memory(vector, part):
                np.copyto(part, vector)
        leaves.append(leaf)
        lying.append(Lying(placement, np.shape(leaf)))
    return Commit(mark, leaves, position, tuple(lying))


def _received(commit: Commit, communicator: Communicator, spare: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Give the parts of this locality to the next one, and get those of the one before: as bytes, all of one length."""
    rank, size = communicator.rank, communicator.size
    found = []
    for number, place in enumerate(commit.sharded):
        mine, lies = commit.leaves[place].reshape(-1).view(np.uint8), commit.lying[place]
        parts = (local_shape(lies.shape, lies.placement, size, each) for each in range(size))
        nbytes = max(map(math.prod, parts)) * commit.leaves[place].itemsize
        vector = mine if mine.nbytes == nbytes else np.concatenate([mine, np.zeros(nbytes - mine.nbytes, np.uint8)])
        fits = number < len(spare) and spare[number].nbytes == nbytes
        theirs = spare[number] if fits else np.empty(nbytes, np.uint8)
        key, ranks = (communicator.generation, communicator.begin_step(), 0), ((rank - 1) % size, (rank + 1) % size)
        communicator.engine.permute(vector, theirs, *ranks, key, config.deadline()).wait(config.deadline())
        found.append(theirs)
    return tuple(found)


def _sharded(lying: Sequence[Lying]) -> list[int]:
    return [place for place, each in enumerate(lying) if isinstance(each.placement, Shard)]


def _copied(leaf: Any, memory: Any) -> Any:
    if not isinstance(leaf, np.ndarray | np.generic):
        return leaf
    if not isinstance(memory, np.ndarray) or (memory.shape, memory.dtype) != (leaf.shape, leaf.dtype):
        memory = np.empty(leaf.shape, leaf.dtype)
    np.copyto(memory, leaf)
    return memory


def _described(leaf: Any, lies: Lying) -> Any:
    if not isinstance(leaf, np.ndarray):
        return leaf
    dim = lies.placement.dim if isinstance(lies.placement, Shard) else None
    return [leaf.dtype.str, list(lies.shape), dim]


def _empty(kind: Any) -> Any:
    return np.empty(kind[1], np.dtype(kind[0])) if isinstance(kind, list) else kind


def broadcast(communicator: Communicator | None, source: int, array: np.ndarray) -> None:
    """Give the vector of rank ``source`` to all ranks of a generation, if there are others."""
    if communicator is None:
        return
    key = communicator.generation, communicator.begin_step(), 0
    communicator.engine.broadcast(array, source, key, config.deadline()).wait(config.deadline())
