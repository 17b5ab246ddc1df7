"""Lists of lists of one length whose positions depend on data: tables, as arrays with a row for each of the lists."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from futurex.frontend.control.moved import give_up
from futurex.frontend.control.rows import TracedRange
from futurex.frontend.control.values import raw
from futurex.frontend.entry_kinds import (
    Entry,
    Mixed,
    Pair,
    Row,
    Tuple,
    constant_columns,
    entered_all,
    fitted,
    kind_of,
    looked_up,
    parts_of,
    share_entry,
    whole,
)
from futurex.frontend.errors import Escape, mark
from futurex.frontend.lists import TYPES, Site, TracedList, filled, len_of
from futurex.frontend.made_lists import note_row
from futurex.frontend.outside import own_container
from futurex.frontend.picking import is_inside
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import Tracer, fresh, new_array, node_of, strong
from futurex.frontend.tuple_lists import TracedTuples, as_sorts
from futurex.ops.control import Failure
from futurex.tree.aval import Aval
from futurex.tree.node import Node, const

_PLACE = Entry(Aval((), np.dtype(np.int64)), False, False, False)
_TWICE = Failure(ValueError, ("a list stands in two places of a list",))
_WHY = "a list of lists is traced as an array"


def _columns(kind: Row, rows: list[list[Any]]) -> list[Node]:
    inner, shape = kind.kinds[0], (len(rows), kind.width)
    known = constant_columns(inner, list(itertools.chain(*rows)))
    if known is not None:
        return [const(column.reshape(shape)) for column in known]
    found: list[list[Any]] = [[] for _ in parts_of(inner)]
    for row in rows:
        for entry in row:
            for column, part in zip(found, parts_of(fitted(looked_up(entry), inner)), strict=True):
                share_entry(part)
                column.append(fresh(strong(raw(part))))
    return [
        emit("reshape", node_of(column), shape=(*shape, *part.aval.shape))
        for column, part in zip(found, parts_of(inner), strict=True)
    ]  # fmt: skip


class TracedTable(TracedTuples):
    """A list of lists: ``rows`` is a traced list of arrays for each part of what these hold. A list that it has it
    keeps; where they change places the last of the traced lists says which stands where."""

    __slots__ = ()

    @classmethod
    def of_lists(cls, site: Site, kind: Row, rows: list[Any]) -> Any:
        """A table of lists that nobody else has."""
        return cls.of_columns(site, kind, _columns(kind, rows))

    @classmethod
    def of_columns(cls, site: Site, kind: Row, nodes: Sequence[Node]) -> Any:
        """A table of the arrays of what its lists hold."""
        columns = []
        for part, node in zip(kind.parts, nodes, strict=True):
            columns.append(current().remember(TracedList(site, part, new_array(node))))
        if kind.moves:
            order = const(np.arange(nodes[0].shape[0]))
            columns.append(current().remember(TracedList(site, _PLACE, new_array(order))))
        return current().remember(cls(site, kind, tuple(columns)))

    @property
    def _parts(self) -> tuple[TracedList, ...]:
        """The columns of what the lists hold."""
        return self._columns()[: len(self._columns()) - self.kind.moves]

    def _place(self, index: Any) -> Any:
        """A position that there is; the run looks whether it is where that is not known."""
        count = len_of(self)
        if isinstance(count, Tracer):
            if type(index) is int and index < 0:
                index = operator.add(count, index)
            _check(self._columns()[0]._rows()[index]._node)
            return index
        if not isinstance(index, Tracer):
            return _known(index, count)
        if index.dtype.kind not in "iu" or index.ndim:
            raise Escape("a list indexed by what is no integer", _WHY)
        if not is_inside(index, count):
            _check(self._columns()[0]._rows()[index]._node)
        return index

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            raise Escape("a slice of a list of lists", "both have the same lists")
        place = self._place(index)
        return TracedRow(self, self._columns()[-1]._rows()[place] if self.kind.moves else place)

    def __setitem__(self, index: Any, value: Any) -> None:
        if type(value) is not TracedRow or value.table is not self:
            self._refuse()
        place = self._place(index)
        if not self.kind.moves:
            self.check(Row(self.kind.kinds[0], self.kind.width, True))
        self._columns()[-1][place] = value.place

    def append(self, value: Any) -> None:
        """A list becomes the last one. Nobody may use it under the name that it has: it is a row from then on."""
        taken = self.taken(value)
        self.check(kind_of(taken))
        self.add_rows([emit("reshape", part._node, shape=(1, *part.shape)) for part in taken])

    def add_rows(self, columns: Sequence[Node]) -> None:
        if self.kind.moves:
            count, more = self._columns()[0]._rows().shape[0], columns[0].shape[0]
            if not isinstance(count, int) or not isinstance(more, int):
                self._refuse()
            columns = [*columns, const(np.arange(count, count + more))]
        for column, node in zip(self._columns(), columns, strict=True):
            own_container(column, "a list")
            rows = column._rows()._node
            is_empty = isinstance(rows.shape[0], int) and rows.shape[0] == 0
            column.rows = new_array(node if is_empty else emit("concatenate", rows, node, axis=0))

    def taken(self, value: Any) -> Any:
        """The parts of a list that becomes one of the lists."""
        if type(value) is Pair:
            return value
        if type(value) is list:
            note_row(value)
        count = len_of(value) if isinstance(value, TracedList) else None
        if type(count) is not int or value.is_deque or isinstance(value, TracedTable):
            self._refuse()
        inner, columns = self.kind.kinds[0], value.columns()
        kind = Row(value.kind, count)
        if isinstance(inner, Mixed) and value.kind != inner and inner.joined(value.kind) == inner:
            columns, kind = as_sorts(value, inner), Row(inner, count)
        give_up(value)
        return Pair.of(kind, map(new_array, columns))

    def reverse(self) -> None:
        if not self.kind.moves:
            self.check(Row(self.kind.kinds[0], self.kind.width, True))
        self._columns()[-1].reverse()

    def order(self) -> list[Any]:
        return self._columns()[-1].columns() if self.kind.moves else []

    def columns(self) -> list[Node]:
        rows = [column._rows() for column in self._parts]
        if self.kind.moves:
            rows = [column[self._columns()[-1]._rows()] for column in rows]
        return [column._node for column in rows]

    def check_apart(self) -> None:
        """Does each list stand in one place? Else who gets them finds one list in several."""
        if self.kind.moves:
            order = self._columns()[-1]._rows()._node
            ordered = emit("equal", emit("sort", order, axis=0, kind="stable"), np.arange(len(self)))
            current().waits = True
            current().effect("check", emit("all", ordered, axis=None, keepdims=False), failure=_TWICE)

    def __fx_node__(self) -> Node:
        """The array that NumPy makes of lists of numbers."""
        inner, nodes = self.kind.kinds[0], self.columns()
        if not isinstance(inner, Entry) and not (isinstance(inner, Mixed) and len(inner.dtypes) == 1):
            raise Escape("an array of a list of lists of tuples or of several types", "NumPy chooses its dtype by all")
        return nodes[0]

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise Escape("a list of lists that gets or loses lists", _WHY)

    extend = insert = pop = popleft = appendleft = extendleft = remove = clear = rotate = _refuse
    sort = copy = index = count = holds = stacked = made_as = __add__ = __radd__ = __iadd__ = _refuse


class TracedRow:
    """One of the lists in a table: the entries of the row at its ``place`` in the columns, where it stays."""

    __fx_traced__ = True
    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("place", "table")

    def __init__(self, table: TracedTable, place: int | Tracer) -> None:
        self.table, self.place = table, place

    @property
    def kind(self) -> Entry | Tuple:
        found: Entry | Tuple = self.table.kind.kinds[0]
        return found

    def __len__(self) -> int:
        width: int = self.table.kind.width
        return width

    def copy(self) -> TracedList:
        """A new list of its entries."""
        site = Site(*self.table.site.place, "a row")
        return filled(site, self.kind, iter([column._rows()[self.place]._node for column in self.table._parts]))

    def columns(self) -> list[Node]:
        return self.copy().columns()

    def order(self) -> list[Any]:
        return []

    def live_range(self) -> TracedRange:
        return TracedRange(0, len(self), 1, True)

    def _position(self, index: Any) -> Any:
        """A position, of which the run need not look whether it is one; else it is looked at."""
        if isinstance(index, Tracer):
            if index.dtype.kind not in "iu" or index.ndim:
                raise Escape("a list indexed by what is no integer", _WHY)
            return index
        return _known(index, len(self))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.copy()[index]
        index = self._position(index)
        nodes = [column._rows()[self.place, index]._node for column in self.table._parts]
        if isinstance(index, Tracer) and not is_inside(index, len(self)):
            _check(*nodes)
        kinds = parts_of(self.kind)
        return whole(self.kind, [kind.entry(node) for kind, node in zip(kinds, nodes, strict=True)])

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            entries = value if type(value) in (list, tuple) else ()
            for entry in entries:
                self._accept(self.taken(entry))
            made = self.copy()
            made[index] = value
            self._become(made)
            return
        index, value = self._position(index), self.taken(value)
        self._accept(value)
        current().waits = True
        for column, part in zip(self.table._parts, parts_of(value), strict=True):
            share_entry(part)
            own_container(column, "a list")
            rows = new_array(column._rows()._node)
            rows[self.place, index] = fresh(strong(raw(part)))
            column.rows = rows

    def _accept(self, value: Any) -> None:
        found = kind_of(value)
        self.table.check(None if found is None else Row(found, len(self)))

    def taken(self, value: Any) -> Any:
        """What a table holds of an entry."""
        return _taken(value, self.kind)

    def _become(self, made: TracedList) -> None:
        """Its entries are now those of another list, as many."""
        for column, node in zip(self.table._parts, made.columns(), strict=True):
            own_container(column, "a list")
            rows = new_array(column._rows()._node)
            rows[self.place] = fresh(node)
            column.rows = rows

    def sort(self, *, key: Any = None, reverse: Any = False) -> None:
        made = self.copy()
        made.sort(key=key, reverse=reverse)
        self._become(made)

    def reverse(self) -> None:
        made = self.copy()
        made.reverse()
        self._become(made)

    def holds(self, value: Any) -> Tracer:
        return self.copy().holds(value)

    def index(self, value: Any, *bounds: Any) -> Tracer:
        return self.copy().index(value, *bounds)

    def count(self, value: Any) -> Tracer:
        return self.copy().count(value)

    def __fx_items__(self) -> Iterator[Any]:
        return (self[k] for k in range(len(self)))

    __iter__ = __fx_items__

    def backwards(self) -> Iterator[Any]:
        return (self[k] for k in reversed(range(len(self))))

    def made_as(self, made: type, most: int | None = None) -> TracedList:
        return self.copy().made_as(made, most)

    def __fx_node__(self) -> Node:
        return self.copy().__fx_node__()

    def __add__(self, other: Any) -> TracedList:
        return self.copy() + other

    def __radd__(self, other: Any) -> TracedList:
        return other + self.copy()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise Escape("a list in a list of lists that grows or shrinks, or is compared", _WHY)

    append = extend = insert = pop = remove = clear = __delitem__ = __iadd__ = __imul__ = _refuse
    __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = __mul__ = __rmul__ = _refuse


def _taken(value: Any, kind: Entry | Tuple) -> Any:
    if isinstance(kind, Mixed):
        return kind.taken_apart(value)
    if not isinstance(kind, Tuple) or type(value) is not tuple or len(value) != len(kind.kinds):
        return entered_all(value)
    return tuple(map(_taken, value, kind.kinds))


def _known(index: Any, count: int) -> int:
    index = operator.index(index)
    if not -count <= index < count:
        error = IndexError("list index out of range")
        mark(error)
        raise error
    return index % count


def _check(*nodes: Node) -> None:
    """Where a run finds no such entry, plain Python raises the list's own exception."""
    current().waits = True
    for node in nodes:
        current().remember_failing(node)  # the entry need not be read


TYPES[Row] = TracedTable
