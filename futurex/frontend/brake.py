"""A brake on tracing: a function whose traces serve one call each goes on as plain NumPy, and is rarely tried again.

A trace takes a thousand times as long as a call. It is worth that where later calls find it; where something that the
function depends on is another at every call, none ever does.
"""

from __future__ import annotations

import time

from futurex.frontend.variants import Variant

IN_VAIN = 8  # traces in a row, each for one call, for states of what a function takes from outside
PATIENCE = 3.0
"""Seconds that traces in a row may take, each for one call, that found out only that calls run as plain NumPy: the next
ones will, too, where each call is given another object."""
REST, LONGEST_REST = 32, 4096
"""Calls that go as plain NumPy before the next trace, at first and at most."""


class Brake:
    """Of one function, which is traced by one thread at a time."""

    __slots__ = ("_in_vain", "_last", "_next_rest", "_rest", "_since", "_took", "_wasted")

    def __init__(self) -> None:
        self._last: Variant | None = None
        self._in_vain, self._rest, self._next_rest = 0, 0, REST
        self._since = self._took = self._wasted = 0.0

    @property
    def impatient(self) -> bool:
        """Have traces taken long that could not be staged?"""
        return self._wasted > PATIENCE

    @property
    def rests(self) -> bool:
        """Do calls for which there is no trace go as plain NumPy for now?"""
        return self._rest > 0

    def stops(self, most: int) -> bool:
        """Shall a call for which there is no trace go as plain NumPy? After ``most`` traces in a row for one call each.
        """
        if self._rest:
            self._rest -= 1
            return True
        last, self._last = self._last, None
        if last is not None and last.served:
            self._in_vain, self._next_rest, self._wasted = 0, REST, 0.0
        elif last is not None:
            self._in_vain += 1
            self._wasted = self._wasted + self._took if last.given_up else 0.0
        if last is None or (self._in_vain < most and not self.impatient):
            self._since = time.perf_counter()
            return False
        self._rest, self._next_rest = self._next_rest - 1, min(2 * self._next_rest, LONGEST_REST)
        return True

    def traced(self, variant: Variant) -> None:
        """A trace was made. One that ended with an error is held by nobody: the error holds the call's arguments."""
        self._last = variant if variant.error is None else None
        self._took, self._since = time.perf_counter() - self._since if self._since else 0.0, 0.0


def in_vain(name: str, last: Variant) -> str:
    """What is said when a function of this name stops being traced for what it takes from outside."""
    return (
        f"{name} was traced {IN_VAIN} times for one call each; what changes: "
        f"{', '.join(last.changed()) or 'an array from outside'}. Calls go on as plain NumPy, and a "
        "trace is rarely tried. Pass what changes as an argument, or keep it in arrays"
    )
