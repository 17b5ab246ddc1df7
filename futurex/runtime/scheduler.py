"""Which instruction may run: a state machine without threads, clocks or I/O; events in, instructions to run out."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum


class State(IntEnum):
    """Where an instruction stands."""

    WAITING = 0
    READY = 1
    FINISHED = 2
    FAILED = 3
    SKIPPED = 4


class Scheduler:
    """One run of a graph of instructions.

    ``after[i]`` are the instructions that must finish before ``i``; of those that become ready at once, the one with
    the smallest ``rank`` comes first. Every event returns the instructions that it makes ready; each is returned once.
    A failure skips what depends on it and nothing else; a cancellation skips all that was not yet returned.

        >>> run = Scheduler(after=[(), (0,), (0,)], rank=[0, 2, 1])
        >>> run.start(), run.finished(0), run.finished(2), run.finished(1), run.done
        ([0], [2, 1], [], [], True)
    """

    __slots__ = ("_dependents", "_missing", "_rank", "errors", "left", "running", "state")

    def __init__(
        self, after: Sequence[Sequence[int]], rank: Sequence[float], dependents: Sequence[Sequence[int]] | None = None
    ) -> None:
        self._dependents = dependents if dependents is not None else invert(after)
        self._missing = [len(each) for each in after]
        self._rank = rank
        self.state = [State.WAITING] * len(after)
        self.left = len(after)
        self.running = 0
        self.errors: dict[int, BaseException] = {}

    @property
    def done(self) -> bool:
        """True when nothing runs and nothing will."""
        return not self.left and not self.running

    def start(self) -> list[int]:
        """The instructions that depend on nothing."""
        return self._release([index for index, missing in enumerate(self._missing) if not missing])

    def finished(self, index: int) -> list[int]:
        """``index`` has run."""
        self._leave(index, State.FINISHED)
        ready = []
        for dependent in self._dependents[index]:
            self._missing[dependent] -= 1
            if not self._missing[dependent] and self.state[dependent] is State.WAITING:
                ready.append(dependent)
        return self._release(ready)

    def failed(self, index: int, error: BaseException) -> list[int]:
        """``index`` raised ``error``; what depends on it will not run."""
        self._leave(index, State.FAILED)
        self.errors[index] = error
        stack = [index]
        while stack:
            for dependent in self._dependents[stack.pop()]:
                if self.state[dependent] is State.WAITING:
                    self._skip(dependent)
                    stack.append(dependent)
        return []

    def cancel(self) -> list[int]:
        """Nothing more shall start; what runs is waited for."""
        for index, state in enumerate(self.state):
            if state is State.WAITING:
                self._skip(index)
        return []

    def first_error(self) -> BaseException | None:
        """The error of the failed instruction of the smallest rank: the one that a run in order would have met."""
        return self.errors[min(self.errors, key=lambda index: self._rank[index])] if self.errors else None

    def _release(self, ready: list[int]) -> list[int]:
        for index in ready:
            self.state[index] = State.READY
        self.left -= len(ready)
        self.running += len(ready)
        ready.sort(key=self._rank.__getitem__)
        return ready

    def _leave(self, index: int, state: State) -> None:
        if self.state[index] is not State.READY:
            raise ValueError(
                f"instruction {index} is {self.state[index].name.lower()} and cannot become {state.name.lower()}"
            )
        self.state[index] = state
        self.running -= 1

    def _skip(self, index: int) -> None:
        self.state[index] = State.SKIPPED
        self.left -= 1


class Turns:
    """Lets instructions through in one order, each when it has arrived and all before it have gone.

    >>> turns = Turns([7, 3, 5])
    >>> turns.arrive(3), turns.arrive(7), turns.arrive(5)
    ([], [7, 3], [5])
    """

    __slots__ = ("_arrived", "_next", "_order")

    def __init__(self, order: Sequence[int]) -> None:
        self._order = order
        self._next = 0
        self._arrived: set[int] = set()

    def arrive(self, index: int) -> list[int]:
        """The instructions whose turn it is now."""
        self._arrived.add(index)
        first = self._next
        while self._next < len(self._order) and self._order[self._next] in self._arrived:
            self._next += 1
        return list(self._order[first : self._next])


def invert(after: Sequence[Sequence[int]]) -> list[list[int]]:
    """The instructions that wait for each instruction."""
    dependents: list[list[int]] = [[] for _ in after]
    for index, sources in enumerate(after):
        for source in sources:
            dependents[source].append(index)
    return dependents
