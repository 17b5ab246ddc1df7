"""Long lists of numbers among the arguments, as staged code has them: lists of the rows of one array each.

A Python list of its entries stands for one where that will do; where its length is another one at each call, or a first
trace found that data decides which entry is asked, a traced list.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any

from futurex.frontend.control.moved import columns, is_usable
from futurex.frontend.control.values import raw
from futurex.frontend.entry_kinds import Entry, Mixed, Row, told_apart
from futurex.frontend.errors import Escape
from futurex.frontend.lists import TYPES, Site, TracedList, filled
from futurex.frontend.outputs import rows_of
from futurex.frontend.replay import Refill
from futurex.frontend.trace import Trace, current, emit, read
from futurex.frontend.tracer import Tracer, new_array, strong
from futurex.frontend.tuple_lists import as_sorts
from futurex.tree.aval import Aval
from futurex.tree.node import Node
from futurex.tree.pytree import Structure, leaf_places

MANY, MOST = 256, 1 << 14
"""Numbers of a list that is a traced one where that can be staged, and where it cannot: the trace of an entry takes
longer than a call of hundreds."""


class Lent:
    """A traced list that stands for an argument, and what it began with."""

    __slots__ = ("_before", "kind", "list", "place")

    def __init__(self, made: TracedList) -> None:
        self.list, self.kind = made, made.kind
        self._before = self._rows()
        self.place: tuple[Any, ...] = ()

    def _rows(self) -> list[Node]:
        return [raw(each.rows) for each in columns(self.list) if not isinstance(each.rows, tuple)]

    def is_changed(self) -> bool:
        """Is it another list at the end of the trace? Raises Escape where only the run knows which list it is."""
        if not all(map(is_usable, columns(self.list))):
            raise Escape("an argument that is a list, and may be another name's", "which list it is depends on data")
        now = self._rows()
        if all(map(operator.is_, now, self._before)):
            return False
        if isinstance(self.kind, Row):
            order = len(now) - 1 if self.kind.moves else None
            if now[0].shape != self._before[0].shape or (order and now[order] is not self._before[order]):
                raise Escape("a list of lists among the arguments whose lists change places", "they stay the caller's")
        return True


def entered_list(array: Node, path: str, value: list[Any] | None = None) -> Any:
    """The list that stands for the argument with a path, whose numbers are those of an array. ``value``: a copy of the
    argument, where they are known."""
    kind, site = _kind(array), Site("an argument", path)
    is_long = not array.is_static or math.prod(array.shape) > MOST or (
        current().may_begin_again and math.prod(array.shape) > MANY
    )  # fmt: skip
    known = current().stacks.get(site, kind if is_long else None)
    if known is not None:
        current().lends_long |= is_long and array.is_static and site not in current().stacks
        return _lent(_traced(array, kind, told_apart(known) if current().exact else known, site))
    if value is None:
        rows = [(k,) for k in range(array.shape[0])]
        value = _entries(array, kind, ()) if array.ndim == 1 else [_entries(array, kind.kinds[0], row) for row in rows]
    for row in value if array.ndim == 2 else ():
        current().tables[id(row)] = row, value
        current().lists[id(row)] = row, Site("an argument", path, "a row")
    current().lists[id(value)] = value, site
    return value


def _lent(made: TracedList) -> TracedList:
    trace = current()
    trace.lent.append(Lent(made))
    for each in columns(made):
        trace.remember(each)
    return made


def _kind(array: Node) -> Any:
    number = Entry(Aval((), array.dtype), False, True, False)
    return number if array.ndim == 1 else Row(number, array.shape[1])


def _entries(array: Node, kind: Entry, row: tuple[int, ...]) -> list[Tracer]:
    source = read("load", array, chain=(("index", tuple(("i", k) for k in row)),)) if row else array
    return [_entry(source, k, kind) for k in range(source.shape[0])]


def _entry(array: Node, k: int, kind: Entry) -> Tracer:
    element = read("load", array, chain=(("index", (("i", k),)),))
    entry = kind.entry(element)
    for node in (element, entry._node, strong(entry._node)):
        current().gathered[node] = array, k
    return entry


def _traced(array: Node, kind: Any, known: Any, site: Site) -> TracedList:
    """The list as one of entries of a ``known`` kind, which may hold more than those of the array."""
    if array.ndim == 1:
        made = TracedList(site, kind, new_array(array))
        return filled(site, known, iter(as_sorts(made, known) if isinstance(known, Mixed) else [array]))
    inner, rows = known.kinds[0], [array]
    if isinstance(inner, Mixed):
        numbers = TracedList(site, kind.kinds[0], new_array(emit("reshape", array, shape=(math.prod(array.shape),))))
        rows = [emit("reshape", each, shape=array.shape) for each in as_sorts(numbers, inner)]
    table: TracedList = TYPES[Row].of_columns(site, known, rows)
    return table


def placed(structure: Structure, values: Iterable[Any], trace: Trace) -> None:
    """Tells the lists among the arguments where they are found in a call's ``(args, kwargs)``."""
    stands = {id(lent.list): lent for lent in trace.lent}
    for place, value in zip(leaf_places(structure), values, strict=True):
        if id(value) in stands:
            stands[id(value)].place = place
            trace.arguments[id(value)] = place, value


def changed_lists(trace: Trace, outs: list[Node]) -> list[Refill]:
    """The lists among the arguments that every run changes; what they hold then is added to ``outs``."""
    return [Refill(lent.place, rows_of(lent.list, outs)) for lent in trace.lent if lent.is_changed()]
