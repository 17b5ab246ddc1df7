"""What stands for a list while rounds that append to it are staged, and ask for some of its entries.

How many entries there are is a line over the counter. An entry that is as far from the end in every round is carried
like a name, one that was there before the loop is the very one, and any other is a row of the array that rounds write.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from futurex.frontend.control.either import loosened
from futurex.frontend.control.rows import TracedRange
from futurex.frontend.control.values import raw
from futurex.frontend.entry_kinds import Entry, Tuple, fitted, looked_up, parts_of, share_entry, whole
from futurex.frontend.errors import Escape
from futurex.frontend.layout import is_contiguous
from futurex.frontend.linear import Line, line_of
from futurex.frontend.lists import TracedList
from futurex.frontend.made_lists import note_rows
from futurex.frontend.outside import own_container
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import Tracer, fresh, node_of, strong
from futurex.ops.control import Failure
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.frontend.control.collected import Collector

_OUTSIDE = Failure(IndexError, ("list index out of range",))
_WHAT = "an entry of a list that rounds add to"
_LATER = (0, 1, 2)  # rounds that may stand before the loop


class Growing:
    """The list with a ``number``: ``values`` it had before the loop, the ``last`` of those of earlier rounds, what this
    one has put ``now``, and its ``rows``, where rounds ask for any."""

    __fx_traced__ = True
    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("asked", "asked_others", "collector", "each", "kind", "last", "now", "number", "rows", "values")

    def __init__(self, collector: Collector, number: int) -> None:
        self.collector, self.number = collector, number
        self.each = collector.rows.lists[number][3]
        self.asked, self.asked_others = 0, False
        self.values = collector.rows.lists[number][0]()
        self.now: list[Any] = []
        self.last: list[Any] = []
        self.kind: Entry | Tuple | None = None
        self.rows: list[Tracer] | None = None
        if collector.known.last[number]:
            self._check(collector.known.last[number])
            self.last = [self._before(k) for k in range(1, collector.known.last[number] + 1)]

    def begin(self) -> None:
        """A round begins. What it adds is a list of its own, of which branches see that all add as many."""
        trace = current()
        self.now, self.asked, self.asked_others = trace.remember([]), 0, False
        if type(self.values) is list and id(self.values) in trace.lists:
            trace.lists[id(self.now)] = self.now, trace.lists[id(self.values)][1]

    def put(self, value: Any) -> None:
        own_container(self.now, "a list")
        self.now.append(value if self.collector.apart else loosened(value, self.collector.site))

    append = put

    def extend(self, values: Any) -> None:
        for value in values:
            self.put(value)

    def columns(self, kind: Entry | Tuple) -> list[list[Node]]:
        """The parts of the entries before the loop, each as an array of one row."""
        if self.each != 1:
            raise Escape(_WHAT, "every round adds several")
        self._check(0)
        entries = [fitted(self._before(k), kind) for k in range(len(self.values), 0, -1)]
        if any(kind_of_row(entry).joined(kind) != kind for entry in entries):
            raise Escape("a list of numbers or arrays of several types", "its entries are no rows of one array")
        every = [[strong(raw(part)) for part in parts_of(entry)] for entry in entries]
        return [
            [emit("reshape", row[k], shape=(1, *row[k].shape)) for row in every] for k in range(len(parts_of(kind)))
        ]

    def _before(self, k: int) -> Any:
        """The k-th entry from the end of those that were there before the loop; others may see what is written there.
        """
        value = looked_up(self.values[-k])
        for part in parts_of(value):
            share_entry(part, self.collector.site)
        return value

    def _check(self, count: int) -> None:
        """Are as many entries there before the loop?"""
        if type(self.values) is not list or self.each < 0:
            raise Escape("a list that rounds add to and look at", "how long it is depends on data")
        if count > len(self.values):
            raise Escape("an entry that a list does not have yet", "it is added first", site=self.collector.peels)

    def __len__(self) -> Any:
        self._check(0)
        rounds = self.collector.rounds
        done = self.collector.counter - rounds.start
        if rounds.step != 1:
            done = done // rounds.step
        return done * self.each + (len(self.values) + len(self.now))

    def _length(self, k: int) -> int:
        """How many entries there are at this place of a round with a number."""
        return len(self.values) + k * self.each + len(self.now)

    # -- entries -----------------------------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Any:
        self._check(0)
        if isinstance(index, slice):
            return self._slice(index)
        line = self._line(index)
        if line is None:
            return self._anywhere(index)
        if not line.slope and 0 <= line.offset < len(self.values):
            return self._before(len(self.values) - line.offset)
        if line.counter not in (None, self.collector.counter._node):
            return self._anywhere(index, line)
        places = [self._from_end(line, first) for first in _LATER]
        if places[0] is not None:
            return self._at(places[0])
        if self.collector.peels and any(place is not None for place in places):
            raise Escape(_WHAT, "in first rounds it lies elsewhere", site=self.collector.peels)
        return self._anywhere(index, line)

    def _line(self, index: Any) -> Line | None:
        if not isinstance(index, Tracer):
            index = operator.index(index)
        elif index.dtype.kind not in "iu" or index.ndim:
            raise Escape("a list indexed by what is no integer", "it is traced as an array")
        return line_of(node_of(index))

    def _from_end(self, line: Line, first: int) -> int | None:
        """How far from the end an entry lies in all rounds from the ``first`` on; None if that changes, or if there is
        none."""
        found, rounds = set(), self.collector.rounds
        for k in (first, len(rounds) - 1) if first < len(rounds) else ():
            index, length = line.slope * rounds[k] + line.offset, self._length(k)
            if not -length <= index < length:
                return None
            found.add((index < 0, length - index if index >= 0 else -index))
        return found.pop()[1] if len(found) == 1 else None

    def _at(self, place: int) -> Any:
        """The entry at a place from the end."""
        if place <= len(self.now):
            return looked_up(self.now[-place])
        place -= len(self.now)
        self._check(place)
        self.asked = max(self.asked, place)
        return looked_up(self.last[place - 1]) if place <= len(self.last) else self._before(place)

    def _slice(self, index: slice) -> list[Any]:
        """Entries of which all rounds see as many, as far from the end."""
        if index.step is not None and isinstance(index.step, Tracer):
            raise Escape("a slice of a list that rounds add to", "its step depends on data")
        lines = [None if bound is None else self._line(bound) for bound in (index.start, index.stop)]
        for line, bound in zip(lines, (index.start, index.stop), strict=True):
            if bound is not None and (line is None or line.counter not in (None, self.collector.counter._node)):
                raise Escape("a slice of a list that rounds add to", "where it is depends on data")
        parts = [self._part(lines, index.step, first) for first in _LATER]
        if parts[0] is None:
            later = self.collector.peels if any(part is not None for part in parts) else None
            raise Escape("a slice of a list that rounds add to", "it is another one in every round", site=later)
        from_end, places = parts[0]
        entry = self._at if from_end else lambda place: self._before(len(self.values) - place)
        return current().remember(list(map(entry, places)))

    def _part(self, lines: list[Line | None], step: int | None, first: int) -> tuple[bool, tuple[int, ...]] | None:
        """How far from the end the entries of a slice lie in all rounds from the ``first`` on, or where they are from
        the beginning, if all of them are there before these."""
        ends, places, rounds = set[tuple[int, ...]](), set[tuple[int, ...]](), self.collector.rounds
        for k in range(first, len(rounds)):
            start, stop = (None if line is None else line.slope * rounds[k] + line.offset for line in lines)
            found = tuple(range(self._length(k))[start:stop:step])
            places.add(found)
            ends.add(tuple(self._length(k) - place for place in found))
            if len(ends) > 1 and len(places) > 1:
                return None
        if len(ends) == 1:
            return True, ends.pop()
        fixed = places.pop() if places else ()
        return (False, fixed) if max(fixed, default=0) < self._length(first) - len(self.now) else None

    def live_range(self) -> TracedRange:
        """The positions that a loop goes over inside of a round."""
        return TracedRange(0, self.__len__(), 1, True)

    def row(self, index: Any) -> Any:
        """The entry at a position where there surely is one."""
        if self.now:
            raise Escape(_WHAT, "this round has added some already")
        if self.rows is None:
            self.asked_others = True
            self._check(1)
            return self._before(1)  # as long as it is not known what rounds append
        assert self.kind is not None
        pairs = zip(self.rows, parts_of(self.kind), strict=True)
        return whole(self.kind, [kind.entry(rows[index]._node, self.collector.site) for rows, kind in pairs])

    def _anywhere(self, index: Any, line: Line | None = None) -> Any:
        """The entry at any position, of which the run finds out that there is none."""
        low, high, least = self._bounds(line)
        length = self.__len__()
        if low is not None and low >= 0 and high < least:
            return self.row(index)
        if low is not None and high < 0 and -low <= least:
            return self.row(index + length)
        node, size = node_of(index), node_of(length)
        place = emit("where", emit("less", node, 0), emit("add", node, size), node)
        inside = emit("logical_and", emit("greater_equal", place, 0), emit("less", place, size))
        current().waits = True  # where there is none, plain Python says so
        current().effect("check", inside, failure=_OUTSIDE)
        return self.row(fresh(place))

    def _bounds(self, line: Line | None) -> tuple[Any, Any, int]:
        """The smallest and the largest value of an index, where that is known, and entries that there surely are."""
        rounds = self.collector.rounds
        if line is None:
            return None, None, 0
        if line.counter is self.collector.counter._node:
            index = [line.slope * rounds[k] + line.offset for k in (0, len(rounds) - 1)]
            lengths = [self._length(k) for k in (0, len(rounds) - 1)]
            if all(0 <= at < length for at, length in zip(index, lengths, strict=True)):
                return 0, 0, 1
            if all(-length <= at < 0 for at, length in zip(index, lengths, strict=True)):
                return -1, -1, 1
            return None, None, 0
        values = current().counters[line.counter] if line.counter is not None else range(1)
        ends = [line.slope * k + line.offset for k in (values[0], values[-1])]
        return min(ends), max(ends), self._length(0)

    def __fx_items__(self) -> Any:
        raise Escape("iterating over a list that rounds add to", "how long it is changes")

    __iter__ = __fx_items__

    def __getattr__(self, name: str) -> Any:
        raise Escape(f"{name}() of a list that rounds add to", "what it has is not known yet")


@dataclass(frozen=True)
class Block:
    """What the rounds of an inner loop have appended: ``count`` entries, whose parts are rows of arrays."""

    kind: Entry | Tuple
    count: int
    parts: tuple[Node, ...]


def kind_of_row(value: Any, into: Any = None) -> Entry | Tuple:
    """What an entry is of which the parts become rows of arrays."""
    if type(value) is Block:
        return value.kind
    found = Entry.of(value)
    if found is None and isinstance(value, list | TracedList) and type(into) is list:
        note_rows(into, [*into, value])
    if found is None:
        raise Escape("a list of what are no numbers or arrays of one type", "no array holds it")
    for part in parts_of(value):
        strides = part.strides_in_memory if isinstance(part, Tracer) and part.ndim else None
        if strides is not None and not is_contiguous(part.aval, strides):
            raise Escape("a list of arrays that lie otherwise than as rows", "what is made of them lies as they do")
    return found


def column(values: Growing) -> tuple[Any, Callable[[Any], Any]]:
    """How many entries there are in a round, and the one with a number."""
    return values.__len__(), values.row
