"""Lists that a loop of known length only appends to: its rounds write rows of an array, of which the list has each when
the loop is done (:mod:`futurex.frontend.rewrite.collecting` finds them)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from futurex.frontend.control.values import raw
from futurex.frontend.errors import Escape
from futurex.frontend.layout import is_contiguous
from futurex.frontend.lists import Entry, share_entry
from futurex.frontend.trace import Collected, current, emit
from futurex.frontend.tracer import Tracer, entered, fresh, new_array, strong
from futurex.tree.node import Node

LEARNED = object()
"""The site of an Escape that says that now is known what rounds append."""
MOST = 1 << 13
"""Rounds, at most: the list has as many entries."""
_NEAR = 64
"""First number of a range up to which the array begins with rows that nobody writes."""


class Appended:
    """What rounds of one loop append, and how: ``append[k]`` adds to the k-th of its lists."""

    def __init__(self, *append: Callable[[Any], Any]) -> None:
        self.append = append
        self.put_now: list[tuple[int, Any]] = []

    def put(self, number: int, value: Any) -> None:
        """A round appends."""
        self.put_now.append((number, value))

    def begin(self) -> None:
        """A round begins, perhaps behind one that was given up."""
        self.put_now = []

    def settle(self) -> None:
        """Append what the round has put."""
        for number, value in self.put_now:
            self.append[number](value)


class Collector:
    """The arrays of one staging of a loop over ``rounds``, whose body has this ``code``."""

    def __init__(self, rows: Appended, code: Any, rounds: range) -> None:
        self.rows, self.code, self.rounds, self.site = rows, code, rounds, Collected(code)
        if self.site in current().loops:
            raise Escape("a list that a loop adds to", "somebody writes into its entries")
        self.near = rounds.step == 1 and 0 <= rounds.start <= _NEAR
        self.first = rounds.start if self.near else 0
        self.kinds: tuple[tuple[int, Entry], ...] | None = current().collected.get(code)
        count = self.first + len(rounds)
        self.arrays = [new_array(_zeros(count, kind)) for _, kind in self.kinds or ()]

    def finish(self, counter: Any) -> None:
        """A round is over: write what it appended."""
        put = [(number, entered(value)) for number, value in self.rows.put_now]
        found = tuple((number, _kind(value)) for number, value in put)
        if self.kinds is None or not _fits(found, self.kinds):
            current().collected[self.code] = found if self.kinds is None else _joined(found, self.kinds)
            raise Escape("a list that a loop adds to", "what it adds was not known", site=LEARNED)
        place: Any = counter if self.near else (counter - self.rounds.start) // self.rounds.step
        for (_, value), array in zip(put, self.arrays, strict=True):
            share_entry(value, self.site)
            array[place] = fresh(strong(raw(value)))

    def deliver(self) -> None:
        """The loop is done: the lists have their entries."""
        gathered = current().gathered
        for n in range(self.first, self.first + len(self.rounds)):
            for (number, kind), array in zip(self.kinds or (), self.arrays, strict=True):
                row = array[n]._node
                entry = kind.entry(row, self.site)
                for node in (row, entry._node, strong(entry._node)):
                    gathered[node] = array._node, n
                self.rows.append[number](entry)


def _zeros(count: int, kind: Entry) -> Node:
    return emit("full", kind.aval.dtype.type(0), shape=(count, *kind.aval.shape), dtype=kind.aval.dtype)


def _kind(value: Any) -> Entry:
    found = Entry.of(value)
    if not isinstance(found, Entry):
        raise Escape("a list of what are no numbers or arrays of one type", "no array holds it")
    if isinstance(value, Tracer) and value.ndim:
        strides = value.strides_in_memory
        if strides is not None and not is_contiguous(value.aval, strides):
            raise Escape("a list of arrays that lie otherwise than as rows", "what is made of them lies as they do")
    return found


def _fits(found: Sequence[tuple[int, Entry]], known: Sequence[tuple[int, Entry]]) -> bool:
    return len(found) == len(known) and all(
        mine == theirs and kind.joined(other) == other
        for (mine, kind), (theirs, other) in zip(found, known, strict=True)
    )


def _joined(
    found: Sequence[tuple[int, Entry]], known: Sequence[tuple[int, Entry]]
) -> tuple[tuple[int, Entry], ...]:  # fmt: skip
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
