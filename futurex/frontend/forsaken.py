"""Traces of objects that nobody else has any more. A trace keeps the objects alive that it is for, with all that these
hold: a program that makes a model, uses it, forgets it and makes the next one would have the last 32 in memory."""

from __future__ import annotations

import contextlib
import functools
import gc
import types
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from sys import getrefcount
from typing import Any

import numpy as np

from futurex.frontend.held import Guard
from futurex.frontend.variants import Variant

SELDOM = 8
"""Where objects live on, traces are looked at whenever so many others were made, else at each."""
_BY_VALUE = (bool, int, str, bytes, np.dtype)
_OPEN = frozenset({
    tuple, list, dict, OrderedDict, functools.partial, types.CellType, types.MethodType, types.FunctionType,
})  # fmt: skip
_FRONTEND = __name__.rpartition(".")[0]
_MOST = 20000
"""Things that are looked at of the traces of one object."""
_functions: weakref.WeakSet[Any] = weakref.WeakSet()
_spared: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Objects whose traces were given up, and that somebody had after all, by identity: their classes are not asked."""


class Kinds(OrderedDict[Any, list[Variant]]):
    """The traces of a function, by the kind of call."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self._function = weakref.ref(function)
        self._turn = self._rest = self._in_vain = 0

    def forget(self) -> None:
        """Give up traces of objects that nobody else has: that of the last kind of calls, and of one other, are looked
        at when another trace is made."""
        self._rest -= 1
        if self._rest >= 0 or not _functions or (function := self._function()) is None:
            return
        keys = [key for key, known in self.items() if any(map(_identities, known))]
        self._turn += 1
        found = False
        for key in {len(keys) - 1, self._turn % len(keys)} if keys else ():
            for sought in map(_identities, self.get(keys[key], ())):
                found |= _give_up(sought, function)
        self._in_vain = 0 if found else self._in_vain + 1
        self._rest = min(self._in_vain, SELDOM - 1)

    def note(self, variant: Variant) -> None:
        """There is another trace: is it for an object?"""
        if _identities(variant) and (function := self._function()) is not None:
            _functions.add(function)


def _give_up(sought: set[tuple[type, int]], function: Any) -> bool:
    """Give up the traces of these objects, of all functions, if nothing else has one of them. Is it so?"""
    kinds = list(_kinds_of(sought))
    ways = {id(way): way for owner, _ in kinds for way in (owner._lane, *owner._lanes) if way is not None}
    roots = [each for owner, key in kinds for each in owner._variants.get(key, ())] + [*ways.values()]
    alone = _alone(roots, sought)
    if not alone:
        return False
    del roots, ways
    for owner, key in kinds:
        if owner is function or owner._lock.acquire(blocking=False):
            owner._brake.given_up(owner._variants.pop(key, ()))
            owner._lane, owner._lanes = None, ()
            if owner is not function:
                owner._lock.release()
    _spared.update({id(each): each for each in (found() for found in alone) if each is not None})
    return True


def _kinds_of(sought: set[tuple[type, int]]) -> Iterator[tuple[Any, Any]]:
    """The functions and kinds of calls with traces of these objects."""
    for function in list(_functions):
        for key, known in list(function._variants.items()):
            if any(not sought.isdisjoint(_identities(variant)) for variant in known):
                yield function, key


def _identities(variant: Variant) -> set[tuple[type, int]]:
    """What tells the objects apart that the trace is for: class and identity."""
    return {
        (key[0], key[1]) for key in variant.leaves
        if len(key) == 2 and type(key[1]) is int and not issubclass(key[0], _BY_VALUE)
    }  # fmt: skip


def _alone(roots: list[Any], sought: set[tuple[type, int]]) -> list[weakref.ref[Any]]:
    """Those of the objects that nobody has but what belongs to these traces."""
    found, alone = _held(roots, sought), list[weakref.ref[Any]]()
    while found:
        each, count = found.pop()
        with contextlib.suppress(TypeError):  # of a class with slots
            others = getrefcount(each) - 2 - count  # one is the name's, one the call's
            if others <= 0 and _spared.get(id(each)) is not each:
                alone.append(weakref.ref(each))
    return alone


def _held(roots: list[Any], sought: set[tuple[type, int]]) -> list[tuple[Any, int]]:
    """Those objects, and how often what belongs to the traces refers to them: nothing of the program's is looked into.
    What is not found there counts as somebody else's."""
    seen, todo, places = set(map(id, roots)), [*roots], {place for _, place in sought}
    found, counts = dict[int, Any](), dict[int, int]()
    while todo and len(seen) < _MOST:
        holder = todo.pop()
        for each in (holder.read, holder.value) if type(holder) is Guard else gc.get_referents(holder):
            place = id(each)
            if place in places and (type(each), place) in sought:
                found[place] = each
                counts[place] = counts.get(place, 0) + 1
            elif place not in seen:
                seen.add(place)
                kind: Any = type(each)
                if _is_open(kind) and not _is_of_module(each):
                    todo.append(each)
    return [(each, counts[place]) for place, each in found.items()]


def _is_open(kind: Any) -> bool:
    """Are things of this kind looked into where they belong to the traces? Other traces do not."""
    return kind in _OPEN or (kind is not Variant and str(kind.__module__).startswith(_FRONTEND))


def _is_of_module(value: Any) -> bool:
    """Is it the names of a module, or a function there?"""
    if type(value) is types.FunctionType:
        return "__name__" in value.__globals__ and not str(value.__module__).startswith(_FRONTEND)
    return type(value) is dict and "__name__" in value
