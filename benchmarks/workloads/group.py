"""A group of processes that all-reduce one float32 array, driven from the benchmark's child process."""

from __future__ import annotations

import importlib
import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np

WAIT_SECONDS = 600.0
Gather = Callable[[bytes], list[bytes]]  #: gives every rank what each rank passed, in the order of ranks


class Rank(Protocol):
    """One process of the group: ``array`` is what ``reduce`` replaces by the sum over all ranks."""

    array: np.ndarray

    def reduce(self) -> None:
        """All-reduce ``array`` in place and return when the result is there."""

    def close(self) -> None:
        """Leave the group."""


class Group:
    """``size`` processes; each calls ``rank`` ("module:callable") with rank, size, elements, gather and ``options``."""

    def __init__(self, rank: str, size: int, elements: int, options: dict[str, Any] | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        pipes = [context.Pipe() for _ in range(size)]
        self._size = size
        self._links = [here for here, _ in pipes]
        self._processes = [
            context.Process(target=serve, args=(there, rank, i, size, elements, options or {}), daemon=True)
            for i, (_, there) in enumerate(pipes)
        ]
        for process, (_, there) in zip(self._processes, pipes, strict=True):
            process.start()
            there.close()  # so that the link reports the end of the process
        self._exchange()

    def check(self) -> list[float]:
        """Return the largest error of one all-reduce of known numbers, over all ranks."""
        return [max(self._ask(("check",)))]

    def time(self, repetitions: int) -> list[float]:
        """Return the seconds of each of ``repetitions`` operations run back to back: those of the slowest rank."""
        return np.max(self._ask(("time", repetitions)), axis=0).tolist()

    def close(self) -> None:
        """End every rank."""
        self._ask(("stop",))
        for process in self._processes:
            process.join(10.0)

    def _exchange(self) -> None:
        """Pass gathered addresses around until every rank says that it is ready."""
        while True:
            answers = [self._receive(link) for link in self._links]
            if all(answer == "ready" for answer in answers):
                return
            for link in self._links:
                link.send(answers)

    def _ask(self, command: tuple[Any, ...]) -> list[Any]:
        for link in self._links:
            link.send(command)
        return [self._receive(link) for link in self._links]

    def _receive(self, link: Connection) -> Any:
        if not link.poll(WAIT_SECONDS):
            raise TimeoutError(f"a rank of the group of {self._size} gave no answer within {WAIT_SECONDS:.0f} s")
        answer = link.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


def serve(link: Connection, factory: str, rank: int, size: int, elements: int, options: dict[str, Any]) -> None:
    """Run one rank: build it, then answer check, time and stop."""

    def gather(mine: bytes) -> list[bytes]:
        link.send(mine)
        return link.recv()

    try:
        module, _, name = factory.partition(":")
        member: Rank = getattr(importlib.import_module(module), name)(rank, size, elements, gather, **options)
        link.send("ready")
        while (command := link.recv())[0] != "stop":
            link.send(answer(member, rank, size, command))
        link.send(None)
        member.close()
    except Exception as error:  # the coordinator raises it, so that the benchmark says why the group is missing
        link.send(error if isinstance(error, ImportError) else RuntimeError(f"rank {rank}: {error!r}"))


def answer(member: Any, rank: int, size: int, command: tuple[Any, ...]) -> Any:
    """Do what the coordinator asks: what the rank itself can answer, and for arrays that are summed the common way."""
    own = getattr(member, command[0], None)
    if own is not None:
        return own(*command[1:])
    return error_of(member, rank, size) if command[0] == "check" else time_rank(member, command[1])


def error_of(member: Rank, rank: int, size: int) -> float:
    """Return the largest difference of a reduced array of small whole numbers from their exact sum."""
    pattern = np.arange(member.array.size) % 251
    member.array[:] = pattern + rank
    member.reduce()
    return float(np.abs(member.array - (size * pattern + size * (size - 1) // 2)).max())


def time_rank(member: Rank, repetitions: int) -> list[float]:
    """Return the seconds of each operation; zeros stay zeros, however often they are summed."""
    member.array[:] = 0.0
    member.reduce()
    seconds = []
    for _ in range(repetitions):
        start = time.perf_counter()
        member.reduce()
        seconds.append(time.perf_counter() - start)
    return seconds
