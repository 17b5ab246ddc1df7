"""Futures of runs: what a caller holds while a plan waits for its arguments or runs.

The state machine is that of ``concurrent.futures.Future``: it costs a microsecond or two, a fraction of the smallest
run that is worth a future, and buys ``wait``, ``as_completed``, ``asyncio.wrap_future`` and Dask's own tools.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Future(concurrent.futures.Future[T], Generic[T]):
    """One result of a run: pending, running, done or cancelled.

    ``result(timeout)`` and ``exception(timeout)`` wait at most ``timeout`` seconds and raise TimeoutError after that,
    CancelledError if the run was cancelled, and what the run raised, in its original type. ``cancel()`` succeeds while
    the run has not begun. Callbacks run on the thread that completes the future and must not block it.

    >>> future = Future()
    >>> future.set_result(3)
    >>> future.result(), future.done(), future.cancel()
    (3, True, False)
    """

    def __await__(self) -> Generator[Any, None, T]:
        """Wait in an asyncio task; the loop is woken from whatever thread completes the run."""
        return asyncio.wrap_future(self).__await__()


class Done(Generic[T]):
    """The result of a run that was over when the call returned: a future without the machinery of waiting.

    >>> Done(3).result(), Done(3).done(), Done(3).cancel()
    (3, True, False)
    """

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def result(self, timeout: float | None = None) -> T:
        return self.value

    def exception(self, timeout: float | None = None) -> None:
        return None

    def done(self) -> bool:
        return True

    def cancel(self) -> bool:
        return False

    def cancelled(self) -> bool:
        return False

    def add_done_callback(self, function: Callable[[Any], Any]) -> None:
        self.as_future().add_done_callback(function)

    def as_future(self) -> Future[T]:
        """A future of the standard library that is done."""
        future: Future[T] = Future()
        future.set_result(self.value)
        return future

    def __await__(self) -> Generator[Any, None, T]:
        return self.value
        yield
