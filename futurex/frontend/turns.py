"""Threads take turns where calls change lists, dicts or objects of the caller.

Such a change is made when the run has succeeded, of what the call found before: what another thread had changed
meanwhile would be lost, as an entry that it has appended, which plain Python keeps.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from futurex.frontend import forked
from futurex.frontend.array import Array
from futurex.frontend.plain import call_plainly

PATIENCE = 2.0
"""Seconds after which a call no longer waits for its turn: two may wait for each other. It is plain Python then."""
MANY, SOME, LONG = 32, 4, 10e-3
"""Turns in which nothing was staged, after which a function takes none: so many, or some if one took so many seconds.
Python's own changes need none, and others would wait for what sleeps or reads files."""
_LOCKS = tuple(forked.lock() for _ in range(64))
_FIXED = frozenset({np.ndarray, Array, bool, int, float, complex, str, type(None), np.float32, np.float64, np.int64})


def turn_of(function: Any, args: tuple[Any, ...]) -> Any:
    """The lock of calls that may change what this one changes: of the first argument that can be, else the function's.
    """
    for value in args:
        if type(value) not in _FIXED:
            return _LOCKS[id(value) // 16 % len(_LOCKS)]
    return _LOCKS[id(function) // 16 % len(_LOCKS)]


def in_turn(lock: Any, function: Any, args: Any, kwargs: Any) -> Any:
    """The call, when no other thread is in one. Who has a turn already does not wait for another one: it could be that
    of a thread that waits for this one's."""
    if not lock.acquire(timeout=0 if _mine.turns else PATIENCE):
        return call_plainly(function.plain, args, kwargs)
    _mine.turns += 1
    began = time.perf_counter() if function._acts is None else 0.0
    try:
        return function(*args, **kwargs)
    finally:
        if began and function._acts is None:
            function._turns += 1
            if function._turns >= (SOME if time.perf_counter() - began > LONG else MANY):
                function._acts = False
        _mine.turns -= 1
        lock.release()


class _Mine(threading.local):
    turns = 0


_mine = _Mine()
