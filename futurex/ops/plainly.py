"""Which threads are in a call of a futurized function that runs as plain NumPy, or in a fragment of one.

Futurized functions that are called there give NumPy's arrays and numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class _Here(threading.local):
    calls = 0


_here = _Here()
plain_calls: list[Any] = []
"""The plain calls of all threads: where there is none, a call need not ask for those of its own."""


def called_plainly() -> bool:
    """Is this thread in a plain call?"""
    return _here.calls > 0


def plainly(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which may call others that are futurized, as the one of a plain call."""

    def call(*args: Any, **kwargs: Any) -> Any:
        _here.calls += 1
        plain_calls.append(function)
        try:
            return function(*args, **kwargs)
        finally:
            plain_calls.pop()
            _here.calls -= 1

    return call


@contextmanager
def called_futurized() -> Iterator[None]:
    """A call of a futurized function in a plain one: what it does is no part of that."""
    before, _here.calls = _here.calls, 0
    try:
        yield
    finally:
        _here.calls = before
