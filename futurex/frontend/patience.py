"""How long calls without arrays wait for their traces.

A trace takes a hundred times as long as Python takes for the same lines, and more where several ways of staging are
tried. Where there are arrays, that is soon made up for. A function of numbers, texts, lists and objects may gain, too:
loops on floats are compiled. Most do not, and nobody knows before. So traces for such calls have a time: at first a
third of a second in all, later a share of what the calls took that went as plain Python meanwhile. A trace that is not
done by then is left, and the call is plain; the next one is begun when it may take twice as long.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from futurex.frontend.array import Array
from futurex.frontend.errors import Late
from futurex.ops.streams import GENERATORS
from futurex.runtime import config

FIRST = 0.3
"""Seconds that the traces of a function may take at first."""
SHARE = 0.25
"""Of the time that plain calls take, what traces may take beyond that."""
_OF_ARRAYS = frozenset({np.ndarray, Array, *GENERATORS})


class Deadline:
    """When a trace is late. From the first array on that it meets it never is."""

    __slots__ = ("_at", "_seconds", "arrays")

    def __init__(self, seconds: float = math.inf, *, arrays: bool = True) -> None:
        self._seconds, self._at = seconds, 0.0
        self.arrays = arrays  # may the call have to do with some?

    def look(self) -> None:
        """Go on, unless it is too late. Time runs from the first look on: whole files may have been read before."""
        if not self._at:
            self._at = time.perf_counter() + self._seconds
        elif time.perf_counter() > self._at:
            raise Late

    def lift(self) -> None:
        """The trace has met an array."""
        self._at, self.arrays = math.inf, True

    @property
    def spent(self) -> float:
        """Seconds since the first look."""
        return time.perf_counter() - self._at + self._seconds if self._at else 0.0


class Patience:
    """What the traces of a function may take that meet no arrays. Threads may call at once: seconds that are lost do no
    harm."""

    __slots__ = ("_inside", "_kinds", "_left", "_needed")

    def __init__(self) -> None:
        self._left, self._needed = FIRST, 0.0  # seconds that traces may take, and of which a new one would be done
        self._kinds: tuple[type, ...] | None = None  # of the arguments of the call whose trace was left last
        self._inside = False

    def deadline(self, leaves: Iterable[Any]) -> Deadline | None:
        """Of a trace for a call with these leaves that begins now; None where that is too early. Who waits for the
        compiler waits for traces, too."""
        if not _OF_ARRAYS.isdisjoint(map(type, leaves)):
            return Deadline()
        if not config.background():
            return Deadline(arrays=False)
        return Deadline(self._left, arrays=False) if self._left > self._needed else None

    def refuses(self, args: tuple[Any, ...], kwargs: Any) -> bool:
        """Would a call like the one whose trace was left have none?"""
        return self._left <= self._needed and not kwargs and tuple(map(type, args)) == self._kinds

    @property
    def was_lost(self) -> bool:
        """Was a trace left that took too long?"""
        return self._needed > 0

    def traced(self, deadline: Deadline) -> None:
        """A trace has come to its end."""
        if not deadline.arrays and config.background():
            self._left -= deadline.spent

    def was_late(self, deadline: Deadline, args: tuple[Any, ...]) -> None:
        """The trace for a call with these arguments was left."""
        self._left, self._needed = self._left - deadline.spent, 2 * deadline.spent
        self._kinds = tuple(map(type, args))

    def plain(self, make: Callable[..., Any], *args: Any) -> Any:
        """``make(*args)``, a call that goes as plain Python. One inside another is part of that."""
        if self._inside:
            return make(*args)
        self._inside, began = True, time.perf_counter()
        try:
            return make(*args)
        finally:
            self._inside = False
            self._left += SHARE * (time.perf_counter() - began)
