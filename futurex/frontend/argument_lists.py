"""Long lists of numbers among the arguments, as staged code has them: lists of the rows of one array each.

A Python list of its entries stands for one where that will do; where its length is another one at each call, or a first
trace found that data decides which entry is asked, a traced list.
"""

from __future__ import annotations

from typing import Any

from futurex.frontend.entry_kinds import Entry, Row
from futurex.frontend.lists import TYPES, Site, TracedList
from futurex.frontend.trace import current, read
from futurex.frontend.tracer import Tracer, new_array, strong
from futurex.tree.aval import Aval
from futurex.tree.node import Node


def entered_list(array: Node, place: str) -> Any:
    """The list that stands for the argument at a place, whose numbers are those of an array."""
    kind = Entry(Aval((), array.dtype), False, True, False)
    site = Site("an argument", place)
    if not array.is_static:
        return _traced(array, kind, site)
    if array.ndim == 1:
        return _entries(array, kind, ())
    return [_entries(array, kind, (k,)) for k in range(array.shape[0])]


def _entries(array: Node, kind: Entry, row: tuple[int, ...]) -> list[Tracer]:
    source = read("load", array, chain=(("index", tuple(("i", k) for k in row)),)) if row else array
    return [_entry(source, k, kind) for k in range(source.shape[0])]


def _entry(array: Node, k: int, kind: Entry) -> Tracer:
    element = read("load", array, chain=(("index", (("i", k),)),))
    entry = kind.entry(element)
    for node in (element, entry._node, strong(entry._node)):
        current().gathered[node] = array, k
    return entry


def _traced(array: Node, kind: Entry, site: Site) -> TracedList:
    if array.ndim == 1:
        return TracedList(site, kind, new_array(array))
    row = Row(kind, array.shape[1])
    part = TracedList(site, row.parts[0], new_array(array))
    made: TracedList = TYPES[Row](site, row, (part,))
    return made
