"""``fragment``: a call of the user's Python on concrete values, in the middle of a tree.

What the call returns was seen when it ran before; a run checks that it is so again, and raises :class:`ChangedResult`
where it is not. Every call is written down in a log that belongs to the run, so that whoever goes on by other means
need not make it a second time.
"""

from __future__ import annotations

import contextlib
import functools
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from futurex.ops.plainly import plainly
from futurex.ops.python import Text
from futurex.ops.warned import Line, called_from, lines, looks_back, warn
from futurex.tree.aval import PYTHON_SCALARS, Aval
from futurex.tree.dims import Fresh
from futurex.tree.graph import Graph
from futurex.tree.pytree import LEAF, Structure, containers, flatten, unflatten
from futurex.tree.record import op

LOG = Aval((), np.dtype(object))


class ChangedResult(TypeError):
    """A call of a function returned or wrote something else than the tree was made for."""

    def __init__(self, text: str, function: Callable[..., Any] | None = None) -> None:
        super().__init__(text)
        self.function = function


class GaveUp(RuntimeError):
    """Compiled code gave up; fragments in it were made, and are not made a second time."""


@dataclass(frozen=True)
class Leaf:
    """What one leaf of a result is: an array, a NumPy scalar or a Python number of some dtype."""

    dtype: np.dtype[Any]
    ndim: int
    is_array: bool
    weak: bool
    order: str | None  # C or F; None where the array lies otherwise

    def aval(self, first: int) -> Aval:
        """The abstract value; extents are open, numbered from ``first``."""
        return Aval(tuple(Fresh(first + axis) for axis in range(self.ndim)), self.dtype, self.weak)


@dataclass(frozen=True)
class Outcome:
    """What a call gives back: a nest of leaves (None for None), and which leaves of its arguments it writes into."""

    structure: Structure
    leaves: tuple[Leaf | None, ...]
    written: tuple[int, ...]

    def covers(self, found: Outcome | None) -> bool:
        """Is what a call gave back of this kind? It need not write into everything that such calls write into."""
        if found is None or not set(found.written) <= set(self.written):
            return False
        return (found.structure, found.leaves) == (self.structure, self.leaves)

    def joined(self, other: Outcome | None) -> Outcome | None:
        """What both are of; None if there is no such thing."""
        if other is None or (other.structure, other.leaves) != (self.structure, self.leaves):
            return None
        return Outcome(self.structure, self.leaves, tuple(sorted({*self.written, *other.written})))


@dataclass(frozen=True)
class Made:
    """One call that was made: its result or exception, and the leaves of its arguments as it left them.

    ``apart``: it did not return what it was given, nor change it but for the elements of arrays. What else it did shows
    in the run's copies of its arguments only, so who goes on by other means has to make it again.
    """

    function: Any
    result: Any
    error: BaseException | None
    after: list[Any]
    apart: bool


@dataclass(frozen=True, eq=False)
class Call:
    """A function with its arguments: a nest whose leaves are values, or holes for the arrays of the run.

    It travels by the function's name; a graph that calls a function without one cannot be pickled. Two functions may
    have one name, closures of one ``def`` or a name that was bound anew: graphs that call them are different ones.
    """

    function: Callable[..., Any]
    structure: Structure
    leaves: tuple[Any, ...]
    outcome: Outcome
    lines: tuple[Line, ...] = ()  # of what looks for them: those of the function that is staged, innermost first
    ignored: tuple[tuple[str, type[Warning]], ...] = ()  # warnings that filters around the call ignore: text, category

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @property
    def name(self) -> str:
        function = self.function
        return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__qualname__)}"

    def __stable__(self) -> str:
        leaves = [repr(leaf) if isinstance(leaf, _BY_VALUE) else f"#{id(leaf)}" for leaf in self.leaves]
        structure = f"{self.structure!r}#{hash(self.structure)}"  # two keys may have one hash, and two classes one name
        return f"{self.name}#{identity(self.function)}#{structure}({leaves}) -> {self.outcome!r}{self.ignored or ''}"

    @functools.cached_property
    def _number(self) -> type | None:
        """The type of the number that comes back, where numbers are given one by one: none is changed, kept or shared,
        so that nobody need look. None where the call is another one."""
        args, kwargs = self.structure.children
        told = any(type(leaf) not in NUMBERS and (type(leaf) is not Hole or leaf.is_array) for leaf in self.leaves)
        if told or kwargs.children or any(child is not LEAF for child in args.children) or self.ignored:
            return None
        if looks_back(self.function):
            return None
        kind = self.outcome.leaves[0] if self.outcome.structure is LEAF else None
        if self.function is warnings.warn or kind is None or kind.is_array:
            return None
        return type(kind.dtype.type(0).item()) if kind.weak else kind.dtype.type

    @functools.cached_property
    def _plainly(self) -> Callable[..., Any]:
        """The function as it is called; Python's functions of numbers call nothing of the user's."""
        function = self.function
        known = type(function) is types.BuiltinFunctionType and function.__module__ in ("math", "cmath")
        return function if known and self._number is not None else plainly(function)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __call__(self, log: list[Made], *arrays: Any) -> tuple[Any, ...]:
        """Make the call on copies of the arrays; what it leaves in them is part of the result."""
        if (number := self._number) is not None:
            given = [_number_of(arrays[leaf.index]) if type(leaf) is Hole else leaf for leaf in self.leaves]
            try:
                result = self._plainly(*given)
            except Exception as error:
                log.append(Made(self.function, None, error, given, True))
                raise
            log.append(Made(self.function, result, None, given, True))
            if type(result) is not number or not is_short(result):
                raise self._changed(_apart_outcome(result, given, given))
            return np.True_, result
        before = [leaf.of(arrays) if isinstance(leaf, Hole | Told) else leaf for leaf in self.leaves]
        given = [_given(value, leaf) for value, leaf in zip(before, self.leaves, strict=True)]
        args, kwargs = unflatten(self.structure, given)
        function = self.function
        if function is warnings.warn:
            function = functools.partial(warn, (*self.lines, *lines()))
        elif looks_back(function):
            function = plainly(called_from(self.lines, function))
        else:
            function = self._plainly
        try:
            with _ignoring(self.ignored):
                result = function(*args, **kwargs)
        except Exception as error:
            log.append(Made(self.function, None, error, given, self._is_same(args, kwargs, given)))
            raise
        apart = self._is_same(args, kwargs, given) and _is_apart(result, (args, kwargs))
        log.append(Made(self.function, result, None, given, apart))
        found = _apart_outcome(result, before, given) if apart else None
        if not self.outcome.covers(found):
            raise self._changed(found)
        parts = [leaf.copy() if isinstance(leaf, np.ndarray) else leaf for leaf in flatten(result)[0]]
        parts = [part for part, leaf in zip(parts, self.outcome.leaves, strict=True) if leaf is not None]
        return (np.True_, *parts, *(given[k] for k in self.outcome.written))

    def _changed(self, found: Outcome | None) -> ChangedResult:
        text = f"{self.name} returned {describe(found)}; it returned {describe(self.outcome)} before"
        return ChangedResult(text, self.function)

    def _is_same(self, args: Any, kwargs: Any, given: list[Any]) -> bool:
        """Do the arguments hold what they held?"""
        now, structure = flatten((args, kwargs))
        return structure == self.structure and all(a is b for a, b in zip(now, given, strict=True))


@contextlib.contextmanager
def _ignoring(ignored: Sequence[tuple[str, type[Warning]]]) -> Iterator[None]:
    """Without these warnings."""
    if not ignored:
        yield
        return
    with warnings.catch_warnings():
        for text, category in ignored:
            warnings.filterwarnings("ignore", text, category)
        yield


@dataclass(frozen=True)
class Hole:
    """The place of a value of the run among the arguments: whether it is an array, and in which order (C or F)."""

    index: int
    order: Any = "C"
    is_array: bool = True

    def of(self, arrays: Sequence[Any]) -> Any:
        return arrays[self.index]


@dataclass(frozen=True)
class Told:
    """The place of a text among the arguments, with values of the run in it: the first of them, and the text."""

    index: int
    text: Text

    def of(self, arrays: Sequence[Any]) -> str:
        return self.text.fill(iter(arrays[self.index :]))


NUMBERS = frozenset((*PYTHON_SCALARS, *(np.dtype(code).type for code in "?bhilqBHILQefdFD")))
_BY_VALUE = (*PYTHON_SCALARS, str, bytes, type(None), np.generic, np.dtype, Hole, Told)


def identity(function: Any) -> Any:
    """What makes two calls calls of the same function."""
    bound = isinstance(function, functools.partial) and hasattr(function, "__func__")  # a futurized method
    if bound or type(function) is types.MethodType:
        return id(function.__func__), id(function.__self__)
    owner = getattr(function, "__self__", None)
    if isinstance(function, types.BuiltinMethodType) and not isinstance(owner, types.ModuleType | None):
        return function.__name__, id(owner)
    return id(function)


def is_short(value: Any) -> bool:
    """Is it no int of Python's that 64 bits do not hold?"""
    return type(value) is not int or -(1 << 63) <= value < 1 << 63


def _number_of(value: Any) -> Any:
    """The number that a run holds in either form."""
    return value[()] if type(value) is np.ndarray else value


def _given(value: Any, leaf: Any) -> Any:
    """What the call gets: a copy that it may keep and change. A run holds what is 0-dimensional in either form."""
    if not isinstance(leaf, Hole) or not isinstance(value, np.ndarray | np.generic):
        return value
    array = np.array(value, order=leaf.order)
    return array if leaf.is_array else array[()]


def outcome_of(result: Any, given: Any, before: Sequence[Any], after: Sequence[Any]) -> Outcome | None:
    """What a call gave back, for what it was given, and the leaves of that before it and after it.

    None for what a tree cannot hold: objects and texts, arrays that share memory with arguments or that somebody else
    still refers to, read-only arrays, and lists, dicts and dataclasses that were given or stand in two places.
    """
    return _apart_outcome(result, before, after) if _is_apart(result, given) else None


def _apart_outcome(result: Any, before: Sequence[Any], after: Sequence[Any]) -> Outcome | None:
    """The same of a result that is apart from what the call was given."""
    leaves, structure = flatten(result)
    if structure is not LEAF:
        own = [id(each) for each in containers(result)]
        if len(set(own)) < len(own):
            return None
    kinds: list[Leaf | None] = []
    for leaf in leaves:
        if leaf is None:
            kinds.append(None)
            continue
        if type(leaf) not in PYTHON_SCALARS and not isinstance(leaf, np.generic) and type(leaf) is not np.ndarray:
            return None
        array = np.asarray(leaf)
        if array.dtype.kind not in "biufc" or not array.dtype.isnative:
            return None
        is_array = isinstance(leaf, np.ndarray)
        if is_array and not leaf.flags.writeable:
            return None
        weak = type(leaf) in PYTHON_SCALARS
        if not is_short(leaf):
            return None
        order = "C" if array.flags.c_contiguous else "F" if array.flags.f_contiguous else None
        kinds.append(Leaf(array.dtype, array.ndim, is_array, weak, order))
    if any(_shares(a, b) for k, a in enumerate(leaves) for b in leaves[:k]):
        return None
    written = tuple(k for k, (a, b) in enumerate(zip(before, after, strict=True)) if not _same_bits(a, b))
    return Outcome(structure, tuple(kinds), written)


def _is_apart(result: Any, given: Any) -> bool:
    """Is nothing in a result an object that a call was given, or memory of such an array?"""
    leaves, structure = flatten(result)
    if structure is not LEAF:
        own = {id(each) for each in containers(result)}
        if own and not own.isdisjoint(map(id, containers(given))):
            return False
    arrays = [leaf for leaf in leaves if isinstance(leaf, np.ndarray)]
    return not arrays or not any(_shares(a, b) for b in flatten(given)[0] for a in arrays)


def _shares(a: Any, b: Any) -> bool:
    return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.may_share_memory(a, b)


def _same_bits(a: Any, b: Any) -> bool:
    if not isinstance(a, np.ndarray):
        return True
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def describe(outcome: Outcome | None) -> str:
    """An outcome in words."""
    if outcome is None:
        return "what a tree cannot hold"
    parts = ["None" if leaf is None else repr(leaf.aval(0)) for leaf in outcome.leaves]
    wrote = f" and wrote into argument {', '.join(map(str, outcome.written))}" if outcome.written else ""
    return f"({', '.join(parts)}){wrote}"


def has_fragments(graph: Graph) -> bool:
    """Are there fragments in a graph, or in those inside it?"""
    inner = (value for node in graph.nodes for value in node.attrs.values() if isinstance(value, Graph))
    return any(node.op == "fragment" for node in graph.nodes) or any(map(has_fragments, inner))


def _fragment(log: Any, *inputs: Any, call: Call, count: int) -> tuple[Any, ...]:
    return call(log, *inputs[:count])


def _fragment_aval(log: Aval, *inputs: Aval, call: Call, count: int) -> tuple[Aval, ...]:
    avals = [Aval((), np.dtype(bool))]
    number = 0
    for leaf in call.outcome.leaves:
        if leaf is not None:
            avals.append(leaf.aval(number))
            number += leaf.ndim
    written = [inputs[call.leaves[k].index] for k in call.outcome.written]
    return (*avals, *(Aval(aval.shape, aval.dtype) for aval in written))


op("fragment", _fragment, aval=_fragment_aval, effect=True, acts=True, fails=True)
