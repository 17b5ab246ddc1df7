"""What a staged ``for`` goes over: ranges with traced bounds, and rows that are known by number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from futurex.frontend.errors import Escape
from futurex.frontend.outside import own_container
from futurex.frontend.trace import current
from futurex.tree.pytree import leaf


@leaf
@dataclass(frozen=True)
class TracedRange:
    """``range`` with a bound that is not known before the run. ``up``: the step is positive.

    ``stop`` may be a function that every round asks anew.
    """

    start: Any
    stop: Any
    step: Any
    up: bool


class Rows:
    """An iterator whose rows are known by number, so that a loop over it can be staged. ``whole`` makes a list of all
    of them at once, where that is possible and none has been asked for."""

    def __init__(self, length: Any, row: Callable[[Any], Any], whole: Callable[[], Any] | None = None) -> None:
        self.length, self.row, self.position, self._whole = length, row, 0, whole

    def whole(self) -> Any:
        """A list of all, or None; the iterator is used up by it."""
        made = self._whole() if self._whole is not None and not self.position and current().is_newest(self) else None
        if made is not None:
            self.rest()
        return made

    def rest(self) -> tuple[Any, Callable[[Any], Any]]:
        """Use the iterator up: how many rows remain, and the row with a number."""
        own_container(self, "the position of an iterator")
        first, row = self.position, self.row
        self.position = self.length
        return (self.length - first if first else self.length), (lambda i: row(i + first)) if first else row

    def __iter__(self) -> Rows:
        return self

    def __next__(self) -> Any:
        if not isinstance(self.length, int):
            raise Escape("iterating over rows whose number depends on data", "it is not known before the run")
        if self.position >= self.length:
            raise StopIteration
        self.position += 1
        return self.row(self.position - 1)
