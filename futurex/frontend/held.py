"""What things from outside a function hold: lists, dicts and tuples, and the arrays and numbers in them.

Such an array is an input, read at every call where it was found: a step that leaves another one there (``self.cache =
x, z``) is not traced again. Lists and dicts are found in the same way, so that each call changes the one that is there.
Numbers are constants until they are known to change; then they are inputs, too.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from futurex.frontend.reads import EntryOf, IsSame
from futurex.tree.pytree import parts_of

NESTS = (list, tuple, dict, collections.OrderedDict)
_BUILT_IN = (list, tuple, dict)


def is_nest(kind: type) -> bool:
    """Are values of this kind what is in them? Not those of the user's classes, which may have attributes, too."""
    return kind in NESTS or (issubclass(kind, tuple) and hasattr(kind, "_fields") and not kind.__dictoffset__)


def is_array(value: Any) -> bool:
    """Is it an array that a trace reads anew at every call?"""
    return type(value) in (np.ndarray, np.memmap) or hasattr(type(value), "__fx_future__")


_LARGEST = 1 << 62  # an int that a plan takes


def can_be_input(value: Any) -> bool:
    """Is it a number that a trace may leave open?"""
    if type(value) is int:
        return -_LARGEST < value < _LARGEST
    if isinstance(value, np.generic):
        return value.dtype.kind in "iufc" and type(value) is value.dtype.type
    return type(value) is float


class The:
    """Stands for an object in a fingerprint: equal to what stands for the same one, which lives as long, so that none
    that comes later can lie where it lay."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is The and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


@dataclass(frozen=True)
class Guard:
    """A value outside the function that the trace depends on: how to read it again, and what it was."""

    name: str
    read: Callable[[], Any]
    value: Any
    expected: Any
    fixed: bool = False  # the value cannot change: the same object is the same value
    entries: tuple[Row, ...] | None = None  # of a nest of such values: what each list and dict in it held
    inputs: Mapping[Any, Any] = field(default_factory=dict)  # the numbers in it that may change, as fingerprints know

    def holds(self, fingerprint: Callable[..., Any]) -> bool:
        """Is the value still what it was?"""
        now = self.read()
        return (self.fixed and now is self.value) or self.allows(now, fingerprint)

    def allows(self, now: Any, fingerprint: Callable[..., Any]) -> bool:
        """Does the trace hold with this value?"""
        if self.holds_the_same(now):
            return True
        return not self._other_length(now) and bool(fingerprint(now, inputs=self.inputs) == self.expected)

    def _other_length(self, now: Any) -> bool:
        """Is it a nest with more or fewer entries? Of lists that grow from call to call nothing else is looked at."""
        inside = self.expected[-1]
        return type(now) in NESTS and type(inside) is tuple and len(inside) != len(now)

    def holds_the_same(self, now: Any) -> bool:
        """Is it the very nest, with the very things in it?"""
        if now is not self.value or self.entries is None:
            return False
        for nest, row in self.entries:
            if len(nest) != len(row) or not all(map(operator.is_, nest, row)):
                return False
            if type(nest) is dict and not all(map(operator.is_, nest.values(), row.values())):
                return False
        return True


Row = tuple[list[Any] | dict[Any, Any], Any]
"""A list or dict, and a copy of it."""


def rows_of(value: Any) -> Iterator[Row]:
    """The lists and dicts in a nest, itself among them; tuples between them cannot change."""
    if type(value) in (list, dict):
        yield value, value.copy()
    if type(value) in _BUILT_IN:
        for _, entry in entries(value):
            if type(entry) in _BUILT_IN:
                yield from rows_of(entry)


@dataclass(frozen=True)
class Held:
    """Something that is held, what to call it, and how it is found at every call."""

    value: Any
    name: str
    read: Callable[[], Any]
    key: Any

    def same(self, name: str, read: Callable[[], Any]) -> Guard:
        """That it is what is found under another name."""
        return Guard(f"{name} is {self.name}", IsSame(self.read, read), True, (bool, "True"), True)


class Holdings:
    """All that a trace found in things from outside, by identity."""

    def __init__(self) -> None:
        self._arrays: dict[int, list[Held]] = {}
        self.nests: dict[int, Held] = {}
        self.numbers: dict[Any, Held] = {}  # by the keys of their places
        self._entered: dict[int, Any] = {}  # nests that were entered into the trace, and what stands for them there

    def note(self, value: Any, name: str, read: Callable[[], Any], key: Any, guards: dict[Any, Guard]) -> None:
        """Look at what was found somewhere, and at what is in it. A nest of two names must go on to be one nest."""
        kind: Any = type(value)
        if is_array(value):
            self._arrays.setdefault(id(value), []).append(Held(value, name, read, key))
            return
        if can_be_input(value):
            self.numbers[key] = Held(value, name, read, key)
            return
        if not is_nest(kind) and parts_of(kind) is None:
            return
        known = self.nests.setdefault(id(value), Held(value, name, read, key))
        if known.key != key:
            guards["same", key] = known.same(name, read)
        elif is_nest(kind):
            for k, entry in entries(value):
                self.note(entry, name, EntryOf(read, k), (key, k), guards)

    def place_of(self, array: Any, guards: dict[Any, Guard]) -> tuple[Callable[[], Any] | None, Any, Guard | None]:
        """How an array is read, the key of its place, and the guard that it stays the same array.

        In several places it must go on to be one array, which may be another one at every call: a step keeps what it
        computed under two names of its cache.
        """
        found = self._arrays.get(id(array))
        if not found:
            return None, None, None
        first, *others = found
        for held in others:
            if held.key != first.key:
                guards["same", held.key] = first.same(held.name, held.read)
        return first.read, first.key, Guard(first.name, first.read, array, ("array", The(array)), True)

    def entered(self, value: Any) -> Any:
        """What stands in the trace for something from outside: a tuple with inputs in it for the tuple that is held."""
        return self._entered.get(id(value), value)

    def enter(self, value: Any, make: Callable[[Held], Any]) -> Any:
        """What ``make`` makes of a nest that was found, once: what is in it may have changed since."""
        if id(value) not in self._entered and id(value) in self.nests:
            held = self.nests[id(value)]
            made = self._entered[id(value)] = make(held)
            self.nests.setdefault(id(made), replace(held, value=made))
            self._entered[id(made)] = made
        return self.entered(value)

    def is_found(self, value: Any) -> bool:
        """Is it a list or dict that a run finds again, to change it? What an object has in its ``__dict__`` is the
        object's."""
        held = self.nests.get(id(value))
        return held is not None and not (isinstance(held.key, tuple) and held.key[-1] == "__dict__")

    def now(self) -> Iterator[Any]:
        """The lists, dicts and dataclasses that are found at this call."""
        return (held.read() for held in self.nests.values() if not isinstance(held.value, tuple))


def entries(value: Any) -> Iterator[tuple[Any, Any]]:
    """The entries of a nest, each with its key."""
    return iter(value.items()) if isinstance(value, dict) else enumerate(value)
