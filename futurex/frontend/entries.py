"""Lists of numbers that a call returns whose entries are rows of results of its run: a future for each entry."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from futurex.frontend.array import Array, numbers
from futurex.frontend.entry_kinds import Entry, Mixed, Row, Tuple, parts_of
from futurex.frontend.outputs import Output
from futurex.frontend.returned import UNFIT, Looking, fits_in, kind_of
from futurex.runtime.futures import Done, Future
from futurex.runtime.habit import Call
from futurex.tree.aval import Aval


class Listed(Looking):
    """Lists of entries of one kind, of this length or of whatever one."""

    def __init__(self, kind: Entry | Tuple, length: int | None = None) -> None:
        self._of: _Column | _Columns | _Mixed | _Table = _of(kind)
        self._length = length

    def of(self, columns: Iterator[np.ndarray], call: Call | None = None) -> list[Any]:
        """The list whose entries are the rows of these arrays. The ``call`` wants to know when somebody asks for one.
        """
        return self._of.made(columns, call)

    def fit(self, leaf: Any) -> Any:
        if type(leaf) is not list or (self._length is not None and len(leaf) != self._length):
            return UNFIT
        found = self._of.fit(leaf)
        return UNFIT if found is None else found

    def columns(self, leaf: Any) -> list[np.ndarray] | None:
        """The arrays whose rows are the entries of a list that a plain call returned; None for anything else."""
        return None if self.fit(leaf) is UNFIT else self._of.arrays(leaf)


class _Column:
    """Numbers of one type."""

    def __init__(self, kind: Entry) -> None:
        self._aval, self._python = Aval((), kind.aval.dtype, weak=kind.python), kind.python
        self._types = frozenset({kind_of(self._aval)})

    def made(self, columns: Iterator[np.ndarray], call: Call | None) -> list[Any]:
        rows = next(columns)
        values = rows.tolist() if self._python else rows
        return numbers(values if call is None else (Done(value, call) for value in values), self._aval)

    def views(self, columns: Iterator[Any], length: int) -> list[Any]:
        future, picked = next(columns), _ITEM if self._python else operator.itemgetter
        return [Array(future, self._aval, picked(k)) for k in range(length)]

    def fit(self, values: Sequence[Any]) -> list[Any] | None:
        alike = self._types.issuperset(map(type, values)) and fits_in(self._aval, values)
        return numbers(values, self._aval) if alike else None

    def arrays(self, values: Sequence[Any]) -> list[np.ndarray]:
        return [np.array(values, self._aval.dtype)]


class _Columns:
    """Tuples of numbers, or of tuples of them."""

    def __init__(self, kind: Tuple) -> None:
        self._parts: list[Any] = list(map(_of, kind.kinds))
        self._lengths = frozenset({len(self._parts)})

    def made(self, columns: Iterator[np.ndarray], call: Call | None) -> list[Any]:
        return list(zip(*[part.made(columns, call) for part in self._parts], strict=True))

    def views(self, columns: Iterator[Any], length: int) -> list[Any]:
        return list(zip(*[part.views(columns, length) for part in self._parts], strict=True))

    def fit(self, values: Sequence[Any]) -> list[Any] | None:
        if not (_TUPLES.issuperset(map(type, values)) and self._lengths.issuperset(map(len, values))):
            return None
        columns = [part.fit(each) for part, each in zip(self._parts, self._turned(values), strict=True)]
        return None if None in columns else list(zip(*columns, strict=True))

    def arrays(self, values: Sequence[Any]) -> list[np.ndarray]:
        columns = zip(self._parts, self._turned(values), strict=True)
        return [array for part, each in columns for array in part.arrays(each)]

    def _turned(self, values: Sequence[Any]) -> list[Sequence[Any]]:
        """What stands at each place of the tuples."""
        return list(zip(*values, strict=True)) or [()] * len(self._parts)


class _Mixed:
    """Numbers of several sorts: those of each type, and flags that say which sort an entry is."""

    def __init__(self, kind: Mixed) -> None:
        self._sorts, self._dtypes = kind.sorts, kind.dtypes
        self._types = list(map(kind_of, kind.sorts))

    def made(self, columns: Iterator[np.ndarray], call: Call | None) -> list[Any]:
        rows = {dtype: next(columns) for dtype in self._dtypes}
        flags = [next(columns) for _ in self._sorts[1:]]
        flags.append(~np.logical_or.reduce(flags))
        made: list[Any] = [None] * len(flags[0])
        for sort, flag in zip(self._sorts, flags, strict=True):
            found = rows[sort.dtype][flag]
            values = numbers(found.tolist() if sort.weak else found, sort)
            for k, each in zip(np.flatnonzero(flag).tolist(), values, strict=True):
                made[k] = each
        return made

    def fit(self, values: Sequence[Any]) -> list[Any] | None:
        if not set(self._types).issuperset(map(type, values)):
            return None
        own = {kind: [value for value in values if type(value) is kind] for kind in self._types}
        if not all(fits_in(sort, own[kind]) for sort, kind in zip(self._sorts, self._types, strict=True) if sort.weak):
            return None
        return self.made(iter(self.arrays(values)), None)

    def arrays(self, values: Sequence[Any]) -> list[np.ndarray]:
        dtypes = {kind: sort.dtype for sort, kind in zip(self._sorts, self._types, strict=True)}
        numbers = [np.array([v if dtypes[type(v)] == dtype else 0 for v in values], dtype) for dtype in self._dtypes]
        return numbers + [np.array([type(value) is kind for value in values], bool) for kind in self._types[:-1]]


class _Table:
    """Lists of so many entries of one kind."""

    def __init__(self, kind: Row) -> None:
        self._part: Any = _of(kind.kinds[0])
        self._width = kind.width

    def made(self, columns: Iterator[np.ndarray], call: Call | None) -> list[Any]:
        return self._apart(self._part.made((rows.reshape(-1) for rows in columns), call))

    def fit(self, values: Sequence[Any]) -> list[Any] | None:
        alike = all(type(value) is list and len(value) == self._width for value in values)
        if not alike or len(set(map(id, values))) < len(values):
            return None
        found = self._part.fit(list(itertools.chain(*values)))
        return None if found is None else self._apart(found)

    def arrays(self, values: Sequence[Any]) -> list[np.ndarray]:
        return [each.reshape(-1, self._width) for each in self._part.arrays(list(itertools.chain(*values)))]

    def _apart(self, entries: list[Any]) -> list[Any]:
        return [entries[k : k + self._width] for k in range(0, len(entries), self._width)]


_ITEM = functools.partial(operator.methodcaller, "item")
_TUPLES = frozenset({tuple})


def _of(kind: Entry | Tuple) -> _Column | _Columns | _Mixed | _Table:
    if isinstance(kind, Mixed):
        return _Mixed(kind)
    if isinstance(kind, Row):
        return _Table(kind)
    return _Columns(kind) if isinstance(kind, Tuple) else _Column(kind)


def lists_in(output: Output) -> Callable[[Sequence[Any], Any], list[Any]]:
    """Makes the list of the results of a run."""
    listed, first, end = Listed(output.value), output.index, output.index + len(parts_of(output.value))

    def made(results: Sequence[Any], call: Any) -> list[Any]:
        if call is not None and output.length is None:
            call.asked()  # how long the list is nobody knows before
            call = None
        return listed.of(iter(results[first:end]), call)

    return made


def views(output: Output, futures: Sequence[Future[Any] | Done[Any]]) -> list[Any]:
    """A list of known length whose entries may be still on their way."""
    listed = _of(output.value)
    assert output.length is not None
    assert not isinstance(listed, _Mixed | _Table)
    return listed.views(iter(futures), output.length)
