"""Which runs may be under way together: a state machine without threads; events in, runs to start out.

One budget of threads serves kernels that use several of their own and workers that run kernels of one. Either a single
run has the whole of it, or any number of runs share the workers.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

R = TypeVar("R")


class Budget(Generic[R]):
    """Runs start in the order in which they entered. Every event returns those that may start now.

    >>> budget = Budget()
    >>> budget.enter("a", whole=False), budget.enter("b", whole=True), budget.enter("c", whole=False)
    (['a'], [], [])
    >>> budget.leave(), budget.leave()
    (['b'], ['c'])
    """

    __slots__ = ("_waiting", "running", "whole")

    def __init__(self) -> None:
        self.running = 0
        self.whole = False
        self._waiting: deque[tuple[R, bool]] = deque()

    def enter(self, run: R, *, whole: bool) -> list[R]:
        """``run`` wants to start; ``whole``: its kernels use all threads."""
        self._waiting.append((run, whole))
        return self._start()

    def enter_alone(self, *, whole: bool) -> bool:
        """Start a run that wants to start now or not at all: nothing else is under way or waits."""
        if self.running or self._waiting:
            return False
        self.running, self.whole = 1, whole
        return True

    def leave(self) -> list[R]:
        """A run that had started is over."""
        if not self.running:
            raise ValueError("no run is under way")
        self.running -= 1
        return self._start() if self._waiting else []

    def forget(self) -> list[R]:
        """Runs that had entered and will not start any more."""
        left = [run for run, _ in self._waiting]
        self._waiting.clear()
        return left

    @property
    def waiting(self) -> int:
        """How many runs have entered and not started."""
        return len(self._waiting)

    def _start(self) -> list[R]:
        started: list[R] = []
        while self._waiting:
            run, whole = self._waiting[0]
            if self.running and (whole or self.whole):
                break
            self._waiting.popleft()
            self.running += 1
            self.whole = whole
            started.append(run)
        return started
