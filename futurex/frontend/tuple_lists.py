"""Traced lists of tuples, or of numbers of which some are Python's and some NumPy's: columns side by side."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from futurex.frontend.control.either import of_one_dtype
from futurex.frontend.entry_kinds import Entry, Mixed, Tuple, kind_of
from futurex.frontend.errors import Escape
from futurex.frontend.lists import EMPTY, TYPES, TracedList, len_of
from futurex.frontend.outside import items, own_container
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import Tracer, entered, new_array
from futurex.tree.aval import Aval
from futurex.tree.node import Node


class TracedTuples(TracedList):
    """A list of tuples: ``rows`` is a traced list for each of their places, all of one length."""

    __slots__ = ()

    def _columns(self) -> tuple[TracedList, ...]:
        found: tuple[TracedList, ...] = entered(self.rows)
        return found

    def __len__(self) -> Any:
        return len_of(self._columns()[0])

    def __getitem__(self, index: Any) -> Any:
        found = tuple(column[index] for column in self._columns())
        return self._of(found) if isinstance(index, slice) else found

    def taken(self, value: Any) -> Any:
        columns = self._columns()
        if type(value) is not tuple or len(value) != len(columns):
            return value
        return tuple(column.taken(part) for column, part in zip(columns, value, strict=True))

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            self._set_slice(index, value)
            return
        value = self.taken(value)
        self.check(kind_of(value))
        for column, entry in zip(self._columns(), value, strict=True):
            column[index] = entry

    def _write(self, index: slice, made: TracedList) -> None:
        assert isinstance(made, TracedTuples)
        for column, more in zip(self._columns(), made._columns(), strict=True):
            column._write(index, more)

    def __fx_node__(self) -> Node:
        """The array that NumPy makes of tuples of numbers: one row for each."""
        kinds = self.kind.kinds
        if not all(isinstance(each, Entry) and not each.aval.ndim for each in kinds):
            raise Escape("an array of a list of tuples of several types", "NumPy chooses its dtype by all entries")
        dtype = functools.reduce(np.promote_types, (each.aval.dtype for each in kinds))
        extent = len_of(self)
        if not isinstance(extent, Tracer) and not extent:
            raise Escape("an array of an empty list", "it has another shape")
        if isinstance(extent, Tracer):
            current().waits = True  # such a call is run again as plain Python
            current().effect("check", emit("greater", extent._node, 0), failure=EMPTY)
        columns = (column._rows()[:, None]._node for column in self._columns())
        alike = (node if node.dtype == dtype else emit("cast", node, dtype=dtype) for node in columns)
        return emit("concatenate", *alike, axis=1)

    def stacked(self) -> Tracer:
        raise Escape("tuples of a list whose length depends on data side by side", "each is an array of its own")

    def columns(self) -> list[Node]:
        return [node for column in self._columns() for node in column.columns()]

    def copy(self) -> TracedTuples:
        return self._of(tuple(column.copy() for column in self._columns()))

    def _of(self, columns: tuple[TracedList, ...]) -> TracedTuples:
        return current().remember(type(self)(self.site, self.kind, columns))

    def extend(self, values: Any) -> None:
        if isinstance(values, TracedList):
            self.check(values.kind)
            assert isinstance(values, TracedTuples)
            added: tuple[Any, ...] = values._columns()
        else:
            entries = list(map(self.taken, items(values)))
            for entry in entries:
                self.check(kind_of(entry))
            added = tuple([entry[k] for entry in entries] for k in range(len(self._columns())))
        for column, more in zip(self._columns(), added, strict=True):
            column.extend(more)

    def _taken_out(self, index: Any = -1) -> Any:
        return tuple(column._taken_out(index) for column in self._columns())

    def _without(self, index: Any) -> None:
        for column in self._columns():
            column._without(index)

    def _put(self, index: Any, value: Any) -> None:
        value = self.taken(value)
        self.check(kind_of(value))
        for column, entry in zip(self._columns(), value, strict=True):
            column._put(index, entry)

    def keep_last(self) -> None:
        for column in self._columns():
            column.keep_last()

    def keep_first(self) -> None:
        for column in self._columns():
            column.keep_first()

    def clear(self) -> None:
        for column in self._columns():
            column.clear()

    def reverse(self) -> None:
        for column in self._columns():
            column.reverse()

    def rotate(self, steps: Any = 1) -> None:
        for column in self._columns():
            column.rotate(steps)


class TracedMixed(TracedTuples):
    """A list of numbers of several sorts: ``rows`` has a list of numbers for each type of theirs, and flags that say
    which of the sorts an entry is."""

    __slots__ = ()

    def taken(self, value: Any) -> Any:
        return self.kind.taken_apart(value)

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return found if isinstance(index, slice) else self.kind.put_together(*found)

    def _taken_out(self, index: Any = -1) -> Any:
        return self.kind.put_together(*super()._taken_out(index))

    def extend(self, values: Any) -> None:
        if isinstance(values, TracedList) and values.kind != self.kind:
            self.check(values.kind)
            self.add_rows(as_sorts(values, self.kind))
        else:
            super().extend(values)

    def _numbers(self, what: str) -> TracedList:
        """Its entries, where they are of one type."""
        if len(self.kind.dtypes) > 1:
            raise Escape(what, "its entries are numbers of several types")
        return self._columns()[0]

    def sort(self, *, key: Any = None, reverse: Any = False) -> None:
        self._check_list("sorting")
        rows, turned = self._numbers("sorting a list")._to_sort(key, reverse)
        order = new_array(emit("argsort", rows, axis=0, kind="stable"))
        for column in self._columns():
            own_container(column, "a list")
            made = (column._rows()[::-1] if turned else column._rows())[order]
            column.rows = new_array((made[::-1] if turned else made)._node)

    def _equal(self, value: Any) -> Node:
        return self._numbers("looking for an entry of a list")._equal(of_one_dtype(value))

    def __fx_node__(self) -> Node:
        return self._numbers("an array of a list").__fx_node__()

    def stacked(self) -> Tracer:
        return self._numbers("entries of a list side by side").stacked()


def as_sorts(values: TracedList, kind: Mixed) -> list[Node]:
    """The columns of a list of this kind that has the entries of another one, of fewer sorts."""
    columns, theirs = values.columns(), values.kind
    if isinstance(theirs, Mixed):
        numbers, flags = dict(zip(theirs.dtypes, columns, strict=False)), columns[len(theirs.dtypes) :]
        flags.append(emit("logical_not", functools.reduce(functools.partial(emit, "logical_or"), flags)))
        found = dict(zip(theirs.sorts, flags, strict=True))
    else:
        assert isinstance(theirs, Entry)
        if theirs.loose:
            current().tell()
            raise Escape("a list of Python's numbers or NumPy's", "which they are is not known")
        (node,) = columns
        equal = emit("equal", node, node)
        numbers = {theirs.aval.dtype: node}
        found = {Aval((), theirs.aval.dtype, weak=theirs.python): emit("logical_or", equal, emit("logical_not", equal))}
    flag = next(iter(found.values()))
    never = emit("logical_and", flag, emit("logical_not", flag))
    zeros = (numbers[each] if each in numbers else emit("cast", never, dtype=each) for each in kind.dtypes)
    return [*zeros, *(found.get(sort, never) for sort in kind.sorts[:-1])]


TYPES[Tuple], TYPES[Mixed] = TracedTuples, TracedMixed
