"""Which threads are in a call of a futurized function that runs as plain NumPy, or in a fragment of one.

Futurized functions that are called there give NumPy's arrays and numbers. They are staged, or, where a call goes as
plain NumPy since that is faster, plain as well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class _Here(threading.local):
    calls = 0
    throughout = False


_here = _Here()
plain_calls: list[Any] = []
"""The plain calls of all threads: where there is none, a call need not ask for those of its own."""


def called_plainly() -> bool:
    """Is this thread in a plain call?"""
    return _here.calls > 0


def throughout() -> bool:
    """Is this thread in a plain call in which those of futurized functions are plain as well?"""
    return _here.throughout


def plainly(function: Callable[..., Any], *, throughout: bool = False) -> Callable[..., Any]:
    """The function, which may call others that are futurized, as the one of a plain call. ``throughout``: those are
    plain in it as well."""

    def call(*args: Any, **kwargs: Any) -> Any:
        before, _here.throughout = _here.throughout, throughout
        _here.calls += 1
        plain_calls.append(function)
        try:
            return function(*args, **kwargs)
        finally:
            plain_calls.pop()
            _here.calls -= 1
            _here.throughout = before

    return call


@contextmanager
def called_futurized() -> Iterator[None]:
    """A call of a futurized function in a plain one: what it does is no part of that."""
    before = _here.calls, _here.throughout
    _here.calls, _here.throughout = 0, False
    try:
        yield
    finally:
        _here.calls, _here.throughout = before
