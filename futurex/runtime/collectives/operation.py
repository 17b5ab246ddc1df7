"""Collective operations: their names, their ends, and how long they may take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from futurex.errors import FuturexError
from futurex.runtime.transport import Completion, Endpoint

Key = tuple[int, int, int]  #: generation, step, tag
PARTS = 1 << 60  #: apart lie the tags of exchanges of which one consists


class CollectiveError(FuturexError):
    """A collective operation failed; the text names the operation, this rank and, where one is to blame, the peer."""


class CollectiveTimeout(CollectiveError, TimeoutError):
    """A collective operation missed its deadline."""


class Collective(Completion):
    """An operation in flight. `started` and `finished` are `time.perf_counter()` values, for measuring overlap.

    `wait(timeout)` raises what the operation failed with; its buffers may be used once it is done. After a failure
    their contents are undefined, and may be written to until the endpoint's next generation.
    """

    __slots__ = ("_endpoint", "deadline", "finished", "key", "name", "parts", "started")

    def __init__(self, name: str, endpoint: Endpoint, key: Key, timeout: float) -> None:
        super().__init__()
        self.name = name
        self.key = key
        self.started = time.perf_counter()
        self.finished: float | None = None
        self.deadline = time.monotonic() + timeout
        self.parts: tuple[Collective, ...] = ()  # operations that this one waits for
        self._endpoint = endpoint

    def late(self) -> list[int]:
        """Return the ranks that have not done their part."""
        return sorted({rank for part in self.parts if not part.done() for rank in part.late()})

    def awaiting(self) -> str:
        """Return what is missing, for the message of a missed deadline."""
        late = self.late()
        where = ", ".join(f"{rank} at {self._endpoint.describe(rank)}" for rank in late)
        return f"nothing came from rank {where}" if late else "every rank has come"

    @property
    def exception(self) -> BaseException | None:
        """What the operation failed with; None while it runs and when it went well."""
        return self.error

    def describe(self) -> str:
        """Return what this operation is, for error messages."""
        generation, step, tag = self.key
        return f"{self.name} (generation {generation}, step {step}, tag {tag}) on rank {self._endpoint.rank}"

    def finish(self, error: BaseException | None = None) -> bool:
        """Mark the operation as finished, failed if `error` is given; return False if it had finished before."""
        if not self.done():
            self.finished = time.perf_counter()
        return super().finish(error)

    def fail(self, reason: BaseException) -> None:
        """Fail with a CollectiveError that names this operation and has `reason` as its cause."""
        error = CollectiveError(f"{self.describe()} failed: {reason}")
        error.__cause__ = reason
        self.finish(error)

    def expire(self) -> None:
        """Fail because the deadline has passed."""
        self.finish(CollectiveTimeout(f"{self.describe()} missed its deadline; {self.awaiting()}"))


class Alarm:
    """One timer for the deadlines of many operations.

    `expire(now)` fails those that are overdue and returns the earliest deadline of the others, None if there are none.
    """

    def __init__(self, endpoint: Endpoint, expire: Callable[[float], float | None]) -> None:
        self._endpoint = endpoint
        self._expire = expire
        self._lock = threading.Lock()
        self._set: float | None = None

    def at(self, deadline: float) -> None:
        """Ring at `deadline`, unless it rings before."""
        with self._lock:
            if self._set is not None and self._set <= deadline:
                return
            self._set = deadline
        self._endpoint.call_later(deadline - time.monotonic(), partial(self._ring, deadline))

    def _ring(self, alarm: float) -> None:
        following = self._expire(time.monotonic())
        with self._lock:
            if self._set != alarm:
                return  # an earlier one has taken over
            self._set = None
        if following is not None:
            self.at(following)
