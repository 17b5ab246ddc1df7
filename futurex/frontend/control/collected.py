"""Lists that a loop of known length only appends to: its rounds write rows of an array, of which the list has each when
the loop is done (:mod:`futurex.frontend.rewrite.collecting` finds them)."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from futurex.frontend.control.growing import Block, Growing, kind_of_row
from futurex.frontend.control.rounds import FIRST_ROUND
from futurex.frontend.control.sometimes import ROOM, Put, Sometimes
from futurex.frontend.control.values import raw
from futurex.frontend.entry_kinds import (
    Entry,
    Tuple,
    apart,
    entered_all,
    fitted,
    joined,
    parts_of,
    share_entry,
    told_apart,
    whole,
    zeros_of,
)
from futurex.frontend.errors import Escape, Retrace
from futurex.frontend.lists import TracedList
from futurex.frontend.rewrite.collecting import IN_SOME
from futurex.frontend.sites import Collected, ToldApart
from futurex.frontend.trace import current, emit, read
from futurex.frontend.tracer import Tracer, fresh, new_array, strong
from futurex.tree.node import Node

LEARNED = object()
"""The site of an Escape that says that now is known what rounds append."""
MOST = 1 << 13
"""Entries of a list, at most, that are the tree's, each by itself."""
MANY = 1 << 8
"""Entries from which a list of numbers had rather be an array of rows: a loop around carries it as that."""
LESS_ROOM = 1 << 18
"""Elements, at most, of one whose rounds ask for entries: it grows in memory that is set aside."""
_NEAR = 64
"""First number of a range up to which the array begins with rows that nobody writes."""
_Kinds = tuple[tuple[tuple[int, int], Entry | Tuple], ...]
"""Which list rounds append to, and how many entries at once, 0 for one by itself; and what these are."""


class Appended:
    """What rounds of one loop append, and how. ``lists``: of each of its lists how to get it, to append to it and to
    extend it, and how often every round appends: -1 where loops inside of it do so, ``IN_SOME`` where some rounds may
    not."""

    def __init__(self, *lists: tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any], int]) -> None:
        self.lists = lists
        self.collector: Collector | None = None
        """Has them while rounds are staged."""

    def at(self, number: int) -> Any:
        """What rounds ask for entries of a list: the list, or what stands for it."""
        found = None if self.collector is None else self.collector.stand_ins[number]
        return self.lists[number][0]() if found is None else found

    def put(self, number: int, value: Any) -> None:
        """A round appends."""
        found = None if self.collector is None else self.collector.stand_ins[number]
        if found is None:
            self.lists[number][1](value)
        else:
            found.put(value)

    def check_alone(self) -> None:
        """Rounds are about to append to the lists themselves: not to what stands for one in a round around, which
        would not know how often."""
        for get, *_ in self.lists:
            if isinstance(get(), Growing | Sometimes):
                raise Escape("a list that a loop adds to", "how often one inside of it does so depends on data")


@dataclass
class Learned:
    """What rounds of a loop do with its lists: ``kinds`` of what they append, in order, and of each list how many of
    its ``last`` entries they ask for, and whether for any others; ``puts``: the same of lists whose length depends on
    data, by their numbers."""

    kinds: _Kinds | None
    last: tuple[int, ...]
    others: tuple[bool, ...]
    puts: dict[int, tuple[Put, ...]]


class Collector:
    """The arrays of one staging of a loop over ``rounds``, whose body has this ``code``. ``peels``: may its first round
    stand before it? ``left``: was it left?

    The last entries, for which rounds ask, are carried like names.
    """

    def __init__(self, rows: Appended, code: Any, rounds: range, peels: bool, left: Any) -> None:
        self.rows, self.code, self.rounds, self.site, self.left = rows, code, rounds, Collected(code), left
        if self.site in current().loops:
            raise Escape("a list that a loop adds to", "somebody writes into its entries")
        self.counter: Any = None
        self.scope: Any = None
        count = len(rows.lists)
        known = current().collected.get(code)
        self.known: Learned = Learned(None, (0,) * count, (False,) * count, {}) if known is None else known
        asked = any(self.known.last) or any(self.known.others)  # rounds compute with entries of either kind
        self.apart = ToldApart(code) in current().loops or (current().exact and asked)
        self.peels = FIRST_ROUND if peels else None
        kinds = self.known.kinds or ()
        self.first = rounds.start if rounds.step == 1 and 0 <= rounds.start <= _NEAR else 0
        self.growing = [Growing(self, number) for number in range(count)]
        self.stand_ins = [self._stand_in(number) for number in range(count)]
        self.sometimes = [each for each in self.stand_ins if isinstance(each, Sometimes)]
        self._check_length(kinds)
        self.arrays = [self._rows(put, kind) for put, kind in kinds]

    def _stand_in(self, number: int) -> Growing | Sometimes | None:
        """What rounds ask for a list; none where they had rather have itself."""
        values = self.growing[number].values
        if isinstance(values, TracedList | Sometimes):
            return Sometimes(self, number, values)
        return None if self.rows.lists[number][3] == IN_SOME and self.left is not None else self.growing[number]

    def _check_length(self, kinds: _Kinds) -> None:
        """Are the lists too long for entries that are the tree's, each by itself? Another trace has arrays of rows in
        their place, as of lists whose length depends on data, where these are not too large."""
        count, trace = len(self.rounds), current()
        entries = count * sum(block or 1 for (_, block), _ in kinds)
        most = MOST * max(len(self.growing), 1)
        numbers = not any(each.aval.shape for _, kind in kinds for each in parts_of(kind))
        if entries <= (MANY * max(len(self.growing), 1) if numbers else most):
            return
        room = LESS_ROOM if any(self.known.last) or any(self.known.others) else ROOM
        grown: dict[Any, Any] = {}
        for (number, block), kind in kinds:
            values, site = trace.lists.get(id(self.growing[number].values), (None, None))
            largest = max(math.prod(each.aval.shape) for each in parts_of(kind))
            if values is not self.growing[number].values or count * (block or 1) * largest > room:
                break
            grown[site] = kind if site not in grown else kind.joined(grown[site])
        else:
            if trace.may_begin_again and None not in grown.values() and not grown.keys() <= trace.stacks.keys():
                trace.grown.update(grown)
                raise Retrace
        if entries > most:
            raise Escape(f"lists of more than {MOST} entries", "each is one of the tree's")

    def _rows(self, put: tuple[int, int], kind: Entry | Tuple) -> list[Tracer]:
        """Arrays of rows for what rounds append at one place: of lists of which they ask for any entry they begin with
        those that were there before."""
        number, block = put
        count, parts = len(self.rounds), parts_of(kind)
        if not self.known.others[number]:
            return [new_array(zeros_of(each, self.first + count, *[block] * bool(block))) for each in parts]
        growing = self.growing[number]
        growing.kind, growing.rows = kind, []
        for before, each in zip(growing.columns(kind), parts, strict=True):
            rows = zeros_of(each, count)
            growing.rows.append(new_array(emit("concatenate", *before, rows, axis=0) if before else rows))
        return growing.rows

    def _first(self, number: int) -> int:
        """Where the first row of a list is."""
        growing = self.growing[number]
        return self.first if growing.rows is None else len(growing.values)

    def _place(self, first: int) -> Any:
        """Where the row of this round is."""
        start, step = self.rounds.start, self.rounds.step
        if step == 1:
            return self.counter if first == start else self.counter + (first - start)
        return (self.counter - start) // step + first

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
        self.counter, self.scope = counter, current().scopes[-1]
        for growing in self.growing:
            growing.begin()
        for each in self.sometimes:
            each.begin()

    @property
    def learned(self) -> bool:
        """Has a round asked for more than it was thought to?"""
        return any(each.asked > len(each.last) or each.asked_others for each in self.growing)

    def learn(self, kinds: _Kinds | None) -> None:
        last = tuple(max(each.asked, len(each.last)) for each in self.growing)
        others = tuple(each.asked_others or each.rows is not None for each in self.growing)
        others = tuple(map(operator.or_, self.known.others, others))
        puts = {each.number: tuple(each.now) for each in self.sometimes}
        current().collected[self.code] = Learned(kinds, last, others, puts)

    def finish(self) -> None:
        """A round is over: write what it appended."""
        put = [(each.number, entered_all(apart(value))) for each in self.growing for value in each.now]
        kinds = self.known.kinds
        found = tuple(((number, _count(value)), self._kind(number, value)) for number, value in put)
        others = [each.finish(self._place(self.first)) for each in self.sometimes]
        if kinds is None or not _fits(found, kinds) or self.learned or not all(others):
            self.learn(found if kinds is None else _joined(found, kinds))
            raise Escape("a list that a loop adds to", "what it adds was not known", site=LEARNED)
        for (number, value), (_, kind), arrays in zip(put, kinds, self.arrays, strict=True):
            place = self._place(self._first(number))
            parts = value.parts if type(value) is Block else parts_of(fitted(value, kind))
            for part, array in zip(parts, arrays, strict=True):
                if not _is_made(part):
                    current().shared.add(self.site)
                share_entry(part, self.site)
                array[place] = fresh(strong(raw(part)))
        for each in self.growing:
            each.last = [*each.now[::-1], *each.last][: len(each.last)]

    def _kind(self, number: int, value: Any) -> Entry | Tuple:
        """That of a row, of an array that has those of the entries before the loop, too, where rounds ask for any."""
        growing = self.growing[number]
        kind = kind_of_row(value, growing.values)
        if type(value) is Block or not (growing.asked_others or growing.rows is not None):
            return kind
        common = joined([*map(apart, growing.values), apart(value)])
        if common is None:
            raise Escape("a list of numbers or arrays of several types", "its entries are no rows of one array")
        if self.apart:
            return told_apart(common)
        if common != kind:
            current().loosened.add(self.site)
        return common

    def deliver(self) -> None:
        """The loop is done: the lists have their entries."""
        for each in self.sometimes:
            each.deliver()
        kinds = self.known.kinds or ()
        if self._is_inside(kinds):
            return
        firsts = [self._first(number) for (number, _), _ in kinds]
        pairs = zip(kinds, self.arrays, strict=True)
        bases = [[_flat(array._node, block) for array in arrays] for ((_, block), _), arrays in pairs]
        added: list[list[Any]] = [[] for _ in self.growing]
        for n in range(len(self.rounds)):
            for ((number, block), kind), arrays, first in zip(kinds, bases, firsts, strict=True):
                parts, many = parts_of(kind), block or 1
                for k in range((n + first) * many, (n + first + 1) * many):
                    entries = map(self._entry, arrays, [k] * len(parts), parts)
                    added[number].append(whole(kind, entries))
        for growing, all_entries in zip(self.stand_ins, added, strict=True):
            if isinstance(growing, Growing):
                self.rows.lists[growing.number][2](current().remember(all_entries))

    def _is_inside(self, kinds: _Kinds) -> bool:
        """Are all lists those of a loop around, to each of which rounds append one entry? Then it gets all at once."""
        growing = [each for each in self.stand_ins if isinstance(each, Growing)]
        if len(kinds) != len(growing) or not all(type(each.values) is Growing for each in growing):
            return False
        if any(block for (_, block), _ in kinds):
            return False
        for ((number, _), kind), arrays in zip(kinds, self.arrays, strict=True):
            first, around = self._first(number), self.growing[number].values
            parts = [array[first:]._node if first else array._node for array in arrays]
            if self.site in current().shared:
                current().shared.add(around.collector.site)
            around.put(Block(kind, len(self.rounds), tuple(parts)))
        return True

    def _entry(self, array: Node, n: int, kind: Entry) -> Tracer:
        row = read("load", array, chain=(("index", (("i", n),)),))
        entry = kind.entry(row, self.site)
        for node in (row, entry._node, strong(entry._node)):
            current().gathered[node] = array, n
        return entry


def _is_made(value: Any) -> bool:
    """Is it an array that the round has made itself, and that is no entry yet?"""
    if not isinstance(value, Tracer) or value.is_scalar:
        return True
    return not value._chain and not value._cell.entangled and value._cell.born >= current().scopes[-1].start


def _count(value: Any) -> int:
    return value.count if type(value) is Block else 0


def _flat(array: Node, block: int) -> Node:
    """An array whose rows are entries, from one whose rows have many."""
    if not block:
        return array
    return emit("reshape", array, shape=(array.shape[0] * block, *array.shape[2:]))


def _fits(found: _Kinds, known: _Kinds) -> bool:
    return len(found) == len(known) and all(
        mine == theirs and kind.joined(other) == other
        for (mine, kind), (theirs, other) in zip(found, known, strict=True)
    )


def _joined(found: _Kinds, known: _Kinds) -> _Kinds:
    if [mine for mine, _ in found] != [theirs for theirs, _ in known]:
        return found  # an inner loop is staged from another round on than it was
    kinds = [(mine, kind.joined(other)) for (mine, kind), (_, other) in zip(found, known, strict=True)]
    if any(kind is None for _, kind in kinds):
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
