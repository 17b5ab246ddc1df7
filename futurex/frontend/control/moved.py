"""Traced lists that names exchange: rounds and branches carry and merge their rows, and make new lists of them.

What a list was before is nobody's from then on: a name that still means it, and would have to see what happens to the
new one, refuses to be used.
"""

from __future__ import annotations

import functools
from typing import Any

from futurex.frontend.entry_kinds import common_kind, widened
from futurex.frontend.errors import Escape, Retrace
from futurex.frontend.lists import TracedList
from futurex.frontend.trace import current
from futurex.frontend.tracer import Conflict, entered
from futurex.tree.pytree import LEAF, Structure


class Maker:
    """Puts a traced list together of its rows. To ``pytree`` it is the type of a named tuple."""

    _fields = ("rows",)
    __dictoffset__ = 0  # and nothing but these

    def __init__(self, value: TracedList) -> None:
        self.type, self.site, self.kind = type(value), value.site, value.kind
        self.made = value.site.made, value.site.most
        self.nested = isinstance(value.rows, tuple)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Maker):
            return False
        return (self.type, self.kind, self.made) == (other.type, other.kind, other.made)

    def __hash__(self) -> int:
        return hash((self.type, self.kind))

    def __call__(self, *parts: Any) -> TracedList:
        made = self.type(self.site, self.kind, parts if self.nested else parts[0])
        current().remember(made)
        return made


def taken_apart(value: Any) -> tuple[list[Any], Structure]:
    """The rows of a traced list, and the structure that makes it of them."""
    if not isinstance(value, TracedList):
        raise Escape("a name is a list in some rounds only", "one thing has one type")
    rows = entered(value.rows)
    if not isinstance(rows, tuple):
        return [rows], Structure(Maker(value), (), (LEAF,))
    parts = [taken_apart(column) for column in rows]
    leaves = [leaf for found, _ in parts for leaf in found]
    return leaves, Structure(Maker(value), (), tuple(structure for _, structure in parts))


def alike(a: Any, b: Any) -> bool:
    """Are two values traced lists of the same kind of entries?

    Where one is and the other could be, in another trace, that is noted, and this trace ends.
    """
    if isinstance(a, TracedList) and type(a) is type(b) and a.kind == b.kind:
        return (a.site.made, a.site.most) == (b.site.made, b.site.most)
    trace = current()
    sites = [each.site if isinstance(each, TracedList) else _display(each) for each in (a, b)]
    kinds = [each.kind if isinstance(each, TracedList) else common_kind(each) for each in (a, b) if _has_entries(each)]
    common = functools.reduce(widened, kinds) if kinds else None
    if None in sites or common is None:
        return False
    known = dict(trace.grown)
    for each, site in zip((a, b), sites, strict=True):
        if not isinstance(each, TracedList) or each.kind != common:
            trace.grown[site] = widened(trace.grown[site], common) if site in trace.grown else common
    if trace.grown != known and trace.may_begin_again and (isinstance(a, TracedList) or isinstance(b, TracedList)):
        raise Retrace
    return False


def is_list(value: Any) -> bool:
    """Is it a traced list, or one that could be in another trace?"""
    return isinstance(value, TracedList) or _display(value) is not None


def _display(value: Any) -> Any:
    found, site = current().lists.get(id(value), (None, None))
    return site if found is value else None


def _has_entries(value: Any) -> bool:
    return isinstance(value, TracedList) or bool(value)


def is_usable(value: TracedList) -> bool:
    """Is it not given up?"""
    return type(value.rows) is not Conflict


def give_up(value: TracedList, site: Any = None) -> None:
    """Let nobody use a list any more: its rows are another one's."""
    if is_usable(value):
        current().change(value)
    value.rows = Conflict("a list that another name may mean, too", "which list it is depends on data", site)


def columns(value: TracedList) -> list[TracedList]:
    """A list, and those of its columns."""
    inner = value.rows if isinstance(value.rows, tuple) else ()
    return [value, *(each for column in inner for each in columns(column))]


def is_read(value: TracedList) -> bool:
    """Has the list, or a part of it, been looked at?"""
    return any(id(each) in current().read for each in columns(value))
