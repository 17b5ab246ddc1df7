"""Which of two ways to compute the same is faster on this machine, as busy as it is: measured, with hysteresis.

An estimate says which way goes first. The first calls take turns; then the way in use stays until the other one is
found to be clearly faster, and they are compared again from time to time.
"""

from __future__ import annotations

TRIALS = 5
"""Calls of each way in one comparison, an odd number; their medians count."""
BETTER = 0.85
"""Of the time of the way in use, below which the other one is taken: a few per cent change nothing."""
AGAIN, SELDOM = 200, 20_000
"""Calls until the next comparison: twice as many after each that changes nothing, up to that many."""


class Contest:
    """Way 0 against way 1. Threads may call at once: a measurement that is lost does no harm.

    >>> contest = Contest(0)
    >>> for _ in range(2 * TRIALS):
    ...     way = contest.next()
    ...     contest.took(way, 1e-3 if way else 2e-3)
    >>> contest.way, contest.seconds, contest.next()
    (1, (0.002, 0.001), 1)
    """

    __slots__ = ("_found", "_pause", "_rest", "seconds", "way")

    def __init__(self, way: int) -> None:
        """``way``: the one that is estimated to be faster."""
        self.way = way
        self.seconds: tuple[float, float] | None = None  # of a call, either way, as last compared
        self._found: tuple[list[float], list[float]] = ([], [])
        self._rest, self._pause = 0, AGAIN

    @property
    def open(self) -> bool:
        """Are both ways being compared?"""
        return self._rest == 0

    def next(self) -> int:
        """The way of the next call."""
        if self._rest > 0:
            self._rest -= 1
            return self.way
        mine, other = self._found[self.way], self._found[1 - self.way]
        return self.way if len(mine) <= len(other) else 1 - self.way

    def took(self, way: int, seconds: float) -> None:
        """A call went that way, and was over after so many seconds."""
        if self._rest > 0 or len(self._found[way]) == TRIALS:
            return
        self._found[way].append(seconds)
        if min(map(len, self._found)) == TRIALS:
            self._decide(*(sorted(each)[TRIALS // 2] for each in self._found))

    def _decide(self, *seconds: float) -> None:
        other = 1 - self.way
        if seconds[other] < BETTER * seconds[self.way]:
            self.way, self._pause = other, AGAIN
        else:
            self._pause = min(2 * self._pause, SELDOM)
        self.seconds = seconds[0], seconds[1]
        self._found, self._rest = ([], []), self._pause

    def text(self, first: str, second: str) -> str:
        """What came of it: the name of the way in use, and what was measured."""
        names = first, second
        if self.seconds is None:
            return f"{names[self.way]}, by estimate"
        mine, other = (f"{1e6 * self.seconds[each]:.3g} µs" for each in (self.way, 1 - self.way))
        return f"{names[self.way]}: {mine} where {names[1 - self.way]} takes {other}"
