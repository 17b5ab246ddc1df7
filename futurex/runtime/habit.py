"""Does the caller of a plan wait for its results at once? Then another thread gains nothing, and costs a hand-over.

Judged by how soon after a call somebody first asks for one of its results: a caller who goes on to other work, or hands
the results to another call, is served by a worker; one who stands and waits, call after call, runs the plan itself.
"""

from __future__ import annotations

import time

SOON, AFTER = 0.2, 8
"""Of the time of a run; calls in a row that were waited for that soon."""
EVERY = 8
"""Of so many calls by somebody who is known to wait one is looked at."""
LONGEST = 100e-3
"""Seconds of a run from which a hand-over does not matter."""


class Habit:
    """What the callers of one plan do. Threads may race here: a call that is miscounted does no harm.

    ``waits``: is the next call one to run where it is made?

    >>> habit = Habit()
    >>> for _ in range(AFTER):
    ...     habit.called(1.0).asked()
    >>> habit.waits
    True
    >>> unasked = [habit.called(1.0) for _ in range(2 * EVERY)]
    >>> habit.waits
    False
    """

    __slots__ = ("_calls", "_last", "_soon", "waits")

    def __init__(self) -> None:
        self.waits = False
        self._calls = 0
        self._soon = 0
        self._last: Call | None = None

    def called(self, seconds: float) -> Call | None:
        """A run that takes this long begins, or was over when its call returned; None if nobody needs to know when its
        results are asked for."""
        self._calls += 1
        if self.waits and self._calls % EVERY:
            return None
        if self._last is not None and self._last.open:
            self.looked(soon=False)
        self._last = call = Call(self, SOON * seconds)
        return call

    def looked(self, *, soon: bool) -> None:
        """Somebody asked for the first time for a result of a call, or did not before the next one."""
        self._soon = self._soon + 1 if soon else 0
        self.waits = self._soon >= AFTER


class Call:
    """One call; ``open`` until somebody asks for one of its results."""

    __slots__ = ("_before", "_habit", "open")

    def __init__(self, habit: Habit, seconds: float) -> None:
        self.open = True
        self._habit = habit
        self._before = time.perf_counter() + seconds

    def asked(self) -> None:
        """Somebody wants a result now."""
        if self.open:
            self.open = False
            self._habit.looked(soon=time.perf_counter() < self._before)

    def awaited(self) -> None:
        """Somebody lets others go on until the result is there: an event loop would stand still meanwhile."""
        if self.open:
            self.open = False
            self._habit.looked(soon=False)
