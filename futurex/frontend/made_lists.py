"""What list displays make: a Python list, or a traced one where an earlier trace noted growth; what traces note."""

from __future__ import annotations

import collections
import functools
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from futurex.frontend.entry_kinds import (
    Entry,
    Mixed,
    Row,
    Tuple,
    common_kind,
    constant_columns,
    row_kind,
    told_apart,
    widened,
)
from futurex.frontend.errors import Escape, Retrace
from futurex.frontend.lists import TYPES, Site, TracedList, empty, filled, len_of
from futurex.frontend.objects import LISTS
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import Tracer, fresh, node_of
from futurex.frontend.tuple_lists import as_sorts
from futurex.tree.node import const
from futurex.tree.source import here


def listed(values: Any, site: Site, sources: Iterable[Any] = (), rows: Sequence[Site] = ()) -> Any:
    """What a list display gives: the list, or a traced one where an earlier trace saw it grow or shrink by data. So it
    is with what is a new list, if it is one and its ``sources`` are of types that make new ones. ``rows``: what makes
    the lists in it, which nobody else has."""
    made_by: Any = type(values)
    if made_by not in LISTS or not all(map(_makes_lists, sources)):
        return values
    if made_by is deque:
        if values.maxlen == 0 or not any(map(_makes_deques, sources)):
            return values
        site = Site(*site.place, made=deque, most=values.maxlen)
    trace = current()
    kind = trace.stacks.get(site)
    if kind is not None and trace.exact:
        kind = told_apart(kind)
    alone = bool(values) and bool(rows) and all(_is_made_by(row, rows) for row in values)
    if isinstance(kind, Row) and (not values or (alone and kind.allows(row_kind(values)))):
        return TYPES[Row].of_lists(site, kind, values)
    if kind is None or isinstance(kind, Row):
        if alone:
            trace.tables.update((id(row), (row, values)) for row in values)
        trace.lists[id(values)] = values, site
        return trace.remember(values)
    known = constant_columns(kind, [*values])
    if known is not None:
        made = filled(site, kind, map(const, known))
        made.keep_last()
        return made
    made = empty(site, kind)
    made.extend(values)
    return made


def repeated(values: list[Any], count: Tracer) -> TracedList | None:
    """``values * count``, where only the run knows how often; None for what no rows of one array hold."""
    from futurex.frontend.calls import call

    kind = common_kind(values)
    if not isinstance(kind, Entry) or kind.is_array or kind.loose or count.dtype.kind not in "iu":
        return None
    count = fresh(emit("maximum", count._node, 0))
    rows = call(np.full, (count, values[0]), {"dtype": kind.aval.dtype}) if len(values) == 1 else (
        call(np.tile, (fresh(node_of(values)), count), {})
    )  # fmt: skip
    source = here()
    site = Site("repeated", source and (source.file, source.line, source.columns))
    made = TracedList(site, kind, rows)
    known = current().stacks.get(site)
    if isinstance(known, Mixed):
        return filled(site, known, iter(as_sorts(made, known)))
    return current().remember(made)


def _is_made_by(value: Any, sites: Sequence[Site]) -> bool:
    found, site = current().lists.get(id(value), (None, None))
    return found is value and type(value) is list and site in sites


def _makes_lists(source: Any) -> bool:
    """Are sums, products and copies of it new lists, if they are lists? Those of others' classes may be any."""
    return type(source) in (*LISTS, int, float, bool) or isinstance(source, TracedList | Tracer | np.generic) or any(
        source is maker for maker in (list, sorted, len, deque, collections)
    )  # fmt: skip


def _makes_deques(source: Any) -> bool:
    return source is deque or source is collections or type(source) is deque


def note_growth(value: Any, *contents: dict[Any, Any]) -> None:
    """A list held these entries before and after it grew or shrank: it might be a traced one in another trace."""
    _note(value, common_kind(entry for entries in contents for entry in entries.values()))


def note_asked(value: list[Any], *put: Any) -> None:
    """A list was asked for a place that depends on data, or these were ``put`` there: it might be a traced one. So
    might be the table that it is, or is in."""
    row, table = current().tables.get(id(value), (None, None))
    kind = row_kind(table, *put) if row is value else None
    if kind is not None:
        _note(table, kind)
    elif value and current().tables.get(id(value[0]), (None, None))[1] is value:
        _note(value, row_kind(value))
    elif value and all(map(_is_known_list, value)) and not put:
        note_rows(value, value)
    else:
        note_growth(value, dict(enumerate((*value, *put))))


def note_row(value: list[Any]) -> NoReturn:
    """A list is put into a table: it has to be a traced one, of which it is known that it is in one."""
    _note(value, common_kind(value))
    if current().has_grown() and current().may_begin_again:
        raise Retrace
    raise Escape("a list that becomes one of a list of lists", "it is traced as an array")


def note_rows(value: Any, rows: list[Any]) -> None:
    """A list got these lists, which are all of one kind: it might be a table in another trace, and they traced lists,
    of which it is known that they are in one."""
    if not _is_known_list(value) or len(set(map(id, rows))) < len(rows):
        return
    kind: Any = functools.reduce(widened, map(_kind_as_row, rows), _kind_as_row(rows[0]))
    if kind is not None:
        _note(value, kind)
        for row in rows:
            if current().tables.get(id(row), (None, None))[1] is not value:
                _note(row, kind.kinds[0])


def _kind_as_row(row: Any) -> Entry | Tuple | None:
    if isinstance(row, TracedList):
        return Row(row.kind, len_of(row)) if type(len_of(row)) is int else None
    return row_kind([row])


def _is_known_list(value: Any) -> bool:
    return type(value) is list and current().lists.get(id(value), (None, None))[0] is value


def _note(value: Any, kind: Entry | Tuple | None) -> None:
    trace = current()
    found, site = trace.lists.get(id(value), (None, None))
    if found is value and kind is not None:
        trace.grown[site] = widened(trace.grown[site], kind) if site in trace.grown else kind
