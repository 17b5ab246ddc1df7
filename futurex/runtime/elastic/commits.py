"""Commits: what a locality keeps in memory of a state of the run, and how another one gets it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.runtime import config
from futurex.runtime.collectives import Communicator
from futurex.runtime.elastic.coordinator import Mark

Position = dict[str, Any]  #: where a program was, in JSON's terms


@dataclass
class Commit:
    """A copy of arrays and Python floats after ``mark.step`` steps; ``position`` is what else the program needs."""

    mark: Mark
    leaves: list[Any]
    position: Position


class Commits:
    """The newest commit of a locality, and memory for the next one: together twice what is committed.

    The newest one is there, whole, while another is taken.

    >>> commits = Commits()
    >>> commits.take(Mark(10, 1), [np.ones(2), 0.5], {"epoch": 1})
    >>> commits.newest.mark.step
    10
    """

    def __init__(self) -> None:
        self.newest: Commit | None = None
        self._spare: list[Any] = []

    def take(self, mark: Mark, leaves: Sequence[Any], position: Position) -> None:
        """Copy a state; the caller may change it afterwards."""
        spare = self._spare if len(self._spare) == len(leaves) else [None] * len(leaves)
        copies = [_copied(leaf, memory) for leaf, memory in zip(leaves, spare, strict=True)]
        before, self.newest = self.newest, Commit(mark, copies, position)
        self._spare = before.leaves if before is not None else []

    def share(self, communicator: Communicator, source: int, mark: Mark) -> None:
        """Give the commit of rank ``source`` to all ranks of a generation; each of them calls this."""
        mine = self.newest if communicator.rank == source else None
        assert mine is None or mine.mark == mark
        described = json.dumps([[_described(leaf) for leaf in mine.leaves], mine.position]) if mine is not None else ""
        size = np.array([len(described.encode())], np.int64)
        broadcast(communicator, source, size)
        text = np.frombuffer(described.encode(), np.uint8).copy() if mine is not None else np.empty(size[0], np.uint8)
        broadcast(communicator, source, text)
        kinds, position = json.loads(text.tobytes())
        leaves = mine.leaves if mine is not None else [_empty(kind) for kind in kinds]
        for leaf in leaves:
            if isinstance(leaf, np.ndarray) and leaf.nbytes:
                broadcast(communicator, source, leaf.reshape(-1).view(np.uint8))
        if mine is None:
            self.newest, self._spare = Commit(mark, leaves, position), []


def _copied(leaf: Any, memory: Any) -> Any:
    if not isinstance(leaf, np.ndarray | np.generic):
        return leaf
    if not isinstance(memory, np.ndarray) or (memory.shape, memory.dtype) != (leaf.shape, leaf.dtype):
        memory = np.empty(leaf.shape, leaf.dtype)
    np.copyto(memory, leaf)
    return memory


def _described(leaf: Any) -> Any:
    return [leaf.dtype.str, list(leaf.shape)] if isinstance(leaf, np.ndarray) else leaf


def _empty(kind: Any) -> Any:
    return np.empty(kind[1], np.dtype(kind[0])) if isinstance(kind, list) else kind


def broadcast(communicator: Communicator, source: int, array: np.ndarray) -> None:
    """Give the vector of rank ``source`` to all ranks of a generation."""
    key = communicator.generation, communicator.begin_step(), 0
    communicator.engine.broadcast(array, source, key, config.deadline()).wait(config.deadline())
