"""Lists whose length depends on data: stacks and queues of numbers, or of arrays of one shape, as one array of rows.

A list is a Python list of its entries until a staged loop or branch makes it longer or shorter. Then the call is traced
again, and the display that made the list makes a :class:`TracedList` instead, whose rows loops carry like any array.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from futurex.frontend.control.either import of_one_dtype
from futurex.frontend.control.rows import Rows, TracedRange
from futurex.frontend.control.values import is_numeric, raw
from futurex.frontend.entry_kinds import (
    Entry,
    Tuple,
    entered_all,
    kind_of,
    share_entry,
    widened,
)
from futurex.frontend.errors import Escape, mark
from futurex.frontend.outside import items, own_container
from futurex.frontend.placeholders import Either
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import Tracer, as_number, entered, fresh, new_array, node_of
from futurex.ops.control import Failure
from futurex.tree.aval import Aval
from futurex.tree.dims import Dim
from futurex.tree.node import Node, const

_NAN = Failure(ValueError, ("Python looks for a NaN by identity",))
_MISSING = Failure(ValueError, ("list.remove(x): x not in list",))
_UNORDERED = Failure(ValueError, ("Python's order of a NaN depends on what was compared",))
_WHY = "it is traced as an array"
_OF_DEQUES = ("popleft", "appendleft", "extendleft", "rotate", "maxlen")
_NONE = Failure(ValueError, ("need at least one array to concatenate",))
_OTHER = Failure(ValueError, ("a slice of a list gets more or fewer entries than it has",))
EMPTY = Failure(ValueError, ("NumPy makes another array of an empty list",))


class Site:
    """A list display: code, line and column; or where a list or deque, ``made`` so, is new. ``most``: of a deque, how
    many entries it keeps. No tuple: it is a leaf of what loops carry."""

    __slots__ = ("made", "most", "place")

    def __init__(self, *place: Any, made: type = list, most: int | None = None) -> None:
        self.place, self.made, self.most = place, made, most

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Site) and self.place == other.place

    def __hash__(self) -> int:
        return hash(self.place)


def empty(site: Site, kind: Entry | Tuple) -> TracedList:
    """A traced list without entries."""
    if isinstance(kind, Tuple):
        columns = tuple(empty(site, each) for each in kind.kinds)
        return current().remember(TYPES[type(kind)](site, kind, columns))
    rows = new_array(const(np.zeros((0, *kind.aval.shape), kind.aval.dtype)))
    return current().remember(TracedList(site, kind, rows))


def filled(site: Site, kind: Entry | Tuple, columns: Iterator[Node]) -> TracedList:
    """A traced list of the rows of arrays."""
    if isinstance(kind, Tuple):
        parts = tuple(filled(site, each, columns) for each in kind.kinds)
        return current().remember(TYPES[type(kind)](site, kind, parts))
    return current().remember(TracedList(site, kind, new_array(next(columns))))


TYPES: dict[type, Any] = {}
"""The lists of entries that are no rows of a single array (futurex/frontend/tuple_lists.py)."""


class TracedList:
    """A list whose entries are the rows of an array. What no row can tell of (another list's identity) is refused.
    A deque is one, too."""

    __fx_traced__ = True
    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("kind", "rows", "site")

    def __init__(self, site: Site, kind: Any, rows: Any) -> None:
        self.site, self.kind, self.rows = site, kind, rows

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def is_deque(self) -> bool:
        return self.site.made is deque

    def _check_list(self, what: str) -> None:
        if self.is_deque:
            raise Escape(f"{what} a deque whose length depends on data", _WHY)

    def _rows(self) -> Tracer:
        rows = entered(self.rows)  # branches may have left what nobody may use
        assert isinstance(rows, Tracer)
        current().read[id(self)] = self
        return rows

    def __len__(self) -> Any:
        return as_number(self._rows().shape[0])

    def __getitem__(self, index: Any) -> Any:
        rows = self._rows()
        if isinstance(index, slice):
            self._check_list("a slice of")
            return self._like(rows[index]._node)
        if not isinstance(index, Tracer):
            index = operator.index(index)
        elif index.dtype.kind not in "iu" or index.ndim:
            raise Escape("a list indexed by what is no integer", "it is traced as an array")
        extent = rows.shape[0]
        if isinstance(index, int) and isinstance(extent, int) and not -extent <= index < extent:
            error = IndexError(f"{self.site.made.__name__} index out of range")
            mark(error)
            raise error
        node = rows[index]._node
        if not (isinstance(index, int) and _has_place(extent, index)):
            current().waits = True  # where a run finds no such entry, plain Python raises the list's own exception
            current().remember_failing(node)  # the entry need not be read
        entry: Tracer = self.kind.entry(node)
        return entry

    def _equal(self, value: Any) -> Node:
        """Which entries equal a value."""
        value = entered(value)
        if not is_numeric(value) or not isinstance(self.kind, Entry) or self.kind.aval.ndim or raw(value).aval.ndim:
            raise Escape("looking for an entry of a list whose length depends on data", "it is no number")
        node, kind = raw(value), self.kind.aval.dtype
        whole = {node.dtype.kind, kind.kind} <= set("biu")
        if not whole and node.dtype != kind:
            raise Escape("looking for a number of another type in a list", "Python compares such numbers exactly")
        if not whole:  # Python finds a NaN where the entry is the same object
            current().waits = True
            current().effect("check", emit("equal", node, node), failure=_NAN)
        return emit("equal", self._rows()._node, node)

    def holds(self, value: Any) -> Tracer:
        """``value in self``."""
        return fresh(emit("python_scalar", emit("any", self._equal(value), axis=None, keepdims=False), kind="b"))

    def index(self, value: Any, *bounds: Any) -> Tracer:
        if bounds:
            raise Escape("index() in a part of a list whose length depends on data", "it is traced as an array")
        equal = self._equal(value)
        current().waits = True  # where there is none, plain Python says so
        current().effect("check", emit("any", equal, axis=None, keepdims=False), failure=_MISSING)
        found = emit("argmax", equal, axis=0, keepdims=False)
        return fresh(emit("python_scalar", found, kind="i"))

    def count(self, value: Any) -> Tracer:
        equal = emit("cast", self._equal(value), dtype=np.dtype(np.int64))
        return fresh(emit("python_scalar", emit("sum", equal, axis=None, keepdims=False), kind="i"))

    def remove(self, value: Any) -> None:
        own_container(self, "a list")
        self._without(self.index(value))

    def _without(self, index: Any) -> None:
        rows = self._rows()
        self.rows = new_array(emit("concatenate", rows[:index]._node, rows[index + 1 :]._node, axis=0))

    def insert(self, index: Any, value: Any) -> None:
        if self.site.most is not None:
            raise Escape("insert() into a deque with a maximum length", "a full one refuses it")
        self._put(index, value)

    def _put(self, index: Any, value: Any) -> None:
        row = self._row(value)
        own_container(self, "a list")
        rows = self._rows()  # slices end where the list does, as the place of an insertion
        first = isinstance(index, int) and index == 0
        parts = [row, rows._node] if first else [rows[:index]._node, row, rows[index:]._node]
        self.rows = new_array(emit("concatenate", *parts, axis=0))

    def _like(self, rows: Node) -> TracedList:
        return current().remember(TracedList(self.site, self.kind, new_array(rows)))

    def live_range(self) -> TracedRange:
        """The positions that iteration goes over, which sees what is appended meanwhile. Deques refuse that."""
        return TracedRange(0, len_of(self) if self.is_deque else self.__len__, 1, True)

    def __fx_items__(self) -> Iterator[Any]:
        return self._each(range)

    def backwards(self) -> Iterator[Any]:
        return self._each(lambda count: reversed(range(count)))

    def _each(self, places: Callable[[int], Iterable[int]]) -> Iterator[Any]:
        """Its entries, where they are counted, and nobody changes it meanwhile."""
        count = len_of(self)
        if isinstance(count, Tracer):
            raise Escape("iterating over a list whose length depends on data", "only a for statement goes over it")
        before = self.order()

        def entries() -> Iterator[Any]:
            for place in places(count):
                yield self[place]
                if any(map(operator.is_not, before, self.order())):
                    raise Escape("a list that changes while it is gone over", _WHY)

        return entries()

    __iter__ = __fx_items__

    def __eq__(self, other: object) -> Any:
        raise Escape("comparing a list whose length depends on data", "it is traced as an array")

    __ne__ = __lt__ = __gt__ = __le__ = __ge__ = __mul__ = __rmul__ = __eq__

    def __fx_node__(self) -> Node:
        """The array that NumPy makes of the list; of an empty one it makes an array of no dimensions more."""
        rows = self._rows()
        if self.kind.aval != Aval((), np.dtype(np.float64)):
            self._need_entry(EMPTY, "an array of an empty list", "its dtype is another one")
        return rows._node

    def _need_entry(self, failure: Failure, what: str, why: str) -> None:
        """Staging ends where it is known to have none; where the run finds none it goes as plain Python."""
        extent = self._rows().shape[0]
        if isinstance(extent, Dim):
            current().waits = True
            current().effect("check", emit("greater", as_number(extent)._node, 0), failure=failure)
        elif not extent:
            raise Escape(what, why)

    def stacked(self) -> Tracer:
        """Its entries side by side, of which there has to be one."""
        self._need_entry(_NONE, "arrays of an empty list side by side", "NumPy refuses it")
        return new_array(self._rows()._node)

    def columns(self) -> list[Node]:
        """The arrays whose rows are its entries, one for each part of what these are."""
        return [self._rows()._node]

    def order(self) -> list[Node]:
        """What others take the place of where entries come, go or are other ones."""
        return self.columns()

    def copy(self) -> TracedList:
        return self._like(self._rows()._node)

    def rotate(self, steps: Any = 1) -> None:
        """The last entries become the first ones."""
        own_container(self, "a list")
        steps, rows, count = entered(steps), self._rows(), len_of(self)
        if not isinstance(steps, Tracer):
            steps = operator.index(steps)
        elif steps.dtype.kind not in "iu" or steps.ndim:
            raise Escape("rotate() by what is no integer", _WHY)
        start: Any = steps
        if not isinstance(steps, Tracer) and abs(steps) == 1:
            start = -steps  # also of an empty one
        elif isinstance(count, Tracer):
            start = count - steps % fresh(emit("maximum", node_of(count), 1))
        elif count:
            start = count - steps % count
        else:
            return
        self.rows = new_array(emit("concatenate", rows[start:]._node, rows[:start]._node, axis=0))

    @property
    def maxlen(self) -> int | None:
        return self.site.most

    def made_as(self, made: type, most: int | None = None) -> TracedList:
        """A new list or deque of its entries."""
        if most == 0:
            raise Escape("a deque without room", _WHY)
        found = filled(Site(*self.site.place, made=made, most=most), self.kind, iter(self.columns()))
        found.keep_last()
        return found

    def __add__(self, other: Any) -> TracedList:
        self._check_list("a sum of")
        made = self.copy()
        made.extend(_same_list(other))
        return made

    def __radd__(self, other: Any) -> TracedList:
        self._check_list("a sum of")
        made = empty(self.site, self.kind)
        made.extend(_same_list(other))
        made.extend(self)
        return made

    # -- changing ----------------------------------------------------------------------------------------------------

    def append(self, value: Any) -> None:
        self.extend([value])

    def keep_last(self) -> None:
        """What a deque does that has more entries than it keeps, behind additions at its end."""
        if self.site.most is not None:
            self.rows = new_array(self._rows()[-self.site.most :]._node)

    def keep_first(self) -> None:
        """The same behind additions at its beginning."""
        if self.site.most is not None:
            self.rows = new_array(self._rows()[: self.site.most]._node)

    def extend(self, values: Any) -> None:
        if isinstance(values, TracedList):
            self.check(values.kind)
            added = [values._rows()._node]
        elif isinstance(values, Tracer) and values.ndim > 1:
            raise Escape("extending a list by the rows of an array", "it is traced as an array")
        else:
            added = [self._row(value) for value in items(values)]
        own_container(self, "a list")
        for node in added:
            rows = self._rows()._node
            is_empty = isinstance(rows.shape[0], int) and rows.shape[0] == 0
            self.rows = new_array(node if is_empty else emit("concatenate", rows, node, axis=0))
        self.keep_last()

    def __iadd__(self, values: Any) -> TracedList:
        self.extend(values)
        return self

    def add_rows(self, columns: Sequence[Node]) -> None:
        """Entries that are the rows of an array, of which a list of tuples has one for each of their parts."""
        self.extend(filled(self.site, self.kind, iter(columns)))

    def _row(self, value: Any) -> Node:
        """One entry as an array of one row. An array is the list's and somebody else's: nobody may write into it."""
        if type(of_one_dtype(value)) is Either:
            self.check(kind_of(value))
        value = entered(value)
        self.check(Entry.of(value))
        share_entry(value)
        node = raw(value)
        if node.aval.weak:
            node = emit("cast", node, dtype=node.dtype)
        return emit("reshape", node, shape=(1, *self.kind.aval.shape))

    def taken(self, value: Any) -> Any:
        """What the columns hold of an entry."""
        return entered_all(value)

    def check(self, kind: Entry | Tuple | None) -> None:
        common = widened(self.kind, kind)
        if common != self.kind:
            current().grown[self.site] = common
            raise Escape("a list whose length depends on data, of entries of several types", "it is traced as an array")

    def pop(self, *index: Any) -> Any:
        if index:
            self._check_list("pop() with a position of")
        return self._taken_out(*index)

    def popleft(self) -> Any:
        return self._taken_out(0)

    def appendleft(self, value: Any) -> None:
        self._put(0, value)
        self.keep_first()

    def extendleft(self, values: Any) -> None:
        for value in items(values):
            self.appendleft(value)

    def _taken_out(self, index: Any = -1) -> Any:
        own_container(self, "a list")
        entry = self[index]
        rows = self._rows()
        if isinstance(index, Tracer) or index not in (0, -1):
            place, last = node_of(index), node_of(index + len_of(self))
            self._without(fresh(emit("where", emit("less", place, 0), last, place)))
        else:
            self.rows = new_array((rows[:-1] if index else rows[1:])._node)
        return entry

    def clear(self) -> None:
        own_container(self, "a list")
        self.rows = new_array(self._rows()[:0]._node)

    def reverse(self) -> None:
        own_container(self, "a list")
        self.rows = new_array(self._rows()[::-1]._node)

    def sort(self, *, key: Any = None, reverse: Any = False) -> None:
        """Equal entries stay in their order."""
        self._check_list("sorting")
        rows, turned = self._to_sort(key, reverse)
        made = new_array(emit("sort", rows, axis=0, kind="stable"))
        self.rows = new_array(made[::-1]._node) if turned else made

    def _to_sort(self, key: Any, reverse: Any) -> tuple[Node, bool]:
        """The rows, and whether they have been turned around. Python's order of what is no number is another one than
        NumPy's."""
        kind = self.kind
        if key is not None or not isinstance(kind, Entry) or kind.aval.ndim or kind.aval.dtype.kind == "c":
            raise Escape("sorting a list whose length depends on data, by a key or of what are no real numbers", _WHY)
        own_container(self, "a list")
        turned = bool(operator.index(reverse))
        rows = self._rows()
        if kind.aval.dtype.kind == "f":
            current().waits = True
            ordered = emit("all", emit("equal", rows._node, rows._node), axis=None, keepdims=False)
            current().effect("check", ordered, failure=_UNORDERED)
        return (rows[::-1] if turned else rows)._node, turned

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            self._set_slice(index, value)
            return
        row = self._row(value)
        own_container(self, "a list")
        current().waits = True
        rows = new_array(self._rows()._node)
        rows[index] = fresh(emit("reshape", row, shape=self.kind.aval.shape))
        self.rows = rows

    def _set_slice(self, index: slice, values: Any) -> None:
        """Entries take the places of as many others; where the run finds other than that, it goes as plain Python."""
        self._check_list("a slice of")
        if isinstance(values, int | float | complex | np.generic) or (isinstance(values, Tracer) and values.ndim != 1):
            raise Escape("writing a number, or the rows of an array, into a slice of a list", _WHY)
        if not (index.step is None or (type(index.step) is int and index.step == 1)):
            raise Escape("writing every so many entries of a list whose length depends on data", _WHY)
        made = empty(self.site, self.kind)
        made.extend(_all_of(values) if isinstance(values, Rows) else values)
        places = len_of(self[index])
        count = len_of(made)
        if not isinstance(places, Tracer) and not isinstance(count, Tracer):
            if places != count:
                raise Escape("writing more or fewer entries into a slice of a list", "it grows or shrinks")
        elif node_of(places) is not node_of(count):
            current().waits = True
            current().effect("check", emit("equal", node_of(places), node_of(count)), failure=_OTHER)
        self._write(index, made)

    def _write(self, index: slice, made: TracedList) -> None:
        own_container(self, "a list")
        rows = new_array(self._rows()._node)
        rows[index] = made._rows()
        self.rows = rows

    def __getattribute__(self, name: str) -> Any:
        if name in _OF_DEQUES and not self.is_deque:
            raise AttributeError(f"'list' object has no attribute {name!r}")
        return object.__getattribute__(self, name)

    def __getattr__(self, name: str) -> Any:
        if hasattr(self.site.made, name) and not name.startswith("__"):
            raise Escape(f"{name}() of a list whose length depends on data", "it is traced as an array")
        raise AttributeError(f"'{self.site.made.__name__}' object has no attribute {name!r}")


def _all_of(values: Rows) -> Any:
    from futurex.frontend.calls import call

    return call(list, (values,), {})


def puts_an_entry(function: Any, values: Any) -> bool:
    """Is it a method of this list whose last argument is an entry, which may be a number of either kind?"""
    return hasattr(type(values), "taken") and function.__name__ in ("append", "appendleft", "insert", "__setitem__")


def _has_place(extent: int | Dim, index: int) -> bool:
    """Is there surely an entry at a position?"""
    least = extent if isinstance(extent, int) else extent.low or 0
    return -least <= index < least


def is_filled(values: Any) -> bool:
    """Is it a list that surely has an entry, however many the run finds?"""
    return isinstance(values, TracedList) and _has_place(values.columns()[0].shape[0], 0)


def len_of(values: Any) -> Any:
    """``len(values)``, which only the run may know."""
    return values.__len__()


def refuse_lists(leaves: Iterable[Any], of: str) -> None:
    """Raises StagingError where a result of such a function is a list of unknown length: an array stands in for it."""
    if any(isinstance(leaf, TracedList) for leaf in leaves):
        what = f"a list whose length depends on data as the result of {of}"
        raise Escape(what, "how many results there are is not known", "return np.array(...) of it").as_error()


def need_entries(leaves: Iterable[Any], of: str) -> None:
    """Raises Escape where an argument of such a transform is a traced list: it goes by entries, each one by itself."""
    if any(hasattr(type(leaf), "live_range") for leaf in leaves):
        raise Escape(f"a list as an argument of {of}", "it is traced as an array", "give np.array(...) of it")


def _same_list(other: Any) -> Any:
    if isinstance(other, TracedList):
        other._check_list("a sum of")
    elif not isinstance(other, list):
        raise TypeError(f'can only concatenate list (not "{type(other).__name__}") to list')
    return other
