"""Whether the scheduler is still there while runs are under way: one that hangs closes no channel, and says nothing."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from distributed import Client

from futurex.runtime import config
from futurex.runtime.cluster.asking import within
from futurex.runtime.cluster.membership import Connection
from futurex.runtime.cluster.run import ClusterRun

log = logging.getLogger("futurex.cluster")

_TRIES = 3  # questions without an answer: this process may have been stopped or swapped out itself


class Pulse:
    """Asks the scheduler from time to time, in a thread that is there as long as there are runs.

    It says in the log that nothing comes, after FUTUREX_STALL seconds, and ends the runs after FUTUREX_DEADLINE.
    """

    def __init__(self, client: Client, connection: Connection, runs: Callable[[], Sequence[ClusterRun]]) -> None:
        self._client, self._connection, self._runs = client, connection, runs
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """A run is under way."""
        with self._lock:
            if self._thread is None and not self._over.is_set():
                self._thread = threading.Thread(target=self._watch, name="watch-scheduler", daemon=True)
                self._thread.start()

    def end(self) -> None:
        """The cluster is being closed."""
        self._over.set()

    def _watch(self) -> None:
        deadline = config.deadline()
        step = min(config.patience(), deadline / _TRIES)
        answered, tries = time.monotonic(), 0
        while not self._over.wait(0.0 if tries else step):
            with self._lock:
                runs = self._runs()
                if not runs or not self._connection.stands:  # the runs hear of a channel that is closed
                    self._thread = None
                    return
            try:
                within(self._client, partial(self._client.scheduler.identity, n_workers=0), step)
                answered, tries = time.monotonic(), 0
            except (OSError, TimeoutError):
                tries += 1
                silent = time.monotonic() - answered
                where = f"the scheduler at {self._connection.address}"
                log.warning("%s has not answered for %.0f s; runs go on, but nothing is heard of them", where, silent)
                if tries >= _TRIES and silent >= deadline:
                    for run in runs:
                        run.unheard(f"no answer from {self._connection.address} within {deadline:g} s")
                    return
