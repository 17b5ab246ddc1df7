"""Python's lists and tuples at a position that the run tells: their entries, of one kind, as the rows of an array."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from futurex.frontend.control.either import of_one_dtype
from futurex.frontend.control.values import Kind, merged_tracer
from futurex.frontend.entry_kinds import Entry, Tuple, entered_all, joined, parts_of
from futurex.frontend.errors import Escape, Retrace
from futurex.frontend.linear import line_of
from futurex.frontend.made_lists import note_asked
from futurex.frontend.outside import own_container
from futurex.frontend.placeholders import Either
from futurex.frontend.sites import Collected
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import Tracer, entered, fresh, new_array, node_of
from futurex.frontend.which import UNKNOWN, Which, which
from futurex.tree.node import next_id

MOST_WRITTEN = 64
"""Entries of a list that is written so: each of them is read from the array afterwards."""
FEW_WRITTEN = 8
"""The same in a loop or branch, which would carry each of them."""
FEWEST_ROWS = 5
"""Entries of a list over which a loop may be one over rows."""
_ENTRY = "may be an entry of a list, or another one"
_WHY = "which entry it is depends on data"


def depends_on_data(index: Any) -> bool:
    """Is a position, or a part of a slice, not known before the run?"""
    if isinstance(index, slice):
        return any(map(depends_on_data, (index.start, index.stop, index.step)))
    return isinstance(index, Tracer) and index._node.op != "const"


def picked(container: list[Any] | tuple[Any, ...], index: Any) -> Any:
    """``container[index]``. An array that was picked is one of several: nobody may write into any of them any more."""
    kind = _kind(container, index)
    if isinstance(kind, Tuple):
        return tuple(picked([entry[k] for entry in container], index) for k in range(len(kind.kinds)))
    entries = [entered(entry) for entry in container]
    if not is_inside(index, len(entries)):
        current().waits = True  # where there is no such entry, plain Python raises its own exception
    made = _entry(fresh(node_of(entries))[index]._node, kind)
    if kind.is_array:
        made._cell.which = _which(entries, index)
        arrays = [entry._cell for entry in entries if isinstance(entry, Tracer)]
        site = next((cell.site for cell in arrays if isinstance(cell.site, Collected)), None)
        for cell in arrays:
            cell.entangle(_ENTRY, site)
    return made


def is_inside(index: Tracer, length: int) -> bool:
    """Is there surely such an entry?"""
    line = line_of(index._node)
    if line is None:
        return False
    values = current().counters[line.counter] if line.counter is not None else range(1)
    return all(-length <= line.slope * k + line.offset < length for k in (values[0], values[-1]))


def entry_at(container: list[Any] | tuple[Any, ...], length: int) -> Callable[[Any], Any]:
    """The entry of a list or tuple at a position, for who goes over its ``length`` entries while it keeps them."""

    def entry(index: Any) -> Any:
        if len(container) != length:
            leaves = [part for each in container for part in parts_of(each) if isinstance(part, Tracer)]
            sites = {leaf._cell.site for leaf in leaves if isinstance(leaf._cell.site, Collected)}
            if sites - current().loops:
                current().loops |= sites
                raise Retrace
            raise Escape("a list that grows or shrinks while a loop goes over it", "its rounds are known by number")
        return picked(container, index) if depends_on_data(index) else entered_all(container[operator.index(index)])

    return entry


def is_gathered(values: Any) -> bool:
    """Are most entries of a list or tuple what rounds of a loop have appended, rows of arrays, and all of one kind?"""
    if type(values) not in (list, tuple) or len(values) < FEWEST_ROWS or not current().gathered:
        return False
    rows = sum(isinstance(first := _first(value), Tracer) and first._raw in current().gathered for value in values)
    kind = joined(values) if 2 * rows > len(values) else None
    return kind is not None and not any(part.loose for part in parts_of(kind))


def are_many_records(values: Any) -> bool:
    """Is it a long list or tuple of tuples of Python's numbers, all of one kind, with places among them? Rounds over
    these read and write here and there, where those over numbers alone may be steps of one formula over arrays."""
    if type(values) not in (list, tuple) or len(values) <= MOST_WRITTEN or type(values[0]) is not tuple:
        return False
    kind = joined(values)
    parts = [] if kind is None else parts_of(kind)
    alike = all(part.python and not part.loose and not part.is_array for part in parts)
    return alike and any(part.aval.dtype.kind == "i" for part in parts)


def _first(value: Any) -> Any:
    while type(value) is tuple and value:
        value = value[0]
    return value


def _which(entries: list[Any], index: Any) -> Which:
    """Which array an entry is that the run picks."""
    if current().numbering is None:
        return UNKNOWN
    if all(isinstance(entry, Tracer) for entry in entries):
        every = current().numbering.all_of(entries, next_id())
        if every is not None:
            return Which(fresh(every.number)[index]._node, every.among)
    found = [which(entry, {}, next_id()) for entry in entries]
    numbers = [fresh(each.number) for each in found if each.number is not None]
    if len(numbers) < len(entries):
        return UNKNOWN
    return Which(fresh(node_of(numbers))[index]._node, frozenset().union(*(each.among for each in found)))


def put(container: list[Any], index: Any, value: Any) -> None:
    """``container[index] = value`` for numbers: every entry is the old one or the new one."""
    if type(of_one_dtype(value)) is Either:
        note_asked(container, value)
        raise Escape("writing an entry of a list that is one of several sorts of numbers", _WHY, "give it one type")
    value = entered(value)
    try:
        kind = _kind(container, index).joined(Entry.of(value))
        if not isinstance(kind, Entry) or kind.is_array or kind.loose or len(container) > MOST_WRITTEN:
            raise Escape("writing an entry of a list", _WHY, "keep the numbers in an array")
    except Escape:
        note_asked(container, value)  # a list of rows takes more
        raise
    if len(container) > FEW_WRITTEN and current().scopes:
        note_asked(container)
        if current().has_grown() and current().may_begin_again:
            raise Retrace  # a loop would carry them one by one
    own_container(container, "an item of a list")
    current().waits = True  # where there is no such entry, plain Python raises the list's own exception
    rows = new_array(node_of(list(map(entered, container))))
    rows[index] = value
    container[:] = [_entry(rows[k]._node, kind) for k in range(len(container))]


def _kind(container: list[Any] | tuple[Any, ...], index: Any) -> Entry | Tuple:
    """What all entries are. Refuses what no row can stand for, and what is no position."""
    name = type(container).__name__
    if isinstance(index, slice):
        if type(container) is list:
            note_asked(container)  # a list of rows has such slices
        raise Escape(f"a slice of a {name}", "how long it is depends on data", "keep an array")
    if index.ndim or (index.dtype.kind not in "iu" and not (index.aval.weak and index.dtype.kind == "b")):
        raise Escape(f"a {name} indexed by what is no integer", "NumPy would take it for another kind of index")
    kind = joined(container)
    if kind is None and type(container) is list:
        note_asked(container)  # a table has lists at any position
    if kind is None or (isinstance(kind, Entry) and kind.loose):
        raise Escape(f"an entry of a {name} of several types", _WHY, "keep entries of one type, or an array")
    return kind


def _entry(node: Any, kind: Entry) -> Tracer:
    if kind.python:
        return fresh(emit("python_scalar", node, kind=node.dtype.kind))
    made = merged_tracer(node, Kind(kind.is_array), ())
    if kind.is_array:
        made._cell.entangle(_ENTRY)
    return made


