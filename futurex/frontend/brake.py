"""A brake on tracing: a function whose traces serve one call each goes on as plain NumPy, and is rarely tried again.

A trace takes a thousand times as long as a call. It is worth that where later calls find it; where something that the
function depends on is another at every call, none ever does.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from futurex.frontend.keys import Key, names_an_object
from futurex.frontend.variants import Variant
from futurex.frontend.within import Within
from futurex.ops.plainly import plainly

IN_VAIN = 8  # traces in a row, each for one call, for states of what a function takes from outside
PATIENCE = 3.0
"""Seconds that traces in a row may take, each for one call, that found out only that calls run as plain NumPy, or that
are each for another object: the next ones will, too, where each call is given another object."""
REST, LONGEST_REST = 32, 4096
"""Calls that go as plain NumPy before the next trace, at first and at most."""


class Brake:
    """Of one function, which is traced by one thread at a time."""

    __slots__ = (
        "_for_objects", "_in_vain", "_last", "_next_rest", "_objects", "_others", "_rest", "_since", "_took", "_wasted",
        "_within", "given_up",
    )  # fmt: skip

    def __init__(self) -> None:
        self._last: Variant | None = None
        self._objects: list[Key] | None = None  # that the last trace is for
        self._others = False  # were those of the one before it others?
        self.given_up = False  # did the last trace that was in vain end in plain NumPy?
        self._for_objects: deque[Variant] = deque(maxlen=IN_VAIN)  # the last traces in vain, of what may come again
        self._within: Within | None = None
        self._in_vain, self._rest, self._next_rest = 0, 0, REST
        self._since = self._took = self._wasted = 0.0

    @property
    def impatient(self) -> bool:
        """Have traces taken long that could not be staged, or were each for another object?"""
        return self._wasted > PATIENCE

    @property
    def rests(self) -> bool:
        """Do calls for which there is no trace go as plain NumPy for now?"""
        return self._rest > 0

    def stops(self, most: int) -> bool:
        """Shall a call for which there is no trace go as plain NumPy? After ``most`` traces in a row for one call each.
        """
        if self.impatient and any(each.served for each in self._for_objects):
            self._let_go()
        if self._rest:
            self._rest -= 1
            return True
        last, self._last = self._last, None
        if last is not None and last.served:
            self._let_go()
        elif last is not None:
            self._in_vain, self.given_up = self._in_vain + 1, last.given_up
            if last.given_up or self._others:
                self._wasted += self._took
            elif not self._objects:
                self._wasted = 0.0
            if self._objects:
                self._for_objects.append(last)
        if last is None or (self._in_vain < most and not self.impatient):
            self._since = time.perf_counter()
            return False
        self._rest, self._next_rest = self._next_rest - 1, min(2 * self._next_rest, LONGEST_REST)
        return True

    def _let_go(self) -> None:
        self._in_vain, self._rest, self._next_rest, self._wasted = 0, 0, REST, 0.0
        self._for_objects.clear()

    def within(self, function: Callable[..., Any]) -> Within:
        """How calls of other futurized functions go in calls of this one that go as plain NumPy."""
        if self._within is None:
            self._within = Within(plainly(function), plainly(function, throughout=True))
        return self._within

    def traced(self, variant: Variant) -> None:
        """A trace was made. One that ended with an error is held by nobody: the error holds the call's arguments."""
        self._last = variant if variant.error is None else None
        before, self._objects = self._objects, [leaf for leaf in variant.leaves if names_an_object(leaf)]
        self._others = before is not None and before != self._objects
        self._took, self._since = time.perf_counter() - self._since if self._since else 0.0, 0.0


def for_others(name: str) -> str:
    """What is said when a function of this name stops being traced for objects that are others at every call."""
    return (
        f"{name} was traced for {PATIENCE:.0f} seconds, each time for another object and one call. Calls go on as "
        "plain NumPy, and a trace is rarely tried. Keep the object, or pass the arrays that it holds"
    )


def in_vain(name: str, last: Variant) -> str:
    """What is said when a function of this name stops being traced for what it takes from outside."""
    return (
        f"{name} was traced {IN_VAIN} times for one call each; what changes: "
        f"{', '.join(last.changed()) or 'an array from outside'}. Calls go on as plain NumPy, and a "
        "trace is rarely tried. Pass what changes as an argument, or keep it in arrays"
    )
