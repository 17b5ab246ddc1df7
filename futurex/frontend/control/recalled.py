"""What the rounds of a loop were found to change when it was last traced.

A loop inside of others is traced again whenever they are, and each time its rounds would have to show anew what they
change: that multiplies with the depth of a nest. So a trace keeps it, by the loop's body and by where it was found from
the names that the body reads, and the next tracing of the loop begins with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.frontend.cells import Cell
from futurex.frontend.objects import DICTS, LISTS, entries_of, has_state, is_container
from futurex.frontend.trace import current
from futurex.frontend.tracer import Tracer

DEEP = 3  # entries of entries of what a name is bound to
MANY = 4096  # objects that are looked at, and entries of one
_SIZED = (tuple, set, *LISTS, *DICTS)
Place = tuple[Any, ...]  # a name, and keys of entries
Axes = dict[Any, tuple[int, ...]]  # of the entries of a list, those whose extents are others in every round


@dataclass(frozen=True)
class Changes:
    """Storage and objects by their places, and the flags of the rewriter that are not known in every round."""

    cells: tuple[Place, ...]
    objects: tuple[tuple[Place, Axes], ...]
    flags: frozenset[str]


def recalled(body: Any) -> tuple[list[Cell], list[tuple[Any, Axes]], frozenset[str]]:
    """What the last rounds of this body changed: storage, objects, and flags."""
    last = current().rounds.get(getattr(body, "__code__", None))
    if last is None:
        return [], [], frozenset()
    at = dict(_things(body)) if last.cells or last.objects else {}
    cells = [at[place] for place in last.cells if isinstance(at.get(place), Cell)]
    objects = [(at[place], axes) for place, axes in last.objects if _may_change(at.get(place))]
    return cells, objects, last.flags


def _may_change(value: Any) -> bool:
    """Is it known what every run finds in the object, so that stand-ins may take its place?"""
    trace = current()
    return not isinstance(value, Cell) and (trace.is_own(value) or id(value) in trace.arguments.keys() & trace.outside)


def remember(body: Any, cells: Sequence[Cell], objects: Sequence[tuple[Any, Axes]], flags: frozenset[str]) -> None:
    """Keep what rounds of this body changed. What is found from no name is left for the next ones to show."""
    code = getattr(body, "__code__", None)
    if code is None:
        return
    places = {id(thing): place for place, thing in _things(body)} if cells or objects else {}
    found = tuple(places[id(cell)] for cell in cells if id(cell) in places)
    changed = tuple((places[id(each)], axes) for each, axes in objects if id(each) in places)
    current().rounds[code] = Changes(found, changed, flags)


def forget(body: Any) -> None:
    """It was another time that rounds of this body changed that."""
    current().rounds.pop(getattr(body, "__code__", None), None)


def _things(body: Any) -> Iterator[tuple[Place, Any]]:
    """The storage and the objects that a body can reach through names, and where each is."""
    captures, seen = current().captures, set[int]()
    stack: list[tuple[Place, Any]] = []
    for name, cell in zip(body.__code__.co_freevars, body.__closure__ or (), strict=True):
        stack += [((name,), entry) for entry in entries_of(cell).values()]
    while stack and len(seen) < MANY:
        place, value = stack.pop()
        if isinstance(value, np.ndarray) and id(value) in captures:
            value = captures[id(value)].tracer
        value = value._cell if isinstance(value, Tracer) else value
        if isinstance(value, Cell):
            yield place, value
        elif id(value) not in seen and (type(value) is tuple or is_container(value) or has_state(value)):
            seen.add(id(value))
            if type(value) is not tuple:
                yield place, value
            if len(place) <= DEEP and not (type(value) in _SIZED and len(value) > MANY):
                entries = enumerate(value) if type(value) is tuple else entries_of(value).items()
                stack += [((*place, key), entry) for key, entry in entries]
