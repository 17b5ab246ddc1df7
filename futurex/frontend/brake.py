"""A brake on tracing: a function whose traces serve one call each goes on as plain NumPy, and is rarely tried again.

A trace takes a thousand times as long as a call. It is worth that where later calls find it; where something that the
function depends on is another at every call, none ever does.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from futurex.frontend.keys import remedy
from futurex.frontend.outside import is_users
from futurex.frontend.patience import Deadline, Patience
from futurex.frontend.variants import Variant
from futurex.frontend.within import Within
from futurex.ops.plainly import plainly
from futurex.tree.source import is_internal

VARIANTS = 32  # traces kept for one function
IN_VAIN = 8  # traces in a row, each for one call, for states of what a function takes from outside
PATIENCE = 3.0
"""Seconds that traces in a row may take, each for one call, that found out only that calls run as plain NumPy: the next
ones will, too, where each call is given another object."""
INVESTMENT, SHARE = 5.0, 0.25
"""Seconds that traces may take beyond this share of the time between them, while none of old serves a call: each object
that a program makes, uses and forgets has traces, which serve many calls until it is gone, and still cost more."""
TRIED = 0.4
"""Seconds of traces that are given up, and of their plans, after which one call goes as plain NumPy, to see how long
that takes: where it took all calls that they served in half the time, they were for nothing."""
LONGER = 3
"""Plain calls in a row that take so long that traces would be worth their time, after which there are some again."""
REST, LONGEST_REST = 32, 4096
"""Calls that go as plain NumPy before the next trace, at first and at most."""
OLD, TRACE = REST, REST // 8
"""The age at which a trace is one of old. Those behind it count so much each, calls for which there is none one."""


class _Traces:
    """Those of all functions: the seconds that they took. Between two of one function others are no use of it."""

    seconds = 0.0


class Brake:
    """Of one function, which is traced by one thread at a time."""

    __slots__ = (
        "_age", "_cost", "_enough", "_in_vain", "_last", "_longer", "_next_rest", "_rest", "_runs", "_seen", "_since",
        "_spent", "_took", "_trying", "_wasted", "_within", "patience",
    )  # fmt: skip

    def __init__(self) -> None:
        self._last: Variant | None = None
        self._within: Within | None = None
        self.patience = Patience()
        self._in_vain, self._rest, self._next_rest, self._age = 0, 0, REST, 0
        self._since = self._took = self._wasted = self._spent = 0.0
        self._cost, self._runs = 0.0, 0  # of traces that were given up: their seconds, and calls that they served
        self._trying = False  # is the next plain call one that shows how long they take?
        self._enough = 0.0  # seconds of plain calls that would make traces worth their time, where these are shorter
        self._longer = 0  # plain calls in a row that take as long as that
        self._seen = 0.0, 0.0  # when it was last asked or told, and the seconds of all traces by then

    @property
    def impatient(self) -> bool:
        """Have traces taken long that could not be staged, or that are of no use to later calls?"""
        return self._wasted > PATIENCE or self._spent > INVESTMENT or self.dear

    @property
    def dear(self) -> bool:
        """Is it known that plain calls would have been faster than the traces for them?"""
        return self._enough > 0

    @property
    def quiet(self) -> bool:
        """Is nothing said of a call that goes as plain NumPy?"""
        return self._trying or (self.impatient and not self.dear)

    @property
    def last(self) -> Variant | None:
        """The last trace that was made."""
        return self._last

    def serves(self, variant: Variant) -> None:
        """A trace serves another call than the one that it was made for."""
        variant.served = True
        if self._spent and self._age - variant.age >= OLD:
            if self._spent > INVESTMENT:
                self._rest, self._next_rest = 0, REST
            self._spent = 0.0

    @property
    def rests(self) -> bool:
        """Do calls for which there is no trace go as plain NumPy for now?"""
        return self._rest > 0

    def stops(self, most: int) -> bool:
        """Shall a call for which there is no trace go as plain NumPy? After ``most`` traces in a row for one call each.
        """
        if self._rest:
            self._rest -= 1
            self._age += 1
            return True
        if self._cost > TRIED and not self.impatient:
            self._trying = True
            return True
        now = time.perf_counter()
        others = _Traces.seconds - self._seen[1]  # of several threads they may take longer than has passed
        between = max(now - self._seen[0] - others, 0.0)
        self._spent, self._seen = max(self._spent - SHARE * between, 0.0), (now, _Traces.seconds)
        last, self._last = self._last, None
        if last is not None and last.served:
            self._in_vain, self._wasted = 0, 0.0
            self._next_rest = self._next_rest if self.impatient else REST
        elif last is not None:
            self._in_vain += 1
            self._wasted = self._wasted + self._took if last.escape is not None else 0.0
        if last is None or (self._in_vain < most and not self.impatient):
            self._since = now
            return False
        self._rest, self._next_rest = self._next_rest - 1, min(2 * self._next_rest, LONGEST_REST)
        return True

    def was_late(self, deadline: Deadline, args: tuple[Any, ...]) -> None:
        """A trace was left, since it took too long."""
        self._last, self._since = None, 0.0
        self.patience.was_late(deadline, args)

    def plain(self, function: Callable[..., Any], make: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A call that goes as plain NumPy: ``make(function, args, kwargs)``, futurized functions in it as is faster."""
        if self._within is None:
            self._within = Within(plainly(function, itself=self.patience.was_lost), plainly(function, throughout=True))
        if not (self._trying or self._enough):
            return self.patience.plain(self._within.call, make, args, kwargs)
        began = time.perf_counter()
        result = self._within.call(make, args, kwargs)
        self._plainly_took(time.perf_counter() - began)
        return result

    def _plainly_took(self, seconds: float) -> None:
        if self._trying:
            enough = self._cost / (2 * max(self._runs, 1))
            self._trying, self._cost, self._runs = False, 0.0, 0
            self._enough, self._longer = enough if seconds < enough else 0.0, 0
            return
        self._longer = self._longer + 1 if seconds > self._enough else 0
        if self._longer >= LONGER:  # larger arrays, say
            self._enough, self._rest, self._next_rest = 0.0, 0, REST

    def given_up(self, variants: Iterable[Variant]) -> None:
        """Traces are given up: those of objects that are gone, or of kinds of calls that many others came behind."""
        for variant in variants:
            self._cost += variant.cost
            self._runs += variant.new_runs()

    def traced(self, variant: Variant) -> None:
        """A trace was made. One that ended with an error is held by nobody: the error holds the call's arguments."""
        self._last = variant if variant.error is None else None
        self._age += TRACE
        variant.age = self._age
        now = time.perf_counter()
        self._took, self._since = now - self._since if self._since else 0.0, 0.0
        variant.cost += self._took
        _Traces.seconds += self._took
        self._spent += self._took
        self._seen = now, _Traces.seconds


def in_vain(name: str, last: Variant) -> str:
    """What is said when a function of this name stops being traced for what it takes from outside."""
    return (
        f"{name} was traced {IN_VAIN} times for one call each; what changes: "
        f"{', '.join(last.changed()) or 'an array from outside'}. Calls go on as plain NumPy, and a "
        "trace is rarely tried. Pass what changes as an argument, or keep it in arrays"
    )


def of_kinds(name: str, paths: Sequence[str], last: Sequence[Sequence[Variant]], *, dear: bool) -> str:
    """What is said when there are too many kinds of arguments, of which these are the last traces. ``dear``: when
    traces took longer than plain calls would have."""
    recent = [known[-1].leaves for known in last if known]  # others are forgotten
    seen = [(path, {leaves[k] for leaves in recent if len(leaves) > k}) for k, path in enumerate(paths)]
    changing = {path: keys for path, keys in seen if len(keys) > 4}
    if not changing:  # traces of objects that are gone are gone, too
        changing = {path: keys for path, keys in seen if any(len(key) == 2 and is_users(key[0]) for key in keys)}
    many = f"more than {VARIANTS} kinds of arguments"
    many = "kinds of arguments that are used for less than that takes, and goes on as plain NumPy" if dear else many
    return (
        f"{name} was traced for {many}; what changes: "
        f"{', '.join(changing) or 'the structure'}. {remedy(changing.values())}"
    )


def say(text: str) -> None:
    """Warn at the line of the program that is on the way here."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and is_internal(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)
