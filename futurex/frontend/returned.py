"""Plain calls of one kind: one function, written for what they return, makes the call and puts arrays into futures.

It looks no more than once at each array, and hands everything that is another than expected to ``otherwise``.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import countOf
from sys import getrefcount
from typing import Any

import numpy as np

from futurex.frontend.array import Array, numbers
from futurex.frontend.nest_texts import Unwritten, put_together, taken_apart
from futurex.runtime.futures import Done
from futurex.tree.aval import Aval
from futurex.tree.pytree import LEAF, Structure

Call = Callable[[Callable[..., Any], tuple[Any, ...], Any], Any]
Otherwise = Callable[[list[Any], tuple[Any, ...], Any], Any]
"""Takes a list that alone holds what the call returned, and the arguments."""
_LONGEST = 1000
"""Leaves of a result for which such a function is written."""
_SIZES = {bool: "", float: "", complex: "", int: " and -0x8000000000000000 <= {} <= 0x7fffffffffffffff"}
"""Python's numbers, and the test whether one is as wide as a traced one."""


UNFIT = object()


class Looking(ABC):
    """A leaf for which there is no short test."""

    @abstractmethod
    def fit(self, leaf: Any) -> Any:
        """What the call returns for a leaf of a plain call; UNFIT for one of another kind."""


class Several(Looking):
    """A leaf that is one of several things: one of these ``values``, or a number or a new array like these, which a
    call returns in a future. ``passed``: or an array that somebody else has, which comes back as it is."""

    def __init__(self, values: Sequence[Any], avals: Sequence[tuple[Aval, bool]], *, passed: bool = False) -> None:
        self._values = [(type(value), value) for value in values]
        self._numbers = {kind_of(aval): aval for aval, is_array in avals if not is_array}
        self._arrays = [aval for aval, is_array in avals if is_array]
        self.passed = passed

    def fit(self, leaf: Any) -> Any:
        for kind, value in self._values:
            if type(leaf) is kind and repr(leaf) == repr(value):
                return leaf
        aval = self._numbers.get(type(leaf))
        if aval is None or not fits_in(aval, (leaf,)):
            return UNFIT
        return Array(leaf, aval, None, False)

    def made(self, array: np.ndarray) -> Any:
        """What the call returns for an array that nobody else has."""
        for aval in self._arrays:
            if array.dtype is aval.dtype and aval.static and array.shape == aval.shape:
                return Array(Done(array), aval, None, True)
        return UNFIT


def kind_of(aval: Aval) -> type:
    """The type of a number."""
    return type(aval.dtype.type(0).item()) if aval.weak else aval.dtype.type


def fits_in(aval: Aval, values: Sequence[Any]) -> bool:
    """Are these numbers, which are of its type, as wide as traced ones?"""
    return not (aval.weak and aval.dtype.kind == "i" and values) or -(2**63) <= min(values) <= max(values) < 2**63


class Row(Looking):
    """A list or tuple, however long, that nobody else has, of entries of these types: NumPy's numbers of one kind,
    which are futures then, or what stays as it is."""

    def __init__(self, kind: type, types: frozenset[type], aval: Aval | None) -> None:
        self._kind, self._types, self._aval = kind, types, aval
        self._one = next(iter(types))

    def fit(self, leaf: Any) -> Any:
        row: Any = leaf
        if type(leaf) is not self._kind:
            return UNFIT
        if countOf(map(type, row), self._one) < len(row) and not self._types.issuperset(map(type, row)):
            return UNFIT
        return leaf if self._aval is None else self._kind(numbers(row, self._aval))


@dataclass(frozen=True)
class Part:
    """A new array, or a view of it, of which a call leaves several: those with one number share a future. What has one
    ``name`` is one object."""

    number: int
    aval: Aval
    viewed: Callable[[Any], Any] | None
    name: Any


class Shared:
    """A leaf that somebody else refers to, or to whose array: it comes back as it is, as long as that is so."""


Kind = tuple[Aval, bool] | type | Looking | Part | Shared


_FEWEST = 32
"""Entries of a list or tuple that are looked at all at once."""


def with_rows(structure: Structure, kinds: Iterable[Kind]) -> tuple[Structure, list[Kind]]:
    """The same with a Row for each long list or tuple whose entries come back alike."""
    found: list[Kind] = []
    return _with_rows(structure, iter(kinds), found), found


def _with_rows(nest: Structure, kinds: Iterator[Kind], found: list[Kind]) -> Structure:
    if nest.kind is None:
        found.append(next(kinds))
        return nest
    is_flat = nest.kind in (list, tuple) and all(child.kind is None for child in nest.children)
    if not is_flat or len(nest.children) < _FEWEST:
        return Structure(nest.kind, nest.keys, tuple(_with_rows(child, kinds, found) for child in nest.children))
    entries = list(itertools.islice(kinds, len(nest.children)))
    row = _row(nest.kind, entries)
    found += entries if row is None else [row]
    return nest if row is None else LEAF


def _row(kind: type, entries: Sequence[Kind]) -> Row | None:
    """Entries of these kinds as one; None where they are of several."""
    types = frozenset(each for each in entries if isinstance(each, type))
    if types and all(isinstance(each, type) for each in entries):
        return Row(kind, types, None)
    first = entries[0]
    if isinstance(first, tuple) and not first[1] and all(each == first for each in entries):
        return Row(kind, frozenset({first[0].dtype.type}), first[0])
    return None


def written_call(structure: Structure, kinds: Sequence[Kind], otherwise: Otherwise) -> Call:
    """``call(function, args, kwargs)``: what the function returns, in futures.

    ``kinds``: of each leaf of the result, its abstract value and whether it is an array, or the type of what stays as
    it is, ``object`` where it may be anything. Arrays are those that nobody else refers to, and views of such. Raises
    Unwritten.
    """
    if len(kinds) > _LONGEST:
        raise Unwritten
    writer = _Writer(kinds)
    made = writer.nest(structure, "result")
    writer.join()
    names = [*writer.names, "result"]
    text = [
        "def call(function, args, kwargs):",
        " result = function(*args, **kwargs)",
        " while True:",
        *(f"  {line}" for line in [*writer.lines, *writer.made, *writer.filled]),
        f"  return {made}",
        " box = [result]",
        f" {' = '.join(names)} = None",
        " return otherwise(box, args, kwargs)",
    ]
    known = {**writer.known, "otherwise": otherwise}
    exec(compile("\n".join(text), __file__, "exec"), known)
    return known["call"]


class _Writer:
    """Writes the tests of a result, one a line, and the nest that is returned."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self.known: dict[str, Any] = {
            "Array": Array, "Aval": Aval, "Done": Done, "UNFIT": UNFIT, "ndarray": np.ndarray, "owns": owns,
            "refs": getrefcount, "set": object.__setattr__,
        }  # fmt: skip
        self.lines: list[str] = []
        self.made: list[str] = []  # where all is as expected: futures that several leaves share
        self.filled: list[str] = []  # and what is put into dicts and dataclasses
        self.names: list[str] = []
        self._kinds = iter(kinds)
        self._parts: dict[int, dict[Any, tuple[str, str, Part, int]]] = {}

    def nest(self, structure: Structure, source: str) -> str:
        """Writes the tests of what ``source`` gives; returns the text of it in futures."""
        name = self._name()
        self.lines.append(f"{name} = {source}")
        return self._tested(structure, name)

    def _tested(self, structure: Structure, name: str) -> str:
        if structure.kind is None:
            return self._leaf(name, next(self._kinds))
        kind, parts = structure.kind.__name__, [self._name() for _ in structure.children]
        plain, source = structure.kind in (tuple, list, dict), f"{name}{'.values()' if structure.kind is dict else ''}"
        if plain:
            of_keys = f"tuple({name}) == {self._constant(structure.keys)}"
            self._unless(f"type({name}) is {kind} and {of_keys if kind == 'dict' else f'len({name}) == {len(parts)}'}")
        else:
            test, source = taken_apart(structure, name, self._constant)
            self._unless(test)
        self._unless(f"refs({name}) == {_ALONE}")
        if parts:
            self.lines.append(f"{', '.join(parts)}, = {source}")
        inner = [self._tested(child, part) for child, part in zip(structure.children, parts, strict=True)]
        is_dict = kind == "dict"
        if is_dict or not (plain or issubclass(structure.kind, tuple)):  # which nobody else has
            for key, made, part in zip(structure.keys, inner, parts, strict=True):
                if made != part:
                    place = self._constant(key)
                    self.filled.append(f"{name}[{place}] = {made}" if is_dict else f"set({name}, {place}, {made})")
            return name
        if not plain:
            return put_together(structure, inner, self._constant)
        return f"[{', '.join(inner)}]" if kind == "list" else f"({''.join(f'{each}, ' for each in inner)})"

    def join(self) -> None:
        """Writes the tests of arrays and their views that are left together, and the future that they share."""
        for parts in self._parts.values():
            whole, made, of, often = next(each for each in parts.values() if each[2].viewed is None)
            views = [each for each in parts.values() if each[2].viewed is not None]
            base, future = self._name(), self._name()
            self.lines.append(f"{base} = {whole} if {whole}.base is None else {whole}.base")
            self._unless(f"owns({base})")
            more = 2 * often + len(views)
            own = f"refs({base}) == {_ALONE - 1 + more}"
            other = f"refs({whole}) == {_ALONE - 2 + 2 * often} and refs({base}) == {_ALONE_BASE + 1 + len(views)}"
            self._unless(f"({own} if {base} is {whole} else {other})")
            self.made.append(f"{future} = Done({whole})")
            self.made.append(f"{made} = Array({future}, {self._constant(of.aval)}, None, True)")
            for name, made, of, often in views:
                self._unless(f"{name}.base is {base} and refs({name}) == {_ALONE - 2 + 2 * often}")
                aval, viewed = self._constant(of.aval), self._constant(of.viewed)
                self.made.append(f"{made} = Array({future}, {aval}, {viewed}, True)")

    def _part(self, name: str, kind: Part) -> str:
        """Notes one of several arrays that are left together; what is left twice is tested to be one object."""
        parts = self._parts.setdefault(kind.number, {})
        if kind.name in parts:
            first, made, of, often = parts[kind.name]
            self._unless(f"{name} is {first}")
            parts[kind.name] = first, made, of, often + 1
            return made
        made, aval = self._name(), kind.aval
        fits = f"{name}.dtype is {self._constant(aval.dtype)} and {name}.shape == {self._constant(aval.shape)}"
        self._unless(f"type({name}) is ndarray and {fits}")
        parts[kind.name] = name, made, kind, 1
        return made

    def _leaf(self, name: str, kind: Kind) -> str:
        if kind is object:
            return name
        if isinstance(kind, Part):
            return self._part(name, kind)
        if isinstance(kind, Looking):
            made, looking = self._name(), self._constant(kind)
            fit = f"{looking}.fit({name})"
            if isinstance(kind, Several):
                passed = f"{name} if {_shared(name)} else UNFIT" if kind.passed else "UNFIT"
                array = f"{looking}.made({name}) if refs({name}) == {_ALONE} and {_nobodys(name)} else {passed}"
                fit = f"{fit} if type({name}) is not ndarray else {array}"
            if isinstance(kind, Row):
                self._unless(f"refs({name}) == {_ALONE}")
            self.lines.append(f"{made} = {fit}")
            self._unless(f"{made} is not UNFIT")
            return made
        if isinstance(kind, Shared):
            self._unless(_shared(name))
            return name
        if isinstance(kind, type):
            self._unless(f"type({name}) is {self._constant(kind)}")
            return name
        aval, is_array = kind
        value, dtype = self._constant(aval), self._constant(aval.dtype)
        if is_array:
            self._unless(f"type({name}) is ndarray and {name}.dtype is {dtype} and refs({name}) == {_ALONE}")
            self._unless(_nobodys(name))
            if aval.static:
                self._unless(f"{name}.shape == {self._constant(aval.shape)}")
                return f"Array(Done({name}), {value}, None, True)"
            self._unless(f"{name}.ndim == {aval.ndim}")
            return f"Array(Done({name}), Aval({name}.shape, {dtype}), None, True)"
        if aval.weak:
            number = next((each for each in _SIZES if np.dtype(each) == aval.dtype), None)
            if number is None:
                raise Unwritten
            self._unless(f"type({name}) is {number.__name__}{_SIZES[number].format(name)}")
        else:
            self._unless(f"type({name}) is {self._constant(aval.dtype.type)} and {name}.dtype is {dtype}")
        return f"Array({name}, {value}, None, False)"

    def _unless(self, test: str) -> None:
        self.lines.append(f"if not ({test}): break")

    def _name(self) -> str:
        self.names.append(f"v{len(self.names)}")
        return self.names[-1]

    def _constant(self, value: Any) -> str:
        name = f"c{len(self.known)}"
        self.known[name] = value
        return name


def _nobodys(name: str) -> str:
    """The test whether what has this name is no view of what somebody else has."""
    return f"({name}.base is None or (refs({name}.base) == {_ALONE_BASE} and owns({name}.base)))"


def _shared(name: str) -> str:
    """The test whether somebody else has what has this name, or what it is a view of."""
    viewed = f"isinstance({name}, ndarray) and {name}.base is not None and refs({name}.base) > {_ALONE_BASE}"
    return f"(refs({name}) > {_ALONE} or ({viewed}))"


def owns(base: Any) -> bool:
    """Does an array hold its elements itself? A view of one that nobody else refers to is nobody else's, either."""
    return type(base) is np.ndarray and base.flags.owndata


def _alone() -> tuple[int, int]:
    """References to a view that a result, a name and the function that counts them hold, and to its base."""
    result = (np.empty(2)[:1],)
    (first,) = result
    return getrefcount(first), getrefcount(first.base)


_ALONE, _ALONE_BASE = _alone()
