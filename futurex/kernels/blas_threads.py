"""The threads of OpenBLAS, which NumPy and SciPy each bring along: they count against the budget of the process."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from futurex.kernels.openblas import function, libraries, symbol
from futurex.uninterrupted import uninterrupted


def keep_blas_within(budget: int) -> None:
    """OpenBLAS uses at most ``budget`` threads from now on, in the whole process; a smaller number stays.

    NumPy's own products have the same bits as those of plans, then: they depend on the number of threads. A library
    that is loaded later reads its number from the environment, where the user's stays.

    >>> keep_blas_within(64)
    """
    if [library for library in libraries() if _lowered(library, budget)]:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", str(budget))


def blas_threads() -> list[int]:
    """The threads of every OpenBLAS that is loaded."""
    return [int(number()) for library in libraries() if (number := _function(library, "get")) is not None]


def _lowered(library: ctypes.CDLL, budget: int) -> bool:
    """Was it above the budget?"""
    number, change = _function(library, "get"), _function(library, "set")
    if number is None or change is None or number() <= budget:
        return False
    change(budget)
    return True


def _function(library: ctypes.CDLL, verb: str) -> Any:
    return symbol(library, f"openblas_{verb}_num_threads")


class _Alone:
    """How many blocks have OpenBLAS work on the calling thread alone, and how many threads it had before."""

    lock = threading.Lock()
    blocks = 0
    before = 1


@contextmanager
def on_the_calling_thread() -> Iterator[None]:
    """The first OpenBLAS that is loaded works on the threads that call it, until the last such block ends.

    Its own threads turn round for 20 ms behind their work, beside ours, and wait for each other at every step of a
    factorization: where other processes run, too, that takes a hundred times as long.

    >>> with on_the_calling_thread():
    ...     min(blas_threads(), default=1)
    1
    """
    get, change = _first()
    if get is None or change is None:
        yield
        return
    with uninterrupted():
        with _Alone.lock:
            _Alone.blocks += 1
            if _Alone.blocks == 1:
                _Alone.before = get()
                change(1)
        try:
            yield
        finally:
            with _Alone.lock:
                _Alone.blocks -= 1
                if not _Alone.blocks:
                    change(_Alone.before)


def _leave_all() -> None:
    """A process that has forked has none of the threads that were in such blocks."""
    _Alone.lock = threading.Lock()
    if _Alone.blocks:
        _Alone.blocks = 0
        _first()[1](_Alone.before)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all)


@functools.cache
def _first() -> tuple[Any, Any]:
    return function("openblas_get_num_threads"), function("openblas_set_num_threads")


def alone(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call with OpenBLAS :func:`on_the_calling_thread`."""

    def on_this_thread(*inputs: Any) -> Any:
        with on_the_calling_thread():
            return call(*inputs)

    return on_this_thread
