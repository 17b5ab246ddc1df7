"""Which threads are in a call of a futurized function that runs as plain NumPy, or in a fragment of one.

Futurized functions that are called there give NumPy's arrays and numbers. They are staged, or, where a call goes as
plain NumPy since that is faster, plain as well. So are calls of a function by itself, from some levels on: a recursion
that is not staged is Python's.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class _Here(threading.local):
    calls = 0
    throughout = False

    def __init__(self) -> None:
        self.waiting: Counter[int] = Counter()  # calls of futurized functions in plain ones, by function
        self.deep: set[int] = set()


_here = _Here()
plain_calls: list[Any] = []
"""The plain calls of all threads: where there is none, a call need not ask for those of its own."""


def called_plainly() -> bool:
    """Is this thread in a plain call?"""
    return _here.calls > 0


def throughout() -> bool:
    """Is this thread in a plain call in which those of futurized functions are plain as well?"""
    return _here.throughout


def is_deep(function: Any) -> bool:
    """Is this function, which is futurized, in the middle of calls of itself in which all others are plain as well?"""
    return id(function) in _here.deep


def plainly(function: Callable[..., Any], *, throughout: bool = False, itself: bool = False) -> Callable[..., Any]:
    """The function, which may call others that are futurized, as the one of a plain call. ``throughout``: those are
    plain in it as well. ``itself``: it is plain where it calls itself."""

    def call(*args: Any, **kwargs: Any) -> Any:
        before, _here.throughout = _here.throughout, throughout
        first = itself and id(function) not in _here.deep
        if first:
            _here.deep.add(id(function))
        _here.calls += 1
        plain_calls.append(function)
        try:
            return function(*args, **kwargs)
        finally:
            plain_calls.pop()
            _here.calls -= 1
            _here.throughout = before
            if first:
                _here.deep.discard(id(function))

    return call


_DEEP = 6
"""Calls of a futurized function inside plain ones of its own: each of them takes a dozen of Python's frames."""


@contextmanager
def called_futurized(function: Any) -> Iterator[None]:
    """A call of a futurized function in a plain one: what it does is no part of that."""
    here, known = _here, id(function)
    before = here.calls, here.throughout
    here.calls, here.throughout = 0, False
    here.waiting[known] += 1
    if here.waiting[known] == _DEEP:
        here.deep.add(known)
    try:
        yield
    finally:
        here.calls, here.throughout = before
        if here.waiting[known] == _DEEP:
            here.deep.discard(known)
        here.waiting[known] -= 1
        if not here.waiting[known]:
            del here.waiting[known]
