"""What entries of lists are that stand in rows of arrays: numbers or arrays of one type, or tuples of such."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from futurex.frontend.control.either import MOST, flag_of, of_one_dtype, settled
from futurex.frontend.control.values import Kind, is_loose, is_numeric, merged_tracer, raw
from futurex.frontend.errors import Escape
from futurex.frontend.placeholders import Either
from futurex.frontend.trace import current, emit, read
from futurex.frontend.tracer import Tracer, entered, fresh, strong
from futurex.tree.aval import Aval
from futurex.tree.node import Node, const

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
            return value.kind
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
    """What all entries of a list are that are lists themselves, of so many entries of one kind, and nobody else's.
    ``moves``: do they change places?"""

    __slots__ = ("moves", "width")

    def __init__(self, kind: Entry | Tuple, width: int, moves: bool = False) -> None:
        super().__init__((kind,))
        self.width, self.moves = width, moves

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return False
        return (self.kinds, self.width, self.moves) == (other.kinds, other.width, other.moves)

    __hash__ = Tuple.__hash__

    def joined(self, other: Entry | Tuple | None) -> Tuple | None:
        return self.of_both(other, self.kinds[0].joined(other.kinds[0])) if isinstance(other, Row) else None

    def of_both(self, other: Row, kind: Entry | Tuple | None) -> Row | None:
        """What lists of both kinds are, if their entries are of one ``kind``."""
        if kind is None or self.width != other.width:
            return None
        return Row(kind, self.width, self.moves or other.moves)

    @property
    def parts(self) -> list[Entry]:
        """The arrays that a list's entries are, for each part of them."""
        shapes = (Aval((self.width, *part.aval.shape), part.aval.dtype) for part in parts_of(self.kinds[0]))
        return [Entry(aval, True, False, False) for aval in shapes]

    def allows(self, other: Tuple | None) -> bool:
        """Can a table of this kind hold the lists of another?"""
        return other is not None and other.joined(self) == self

    def of_kinds(self, kinds: tuple[Entry | Tuple, ...]) -> Row:
        return Row(kinds[0], self.width, self.moves)


class Pair(tuple[Any, ...]):
    """The parts in rows of an entry that is no tuple itself: of a number that is one of several sorts
    (:class:`Mixed`), or of a list (:class:`Row`)."""

    kind: Mixed | Row

    @classmethod
    def of(cls, kind: Mixed | Row, parts: Iterable[Any]) -> Pair:
        made = cls(parts)
        made.kind = kind
        return made


class Mixed(Tuple):
    """What all entries of a list are that are numbers of several sorts, where these are told apart: numbers of several
    types, Python's and NumPy's. There is a column for each type, and flags for each sort but the last."""

    __slots__ = ("dtypes", "sorts")

    def __init__(self, sorts: Iterable[Aval]) -> None:
        """``sorts``: abstract values of numbers, where those of Python's are weak."""
        self.sorts = tuple(sorted(set(sorts), key=lambda sort: (sort.dtype.num, not sort.weak)))
        self.dtypes = tuple(dict.fromkeys(sort.dtype for sort in self.sorts))
        flag = Entry(Aval((), np.dtype(bool)), False, True, False)
        numbers = (Entry(Aval((), each), False, False, False) for each in self.dtypes)
        super().__init__((*numbers, *[flag] * (len(self.sorts) - 1)))

    @classmethod
    def of_dtype(cls, dtype: np.dtype[Any]) -> Mixed:
        """Python's numbers and NumPy's of one type."""
        return cls((Aval((), dtype, weak=True), Aval((), dtype)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mixed) and self.sorts == other.sorts

    __hash__ = Tuple.__hash__

    def joined(self, other: Entry | Tuple | None) -> Mixed | None:
        return self if set(_sorts_of(other) or (None,)) <= set(self.sorts) else None

    def taken_apart(self, value: Any) -> Any:
        """The parts of an entry; what is none is as it is."""
        if type(value) is Pair:
            other = value.kind
            if other == self or not isinstance(other, Mixed):
                return value
            return self.taken_apart(other.put_together(*value))
        value = settled(value)
        values = value.values if type(value) is Either else (value,)
        if not all(map(_is_number, values)):
            return value
        if any(isinstance(each, Tracer) and each._loose for each in values):
            current().tell()
            raise Escape("an entry of a list that is Python's number or NumPy's", "which of the two depends on data")
        found = [Aval((), raw(each).dtype, weak=raw(each).aval.weak) for each in values]
        if not set(found) <= set(self.sorts):
            return value
        numbers = [self._number(value, values, dtype) for dtype in self.dtypes]
        places = ([k for k, each in enumerate(found) if each == sort] for sort in self.sorts[:-1])
        flags = [_any_of(value, each, len(found)) for each in places]
        return Pair.of(self, (*numbers, *flags))

    def _number(self, value: Any, values: Sequence[Any], dtype: np.dtype[Any]) -> Tracer:
        """The number if it is of this type; else any."""
        node: Node | None = None
        for k, each in reversed([*enumerate(values)]):
            if raw(each).dtype == dtype:
                one = strong(raw(each))
                node = one if node is None else emit("where", flag_of(value, k), one, node)
        return fresh(const(dtype.type(0)) if node is None else node)

    def put_together(self, *parts: Tracer) -> Any:
        """An entry of its parts."""
        numbers = dict(zip(self.dtypes, parts, strict=False))
        values = [
            fresh(read("python_scalar", numbers[sort.dtype]._node, kind=sort.dtype.kind)) if sort.weak
            else numbers[sort.dtype] for sort in self.sorts
        ]  # fmt: skip
        what = "an entry of a list that is one of several sorts of numbers"
        flags = tuple(flag._node for flag in parts[len(self.dtypes) :])
        return Either(tuple(values), flags, what, "which it is depends on data")

    def test_of(self, dtype: np.dtype[Any], columns: Sequence[Node]) -> Node | None:
        """Which entries are of a type; None if none can be."""
        flags = [flag for sort, flag in self._flags(columns).items() if sort.dtype == dtype]
        return functools.reduce(functools.partial(emit, "logical_or"), flags) if flags else None

    def array(self, columns: Sequence[Node], dtype: np.dtype[Any]) -> Node:
        """The entries in columns as numbers of one type."""
        made: Node | None = None
        for sort, flag in self._flags(columns).items():
            node = columns[self.dtypes.index(sort.dtype)]
            node = node if node.dtype == dtype else emit("cast", node, dtype=dtype)
            made = node if made is None else emit("where", flag, node, made)
        assert made is not None
        return made

    def _flags(self, columns: Sequence[Node]) -> dict[Aval, Node]:
        flags = list(columns[len(self.dtypes) :])
        last = emit("logical_not", functools.reduce(functools.partial(emit, "logical_or"), flags))
        return dict(zip(self.sorts, [*flags, last], strict=True))


def _is_number(value: Any) -> bool:
    return is_numeric(value) and not raw(value).aval.ndim and raw(value).dtype.kind in "biufc" and (
        not isinstance(value, Tracer) or value.is_scalar
    )  # fmt: skip


def _any_of(value: Any, places: list[int], count: int) -> Any:
    """Is a value at one of these places among the ``count`` that it may be?"""
    if not places or len(places) == count:
        return bool(places)
    flags = [flag_of(value, place) for place in places]
    return fresh(emit("python_scalar", functools.reduce(functools.partial(emit, "logical_or"), flags), kind="b"))


def _sorts_of(kind: Entry | Tuple | None) -> tuple[Aval, ...] | None:
    """The sorts of numbers that entries are; None where they are no numbers."""
    if isinstance(kind, Mixed):
        return kind.sorts
    if not isinstance(kind, Entry) or kind.is_array or kind.aval.ndim:
        return None
    both = Aval((), kind.aval.dtype, weak=True), Aval((), kind.aval.dtype)
    return both if kind.loose else both[:1] if kind.python else both[1:]


def widened(one: Entry | Tuple | None, other: Entry | Tuple | None) -> Entry | Tuple | None:
    """What entries of both kinds are, also where numbers are of several types; None where no rows hold both."""
    if one is None or other is None:
        return None
    found = one.joined(other)
    if found is not None:
        return found
    mine, theirs = _sorts_of(one), _sorts_of(other)
    if mine is not None and theirs is not None:
        sorts = {*mine, *theirs}
        return Mixed(sorts) if len(sorts) <= MOST else None
    if isinstance(one, Row) and isinstance(other, Row):
        return one.of_both(other, widened(one.kinds[0], other.kinds[0]))
    if type(one) is not Tuple or type(other) is not Tuple or len(one.kinds) != len(other.kinds):
        return None
    kinds = tuple(map(widened, one.kinds, other.kinds))
    return None if None in kinds else one.of_kinds(kinds)  # type: ignore[arg-type]


def is_mixed(kind: Entry | Tuple) -> bool:
    """Are there numbers of both kinds, told apart?"""
    return isinstance(kind, Mixed) or (isinstance(kind, Tuple) and any(map(is_mixed, kind.kinds)))


def of_several_types(kind: Entry | Tuple) -> Mixed | None:
    """What numbers of several types in a list, or in the lists in it, are; None for other entries."""
    inner = kind.kinds[0] if isinstance(kind, Row) else kind
    return inner if isinstance(inner, Mixed) and len(inner.dtypes) > 1 else None


def of_numbers(kind: Entry | Tuple) -> bool:
    """Are they numbers, or lists of numbers?"""
    return _sorts_of(kind.kinds[0] if isinstance(kind, Row) else kind) is not None


def told_apart(kind: Entry | Tuple) -> Entry | Tuple:
    """The kind where Python's numbers are told from NumPy's."""
    if isinstance(kind, Mixed):
        return kind
    if isinstance(kind, Tuple):
        return kind.of_kinds(tuple(map(told_apart, kind.kinds)))
    return Mixed.of_dtype(kind.aval.dtype) if kind.loose else kind


def apart(value: Any) -> Any:
    """What rows hold of an entry: of a number of one type that is Python's or NumPy's both the number and which."""
    if type(value) is tuple:
        return tuple(map(apart, value))
    value = settled(value)
    if type(value) is not Either:
        return value
    number, flag, gathered = value.values[-1], value.flags[0], current().gathered
    if flag in gathered and isinstance(number, Tracer) and number._node in gathered and _is_of_one(value):
        return Pair.of(Mixed.of_dtype(number.dtype), (number, fresh(flag)))  # from such rows
    number = of_one_dtype(value)
    return value if type(number) is Either else Mixed.of_dtype(number.dtype).taken_apart(value)


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
    if isinstance(value, Row):
        return [*value.parts]
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
    return functools.reduce(lambda one, other: None if one is None else one.joined(other), kinds) if kinds else None


def common_kind(entries: Iterable[Any]) -> Entry | Tuple | None:
    """The same, also of numbers of several types."""
    kinds = list(map(kind_of, entries))
    return functools.reduce(widened, kinds) if kinds else None


def kind_of(value: Any) -> Entry | Tuple | None:
    """The kind of an entry, also of one that may be numbers of several types."""
    if type(value) is tuple and value:
        kinds = tuple(map(kind_of, value))
        return None if None in kinds else Tuple(kinds)  # type: ignore[arg-type]
    value = settled(value)
    if type(of_one_dtype(value)) is not Either:
        return Entry.of(value)
    sorts = {sort for each in value.values if _is_number(each) for sort in _sorts_of(Entry.of(each)) or ()}
    return Mixed(sorts) if all(map(_is_number, value.values)) and len(sorts) <= MOST else None


def row_kind(rows: Any, *others: Any) -> Row | None:
    """What the lists in a list are, and ``others`` that are put into them; None where they differ, or have none."""
    if not rows or not all(type(row) is list and len(row) == len(rows[0]) for row in rows) or not rows[0]:
        return None
    kind = functools.reduce(widened, [*map(_kind_of_all, rows), *map(kind_of, others)])
    return None if kind is None else Row(kind, len(rows[0]))


def _kind_of_all(row: list[Any]) -> Entry | Tuple | None:
    types = set(map(type, row))
    if len(types) > 1 or types.isdisjoint(NUMBERS):
        return common_kind(row)
    return common_kind((min(row), max(row)) if types == {int} else row[:1])


def constant_columns(kind: Entry | Tuple, values: list[Any]) -> list[np.ndarray] | None:
    """The columns of entries of a kind that are Python's numbers and known; None of others."""
    types = set(map(type, values))
    if not types or not types <= set(NUMBERS):
        return None
    sorts = {each: Aval((), np.dtype(each), weak=True) for each in types}
    if not set(sorts.values()) <= set(_sorts_of(kind) or ()):
        return None
    dtypes = kind.dtypes if isinstance(kind, Mixed) else (kind.aval.dtype,)  # type: ignore[union-attr]
    try:
        found = [np.array([v if np.dtype(type(v)) == dtype else 0 for v in values], dtype) for dtype in dtypes]
    except OverflowError:  # an int that is larger than those of arrays
        return None
    of_sort = kind.sorts[:-1] if isinstance(kind, Mixed) else ()
    return found + [np.array([sorts[type(v)] == sort for v in values], bool) for sort in of_sort]


def share_entry(value: Any, site: Any = None) -> None:
    """An array becomes an entry of a list: nobody may write into it any more, in either place; who does is told
    ``site``."""
    if isinstance(value, Tracer) and not value.is_scalar:
        value._cell.entangle(_ENTRY, site)


def zeros_of(kind: Entry, *counts: int) -> Node:
    """An array of entries that are zeros."""
    return emit("full", kind.aval.dtype.type(0), shape=(*counts, *kind.aval.shape), dtype=kind.aval.dtype)
