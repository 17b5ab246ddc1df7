"""Derivatives of functions that are made anew in every round of a loop: ``fx.grad(lambda w: loss(w, x, y))(w)``.

Such a lambda or ``def`` is another object in every round, and the same function: its code, and the variables around it,
are those of the round before. What the transform makes of it is made once, for as long as the frame lives that has the
variables: afterwards nothing holds what was in them.
"""

from __future__ import annotations

import functools
import gc
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator
from sys import getrefcount
from typing import Any

from futurex.frontend import forked

HOLDING = 8
"""Derivatives of functions of frames that go on."""
_MOST = 20000
"""Things that are looked at to find out who has the variables of a frame."""
_OPEN = frozenset({tuple, list, dict, OrderedDict, functools.partial, types.CellType, types.MethodType})
_LIBRARY = __name__.partition(".")[0] + "."


class Alike:
    """A function, equal to those that are the same but for their identity."""

    __slots__ = ("_hash", "function")

    def __init__(self, function: types.FunctionType) -> None:
        self.function = function
        self._hash = hash((id(function.__code__), id(function.__globals__), *map(id, function.__closure__ or ())))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Alike):
            return NotImplemented
        one, two = self.function, other.function
        return one is two or (
            one.__code__ is two.__code__ and one.__globals__ is two.__globals__
            and not (one.__dict__ or two.__dict__) and one.__qualname__ == two.__qualname__
            and _same(one.__closure__, two.__closure__) and _same(one.__defaults__, two.__defaults__)
            and _same_names(one.__kwdefaults__, two.__kwdefaults__)
            and _same_names(one.__annotations__, two.__annotations__)
        )  # fmt: skip


def _same(one: tuple[Any, ...] | None, two: tuple[Any, ...] | None) -> bool:
    return len(one or ()) == len(two or ()) and all(a is b for a, b in zip(one or (), two or (), strict=True))


def _same_names(one: dict[str, Any] | None, two: dict[str, Any] | None) -> bool:
    return _same(tuple(one or ()), tuple(two or ())) and _same(
        tuple((one or {}).values()), tuple((two or {}).values())
    )


class Frames:
    """What was made of functions that hold variables of a frame, those used last."""

    def __init__(self) -> None:
        self._made: OrderedDict[Any, tuple[Alike, Any]] = OrderedDict()
        self._lock = forked.lock()

    def made(self, alike: Alike, others: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What ``make`` has given for such a function and ``others``, or gives now."""
        key = alike, others, tuple(map(type, others))
        with self._lock:
            if key in self._made:
                self._made.move_to_end(key)
                return self._made[key][1]
        self.forget()
        new = make()
        if gc.callbacks.count(self._collected) == 0:
            gc.callbacks.append(self._collected)
        with self._lock:
            self._made[key] = alike, new
            while len(self._made) > HOLDING:
                self._made.popitem(last=False)
        return new

    def forget(self) -> None:
        """Give up what was made of functions of frames that are gone."""
        if self._lock._is_owned() or not self._lock.acquire(blocking=False):
            return  # the garbage collector asks in the middle of another question
        try:
            gone = [key for key, (alike, new) in self._made.items() if _alone(alike, [key, alike, new])]
            dropped = [self._made.pop(key) for key in gone]
        finally:
            self._lock.release()
        del dropped

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2 and self._made:
            self.forget()


def _alone(alike: Alike, roots: list[Any]) -> bool:
    """Has nobody the function but what belongs to these things, nor one of its variables? A frame has them all."""
    function = alike.function
    sought = {id(each): each for each in (function, *(function.__closure__ or ()))}
    counts = dict.fromkeys(sought, 0)
    seen, todo = set(map(id, roots)), [*roots]
    while todo and len(seen) < _MOST:
        for each in _parts(todo.pop()):
            place = id(each)
            if place in sought:
                counts[place] += 1
            if place not in seen:
                seen.add(place)
                if place == id(function) or (place not in sought and _is_open(type(each))):
                    todo.append(each)
    own, *others = (getrefcount(sought[place]) - 2 - count for place, count in counts.items())
    return own <= 1 and min(others) <= 0  # this call has a name for the function


def _parts(holder: Any) -> Iterator[Any]:
    if type(holder) is types.FunctionType:  # not the names of its module
        yield from (holder.__closure__, holder.__defaults__, holder.__kwdefaults__, holder.__dict__)
    else:
        yield from gc.get_referents(holder)


def _is_open(kind: Any) -> bool:
    return kind in _OPEN or kind is types.FunctionType or str(kind.__module__).startswith(_LIBRARY)
