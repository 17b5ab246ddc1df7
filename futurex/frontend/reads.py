"""How a trace finds again what it took from outside: names of functions, closure variables, attributes.

Whether all of it is still the same is asked at every call, so the question is written out as one expression.
"""

from __future__ import annotations

import builtins
import functools
import keyword
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.frontend.standing import METHODS

_BUILTINS = vars(builtins)
_METHOD = "__func__", "__self__"
_OURS = "_fx_"  # what begins like this is no name of the user's
_MOST = 1000
"""Things from outside that are asked about in one expression."""


@dataclass(frozen=True, slots=True)
class GlobalName:
    """A name of a function's module, or of Python's."""

    scope: dict[str, Any]
    name: str

    def __call__(self) -> Any:
        return self.scope[self.name] if self.name in self.scope else _BUILTINS[self.name]


@dataclass(frozen=True, slots=True)
class ClosureName:
    """A variable of an enclosing function."""

    cell: types.CellType

    def __call__(self) -> Any:
        return self.cell.cell_contents


@dataclass(frozen=True, slots=True)
class EntryOf:
    """An entry of a list, tuple or dict from outside."""

    container: Callable[[], Any]
    key: Any

    def __call__(self) -> Any:
        return self.container()[self.key]


@dataclass(frozen=True, slots=True)
class IsSame:
    """Are two things from outside one?"""

    one: Callable[[], Any]
    other: Callable[[], Any]

    def __call__(self) -> bool:
        return self.one() is self.other()


@dataclass(frozen=True, slots=True)
class IsArray:
    """Is what was found outside still an array?"""

    place: Callable[[], Any]

    def __call__(self) -> bool:
        found = self.place()
        return isinstance(found, np.ndarray) or (hasattr(type(found), "__fx_future__") and found._is_array)


def attribute(owner: Any, name: str) -> Callable[[], Any]:
    """``owner.name``."""
    return functools.partial(getattr, owner, name)


Alike = tuple[str, tuple[Any, ...]]
"""The text of a test whether ``{now}`` is of some kind, and the values for the numbers in braces in it."""
NEVER = object()
"""What no read gives: the test of the kind alone tells."""


def unchanged(
    found: Iterable[tuple[Callable[[], Any] | None, Any, Alike | None]], otherwise: Callable[[], bool]
) -> Callable[[], bool]:
    """A function that is true where every read gives the very object that it gave, or one for which the test of its
    kind holds, and asks ``otherwise`` elsewhere.

    >>> scope = {"x": 1.5}
    >>> same = unchanged([(GlobalName(scope, "x"), scope["x"], None)], lambda: False)
    >>> same(), scope.update(x=2.5), same()
    (True, None, False)
    >>> one = IsSame(GlobalName(scope, "x"), GlobalName(scope, "y"))
    >>> scope["y"] = scope["x"]
    >>> same = unchanged([(one, True, None)], lambda: "asked anew")
    >>> same(), scope.update(y=3.5), same()
    (True, None, 'asked anew')
    """
    asked = [(read, value, alike) for read, value, alike in found if read is not None]
    scopes = {id(read.scope): read.scope for read, *_ in asked if type(read) is GlobalName}
    own = next(iter(scopes.values()), {})
    known: dict[str, Any] = {f"{_OURS}builtins": _BUILTINS, f"{_OURS}error": Exception, f"{_OURS}otherwise": otherwise}
    tests: dict[Any, str] = {}
    for read, value, alike in asked:
        if len(tests) > _MOST:
            return otherwise
        key, text = _written(read, value, known, own) or _called(read, known)
        if alike is not None:
            now, given = f"{_OURS}now", _expression(text)
            if given is None:
                return otherwise
            kind = alike[0].format(*(_constant(each, known) for each in alike[1]), now=now)
            text = f"(({now} := {given}) is {{}} or ({kind}))"
        tests.setdefault((*key, id(value), id(alike)), text.format(_constant(value, known)))
    lines = [f"def same({', '.join(known)}):", " try:", f"  if {' and '.join(tests.values()) or True}: return True"]
    made: dict[str, Any] = {}
    exec("\n".join([*lines, f" except {_OURS}error: pass", f" return {_OURS}otherwise()"]), made)
    return types.FunctionType(made["same"].__code__, own, "same", tuple(known.values()))


def _written(read: Any, value: Any, known: dict[str, Any], own: dict[str, Any]) -> tuple[tuple[Any, ...], str] | None:
    """What is read, and the test whether that is still ``{}``, which is the ``value``. Names of the scope ``own`` are
    names of the function itself, which the interpreter finds in a few nanoseconds. A bound method is made anew whenever
    somebody looks: those of one function and one object are the same."""
    if type(read) is GlobalName:
        scope, name = _constant(read.scope, known), read.name
        if read.scope is own and name.isidentifier() and not keyword.iskeyword(name) and not name.startswith(_OURS):
            return (scope, name), f"{name} is {{}}"
        if name in read.scope:
            return (scope, name), f"{scope}[{name!r}] is {{}}"
        return (scope, name), f"{name!r} not in {scope} and {_OURS}builtins[{name!r}] is {{}}"
    if type(read) is ClosureName:
        cell = _constant(read.cell, known)
        return (cell,), f"{cell}.cell_contents is {{}}"
    if type(read) is EntryOf:
        container = _read(read.container, known, own)
        if container is None:
            return None
        entry = _constant(read.key, known)
        return (*container[0], entry), f"{container[1]}[{entry}] is {{}}"
    if type(read) is IsSame:
        one, other = _read(read.one, known, own), _read(read.other, known, own)
        if one is None or other is None:
            return None
        return (*one[0], IsSame, *other[0]), f"({one[1]} is {other[1]}) is {{}}"
    if type(read) is functools.partial and read.func is getattr and len(read.args) == 2:
        owner, name = read.args
        if name.isidentifier() and not keyword.iskeyword(name) and not read.keywords:
            holder = _constant(owner, known)
            if type(value) in METHODS:
                kind, now = _constant(type(value), known), f"{_OURS}method"
                parts = (f"{now}.{part} is {_constant(getattr(value, part), known)}" for part in _METHOD)
                return (holder, name), f"type({now} := {holder}.{name}) is {kind} and {' and '.join(parts)}"
            return (holder, name), f"{holder}.{name} is {{}}"
    return None


def _called(read: Any, known: dict[str, Any]) -> tuple[tuple[Any, ...], str]:
    """The same of what is read in no way that can be written out."""
    name = _constant(read, known)
    return (name,), f"{name}() is {{}}"


def _read(read: Any, known: dict[str, Any], own: dict[str, Any]) -> tuple[tuple[Any, ...], str] | None:
    """What is read, and the expression that reads it."""
    written = _written(read, None, known, own)
    given = None if written is None else _expression(written[1])
    return None if written is None or given is None else (written[0], given)


def _expression(test: str) -> str | None:
    """What is read, of a test that asks that alone."""
    given = test.removesuffix(" is {}")
    return None if given == test or "{" in given or " and " in given else given


def _constant(value: Any, known: dict[str, Any]) -> str:
    name = f"{_OURS}{id(value)}"
    known[name] = value
    return name
