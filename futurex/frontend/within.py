"""How calls of futurized functions go in a call that runs as plain NumPy: staged, or plain as well, as is faster.

Staged, each of them costs some ten microseconds, and what is futurized is often a helper of a few operations on a dozen
numbers; another one may be a compiled loop. Calls go both ways a few times, each call one way, and the faster way stays
until they are compared again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

WORTH, FEWEST = 40e-3, 50
"""Seconds and calls after which both ways are compared."""
SHORT = 5e-3
"""Seconds of a call with staged ones in it: longer ones may hold what takes a hundred times longer as plain NumPy."""
TRIALS = 8  # calls of each way that are compared
AGAIN, LONGEST = 256, 4096
"""Calls until they are compared again, at first, when what is staged may not be compiled yet, and at most."""
_HOPELESS = 8.0  # times the slowest call of the other way: no other one is tried


class Within:
    """Of calls of one function that go as plain NumPy: ``function`` is what it is called as where those in it are
    staged, ``throughout`` where they are plain. Threads may call at once: a measurement that is lost does no harm."""

    __slots__ = ("_again", "_calls", "_function", "_plain", "_shortest", "_spent", "_staged", "_throughout", "plain")

    def __init__(self, function: Callable[..., Any], throughout: Callable[..., Any]) -> None:
        self._function, self._throughout = function, throughout
        self._again = AGAIN
        self.plain: bool | None = None  # None before they are compared
        self._calls, self._spent, self._shortest = 0, 0.0, float("inf")
        self._staged: list[float] = []
        self._plain: list[float] = []

    def call(self, make: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``make(function, args, kwargs)`` with the function as it is called in this call."""
        if self.plain is not None:
            self._calls += 1
            if self._calls <= self._again:
                return make(self._throughout if self.plain else self._function, args, kwargs)
            self.plain, self._again, self._calls = None, min(4 * self._again, LONGEST), FEWEST
            self._staged, self._plain = [], []
        plain = len(self._plain) < len(self._staged)
        began = time.perf_counter()
        result = make(self._throughout if plain else self._function, args, kwargs)
        self._took(time.perf_counter() - began, plain)
        return result

    def _took(self, seconds: float, plain: bool) -> None:
        if plain:
            self._plain.append(seconds)
            staged = [*self._staged]  # another thread may have begun anew
            if staged and (len(self._plain) >= TRIALS or seconds > _HOPELESS * max(staged)):
                self.plain, self._calls = min(self._plain, default=seconds) < min(staged), 0
            return
        self._calls, self._spent = self._calls + 1, self._spent + seconds
        self._shortest = min(self._shortest, seconds)  # others wait for code to be compiled
        if self._calls > FEWEST and self._spent > WORTH:
            if self._shortest > SHORT:
                self.plain, self._calls = False, 0
            else:
                self._staged.append(seconds)
