"""Lists that a loop of known length only appends to: its rounds write rows of an array, of which the list has each when
the loop is done (:mod:`futurex.frontend.rewrite.collecting` finds them)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from futurex.frontend.control.carried import FIRST_ROUND
from futurex.frontend.control.values import raw
from futurex.frontend.errors import Escape
from futurex.frontend.layout import is_contiguous
from futurex.frontend.linear import Line, line_of
from futurex.frontend.lists import Entry, Tuple, entered_all, parts_of, share_entry
from futurex.frontend.trace import Collected, current, emit
from futurex.frontend.tracer import Tracer, entered, fresh, new_array, node_of, strong
from futurex.tree.node import Node

LEARNED = object()
"""The site of an Escape that says that now is known what rounds append."""
MOST = 1 << 13
"""Rounds, at most: the list has as many entries."""
_NEAR = 64
"""First number of a range up to which the array begins with rows that nobody writes."""
_Kinds = tuple[tuple[int, Entry | Tuple], ...]


class Appended:
    """What rounds of one loop append, and how. ``lists``: of each of its lists how to get it, how to append to it, and
    how often every round does."""

    def __init__(self, *lists: tuple[Callable[[], Any], Callable[[Any], Any], int]) -> None:
        self.lists = lists
        self.collector: Collector | None = None
        """Has them while rounds are staged."""

    def at(self, number: int) -> Any:
        """What rounds ask for entries of a list: the list, or what stands for it."""
        return self.lists[number][0]() if self.collector is None else self.collector.growing[number]

    def put(self, number: int, value: Any) -> None:
        """A round appends."""
        if self.collector is None:
            self.lists[number][1](value)
        else:
            self.collector.growing[number].put(value)


@dataclass
class Learned:
    """What rounds of a loop do with its lists: ``kinds`` of what they append, in order, and how many of the last
    entries of each list they ask for."""

    kinds: _Kinds | None
    last: tuple[int, ...]


class Collector:
    """The arrays of one staging of a loop over ``rounds``, whose body has this ``code``. ``peels``: may its first round
    stand before it?

    The last entries, for which rounds ask, are carried like names.
    """

    def __init__(self, rows: Appended, code: Any, rounds: range, peels: bool) -> None:
        self.rows, self.code, self.rounds, self.site = rows, code, rounds, Collected(code)
        if self.site in current().loops:
            raise Escape("a list that a loop adds to", "somebody writes into its entries")
        self.counter: Any = None
        self.put_now: list[tuple[int, Any]] = []
        known = current().collected.get(code)
        self.known: Learned = Learned(None, (0,) * len(rows.lists)) if known is None else known
        self.peels = FIRST_ROUND if peels else None
        self.growing = [Growing(self, number, last) for number, last in enumerate(self.known.last)]
        self.near = rounds.step == 1 and 0 <= rounds.start <= _NEAR
        self.first = rounds.start if self.near else 0
        count = self.first + len(rounds)
        kinds = [parts_of(kind) for _, kind in self.known.kinds or ()]
        self.arrays = [[new_array(_zeros(count, each)) for each in parts] for parts in kinds]

    # -- what is carried beside names --------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        return [f"entry -{k + 1} of list {each.number}" for each in self.growing for k in range(len(each.last))]

    def get(self) -> tuple[Any, ...]:
        return tuple(value for each in self.growing for value in each.last)

    def set(self, state: Sequence[Any]) -> None:
        rest = iter(state)
        for each in self.growing:
            each.last = [next(rest) for _ in each.last]

    # -- rounds ------------------------------------------------------------------------------------------------------

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """The loop is being staged."""
        before, self.rows.collector = self.rows.collector, self
        try:
            yield
        finally:
            self.rows.collector = before

    def begin(self, counter: Any) -> None:
        """A round begins, perhaps behind one that was given up."""
        self.counter, self.put_now = counter, []
        for each in self.growing:
            each.now = []

    @property
    def learned(self) -> bool:
        """Has a round asked for more than it was thought to?"""
        return any(each.asked > len(each.last) for each in self.growing)

    def learn(self, kinds: _Kinds | None) -> None:
        last = tuple(max(each.asked, len(each.last)) for each in self.growing)
        current().collected[self.code] = Learned(kinds, last)

    def finish(self) -> None:
        """A round is over: write what it appended."""
        put = [(number, entered_all(value)) for number, value in self.put_now]
        kinds, found = self.known.kinds, tuple((number, _kind(value)) for number, value in put)
        if kinds is None or not _fits(found, kinds) or self.learned:
            self.learn(found if kinds is None else _joined(found, kinds))
            raise Escape("a list that a loop adds to", "what it adds was not known", site=LEARNED)
        place: Any = self.counter if self.near else (self.counter - self.rounds.start) // self.rounds.step
        for (_, value), arrays in zip(put, self.arrays, strict=True):
            for part, array in zip(parts_of(value), arrays, strict=True):
                if not _is_made(part):
                    current().shared.add(self.site)
                share_entry(part, self.site)
                array[place] = fresh(strong(raw(part)))
        for each in self.growing:
            each.last = [*each.now[::-1], *each.last][: len(each.last)]

    def deliver(self) -> None:
        """The loop is done: the lists have their entries."""
        for n in range(self.first, self.first + len(self.rounds)):
            for (number, kind), arrays in zip(self.known.kinds or (), self.arrays, strict=True):
                parts = iter([self._entry(array, n, each) for array, each in zip(arrays, parts_of(kind), strict=True)])
                self.rows.lists[number][1](_whole(kind, parts))

    def _entry(self, array: Tracer, n: int, kind: Entry) -> Tracer:
        row = array[n]._node
        entry = kind.entry(row, self.site)
        for node in (row, entry._node, strong(entry._node)):
            current().gathered[node] = array._node, n
        return entry


class Growing:
    """What stands for a list while rounds that append to it are staged. It knows the entries that rounds have appended
    ``now``, and the ``last`` ones of those before."""

    __fx_traced__ = True
    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("asked", "collector", "last", "now", "number", "values")

    def __init__(self, collector: Collector, number: int, last: int) -> None:
        self.collector, self.number, self.asked = collector, number, 0
        self.values = collector.rows.lists[number][0]()
        self.now: list[Any] = []
        self.last: list[Any] = []
        if last:
            self._check(last)
            self.last = [self._before(k) for k in range(1, last + 1)]

    def put(self, value: Any) -> None:
        self.now.append(value)
        self.collector.put_now.append((self.number, value))

    def _before(self, k: int) -> Any:
        """The k-th entry from the end of those that were there before the loop; others may see what is written there.
        """
        value = entered_all(self.values[-k])
        for part in parts_of(value):
            share_entry(part, self.collector.site)
        return value

    def _check(self, count: int) -> None:
        """Are as many entries there before the loop?"""
        if type(self.values) is not list:
            raise Escape("a list that rounds add to and look at", "how long it is depends on data")
        if count > len(self.values):
            raise Escape("an entry that a list does not have yet", "it is added first", site=self.collector.peels)

    def __len__(self) -> Any:
        self._check(0)
        rounds, each = self.collector.rounds, self.collector.rows.lists[self.number][2]
        done = self.collector.counter - rounds.start
        if rounds.step != 1:
            done = done // rounds.step
        return done * each + (len(self.values) + len(self.now))

    def __getitem__(self, index: Any) -> Any:
        self._check(0)
        if not isinstance(index, Tracer):
            index = operator.index(index)
        elif index.dtype.kind not in "iu" or index.ndim:
            raise Escape("a list indexed by what is no integer", "it is traced as an array")
        line = line_of(node_of(index))
        if line is None or line.counter not in (None, self.collector.counter._node):
            raise Escape("an entry of a list that rounds add to", "which one it is depends on data")
        if not line.slope and 0 <= line.offset < len(self.values):
            return self._before(len(self.values) - line.offset)
        rounds = self.collector.rounds
        place = self._from_end(line, rounds)
        if place is None:
            later = any(self._from_end(line, rounds[k:], k) is not None for k in (1, 2) if len(rounds) > k)
            site = self.collector.peels if later else None
            raise Escape("an entry of a list that rounds add to", "its distance from the end changes", site=site)
        if place <= len(self.now):
            return self.now[-place]
        place -= len(self.now)
        self._check(place)
        self.asked = max(self.asked, place)
        return entered(self.last[place - 1]) if place <= len(self.last) else self._before(place)

    def _from_end(self, line: Line, rounds: range, before: int = 0) -> int | None:
        """How far from the end an entry lies in all these rounds, ``before`` which there are others; None if that
        changes, or if there is none."""
        each = self.collector.rows.lists[self.number][2]
        found = set()
        for k in (0, len(rounds) - 1):
            index, length = line.slope * rounds[k] + line.offset, len(self.values) + (k + before) * each + len(self.now)
            found.add((index < 0, length - index if index >= 0 else -index))
            if not -length <= index < length:
                return None
        return found.pop()[1] if len(found) == 1 else None

    def __fx_items__(self) -> Any:
        raise Escape("iterating over a list that rounds add to", "how long it is changes")

    __iter__ = __fx_items__

    def __getattr__(self, name: str) -> Any:
        raise Escape(f"{name}() of a list that rounds add to", "what it has is not known yet")


def _is_made(value: Any) -> bool:
    """Is it an array that the round has made itself, and that is no entry yet?"""
    if not isinstance(value, Tracer) or value.is_scalar:
        return True
    return not value._chain and not value._cell.entangled and value._cell.born >= current().scopes[-1].start


def _whole(kind: Entry | Tuple, parts: Iterator[Any]) -> Any:
    return tuple(_whole(each, parts) for each in kind.kinds) if isinstance(kind, Tuple) else next(parts)


def _zeros(count: int, kind: Entry) -> Node:
    return emit("full", kind.aval.dtype.type(0), shape=(count, *kind.aval.shape), dtype=kind.aval.dtype)


def _kind(value: Any) -> Entry | Tuple:
    found = Entry.of(value)
    if found is None:
        raise Escape("a list of what are no numbers or arrays of one type", "no array holds it")
    for part in parts_of(value):
        strides = part.strides_in_memory if isinstance(part, Tracer) and part.ndim else None
        if strides is not None and not is_contiguous(part.aval, strides):
            raise Escape("a list of arrays that lie otherwise than as rows", "what is made of them lies as they do")
    return found


def _fits(found: _Kinds, known: _Kinds) -> bool:
    return len(found) == len(known) and all(
        mine == theirs and kind.joined(other) == other
        for (mine, kind), (theirs, other) in zip(found, known, strict=True)
    )


def _joined(found: _Kinds, known: _Kinds) -> _Kinds:
    pairs = zip(found, known, strict=False)
    kinds = [(mine, kind.joined(other)) for (mine, kind), (theirs, other) in pairs if mine == theirs]
    if len(kinds) < max(len(found), len(known)) or any(kind is None for _, kind in kinds):
        raise Escape("a list of numbers or arrays of several types", "its entries are no rows of one array")
    return tuple((number, kind) for number, kind in kinds if kind is not None)


def blocks(parts: Sequence[Node], reshaped: Callable[[Node], Node]) -> list[Node]:
    """Arrays that are to be stacked, as arrays with an axis in front: those that are neighbouring rows of one array are
    one. ``reshaped`` gives any other the axis."""
    gathered, found, k = current().gathered, [], 0
    while k < len(parts):
        base, first = gathered.get(parts[k], (None, 0))
        stop = k + 1
        while base is not None and stop < len(parts) and gathered.get(parts[stop]) == (base, first + stop - k):
            stop += 1
        if base is None or stop == k + 1:
            found.append(reshaped(parts[k]))
        else:
            last = first + stop - k
            found.append(base if (first, last) == (0, base.shape[0]) else new_array(base)[first:last]._node)
        k = stop
    return found
