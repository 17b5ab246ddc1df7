"""Futures of runs: what a caller holds while a plan waits for its arguments or runs.

The state machine is that of ``concurrent.futures.Future``: it costs a microsecond or two, a fraction of the smallest
run that is worth a future, and buys ``wait``, ``as_completed``, ``asyncio.wrap_future`` and Dask's own tools.
"""

from __future__ import annotations

import concurrent.futures
import sys
import threading
import weakref
from collections.abc import Callable, Generator
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from futurex.errors import Donated
from futurex.runtime.habit import Call

T = TypeVar("T")


class Resident:
    """A result that lives on a device until somebody looks at it.

    ``array`` is the device's, ``ready`` says when it is there, ``home`` (a :class:`futurex.runtime.residence.Home`)
    brings it here.
    """

    __slots__ = ("array", "home", "ready")

    def __init__(self, array: Any, ready: Any, home: Any) -> None:
        self.array, self.ready, self.home = array, ready, home

    def host(self) -> Any:
        """The result as a NumPy array; waits for it."""
        return self.home.fetch(self)

    def copy(self) -> Resident:
        """The same on the device, in memory of its own."""
        copied: Resident = self.home.copy(self)
        return copied


class Lendable:
    """A result that other runs may read while it is not in anybody else's hands, and so cannot change.

    ``exposed``: whoever has the array may write into it. ``readers`` are runs under way that were given it uncopied.
    ``passed_on``: the future itself is in somebody else's hands. ``gone``: what the memory was called that was given
    away to a run. ``call`` wants to know when somebody asks for the result.
    """

    __slots__ = tuple[str, ...]()  # a future has a dict, a result that is there has slots
    exposed: bool = False
    passed_on: bool = False
    gone: str | None = None
    call: Call | None = None
    readers: tuple[weakref.ref[Any], ...] = ()

    def private(self) -> bool:
        """Is the result in nobody's hands? One that was handed out is again once all who had it let go of it."""
        if self.passed_on:
            return False
        if self.exposed and self.done():  # type: ignore[attr-defined]
            value = self.result()  # type: ignore[attr-defined]
            holders = sys.getrefcount(value) - OWN_REFERENCES
            self.exposed = type(value) is not np.ndarray or value.base is not None or holders > 0
        return not self.exposed

    def read(self) -> bool:
        """Is a run under way that was given the result uncopied?"""
        return any(map(_under_way, self.readers))

    def give_away(self, name: str, taken: bool = True) -> None:
        """Let nobody have the result from now on; ``name`` is what they are told it was.

        ``taken``: the run has it already. Else it takes it from here once it is there, which may be by now.
        """
        self.gone, self.exposed, self.readers = name, False, ()
        if taken and self.done():  # type: ignore[attr-defined]
            self.replace(None)  # type: ignore[attr-defined]

    def refusal(self) -> Donated:
        """What whoever asks for a result that was given away is told."""
        return Donated(
            f"{self.gone} was given away (donate=): its memory holds a result of that call now; "
            "go on with what the call returned, or keep a copy from before it"
        )

    def lend(self, run: concurrent.futures.Future[Any]) -> None:
        """Note that a run reads this result from now on, without a copy."""
        self.readers = (*(each for each in self.readers if _under_way(each)), weakref.ref(run))

    def expose(self) -> Any:
        """The result for somebody who may write into it: runs under way keep what they were given."""
        if self.gone is not None:
            raise self.refusal()
        value = self.result()  # type: ignore[attr-defined]
        if self.exposed:
            return value
        if isinstance(value, Resident):
            value = value.host()
            self.replace(value)  # type: ignore[attr-defined]
        if isinstance(value, np.ndarray) and self.read():
            value = value.copy()
            self.replace(value)  # type: ignore[attr-defined]
        self.exposed, self.readers = True, ()
        return value


OWN_REFERENCES = 3  # to a result while it is looked at: the future's, a name's, and that of the function that counts


def _under_way(reader: weakref.ref[Any]) -> bool:
    run = reader()
    return run is not None and not run.done()


class Run(Protocol):
    """What gives futures their results."""

    def stop(self) -> None:
        """End before that, soon."""
        ...


class Future(Lendable, concurrent.futures.Future[T], Generic[T]):
    """One result of a run: pending, running, done or cancelled.

    ``result(timeout)`` and ``exception(timeout)`` wait at most ``timeout`` seconds and raise TimeoutError after that,
    CancelledError if the run was cancelled, and what the run raised, in its original type. ``cancel()`` succeeds while
    the run has not begun. Callbacks run on the thread that completes the future and must not block it. Who is
    interrupted while he waits (Ctrl-C, a notebook's interrupt) ends the run, too.

    >>> future = Future()
    >>> future.set_result(3)
    >>> future.result(), future.done(), future.cancel()
    (3, True, False)
    """

    run: Run | None = None
    """The run that gives the result, until it is over."""

    def result(self, timeout: float | None = None) -> T:
        try:
            return super().result(timeout)
        except KeyboardInterrupt:
            self._interrupted()
            raise

    def exception(self, timeout: float | None = None) -> BaseException | None:
        try:
            return super().exception(timeout)
        except KeyboardInterrupt:
            self._interrupted()
            raise

    def _interrupted(self) -> None:
        if (run := self.run) is not None:
            run.stop()

    def replace(self, value: T) -> None:
        """Let the result be another object of the same value."""
        self._result = value

    def set_result(self, result: Any) -> None:
        """Complete the future; a result that is in somebody's hands already comes from the device first.

        As the standard library does it, but that nothing here holds the result any more when whoever waits goes on: he
        may give it away at once, and a result that somebody else holds would be copied.
        """
        if self.exposed and isinstance(result, Resident):
            result = result.host()
        with self._condition:
            if self.done():
                raise concurrent.futures.InvalidStateError(f"{self._state}: {self!r}")
            self._result, self._state = result, "FINISHED"
            del result
            for waiter in self._waiters:
                waiter.add_result(self)
            self._condition.notify_all()
        self._invoke_callbacks()  # type: ignore[attr-defined]

    def orphan(self) -> None:
        """In a child after a fork, where nobody completes the future, let it say so."""
        self._condition = threading.Condition()  # a thread of the parent may have held the old one
        self._done_callbacks: list[Any] = []
        if not self.done():
            self.set_exception(
                RuntimeError(
                    "this result was under way when the process forked, and only the parent computes it: "
                    "ask for it before the fork, or call the function again"
                )
            )

    def resident(self) -> bool:
        """Is the result there, and on a device?"""
        return isinstance(self._result, Resident)

    def __await__(self) -> Generator[Any, None, T]:
        """Wait in an asyncio task; the loop is woken from whatever thread completes the run."""
        import asyncio  # who awaits has it already; others need not load it

        return asyncio.wrap_future(self).__await__()


class Done(Lendable, Generic[T]):
    """The result of a run that was over when the call returned: a future without the machinery of waiting.

    >>> Done(3).result(), Done(3).done(), Done(3).cancel()
    (3, True, False)
    """

    __slots__ = ("call", "exposed", "gone", "readers", "value")  # they are asked for often, some twenty at every step

    def __init__(self, value: T, call: Call | None = None) -> None:
        self.value = value
        self.call = call
        self.exposed = False
        self.gone = None
        self.readers = ()

    def replace(self, value: T) -> None:
        """Let the result be another object of the same value."""
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
        future.set_result(self.expose())
        return future

    def __await__(self) -> Generator[Any, None, T]:
        return self.value
        yield
