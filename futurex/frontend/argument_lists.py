"""Long lists of numbers among the arguments, as staged code has them: lists of the rows of one array each.

A Python list of its entries stands for one where that will do; where its length is another one at each call, or a first
trace found that data decides which entry is asked, a traced list.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from futurex.frontend.control.moved import columns, is_usable
from futurex.frontend.entry_kinds import Entry, Mixed, Row
from futurex.frontend.errors import Escape
from futurex.frontend.lists import TYPES, Site, TracedList, filled
from futurex.frontend.outputs import rows_of
from futurex.frontend.replay import Refill
from futurex.frontend.trace import Trace, current, read
from futurex.frontend.tracer import Tracer, new_array, strong
from futurex.frontend.tuple_lists import as_sorts
from futurex.tree.aval import Aval
from futurex.tree.node import Node
from futurex.tree.pytree import Structure, leaf_places


class Lent:
    """A traced list that stands for an argument, and the arrays that it began with."""

    __slots__ = ("array", "list", "place")

    def __init__(self, made: TracedList, array: Node) -> None:
        self.list, self.array = made, array
        self.place: tuple[Any, ...] = ()

    def is_changed(self) -> bool:
        """Is it another list at the end of the trace? Raises Escape where only the run knows which list it is."""
        if not all(map(is_usable, columns(self.list))):
            raise Escape("an argument that is a list, and may be another name's", "which list it is depends on data")
        return self.list.kind != _kind(self.array) or self.list.columns() != [self.array]


def entered_list(array: Node, path: str) -> Any:
    """The list that stands for the argument with a path, whose numbers are those of an array."""
    kind, site = _kind(array), Site("an argument", path)
    known = current().stacks.get(site)
    if known is not None and array.ndim == 1 and isinstance(known, Mixed):
        made = TracedList(site, kind, new_array(array))
        return _lent(filled(site, known, iter(as_sorts(made, known))), array)
    if not array.is_static or known == kind:
        return _lent(_traced(array, kind, site), array)
    rows = [(k,) for k in range(array.shape[0])] if array.ndim == 2 else [()]
    found = [_entries(array, kind if array.ndim == 1 else kind.kinds[0], row) for row in rows]
    value = found if array.ndim == 2 else found[0]
    for each in found if array.ndim == 2 else ():
        current().tables[id(each)] = each, value
        current().lists[id(each)] = each, Site("an argument", path, "a row")
    current().lists[id(value)] = value, site
    return value


def _lent(made: TracedList, array: Node) -> TracedList:
    trace = current()
    trace.lent.append(Lent(made, array))
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


def _traced(array: Node, kind: Any, site: Site) -> TracedList:
    if array.ndim == 1:
        return TracedList(site, kind, new_array(array))
    made: TracedList = TYPES[Row](site, kind, (TracedList(site, kind.parts[0], new_array(array)),))
    return made


def placed(structure: Structure, values: Iterable[Any], trace: Trace) -> None:
    """Tells the lists among the arguments where they are found in a call's ``(args, kwargs)``."""
    stands = {id(lent.list): lent for lent in trace.lent}
    for place, value in zip(leaf_places(structure), values, strict=True):
        if id(value) in stands:
            stands[id(value)].place = place
            trace.arguments[id(value)] = place, value


def changed_lists(trace: Trace, outs: list[Node]) -> list[Refill]:
    """The lists among the arguments that every run changes; what they hold then is added to ``outs``."""
    found = []
    for lent in trace.lent:
        if lent.is_changed():
            kind, node = lent.list.kind, lent.list.columns()[0]
            if isinstance(kind, Row) and (kind.moves or node.shape != lent.array.shape):
                raise Escape("a list of lists among the arguments whose lists change places", "they stay the caller's")
            found.append(Refill(lent.place, rows_of(lent.list, outs)))
    return found
