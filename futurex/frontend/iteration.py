"""Iteration in staged code: ``zip``, ``enumerate`` and ``reversed`` whose rows are known by number, and the rest."""

from __future__ import annotations

import builtins
import functools
import itertools
import math
import operator
import types
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from futurex.frontend import control, folds, linear
from futurex.frontend.calls import SPECIAL, call, special
from futurex.frontend.control import is_unknown
from futurex.frontend.control.growing import Growing
from futurex.frontend.control.growing import column as growing_column
from futurex.frontend.control.loops import UNROLL
from futurex.frontend.control.rows import Rows, TracedRange
from futurex.frontend.errors import Escape
from futurex.frontend.hooks import Runtime
from futurex.frontend.lists import TracedList, len_of
from futurex.frontend.made_lists import note_asked
from futurex.frontend.outside import any_traced, items, refuse_special
from futurex.frontend.picking import entry_at, is_gathered
from futurex.frontend.tables import TracedRow
from futurex.frontend.trace import current
from futurex.frontend.tracer import Tracer, as_number, entered, node_of
from futurex.tree.aval import Aval

_NETWORK = 8  # traced integers that are sorted by exchanges, which are half their number's square
_INT = Aval((), np.dtype(np.int64), weak=True)

Column = tuple[Any, Callable[[Any], Any]]  # a length, and the entry with a number


def _column(value: Any) -> Column | None:
    """An iterable whose entries are known by number; None for any other."""
    if isinstance(value, Tracer) and value.ndim:
        return as_number(value.shape[0]), lambda i: value[i]
    if isinstance(value, range):
        return len(value), lambda i: value.start + i * value.step
    if isinstance(value, TracedRange):
        return _length(value), lambda i: value.start + i * value.step
    if isinstance(value, Rows) and current().is_newest(value):
        rest = value.rest()
        control.lose(value)  # whoever goes through it may stop before its end
        return rest
    if is_gathered(value):
        return len(value), entry_at(value, len(value))
    if isinstance(value, Growing):
        return growing_column(value)
    return _entries(value) if isinstance(value, TracedList | TracedRow) else None


def column(values: Any) -> Column:
    """An iterable of which only the run knows how long it is, or that a list of the tree is."""
    found = _entries(values, True) if isinstance(values, TracedList | TracedRow) else _column(values)
    if found is None:
        raise Escape("an iterable that was begun before", "how much of it is left is not known")
    return found


def length_of(values: Any) -> Any:
    """How long an iterable is whose entries are known by number; None for any other."""
    if isinstance(values, Rows) and not current().is_newest(values):
        return None
    if isinstance(values, TracedRange):
        return _length(values)
    if isinstance(values, TracedList | TracedRow):
        return len_of(values)
    found = None if isinstance(values, Rows) else _column(values)
    return None if found is None else found[0]


def is_long(values: Any) -> bool:
    """Had what goes over an iterable rather be a loop of the tree? Of numbers that are known Python makes the result.
    """
    length = None if isinstance(values, range) else length_of(values)
    return length is not None and (isinstance(length, Tracer) or length > UNROLL)


def _entries(values: TracedList | TracedRow, counted: bool = False) -> Column | None:
    """The entries of a list whose length only the run knows, or ``counted`` ones, and that keeps it meanwhile."""
    length, before = as_number(len_of(values)), values.order()
    known = not isinstance(length, Tracer)
    if known and not counted:
        return None

    def entry(i: Any) -> Any:
        kept = all(map(operator.is_, values.order(), before)) if known else node_of(len_of(values)) is node_of(length)
        if not kept:
            raise Escape("a list that grows or shrinks while zip or enumerate goes over it", "it is traced as an array")
        return values[i]

    return length, entry


def _length(bounds: TracedRange) -> Any:
    """How many numbers a range has; not above zero if it is empty. Between two that move with one counter there are as
    many in all rounds."""
    if isinstance(bounds.step, int) and not callable(bounds.stop):
        span = linear.distance(node_of(bounds.start), node_of(bounds.stop))
        if span is not None:
            return len(range(0, span, bounds.step))
    if not bounds.up:
        return (bounds.start - bounds.stop - bounds.step - 1) // -bounds.step
    return (bounds.stop - bounds.start + bounds.step - 1) // bounds.step


def _rows(columns: list[Any], row: Callable[..., Any]) -> Rows | None:
    """Columns side by side, as far as the shortest goes."""
    found = [_column(column) for column in columns]
    known = [column for column in found if column is not None]
    if len(known) < len(found) or not known:
        return None
    lengths = [length for length, _ in known]
    one = all(length is lengths[0] or node_of(length) is node_of(lengths[0]) for length in lengths)
    shortest = lengths[0] if one else call(builtins.min, tuple(call(int, (each,), {}) for each in lengths), {})
    return current().remember(Rows(shortest, lambda i: row(*(entry(i) for _, entry in known))))


@special(enumerate)
def _enumerate(iterable: Any, start: Any = 0) -> Any:
    numbered = isinstance(start, int | Tracer)
    rows = _rows([iterable], lambda entry: entry) if numbered else None
    if rows is not None:
        return current().remember(Rows(rows.length, lambda i: (i + start, rows.row(i))))
    return current().remember(enumerate(items(_counted(iterable)), start))


@special(zip)
def _zip(*columns: Any, strict: bool = False) -> Any:
    sized = (column for column in columns if isinstance(column, range | Tracer | list | tuple))
    lengths = {len(column) for column in sized} if strict else set()
    rows = _rows(list(columns), lambda *row: row) if len(lengths) < 2 else None
    if rows is not None and not (strict and any(isinstance(column, TracedRange | Rows) for column in columns)):
        return rows
    return current().remember(zip(*(items(_counted(column)) for column in columns), strict=strict))


@special(reversed)
def _reversed(values: Any) -> Any:
    if isinstance(values, TracedRange):
        last = values.start + (_length(values) - 1) * values.step
        return TracedRange(last, values.start - values.step, -values.step, not values.up)
    found = _column(values) if isinstance(values, Tracer | range | Growing) or is_gathered(values) else None
    if isinstance(values, TracedList | TracedRow):
        found = _entries(values)
        if found is None:
            return current().remember(values.backwards())
    if found is not None:
        length, entry = found
        whole = _turned(values) if isinstance(values, TracedList) else None
        return current().remember(Rows(length, lambda i: entry(length - 1 - i), whole))
    if not isinstance(values, list | tuple | str | dict | deque):
        raise Escape(f"reversed() of a {type(values).__qualname__}", "what it gives is not known to the tracer")
    return current().remember(map(entered, reversed(values)))


def _turned(values: TracedList) -> Callable[[], Any]:
    """What makes a list of its entries from the last to the first, where they are still those that it has now."""
    before = values.columns()

    def whole() -> Any:
        if any(one is not other for one, other in zip(before, values.columns(), strict=True)):
            return None
        made = values.made_as(list)
        made.reverse()
        return made

    return whole


def _counted(values: Any) -> Any:
    """Refuse a range whose length depends on data where Python must iterate."""
    if isinstance(values, TracedRange):
        raise Escape(
            "a range that depends on data in plain Python iteration", "the number of its elements is not known"
        )
    return values


@special(list)
def _list(values: Any = ()) -> Any:
    if isinstance(values, TracedList | TracedRow):
        return values.made_as(list)
    if isinstance(values, Rows) and (made := values.whole()) is not None:
        return made
    return current().remember(list(items(_counted(values))))


@special(set)
def _set(values: Any = ()) -> Any:
    entries = list(items(_counted(values)))
    if any_traced(entries):
        raise Escape("a set of traced values", "plain Python needs the values here")
    refuse_special(entries)
    return current().remember(set(entries))


@special(dict)
def _dict(*args: Any, **kwargs: Any) -> Any:
    refuse_special(*(list(arg) for arg in args if isinstance(arg, dict)))
    if any(hasattr(arg, "keys") and not isinstance(arg, dict | types.MappingProxyType) for arg in args):
        raise Escape(f"dict() of a {type(args[0]).__qualname__}", "what it gives is not known to the tracer")
    return current().remember(dict(*(arg if hasattr(arg, "keys") else list(items(arg)) for arg in args), **kwargs))


SPECIAL[tuple] = lambda values=(): tuple(items(_counted(values)))


@special(sorted)
def _sorted(values: Any, *, key: Any = None, reverse: bool = False) -> Any:
    if isinstance(values, TracedList | TracedRow):
        made = values.made_as(list)
        made.sort(key=key, reverse=reverse)
        return made
    entries = list(items(_counted(values)))
    keys = entries if key is None else [call(key, (entry,), {}) for entry in entries]
    if any_traced(keys):
        if key is None and len(entries) <= _NETWORK and _are_alike(entries):
            return current().remember(_exchanged(entries, reverse))
        if type(values) is list and key is None:
            note_asked(values)  # arrays are sorted
        raise Escape("sorted() by traced values", "their order is not known before the run", "use np.sort")
    refuse_special(keys)
    order = sorted(range(len(keys)), key=keys.__getitem__, reverse=reverse)
    return current().remember([entries[k] for k in order])


def _are_alike(values: Sequence[Any]) -> bool:
    """Are all Python ints, traced or not, or NumPy's of one type? Equal ones are the same to whoever gets them."""
    kinds = {_INT if type(value) is int else value.aval for value in values if type(value) is int or _is_int(value)}
    return len(kinds) == 1 and all(type(value) is int or _is_int(value) for value in values)


def _is_int(value: Any) -> bool:
    """Is it a traced int of surely one type?"""
    return isinstance(value, Tracer) and value.is_scalar and value.dtype.kind in "iu" and not value._loose


def _exchanged(values: Sequence[Any], reverse: bool) -> list[Any]:
    """Sorted by exchanges of neighbours, which are the same whatever the values are."""
    found = list(values)
    for last in range(len(found) - 1, 0, -1):
        for k in range(last):
            found[k], found[k + 1] = (call(choose, (found[k], found[k + 1]), {}) for choose in (min, max))
    return found[::-1] if reverse else found


@special(map)
def _map(function: Any, *columns: Any) -> Any:
    rows = zip(*(items(_counted(column)) for column in columns), strict=False)
    return current().remember(call(function, row, {}) for row in rows)


@special(filter)
def _filter(function: Any, values: Any) -> Any:
    def fits(value: Any) -> Any:
        return Runtime.known(value if function is None else call(function, (value,), {}))

    return current().remember(value for value in items(_counted(values)) if fits(value))


@special(functools.reduce)
def _reduce(function: Any, values: Any, *first: Any) -> Any:
    return functools.reduce(lambda a, b: call(function, (a, b), {}), iter(items(_counted(values))), *first)


@special(itertools.accumulate)
def _accumulate(values: Any, function: Any = operator.add, *, initial: Any = None) -> Any:
    entries = iter(items(_counted(values)))
    return current().remember(itertools.accumulate(entries, lambda a, b: call(function, (a, b), {}), initial=initial))


@special(math.prod)
def _product(values: Any, *, start: Any = 1) -> Any:
    if is_long(values):
        return folds.Product(start).over(values)
    return functools.reduce(lambda a, b: Runtime.binary("mul", a, b), list(items(_counted(values))), start)


@special(any)
def _any(values: Any) -> Any:
    if is_long(values):
        return folds.IsAny().over(values)
    tests = _until(values, True)
    return control.truth_of(control.or_(False, *((lambda test=test: test) for test in tests)))


@special(all)
def _all(values: Any) -> Any:
    if is_long(values):
        return folds.IsAll().over(values)
    tests = _until(values, False)
    return control.truth_of(control.and_(True, *((lambda test=test: test) for test in tests)))


def _until(values: Any, answer: bool) -> list[Any]:
    """The tests that ``any`` or ``all`` looks at: up to the first that surely is the answer.

    Those behind one that depends on data are looked at in some runs only, so they must leave nothing behind.
    """
    rows, tests = iter(items(_counted(values))), list[Any]()

    def ends(value: Any) -> bool:
        tests.append(control.truth_of(value))
        return not is_unknown(tests[-1]) and tests[-1] is answer

    for value in rows:
        if ends(value):
            return tests
        if is_unknown(tests[-1]):
            break
    control.lose(rows)
    with control.only_looks("any() or all() whose later tests do more than look"):
        any(map(ends, rows))
    return tests


@special(np.ndindex)
def _ndindex(*shape: Any) -> Any:
    extents = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
    return current().remember(iter(list(np.ndindex(*(operator.index(extent) for extent in extents)))))


class NdIter(Rows):
    """``np.nditer`` over the elements of one array, as 0-dimensional views."""

    def __enter__(self) -> NdIter:
        return self

    def __exit__(self, *error: Any) -> None:
        return None


@special(np.nditer)
def _nditer(array: Any, flags: Any = (), op_flags: Any = (("readonly",),)) -> Any:
    modes = [op_flags] if op_flags and isinstance(op_flags[0], str) else list(op_flags)
    plain = isinstance(array, Tracer) and array.strides_in_memory is not None and array.ndim > 0 and not flags
    if not plain or len(modes) != 1 or not set(modes[0]) <= {"readonly", "readwrite", "writeonly"}:
        raise Escape("np.nditer with several operands or options", "only the elements of one array are traced")
    view = array if set(modes[0]) & {"readwrite", "writeonly"} else array.readonly()
    order = sorted(range(array.ndim), key=lambda k: -abs(array.strides_in_memory[k]))
    if any(array.strides_in_memory[k] < 0 for k in order):
        raise Escape("np.nditer over an array with negative strides", "it goes through memory backwards")
    extents = [array.shape[k] for k in order]

    def element(number: Any) -> Any:
        if isinstance(number, Tracer):
            raise Escape("np.nditer in a staged loop", "a view with several computed indices is not traced")
        place = dict(zip(order, np.unravel_index(number, extents), strict=True))
        return view[(*(int(place[k]) for k in range(array.ndim)), ...)]

    return current().remember(NdIter(array.size, element))


def user_rows(value: Any) -> Iterator[Any]:
    """The rows of an iterator of the user's class: ``__next__`` is staged every time."""
    method = type(value).__next__
    while True:
        try:
            row = call(method, (value,), {})
        except StopIteration:
            return
        yield row
