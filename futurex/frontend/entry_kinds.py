"""What entries of lists are that stand in rows of arrays: numbers or arrays of one type, or tuples of such."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.frontend.control.either import is_of_python, of_one_dtype, settled
from futurex.frontend.control.values import Kind, is_loose, is_numeric, merged_tracer, raw
from futurex.frontend.errors import Escape
from futurex.frontend.placeholders import Either
from futurex.frontend.trace import current, emit, read
from futurex.frontend.tracer import Tracer, entered, fresh, strong
from futurex.tree.aval import Aval
from futurex.tree.node import Node

NUMBERS = (bool, int, float, complex)
"""Python's numbers, of which all of one type are of one kind, but for large ints."""
_ENTRY = "is also an entry of a list"


class Entry:
    """What all entries of a list are: numbers or arrays of one type.

    ``python``: Python's numbers; ``loose``: Python's or NumPy's. No dataclass: it is a leaf of what loops carry.
    """

    __slots__ = ("aval", "is_array", "loose", "python")

    def __init__(self, aval: Aval, is_array: bool, python: bool, loose: bool) -> None:
        self.aval, self.is_array, self.python, self.loose = aval, is_array, python, loose

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entry) and all(getattr(self, name) == getattr(other, name) for name in Entry.__slots__)

    def __hash__(self) -> int:
        return hash((self.aval, self.is_array, self.python, self.loose))

    @classmethod
    def of(cls, value: Any) -> Entry | Tuple | None:
        """The kind of one entry; None for what no array can hold."""
        if type(value) is Pair:
            number = cls.of(value[0])
            return Mixed(number.aval.dtype) if isinstance(number, Entry) and not number.aval.ndim else None
        if type(value) is tuple:
            kinds = tuple(map(cls.of, value))
            return Tuple(kinds) if kinds and None not in kinds else None  # type: ignore[arg-type]
        value = entered(value)
        if not is_numeric(value):
            return None
        aval = raw(value).aval
        if not aval.static or aval.dtype.kind not in "biufc":
            return None
        return cls(Aval(aval.shape, aval.dtype), Kind.of(value).is_array, aval.weak, is_loose(value))

    def entry(self, node: Node, site: Any = None) -> Tracer:
        """An entry from its element or row of an array. Nobody may write into an array that is one; who does is told
        ``site``."""
        if self.python:
            return fresh(read("python_scalar", node, kind=node.dtype.kind))  # it was one, and is again without fail
        made = merged_tracer(node, Kind(self.is_array), (), loose=self.loose)
        if self.is_array:
            made._cell.entangle(_ENTRY, site)
        return made

    def joined(self, other: Entry | Tuple | None) -> Entry | Mixed | None:
        if isinstance(other, Mixed):
            return other.joined(self)
        if not isinstance(other, Entry) or (self.aval, self.is_array) != (other.aval, other.is_array):
            return None
        return Entry(
            self.aval, self.is_array, self.python and other.python,
            self.loose or other.loose or self.python != other.python,
        )  # fmt: skip


class Tuple:
    """What all entries of a list of tuples are: what stands at each place of them."""

    __slots__ = ("kinds",)

    def __init__(self, kinds: tuple[Entry | Tuple, ...]) -> None:
        self.kinds = kinds

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tuple) and self.kinds == other.kinds

    def __hash__(self) -> int:
        return hash(self.kinds)

    def joined(self, other: Entry | Tuple | None) -> Tuple | None:
        if type(other) is not type(self) or len(self.kinds) != len(other.kinds):
            return None
        kinds = tuple(mine.joined(theirs) for mine, theirs in zip(self.kinds, other.kinds, strict=True))
        return None if None in kinds else self.of_kinds(kinds)  # type: ignore[arg-type]

    def of_kinds(self, kinds: tuple[Entry | Tuple, ...]) -> Tuple:
        """The same of other parts."""
        return Tuple(kinds)


class Row(Tuple):
    """What all entries of a list are that are lists themselves, of so many entries of one kind, and nobody else's."""

    __slots__ = ("width",)

    def __init__(self, kind: Entry | Tuple, width: int) -> None:
        super().__init__((kind,))
        self.width = width

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Row) and (self.kinds, self.width) == (other.kinds, other.width)

    __hash__ = Tuple.__hash__

    def joined(self, other: Entry | Tuple | None) -> Tuple | None:
        return super().joined(other) if isinstance(other, Row) and other.width == self.width else None

    def allows(self, other: Tuple | None) -> bool:
        """Can a table of this kind hold the lists of another?"""
        return other is not None and other.joined(self) == self

    def of_kinds(self, kinds: tuple[Entry | Tuple, ...]) -> Row:
        return Row(kinds[0], self.width)


class Pair(tuple[Any, Any]):
    """A number, and whether it is Python's: an entry of a list of both kinds."""

    __slots__ = ()


class Mixed(Tuple):
    """What all entries of a list are that are numbers of one type, some Python's and some NumPy's, where these are told
    apart: the number, and whether it is Python's."""

    __slots__ = ("number",)

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.number = Aval((), dtype)
        flag = Entry(Aval((), np.dtype(bool)), False, True, False)
        super().__init__((Entry(self.number, False, False, False), flag))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mixed) and self.number == other.number

    __hash__ = Tuple.__hash__

    def joined(self, other: Entry | Tuple | None) -> Mixed | None:
        alike = isinstance(other, Entry) and (other.aval, other.is_array) == (self.number, False)
        return self if alike or self == other else None

    def taken_apart(self, value: Any) -> Pair:
        """The two of an entry."""
        if type(value) is Pair:
            return value
        number, of_python = entered(of_one_dtype(value)), is_of_python(value)
        if isinstance(number, Tracer) and number._loose:
            current().tell()
            raise Escape("an entry of a list that is Python's number or NumPy's", "which of the two depends on data")
        return Pair((fresh(strong(raw(number))) if is_numeric(number) else number, of_python))

    def put_together(self, number: Tracer, of_python: Tracer) -> Any:
        """An entry of the two."""
        node = number._node
        own = fresh(read("python_scalar", node, kind=node.dtype.kind))
        what = "an entry of a list that is Python's number or NumPy's"
        return Either((own, number), (of_python._node,), what, "which of the two depends on data")


def is_mixed(kind: Entry | Tuple) -> bool:
    """Are there numbers of both kinds, told apart?"""
    return isinstance(kind, Mixed) or (isinstance(kind, Tuple) and any(map(is_mixed, kind.kinds)))


def told_apart(kind: Entry | Tuple) -> Entry | Tuple:
    """The kind where Python's numbers are told from NumPy's."""
    if isinstance(kind, Mixed):
        return kind
    if isinstance(kind, Tuple):
        return kind.of_kinds(tuple(map(told_apart, kind.kinds)))
    return Mixed(kind.aval.dtype) if kind.loose else kind


def apart(value: Any) -> Any:
    """What rows hold of an entry: of a number of one type that is Python's or NumPy's both the number and which."""
    if type(value) is tuple:
        return tuple(map(apart, value))
    value = settled(value)
    if type(value) is not Either:
        return value
    number, flag, gathered = value.values[-1], value.flags[0], current().gathered
    if flag in gathered and isinstance(number, Tracer) and number._node in gathered and _is_of_one(value):
        return Pair((number, fresh(flag)))  # from such rows
    number = of_one_dtype(value)
    return value if type(number) is Either else Pair((fresh(strong(raw(number))), is_of_python(value)))


def _is_of_one(value: Either) -> bool:
    """Is it one number, as Python's and as NumPy's?"""
    own, *others = value.values
    if len(others) != 1 or not isinstance(own, Tracer) or own._node.op != "python_scalar":
        return False
    return own._node.inputs[0] is others[0]._node


def fitted(value: Any, kind: Entry | Tuple) -> Any:
    """An entry, or its parts in rows, as rows of a kind have them; others are as they are."""
    if isinstance(kind, Mixed):
        found = Entry.of(value)
        return value if found is None or found.joined(kind) != kind else kind.taken_apart(value)
    if type(kind) is Tuple and type(value) is tuple and len(value) == len(kind.kinds):
        return tuple(map(fitted, value, kind.kinds))
    return value


def entered_all(value: Any) -> Any:
    """A value, or a tuple of several, that staged code is about to use."""
    return tuple(map(entered_all, value)) if type(value) is tuple else entered(value)


def looked_up(value: Any) -> Any:
    """The same, but for numbers of either kind, of which nobody has asked yet."""
    if type(value) is tuple:
        return tuple(map(looked_up, value))
    return value if type(value) is Either else entered(value)


def parts_of(value: Any) -> list[Any]:
    """What is no tuple in a tuple of tuples, or in what kind of such; of anything else itself."""
    inner = value.kinds if isinstance(value, Tuple) else value if type(value) in (tuple, Pair) else None
    return [value] if inner is None else [part for each in inner for part in parts_of(each)]


def whole(kind: Entry | Tuple, parts: Iterable[Any]) -> Any:
    """One entry from its parts."""
    rest = iter(parts)

    def made(kind: Entry | Tuple) -> Any:
        if not isinstance(kind, Tuple):
            return next(rest)
        found = tuple(map(made, kind.kinds))
        return kind.put_together(*found) if isinstance(kind, Mixed) else found

    return made(kind)


def joined(entries: Iterable[Any]) -> Entry | Tuple | None:
    """What all these entries are; None where they differ, or where there are none."""
    kinds = [Entry.of(entry) for entry in entries]
    found = kinds[0] if kinds else None
    for kind in kinds[1:]:
        found = None if found is None else found.joined(kind)
    return found


def row_kind(rows: Any, *others: Any) -> Row | None:
    """What the lists in a list are, and ``others`` that are put into them; None where they differ or have no entries."""
    if not rows or not all(type(row) is list and len(row) == len(rows[0]) for row in rows) or not rows[0]:
        return None
    kinds = [*map(_kind_of_all, rows), *map(Entry.of, others)]
    kind = functools.reduce(lambda one, other: None if one is None else one.joined(other), kinds)
    return None if kind is None else Row(kind, len(rows[0]))


def _kind_of_all(row: list[Any]) -> Entry | Tuple | None:
    types = set(map(type, row))
    if len(types) > 1 or types.isdisjoint(NUMBERS):
        return joined(row)
    return joined((min(row), max(row)) if types == {int} else row[:1])


def share_entry(value: Any, site: Any = None) -> None:
    """An array becomes an entry of a list: nobody may write into it any more, in either place; who does is told
    ``site``."""
    if isinstance(value, Tracer) and not value.is_scalar:
        value._cell.entangle(_ENTRY, site)


def zeros_of(kind: Entry, *counts: int) -> Node:
    """An array of entries that are zeros."""
    return emit("full", kind.aval.dtype.type(0), shape=(*counts, *kind.aval.shape), dtype=kind.aval.dtype)
