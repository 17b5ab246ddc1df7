"""Names that are one of several things, as the run tells: numbers of other types, None, a text.

``t = 0.0``, then ``if x[i] > 0: t += x[i]`` with an ``x`` in single precision: a Python number until the first
addition, then NumPy's. Such a name is an :class:`Either`: a value for each thing that it may be, and flags that say
which it is. What is done with it is done with each in a branch of its own: each has its own type, value and errors.
"""

from __future__ import annotations

import functools
import heapq
import math
import operator
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.frontend import facts
from futurex.frontend.control import joint, paths
from futurex.frontend.control.values import bound_flag, coerce, is_numeric, raw, same_value, zeros
from futurex.frontend.errors import Escape, mark
from futurex.frontend.placeholders import Alternatives, Conflict, Either
from futurex.frontend.trace import current, emit, read
from futurex.frontend.tracer import SCALARS, Tracer, entered, fresh, node_of
from futurex.tree.aval import Aval
from futurex.tree.node import Node, const
from futurex.tree.pytree import containers

MOST = 4  # things that a name may be
FEW = 4  # choices one behind the other, each of which may be traced for itself
FLAG = Aval((), np.dtype(bool), weak=True)
_OPEN = object()  # a number that is not the same in all branches and rounds
_EXACT = 2**53  # ints up to here are floats
_DOUBLE = np.dtype(np.float64), np.dtype(np.complex128)


@dataclass
class _Sort:
    """One thing that a name may be: numbers of one type, or what is known by now (``aval`` None: no number)."""

    aval: Aval | None
    value: Any
    loose: Any = False


class Sorts:
    """All that a name may be, behind branches or in the rounds of a loop."""

    def __init__(self, *values: Any) -> None:
        """Raises Escape where a value is nothing of the kind."""
        self._sorts: list[_Sort] = []
        for value in values:
            self.admit(value)

    def admit(self, value: Any, but: Any = _OPEN) -> bool:
        """It may be this, too, ``but`` for things of that sort. True if that is new. Raises Escape."""
        known = [] if but is _OPEN else [self._find(each) for each in _values(but)]
        found = [each for each in _values(value) if self._find(each) is None or self._find(each) not in known]
        return [self._admit_one(each) for each in found].count(True) > 0

    def _admit_one(self, value: Any) -> bool:
        new, sort = _sort_of(value), self._find(value)
        if sort is None:
            if len(self._sorts) == MOST:
                current().crowded = True
                raise Escape("a name that may be too many things", "each is a branch of its own")
            self._sorts.append(new)
            return True
        before = sort.value, sort.loose
        sort.loose = sort.loose or new.loose
        if sort.value is not _OPEN and (new.value is _OPEN or not same_value(sort.value, new.value)):
            sort.value = _OPEN
        return before != (sort.value, sort.loose)

    def _find(self, value: Any) -> _Sort | None:
        new = _sort_of(value)
        for sort in self._sorts:
            if sort.aval == new.aval and (new.aval is not None or same_literal(sort.value, new.value)):
                return sort
        return None

    def avals(self) -> list[Aval]:
        """Of what a branch leaves and a round takes: the numbers, and the flags."""
        numbers = [sort.aval for sort in self._sorts if sort.value is _OPEN and sort.aval is not None]
        return [*numbers, *(FLAG for _ in self._sorts[1:])]

    def nodes(self, value: Any, node_of: Callable[[Any], Node]) -> list[Node]:
        """The same of a value."""
        values, places = _values(value), {}
        for k, each in enumerate(values):
            places[id(self._find(each))] = k
        numbers = [
            coerce(node_of(values[places[id(sort)]]), sort.aval) if id(sort) in places else zeros(sort.aval)
            for sort in self._sorts if sort.value is _OPEN and sort.aval is not None
        ]  # fmt: skip
        flags = [
            coerce(flag_of(value, places[id(sort)]), FLAG) if id(sort) in places else const(False)
            for sort in self._sorts[:-1]
        ]
        return numbers + flags

    def made(self, nodes: Sequence[Node], what: str, why: str, only: Any = _OPEN) -> Any:
        """What the nodes tell; ``only``: a value that has all that it can be."""
        rest = iter(nodes)
        values = [_rebuilt(sort, rest) for sort in self._sorts]
        flags = [fresh(node)._node for node in rest]
        kept = {id(self._find(each)) for each in _values(only)} if only is not _OPEN else None
        for k in reversed(range(len(values))):
            if kept is not None and id(self._sorts[k]) not in kept:
                del values[k]
                if flags:
                    del flags[min(k, len(flags) - 1)]
        return settled(Either(tuple(values), tuple(flags), what, why))


def _sort_of(value: Any) -> _Sort:
    if value is None or type(value) is str:
        return _Sort(None, value)
    if isinstance(value, np.ndarray) or not is_numeric(value) or bound_flag(value) is not None:
        raise Escape("a name that is another thing in each branch", "only numbers, None and texts can depend on data")
    if isinstance(value, Tracer) and not value.is_scalar:
        raise Escape("a name that is an array in one branch and something else in another", "one node has one type")
    node = raw(value)
    known = node.value if node.aval.weak and node.op == "const" else _OPEN
    return _Sort(node.aval, known, isinstance(value, Tracer) and value._loose)


def same_literal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and a == b


def _rebuilt(sort: _Sort, nodes: Any) -> Any:
    if sort.value is not _OPEN:
        return sort.value
    made = fresh(next(nodes))
    made._loose = sort.loose
    return made


def _values(value: Any) -> tuple[Any, ...]:
    return value.values if type(value) is Either else (value,)


def flag_of(value: Any, place: int) -> Node:
    """Says whether something is the value at this place of those that it may be."""
    if not isinstance(value, Either | Alternatives):
        return const(True)
    return value.flags[place] if place < len(value.flags) else _none_of(value.flags)


def _none_of(flags: Sequence[Any]) -> Node:
    others = flags[0]
    for flag in flags[1:]:
        others = read("logical_or", others, flag)
    return read("logical_not", others)  # perhaps behind the branch that the value is of


# -- which it is -------------------------------------------------------------------------------------------------------


def settled(value: Any) -> Any:
    """What a value is, as far as the branch knows that it is in."""
    if type(value) is Conflict and value.alternatives is not None:
        left = _left(value.alternatives)
        if left[1] and len(left[0]) == len(value.alternatives.values):
            return value
        if not left[1]:
            return left[0][0]
        rest = Alternatives(*left, value.alternatives.choices)
        return Conflict(value.what, value.why, value.where, None, rest)
    if type(value) is not Either:
        return value
    values, flags = _left(value)
    return Either(values, flags, value.what, value.why) if flags else values[0]


def _left(value: Either | Alternatives) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The values and flags of what something may still be, as far as the branch knows."""
    values, flags = list(value.values), list(value.flags)
    for k in reversed(range(len(flags))):
        outcome = facts.known(flags[k])
        if outcome:
            return (values[k],), ()
        if outcome is False:
            del values[k], flags[k]
    if len(flags) > 1 and facts.known(_none_of(flags)):
        return (values[-1],), ()
    return tuple(values), tuple(flags)


def decided(value: Either) -> Any:
    """The one that it is where Python must know: what follows is traced once for each."""
    found = settled(value)
    while type(found) is Either:
        facts.learn(found.flags[0], paths.decided(found.flags[0], found.what, found.why))
        found = settled(found)
    return entered(found)


def one_of(value: Conflict) -> Any:
    """The one that it is of several nests where Python must know: what follows is traced once for each, from the choice
    on that left them where that can be."""
    found = settled(value)
    if type(found) is Conflict and isinstance(found.where, paths.Site) and found.where.may_fork and _is_of_few(found):
        raise Escape(value.what, value.why, "give it one type, shape and structure everywhere", site=value.where)
    while type(found) is Conflict and found.alternatives is not None:
        test = found.alternatives.flags[0]
        facts.learn(test, paths.decided(test, found.what, found.why))
        found = settled(found)
    return entered(found)


def _is_of_few(value: Conflict) -> bool:
    """Are what it may be the outcomes of few choices? Those of many, as of unrolled rounds, would be traced each, where
    the nests are two or three. Lists and dicts are changed in place, which takes the very one that a choice left."""
    assert value.alternatives is not None
    nests = value.alternatives.values
    return value.alternatives.choices <= FEW or any(type(each) in (list, dict) for each in containers(nests))


def number_of(value: Either | Alternatives) -> Node:
    """Which of the things it is, as a node."""
    node: Any = const(np.int64(len(value.flags)))
    for k, flag in reversed([*enumerate(value.flags)]):
        node = emit("where", flag, const(np.int64(k)), node)
    return node


def without_first(value: Either) -> Any:
    return Either(value.values[1:], value.flags[1:], value.what, value.why) if value.flags[1:] else value.values[1]


def chosen(value: Any, use: Callable[[Any], Any]) -> Any:
    """``use`` of a value, in a branch for each thing that it may be."""
    value = settled(value)
    if type(value) is not Either:
        return use(value)
    from futurex.frontend.control.choices import if_expression

    rest = without_first(value)
    return if_expression(fresh(value.flags[0]), lambda: use(value.values[0]), lambda: chosen(rest, use))


def operated(use: Callable[..., Any], name: str, *operands: Any) -> Any:
    """An operator of operands that may be several things: of None it is an error, which the run raises."""
    values = [settled(each) for each in operands]
    if len(values) == 2 and (found := joint.pairs(name, *values)) is not None:
        result = chosen(found, lambda pair: use(name, *pair))
        return joint.outcome(values[0], values[1], of_one_dtype(result)) if name in joint.COMPARISONS else result
    place = next((k for k, each in enumerate(values) if type(each) is Either), None)
    if place is not None:
        before, after = values[:place], values[place + 1 :]
        return chosen(values[place], lambda value: operated(use, name, *before, value, *after))
    if any(each is None for each in values) and name not in ("eq", "ne"):
        _refuse_none(name, values)
    return use(name, *values)


def _with_operators() -> None:
    """Code of the tracer's own, too, computes with what may be several things."""
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
        setattr(Either, f"__{name}__", functools.partialmethod(_operator, name))
        setattr(Either, f"__r{name}__", functools.partialmethod(_operator, name, swapped=True))
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(Either, f"__{name}__", functools.partialmethod(_operator, name))


def _operator(one: Any, name: str, other: Any, swapped: bool = False) -> Any:
    operands = (other, one) if swapped else (one, other)
    return operated(lambda name, *values: getattr(operator, name)(*values), name, *operands)


_with_operators()


def _refuse_none(name: str, values: Sequence[Any]) -> None:
    stand_ins = [_like(each) for each in values]
    try:
        getattr(operator, name)(*stand_ins)
    except TypeError as error:
        current().waits = True  # plain Python raises its own
        failed = TypeError(*error.args)
        mark(failed)
        raise failed from None


def _like(value: Any) -> Any:
    if not isinstance(value, Tracer):
        return value
    if not value.is_scalar:
        return np.ones((1,) * value.ndim, value.dtype)
    return value.dtype.type(1).item() if value.aval.weak else value.dtype.type(1)


def is_nothing(value: Either | Alternatives) -> Any:
    """``value is None``, also where a number or None is one of several nests."""
    found = []
    for k, each in enumerate(value.values):
        if each is None:
            found.append(flag_of(value, k))
        elif type(each) is Either and (inner := is_nothing(each)) is not False:
            found.append(emit("logical_and", flag_of(value, k), inner._node))
    if not found:
        return False
    return fresh(coerce(functools.reduce(functools.partial(emit, "logical_or"), found), FLAG))


def asks(place: int) -> Callable[[Callable[..., Any]], Any]:
    """A decorator of static methods: each thing that this argument, or a part of it if it is an index, may be has a
    branch of its own."""

    def decorator(method: Callable[..., Any]) -> Any:
        @functools.wraps(method)
        def asking(*args: Any) -> Any:
            given = args[place]
            found = _open_part(given)
            if found is None:
                return method(*args)
            return chosen(
                found, lambda value: asking(*args[:place], _replaced(given, found, value), *args[place + 1 :])
            )

        return staticmethod(asking)

    return decorator


def _open_part(index: Any) -> Either | None:
    """The first part of an index that may be several things."""
    kind = type(index)
    if kind is Either:
        return index
    parts = index if kind is tuple else (index.start, index.stop, index.step) if kind is slice else ()
    return next((found for part in parts if (found := _open_part(part)) is not None), None)


def _replaced(index: Any, part: Either, value: Any) -> Any:
    """The index with a value in the place of such a part."""
    if index is part:
        return value
    if type(index) is tuple:
        return tuple(_replaced(each, part, value) for each in index)
    if type(index) is slice:
        return slice(*(_replaced(each, part, value) for each in (index.start, index.stop, index.step)))
    return index


def called(call: Callable[..., Any], function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call. The user's own functions, and a few others, are given what may be several things as it is."""
    given = [settled(each) for each in (*args, *kwargs.values())]
    place = next((k for k, each in enumerate(given) if type(each) is Either), None)
    if place is not None and any(function is each for each in _OF_NUMBERS):
        alone = as_number(given[place], np.dtype(np.float64))
        if alone is not None:
            given[place], place = alone, None
    if place is not None and not _takes(function):

        def with_value(value: Any) -> Any:
            now = [*given[:place], value, *given[place + 1 :]]
            return called(call, function, tuple(now[: len(args)]), dict(zip(kwargs, now[len(args) :], strict=True)))

        return chosen(given[place], with_value)
    given = [each if type(each) is Either else entered(each) for each in given]
    return call(function, tuple(given[: len(args)]), dict(zip(kwargs, given[len(args) :], strict=True)))


_OF_NUMBERS = (float, math.sqrt, math.exp, math.log, np.sqrt, np.exp, np.log)
"""Functions that look at nothing but what number they are given, if it is in double precision."""


def _takes(function: Any) -> bool:
    """Is it staged with what may be several things?"""
    function = getattr(function, "__func__", function)
    if type(function) is types.FunctionType:
        return (function.__module__ or "").partition(".")[0] not in ("numpy", "math", "scipy")
    return function is max or function is min or getattr(function, "__module__", "") == heapq.heappush.__module__


def element_of(value: Any, array: Tracer) -> Any:
    """What is written into an array."""
    value = beside(value, array)
    if type(value) is not Either:
        return value
    from futurex.frontend.elements import as_element, element

    return chosen(value, lambda each: fresh(as_element(node_of(element(each, array.dtype)), array.dtype)))


# -- numbers of which it does not matter whether they are Python's -----------------------------------------------------


def as_number(value: Either, dtype: np.dtype[Any]) -> Tracer | None:
    """One number of this type that is what each of Python's is beside it; None if there is none."""
    if dtype.kind not in "biufc" or not all(_fits(each, dtype) for each in value.values):
        return None
    target = Aval((), dtype)
    numbers = [raw(each) if isinstance(each, Tracer) else const(dtype.type(each)) for each in value.values]
    nodes = [coerce(node, target) for node in numbers]
    node = nodes[-1]
    for flag, other in zip(reversed(value.flags), reversed(nodes[:-1]), strict=True):
        node = emit("where", flag, other, node)
    return fresh(node)


def of_one_dtype(value: Any) -> Any:
    """One number where all that it may be are numbers of one dtype, Python's or NumPy's, for who does not tell them
    apart; all else is as it is."""
    value = settled(value)
    if type(value) is not Either or not all(map(is_numeric, value.values)):
        return value
    dtypes = {raw(each).aval.dtype for each in value.values}
    one = as_number(value, dtypes.pop()) if len(dtypes) == 1 else None
    return value if one is None else one


def loosened(value: Any, site: Any) -> Any:
    """What :func:`of_one_dtype` makes of a list's entry, or of what a tuple that is one holds: rows hold one number.
    Who tells the two apart is told that it was so at this ``site``, which another trace does without."""
    if type(value) is tuple:
        return tuple(loosened(each, site) for each in value)
    one = of_one_dtype(value)
    if one is not value and type(one) is Tracer:
        one._loose = site
        current().loosened.add(site)
    return one


def as_one(value: Any) -> Any:
    """A number of the one type that NumPy gives those that it may be; all else is as it is."""
    value = settled(value)
    if type(value) is not Either or not all(map(is_numeric, value.values)):
        return value
    avals = [raw(each).aval for each in value.values]
    dtype = np.result_type(*(aval.dtype.type(0).item() if aval.weak else aval.dtype for aval in avals))
    return chosen(value, lambda each: fresh(emit("cast", raw(each), dtype=dtype)))


def _fits(value: Any, dtype: np.dtype[Any]) -> bool:
    """Is it a number of this type, or one of Python's that is exactly such?"""
    if isinstance(value, Tracer) and value.aval.weak:
        return value.dtype == dtype or (dtype in _DOUBLE and value.dtype.kind in "if")
    if isinstance(value, Tracer):
        return not value._loose and value.dtype == dtype
    return is_exact(value, dtype)


def is_exact(value: Any, dtype: np.dtype[Any]) -> bool:
    """Is a number of Python's, known by now, exactly one of this type?"""
    if type(value) is bool:
        return dtype.kind == "b"
    if type(value) is int and dtype.kind in "iu":
        return np.iinfo(dtype).min <= value <= np.iinfo(dtype).max
    if dtype.kind not in "fc" or not (type(value) is float or (type(value) is int and abs(value) <= _EXACT)):
        return False
    with np.errstate(over="ignore"):
        return bool(dtype.type(value) == value)


def beside(value: Any, other: Any) -> Any:
    """A value that is about to meet another one: beside a number or array of its own type a number of Python's does
    what such a number does, so that it does not matter which of the two it is."""
    if type(value) is not Either:
        return value
    value, other = settled(value), settled(other)
    if type(value) is not Either or not isinstance(other, Tracer) or other.aval.weak or other._loose:
        return value
    if other._guard is not None:
        return value
    found = as_number(value, other.dtype)
    return value if found is None else found


def compared(value: Any, other: Any) -> Any:
    """The same for a comparison of which only the outcome matters, also with a number of Python's."""
    if type(value) is Either and type(other) in SCALARS:
        for each in value.values:
            if isinstance(each, Tracer) and not each.aval.weak and is_exact(other, each.dtype):
                found = as_number(value, each.dtype)
                return value if found is None else found
    return beside(value, other)
