"""Calls as plain NumPy: futures among the arguments are waited for, everything else is what the caller gave."""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from futurex.frontend.array import Array
from futurex.frontend.nest_texts import Unwritten
from futurex.frontend.objects import renewed
from futurex.frontend.ownership import Looked, call_and_look
from futurex.frontend.returned import Call, Kind, Otherwise, Shared, owns, with_rows, written_call
from futurex.runtime.futures import Done
from futurex.tree.aval import Aval
from futurex.tree.pytree import attributes, flatten, opened, unflatten

_MOST_OTHERS = 3
"""Kinds of results beside the first one's for which there is a short way."""


def call_plainly(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``function(*args, **kwargs)`` with arrays for futures; containers that the function changes are the caller's."""
    if not any(map(_holds_futures, args)) and not any(map(_holds_futures, kwargs.values())):
        return function(*args, **kwargs)
    stand_ins = _StandIns()
    try:
        given = {name: stand_ins.of(value) for name, value in kwargs.items()}
        return stand_ins.replaced(function(*map(stand_ins.of, args), **given))
    finally:
        stand_ins.give_back()


def call_for_futures(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A plain call whose arrays and NumPy scalars come back as futures, as those of a staged call do.

    What anybody else refers to comes back as it is: an argument that is returned is the argument.
    """
    box = [call_plainly(function, args, kwargs)]
    kinds = _kinds_in(box[0])
    if kinds is not None and kinds <= _OF_PYTHON:
        return box[0]
    return as_futures(call_and_look(box.pop), args, kwargs)


class PlainCalls:
    """Plain calls of one kind; ``call(function, args, kwargs)`` is :func:`call_for_futures` of them.

    The first shows what is returned, and which short way there is for it; so do a few that return something else.
    """

    __slots__ = ("_others", "call")

    def __init__(self) -> None:
        self.call: Call = self._first
        self._others: tuple[Call, ...] = ()

    def _first(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        looked = call_and_look(lambda: call_plainly(function, args, kwargs))
        self.call = call_for_futures
        if not (any(map(_holds_futures, args)) or any(map(_holds_futures, kwargs.values()))):
            with contextlib.suppress(Unwritten):
                self.call = _written(looked, self._another)
        return as_futures(looked, args, kwargs)

    def _another(self, box: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the call returns of a result of another kind than the first one's, which the box alone holds."""
        for known in self._others:
            found = known(box.pop, (), {})
            if type(found) is not _Unfit:
                return found
            box = found.box
        looked = call_and_look(box.pop)
        if len(self._others) < _MOST_OTHERS:
            with contextlib.suppress(Unwritten):
                self._others = (*self._others, _written(looked, _Unfit))
        return as_futures(looked, args, kwargs)


class _Unfit:
    """A result of another kind, which the ``box`` alone holds."""

    __slots__ = ("box",)

    def __init__(self, box: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.box = box


def _written(looked: Looked, otherwise: Otherwise) -> Call:
    """The short way of results like this one. Raises Unwritten."""
    kinds = [_kind(leaf, own) for leaf, own in zip(looked.leaves, looked.alone, strict=True)]
    return written_call(*with_rows(looked.structure, kinds), otherwise)


def _kind(leaf: Any, own: bool) -> Kind:
    """How a leaf comes back: as a future, or as it is. Raises Unwritten where that is not certain for all like it."""
    if isinstance(leaf, np.ndarray):
        if not own:
            return Shared()
        if not (leaf.base is None or owns(leaf.base)) or type(_completed(leaf)) is not Array:
            raise Unwritten
        return Aval(leaf.shape, leaf.dtype), True
    if isinstance(leaf, np.generic) and type(_completed(leaf)) is Array:
        return Aval((), leaf.dtype), False
    return type(leaf) if opened(leaf) is None else Shared()


def as_futures(looked: Looked, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a plain call returned, in futures where nobody else holds the array."""
    leaves = looked.leaves
    completed = [
        _completed(leaf)
        if isinstance(leaf, np.generic)
        or (alone and (leaf.base is None or is_apart(leaf, _leaves_of((args, kwargs)))))
        else leaf
        for leaf, alone in zip(leaves, looked.alone, strict=True)
    ]  # fmt: skip
    if all(map(operator.is_, completed, leaves)):
        return looked.result
    return unflatten(looked.structure, completed)


def is_apart(array: Any, given: list[Any] | None) -> bool:
    """Does an array that nobody else holds share no memory with those ``given``? One that is no view never does.
    Of arguments that hold themselves nobody knows which arrays they hold."""
    if array.base is None:
        return True
    if given is None:
        return False
    return not any(isinstance(other, np.ndarray) and np.may_share_memory(array, other) for other in given)


def folded(array: np.ndarray) -> bool:
    """May elements of an array share memory with each other, as those of broadcast arrays and of windows do?"""
    if array.flags.forc or not array.size:
        return False
    reach = array.itemsize
    for stride, extent in sorted(zip(map(abs, array.strides), array.shape, strict=True)):
        if extent > 1 and stride < reach:
            return True
        reach += stride * (extent - 1)
    return False


def overlap(written: list[np.ndarray], leaves: list[Any], captured: list[Any]) -> bool:
    """Does one of these arrays share memory with another one among the arguments, or from outside?"""
    own = {id(leaf): leaf for leaf in leaves if isinstance(leaf, np.ndarray)}.values()
    arrays = [*own, *(array for array in captured if isinstance(array, np.ndarray))]
    holders = list(map(_holder, arrays))
    known: dict[int | None, int] = {} if None in holders else collections.Counter(holders)
    for target in written:
        mine = _holder(target)
        if known.get(mine) != 1:  # in a model of a hundred arrays of their own there is none to compare
            near = [other for other, its in zip(arrays, holders, strict=True) if mine is None or its in (mine, None)]
            if sum(np.may_share_memory(target, other) for other in near) > 1:
                return True
    return False


def _holder(array: np.ndarray) -> int | None:
    """Whose memory an array has: its own, or that of the array of which it is a view; None for anybody else's."""
    base = array if array.base is None else array.base
    return id(base) if type(base) is np.ndarray and base.base is None else None


_NO_FUTURES = frozenset({np.ndarray, bool, int, float, complex, str, type(None)})
_NESTS: dict[Any, Callable[[Any], Iterable[Any]]] = {list: iter, tuple: iter, dict: dict.values}
_OF_PYTHON = _NO_FUTURES.difference({np.ndarray}).union(_NESTS)
_DEEPEST, _WIDEST = 8, 100_000
"""Nests in each other that are looked at level by level, and entries of such a level: what holds itself has no end."""


def _holds_futures(value: Any) -> bool:
    if type(value) in _NO_FUTURES:
        return False
    kinds = _kinds_in(value)
    return Array in (set(map(type, _leaves_of(value) or ())) if kinds is None else kinds)


def _kinds_in(value: Any) -> set[Any] | None:
    """The types of all that a nest of lists, tuples and dicts holds, level by level; None for other nests, and for what
    may hold itself."""
    found, level = set[Any](), [value]
    for _ in range(_DEEPEST):
        kinds = set(map(type, level))
        found |= kinds
        nests = kinds - _NO_FUTURES - {Array}
        if not nests:
            return found
        if not nests <= _NESTS.keys() or len(level) > _WIDEST:
            return None
        level = [entry for each in level if type(each) in nests for entry in _NESTS[type(each)](each)]
    return None


def _leaves_of(value: Any) -> list[Any] | None:
    """The leaves of a nest; None for one that holds itself."""
    try:
        return flatten(value)[0]
    except RecursionError:
        return None


def _completed(value: Any) -> Any:
    """A future that is done; what no future array can be stays as it is."""
    kind, dtype = type(value), value.dtype
    if dtype.kind not in "biufc" or (kind is not np.ndarray and kind is not dtype.type):
        return value
    if kind is np.ndarray:
        return Array(Done(value), Aval(value.shape, dtype), None, True)
    return Array(value, _number(dtype), None, False)


@functools.lru_cache(maxsize=64)
def _number(dtype: Any) -> Aval:
    return Aval((), dtype)


class _StandIns:
    """Copies of containers in which arrays stand for futures; what changes in them is taken over afterwards."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Any, Any]] = []
        self.futures: dict[int, tuple[Any, Array]] = {}

    def of(self, value: Any) -> Any:
        """What stands for a value: itself, if there is no future in it."""
        if isinstance(value, Array):
            result = value.result()
            self.futures[id(result)] = result, value
            return result
        if Array not in set(map(type, flatten(value)[0])):
            return value
        if isinstance(value, tuple):
            parts = [self.of(entry) for entry in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        known = next((mine for theirs, mine in self.pairs if theirs is value), None)
        if known is not None:
            return known
        stand_in = copy.copy(value)
        self.pairs.append((value, stand_in))
        if isinstance(value, list):
            stand_in[:] = map(self.of, value)
        elif isinstance(value, dict):
            stand_in.update((key, self.of(entry)) for key, entry in value.items())
        else:
            for name in attributes(value):
                object.__setattr__(stand_in, name, self.of(getattr(value, name)))
        return stand_in

    def replaced(self, result: Any) -> Any:
        """What the function returned, with the caller's containers for their stand-ins."""
        for value, stand_in in self.pairs:
            if stand_in is result:
                return value
        return renewed(result, self.replaced)

    def give_back(self) -> None:
        """Bring the caller's containers to what the function made of their stand-ins."""
        back = {id(stand_in): (stand_in, value) for value, stand_in in self.pairs} | self.futures
        for value, stand_in in self.pairs:
            if isinstance(value, list):
                value[:] = [back.get(id(entry), (None, entry))[1] for entry in stand_in]
            elif isinstance(value, dict):
                entries = [(key, back.get(id(entry), (None, entry))[1]) for key, entry in stand_in.items()]
                value.clear()
                value.update(entries)
            else:
                for name in attributes(stand_in):
                    entry = getattr(stand_in, name)
                    object.__setattr__(value, name, back.get(id(entry), (None, entry))[1])
