"""The threads of OpenBLAS, which NumPy and SciPy each bring along: they count against the budget of the process."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable
from typing import Any

from futurex.kernels.openblas import function, libraries, symbol


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
    """The threads for which OpenBLAS works on the calling thread alone, and how many it had before; 0 where it has
    them."""

    lock = threading.Lock()
    threads: set[int] = set()  # noqa: RUF012 (there is one set)
    before = 0


def alone(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call, during which the first OpenBLAS that is loaded works on the threads that call it, until the last such
    call ends.

    Its own threads turn round for 20 ms behind their work, beside ours, and wait for each other at every step of a
    factorization: where other processes run, too, that takes a hundred times as long.

    >>> alone(lambda: min(blas_threads(), default=1))()
    1
    """

    def on_this_thread(*inputs: Any, **attrs: Any) -> Any:
        try:
            _enter()
            return call(*inputs, **attrs)
        finally:
            _leave()

    return on_this_thread


def _enter() -> None:
    get, change = _first()
    if get is None or change is None:
        return
    with _Alone.lock:
        _Alone.threads.add(threading.get_ident())
        if not _Alone.before:
            _Alone.before = get()
            change(1)


def _leave() -> None:
    """What Ctrl-C may have kept a thread from is done when it leaves the next time."""
    with _Alone.lock:
        _Alone.threads.discard(threading.get_ident())
        _give_back()


def _give_back() -> None:
    if _Alone.before and not _Alone.threads:
        _first()[1](_Alone.before)
        _Alone.before = 0


def _leave_all() -> None:
    """A process that has forked has none of the threads that were in such calls but one, which leaves by itself."""
    _Alone.lock = threading.Lock()
    _Alone.threads &= {threading.get_ident()}
    _give_back()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all)


@functools.cache
def _first() -> tuple[Any, Any]:
    return function("openblas_get_num_threads"), function("openblas_set_num_threads")
