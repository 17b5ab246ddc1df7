"""Derivatives of functions that are made anew in every round of a loop: ``fx.grad(lambda w: loss(w, x, y))(w)``.

Such a lambda or ``def`` is another object in every round, and the same function: its code, and the variables around it,
are those of the round before. What the transform makes of it is made once, for as long as the frame lives that has the
variables: afterwards nothing holds what was in them. In another frame, as of a method that is called again, it is the
same code with other variables: such functions share one derivative, which has these variables for the time of a call.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import threading
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator
from sys import getrefcount
from typing import Any

from futurex.frontend import forked

HOLDING = 8
"""Derivatives of functions of frames that go on."""
SHARING = 32
"""Texts whose functions share a derivative."""
IN_VAIN = 4
"""Calls in a row that were traced anew, each for other variables, after which functions of that text do not share."""
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
        return one is two or (_same(one.__closure__, two.__closure__) and _of_one_text(one, two))


class _Kin(Alike):
    """A function, equal to those that differ from it in the variables around them alone."""

    __slots__ = ()

    def __init__(self, function: types.FunctionType) -> None:
        self.function = function
        self._hash = hash((id(function.__code__), id(function.__globals__)))

    __hash__ = Alike.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Kin) and _of_one_text(self.function, other.function)


def _of_one_text(one: types.FunctionType, two: types.FunctionType) -> bool:
    return (
        one.__code__ is two.__code__ and one.__globals__ is two.__globals__
        and not (one.__dict__ or two.__dict__) and one.__qualname__ == two.__qualname__
        and _same(one.__defaults__, two.__defaults__) and _same_names(one.__kwdefaults__, two.__kwdefaults__)
        and _same_names(one.__annotations__, two.__annotations__)
    )  # fmt: skip


def _same(one: tuple[Any, ...] | None, two: tuple[Any, ...] | None) -> bool:
    return len(one or ()) == len(two or ()) and all(a is b for a, b in zip(one or (), two or (), strict=True))


def _same_names(one: dict[str, Any] | None, two: dict[str, Any] | None) -> bool:
    return _same(tuple(one or ()), tuple(two or ())) and _same(
        tuple((one or {}).values()), tuple((two or {}).values())
    )


class Shared:
    """One derivative for all functions of one text. Its function has variables of its own, which are those of one of
    the functions during a call, and empty between calls."""

    def __init__(self, function: types.FunctionType) -> None:
        self.cells = tuple(types.CellType() for _ in function.__closure__ or ())
        self.function = types.FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__, self.cells
        )
        for name in ("__module__", "__doc__", "__annotations__", "__kwdefaults__", "__qualname__"):
            setattr(self.function, name, getattr(function, name))
        self.derivative: Any = None
        self.over = False  # was it traced anew for every function?
        self._idle = False
        self._lock = threading.Lock()
        self._last: Any = None
        self._in_vain = 0

    def borrow(self, function: types.FunctionType) -> bool:
        """Take the variables of a function for a call; False where a call is under way, or one of them has no value."""
        if self.over or not self._lock.acquire(blocking=False):
            return False
        if self.derivative is None:
            self._lock.release()
            return False
        try:
            for own, cell in zip(self.cells, function.__closure__ or (), strict=True):
                own.cell_contents = cell.cell_contents
        except ValueError:
            self._empty()
            self._lock.release()
            return False
        self._last, self._idle = self.derivative._brake.last, False
        return True

    def rest(self) -> None:
        """Give up the derivative if there was no call since this was asked last: traces hold objects that they are for.
        """
        if self._idle and self._lock.acquire(blocking=False):
            self.derivative = None
            self._lock.release()
        self._idle = True

    def give_back(self) -> None:
        """The call is over."""
        self._empty()
        last = self.derivative._brake.last
        self._in_vain = self._in_vain + 1 if last is not self._last else 0
        self._last = None
        if self._in_vain > IN_VAIN:
            self.over, self.derivative = True, None
        self._lock.release()

    def _empty(self) -> None:
        for own in self.cells:
            with contextlib.suppress(ValueError):
                del own.cell_contents


class Frames:
    """What was made of functions that hold variables of a frame, those used last."""

    def __init__(self) -> None:
        self._made: OrderedDict[Any, tuple[Alike, Any]] = OrderedDict()
        self._shared: OrderedDict[Any, Shared] = OrderedDict()
        self._lock = forked.lock()

    def made(
        self, alike: Alike, others: tuple[Any, ...], make: Callable[[Any], Any],
        borrowing: Callable[[Shared], Any] | None,
    ) -> Any:  # fmt: skip
        """What ``make`` has given for such a function and ``others``, or gives now; ``borrowing`` where another one of
        the same text was there before."""
        kinds = others, tuple(map(type, others))
        key = alike, *kinds
        with self._lock:
            if key in self._made:
                self._made.move_to_end(key)
                return self._made[key][1]
            shared = self._of_text(alike.function, kinds) if borrowing is not None else None
            if shared is not None and not shared.over:
                if shared.derivative is None:
                    shared.derivative = make(shared.function)
                assert borrowing is not None
                return borrowing(shared)
        self.forget()
        new = make(alike.function)
        if gc.callbacks.count(self._collected) == 0:
            gc.callbacks.append(self._collected)
        with self._lock:
            self._made[key] = alike, new
            while len(self._made) > HOLDING:
                self._made.popitem(last=False)
        return new

    def _of_text(self, function: types.FunctionType, kinds: tuple[Any, ...]) -> Shared | None:
        """What functions of this text share; None for the first of them."""
        found = self._shared.get((_Kin(function), *kinds))
        if found is None:
            new = Shared(function)
            self._shared[(_Kin(new.function), *kinds)] = new
            while len(self._shared) > SHARING:
                self._shared.popitem(last=False)
        return found

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
        if phase == "start" and info["generation"] == 2:
            for shared in [*self._shared.values()]:
                shared.rest()
            if self._made:
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
