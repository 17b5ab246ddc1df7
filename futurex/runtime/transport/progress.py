"""A thread that waits for one source of events and runs jobs and timers in between."""

import heapq
import itertools
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TypeVar

from futurex.runtime.transport.errors import TransportError, TransportTimeout
from futurex.runtime.transport.message import log

T = TypeVar("T")


class ProgressThread(ABC):
    """Runs `_poll` again and again on a thread of its own, between it whatever `post` and `call_later` ask for.

    A subclass says how to wait (`_poll`), how to be woken (`_wake`), and what to release at the end (`_release`).
    """

    def __init__(self, name: str) -> None:
        self._jobs: deque[Callable[[], object]] = deque()
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._ticket = itertools.count()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def _poll(self, timeout: float | None) -> None:
        """Handle what has arrived; wait for it at most `timeout` seconds, or until `_wake` if None."""

    @abstractmethod
    def _wake(self) -> None:
        """Make a `_poll` that waits return; called from any thread."""

    @abstractmethod
    def _release(self) -> None:
        """Give back what the subclass holds; the last thing that runs on the thread."""

    def on_thread(self) -> bool:
        """Return whether the caller runs on the progress thread."""
        return threading.get_ident() == self._thread.ident

    def post(self, job: Callable[[], object]) -> None:
        """Run `job()` on the progress thread, soon."""
        self._jobs.append(job)
        if not self.on_thread():
            self._wake()

    def call_later(self, seconds: float, job: Callable[[], object]) -> None:
        """Run `job()` on the progress thread after `seconds`."""
        entry = (time.monotonic() + seconds, next(self._ticket), job)
        self.post(lambda: heapq.heappush(self._timers, entry))

    def run_on_thread(self, job: Callable[[], T], timeout: float) -> T:
        """Run `job()` on the progress thread and return its result, waiting at most `timeout` seconds."""
        if self.on_thread():
            return job()
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)

        self.post(run)
        try:
            return future.result(timeout)
        except FutureTimeout:
            if not self._thread.is_alive():
                raise TransportError(f"{self._thread.name} is closed") from None
            raise TransportTimeout(
                f"{self._thread.name} did not answer within {timeout:g} s: a handler blocks it"
            ) from None

    def _run(self) -> None:
        try:
            while not self._stopping:
                try:
                    self._run_jobs()
                    self._poll(self._run_timers())
                except Exception:
                    log.exception("%s: an unexpected error; the thread goes on", self._thread.name)
                    time.sleep(0.01)  # an error that repeats must not take a whole core
            self._run_jobs()
        finally:
            self._release()

    def _run_jobs(self) -> None:
        while self._jobs:
            self._jobs.popleft()()

    def _run_timers(self) -> float | None:
        """Run the timers that are due; return the seconds to the next one, 0 if a job waits, None if nothing does."""
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()
        if self._jobs:
            return 0.0
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _stop(self, timeout: float) -> None:
        """End the thread; from the thread itself, end it after the current job."""
        self._stopping = True
        if self.on_thread():
            return
        self._wake()
        self._thread.join(timeout)
