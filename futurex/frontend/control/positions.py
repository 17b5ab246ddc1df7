"""Iterators that somebody leaves before their end, or before an end that depends on data: where they stand is known to
Python alone while there is but one way to go on, and what they do on the way happens in the runs that get there."""

from __future__ import annotations

import gc
import itertools
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from futurex.frontend.errors import Escape
from futurex.frontend.trace import current


def lose(values: Any) -> None:
    """Let nobody ask an iterator for more, nor those that it goes through: how far they went depends on the run, or
    somebody else goes on from there."""
    current().freeze(_passed(values))


def _passed(values: Any) -> list[Any]:
    """An iterator, and those that it goes through."""
    found: dict[int, Any] = {}
    todo = [values]
    while todo:
        each = todo.pop()
        if id(each) in found:
            continue
        found[id(each)] = each
        held = gc.get_referents(each)  # of a generator what its frame holds, of a `zip` a tuple of iterators
        if type(each) not in _HOLD_DATA:
            # asked for in the same way: `zip_longest` leaves holes in its tuple, which only a traversal survives
            held += gc.get_referents(*[group for group in held if type(group) is tuple])
        todo += [entry for entry in held if hasattr(type(entry), "__next__")]
    return list(found.values())


_HOLD_DATA = (types.GeneratorType, type(iter(())))
"""Iterators whose tuples may be long, and are none that they go through."""


class Drawn:
    """The rows of an iterator, one by one, of which asking for the next may do more than look."""

    def __init__(self, values: Iterator[Any]) -> None:
        self.values, self._lost = values, False

    def next(self, surely: bool) -> list[Any]:
        """The next row, if there is one. What some runs do not ask for must leave nothing behind when it is made."""
        if not surely:
            lose(self.values)
            self._lost = True
            with only_looks("a round behind one that may have left its loop, whose iterator does more than look"):
                return list(itertools.islice(self.values, 1))
        if not self._lost and any(id(each) in current().frozen for each in _passed(self.values)):
            raise Escape("an iterator that a round of its own loop goes on with", "how far it went depends on data")
        return list(itertools.islice(self.values, 1))


@contextmanager
def only_looks(what: str) -> Iterator[None]:
    """A block that only some runs come to, although it is traced as if all did: it may compute, but change, print and
    raise nothing."""
    trace = current()
    scope = trace.scopes[-1] if trace.scopes else trace
    effects, failing = len(scope.effects), len(scope.failing)
    try:
        with trace.tentative():
            yield
            changed = trace.regions[-1].journal or trace.regions[-1].state or len(scope.effects) > effects
            if changed or not all(node.attrs.get("kind") == "b" for node in scope.failing[failing:]):
                raise _partly(what)
    except Exception as error:
        raise _partly(what) from error


def _partly(what: str) -> Escape:
    escape = Escape(what, "whether it comes to that depends on data")
    escape.one_by_one = True
    return escape
