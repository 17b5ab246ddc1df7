"""The state of a staged loop: names, and the entries of the Python objects that its rounds change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from futurex.frontend.cells import Cell
from futurex.frontend.control.moved import alike, columns, give_up, is_list, is_read, is_usable
from futurex.frontend.control.recalled import forget, recalled, remember
from futurex.frontend.control.values import UNDEF, Get, Set, State, common_type, is_numeric, opened, raw
from futurex.frontend.errors import Escape
from futurex.frontend.held import NESTS
from futurex.frontend.lists import TracedList
from futurex.frontend.made_lists import note_growth
from futurex.frontend.objects import Contents, describe, entries_of, fill, is_container
from futurex.frontend.trace import current
from futurex.tree.aval import Aval
from futurex.tree.dims import Fresh
from futurex.tree.node import Node
from futurex.tree.pytree import flatten
from futurex.tree.source import here

if TYPE_CHECKING:
    from futurex.frontend.control.entry import Carried
    from futurex.frontend.control.rounds import Round


class Objects:
    """Names, and the entries of the Python objects that a loop changes, as one state."""

    def __init__(self, get: Get, set_: Set, names: tuple[str, ...], body: Any) -> None:
        self._get, self._set, self._names, self._body = get, set_, names, body
        cells, changing, self.flags = recalled(body)
        self._objects: dict[int, Any] = {id(value): value for value, _ in changing}
        self._own = {id(cell) for cell in get.__closure__ or ()}
        self.moved: set[int] = set()  # the names of lists that rounds bind to other ones
        self.dead: set[int] = set()  # those that each round binds before it reads them
        self.views: set[int] = set()  # the names that rounds bind to what other names have
        self.parted = False  # are arrays of names taken to be theirs alone?
        self.rebound: set[int] = set()  # those of which each round means its own alone
        self.written = {cell: cell.value.aval for cell in cells}  # what the last round wrote that did not build a loop
        self._recalled = cells, [*self._objects], self.flags  # what is only thought to change
        self._bound: set[Any] = set()  # attributes that rounds bind to other lists, dicts or tuples
        self._wider: dict[tuple[int, Any], Aval] = {}  # rows that it left otherwise than it found them
        for value, axes in changing:
            rows = {k: raw(row).aval for k, row in entries_of(value).items() if k in axes and is_numeric(row)}
            self._wider |= {(id(value), k): _opened(aval, axes[k]) for k, aval in rows.items()}

    @property
    def names(self) -> list[str]:
        entries = [f"an entry of {describe(value)}" for value in self._objects.values() for _ in entries_of(value)]
        return [*self._names, *entries]

    @property
    def grow(self) -> list[bool]:
        """Which of them are the rows of a list."""
        entries = [type(value) is TracedList for value in self._objects.values() for _ in entries_of(value)]
        return [*(False for _ in self._names), *entries]

    @property
    def steady(self) -> list[bool]:
        """Which of them are attributes: most of an object's stay what they are, as rates and sizes do."""
        kept = [not is_container(value) for value in self._objects.values() for _ in entries_of(value)]
        return [*(False for _ in self._names), *kept]

    @property
    def whole(self) -> list[bool]:
        """Which of them are attributes that hold a list, dict or tuple, and that no round is known to bind to another
        one: what is in it is an object's own state."""
        entries = [entry for value in self._objects.values() for entry in entries_of(value).values()]
        return [*(False for _ in self._names), *map(self._is_whole, self._places(), entries)]

    def _places(self) -> list[tuple[int, Any]]:
        return [(key, k) for key, value in self._objects.items() for k in entries_of(value)]

    def _is_whole(self, place: tuple[int, Any], entry: Any) -> bool:
        return type(entry) in NESTS and place not in self._bound and not is_container(self._objects[place[0]])

    def binds(self, before: State, after: State) -> bool:
        """Did a round bind such an attribute to another list, dict or tuple, or to something else?"""
        ends = zip(self._places(), before[len(self._names) :], after[len(self._names) :], strict=True)
        changed = [place for place, old, new in ends if old is not new and self._is_whole(place, old)]
        self._bound.update(changed)
        return bool(changed)

    @property
    def wider(self) -> list[Aval | None]:
        """Abstract values that are known to be needed."""
        entries = [self._wider.get((key, k)) for key, value in self._objects.items() for k in entries_of(value)]
        return [*(None for _ in self._names), *entries]

    def get(self) -> State:
        return (*self._get(), *(entry for value in self._objects.values() for entry in entries_of(value).values()))

    def put(self, state: State) -> None:
        rest = iter(state[len(self._names) :])
        self._set(state[: len(self._names)])
        for value in self._objects.values():
            fill(value, {key: next(rest) for key in entries_of(value)})

    def note_kinds(self, before: State, after: State) -> None:
        """Lists that rounds move their entries in (a window of the last values) would have one type for all of them as
        traced ones."""
        place = len(self._names)
        for value in self._objects.values():
            end = place + len(entries_of(value))
            note_growth(value, dict(enumerate((*before[place:end], *after[place:end]))))
            place = end

    def held(self) -> Contents:
        """The objects, and what they hold."""
        return {key: (value, entries_of(value)) for key, value in self._objects.items()}

    def note(self, before: State) -> None:
        """The objects are about to be changed for good."""
        for value in self._objects.values():
            current().change(value)
        self.give_up(before)

    def give_up(self, before: State) -> None:
        """Lists whose rows are carried are nobody's while rounds are traced, and behind the loop."""
        for k in self.moved | self.dead:
            give_up(before[k])

    def renew(self) -> bool:
        """An array cannot be written because a name may be bound to it, or to a view of it, since an earlier round.
        Take it that each round binds such names before it reads them, and that nobody reads them behind the loop. False
        if that is so already, or is known to be wrong."""
        told = {k for k in self.views if self.read_behind(k) not in current().loops}
        new = told - self.rebound
        self.rebound |= new
        return bool(new)

    def part(self) -> bool:
        """The same, of names that rounds bind to new arrays: take it that nobody else has what they were before the
        loop. False if that is so already."""
        if self.parted or current().numbering is not None:
            return False
        self.parted = True
        return True

    def read_behind(self, k: int) -> tuple[str, str]:
        """What a trace is told by somebody who reads a name behind the loop."""
        return str(here()), self.names[k]

    def moves(self, before: State, after: State) -> bool:
        """Did a round bind a name to another list than before? Then its rows are carried from now on.

        Not those of a list that nobody may use.
        """
        known = len(self.moved) + len(self.dead)
        for k, (old, new) in enumerate(zip(before[: len(self._names)], after, strict=False)):
            if k in self.moved | self.dead or old is new or not (is_list(old) and is_list(new)):
                continue
            if isinstance(old, TracedList) and not is_usable(old):
                self.dead.add(k)
            elif alike(old, new):
                self.moved.add(k)
                for each in columns(old):
                    self._objects.pop(id(each), None)
        return len(self.moved) + len(self.dead) > known

    def dies(self, carried: Sequence[Carried], before: State, start: State, after: State) -> bool:
        """Does a list have several names before a round, or behind it? All but one must be names that no round reads
        before it binds them."""
        for k in sorted(self.moved - self.dead):
            for state in (before, after):
                same = [
                    j for j, value in enumerate(state)
                    if isinstance(state[k], TracedList) and not (carried[j].unbound or carried[j].conflict is not None)
                    and any(leaf is state[k] for leaf in _leaves(value))
                ]  # fmt: skip
                kept = [leaf for value in after for leaf in _leaves(value)]
                idle = [
                    j for j in same
                    if j in self.moved and not is_read(start[j]) and not any(leaf is start[j] for leaf in kept)
                ]  # fmt: skip
                if len(idle) < len(same) - 1:
                    raise Escape("a list of several names in a staged loop", "what changes one changes the others")
                if len(same) > 1:
                    self.dead.update(idle[: len(same) - 1])
                    return True
        return False

    def found(self, changed: Contents, given: set[int]) -> dict[int, Any]:
        """The objects that a round changed and that are not carried yet, but for lists that were ``given`` up. Refuses
        those that grow or shrink."""
        grown = [
            value for key, (value, before) in changed.items()
            if key not in self._own | given and list(entries_of(value)) != list(before)
        ]  # fmt: skip
        for value in grown:
            note_growth(value, changed[id(value)][1], entries_of(value))
        if grown:
            raise Escape(f"{describe(grown[0])} grows or shrinks in a staged loop", "how long it is depends on data")
        known = self._own | self._objects.keys() | given
        return {key: value for key, (value, _) in changed.items() if key not in known}

    def add(self, new: dict[int, Any]) -> None:
        self._objects |= new

    def learn(self, changed: Contents, new: dict[int, Any], written: dict[Cell, Node]) -> None:
        """Remember of a round that showed ``new`` objects what else it showed, for the next one to begin with."""
        self.written = {cell: value.aval for cell, value in written.items()}
        for key, value in new.items():
            before = changed[key][1]
            for k, row in entries_of(value).items() if type(value) is TracedList else ():
                if is_numeric(row) and is_numeric(before[k]):
                    self._wider[key, k] = opened(common_type(raw(before[k]).aval, raw(row).aval, "a list"))

    def remember(self, carried: Sequence[Carried], cells: Iterable[Cell], flags: Iterable[str]) -> None:
        """The loop is built: another tracing of it begins with what its rounds change."""
        rest, changed = iter(carried[len(self._names) :]), []
        for value in self._objects.values():
            entries = {k: next(rest) for k in entries_of(value)}
            rows = {k: entry.avals[0] for k, entry in entries.items() if entry.grows and entry.avals[0] is not None}
            changed.append((value, {k: _open_axes(aval) for k, aval in rows.items()}))
        remember(self._body, [*cells], changed, frozenset(flags))

    def is_as_recalled(self, round_: Round, flags: Iterable[str]) -> bool:
        """Did a round change all that it was thought to? ``flags``: those that it left unknown."""
        cells, objects, thought = self._recalled
        written = all(cell not in round_.cells or round_.cells[cell] not in round_.params for cell in cells)
        changed = all(key in round_.changed or key not in self._objects for key in objects)
        return written and changed and thought.issubset(flags)

    def forget(self) -> bool:
        """Let rounds show what they change. False if they have done so."""
        if not any(self._recalled):
            return False
        forget(self._body)
        self._objects, self.written, self._wider, self.flags = {}, {}, {}, frozenset()
        self._recalled, self.views, self.rebound, self.parted = ([], [], self.flags), set(), set(), False
        return True


def _leaves(value: Any) -> list[Any]:
    return [] if value is UNDEF else flatten(value)[0]


def _open_axes(aval: Aval) -> tuple[int, ...]:
    return tuple(axis for axis, extent in enumerate(aval.shape) if not isinstance(extent, int))


def _opened(aval: Aval, axes: tuple[int, ...]) -> Aval:
    shape = tuple(Fresh(axis) if axis in axes else extent for axis, extent in enumerate(aval.shape))
    return Aval(shape, aval.dtype, aval.weak)
