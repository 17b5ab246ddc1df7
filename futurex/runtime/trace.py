"""Chrome traces: who did what when, for chrome://tracing, Perfetto and Traveler."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

_active: Recorder | None = None
_starting = threading.Lock()


class Recorder:
    """Collects events of this process; ``rank`` is its number in a merged trace.

    Times are ``time.perf_counter()`` seconds; ``shift`` is added so that the traces of several processes line up.
    """

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank
        self.shift = time.time() - time.perf_counter()
        self.events: list[tuple[str, str, float, float]] = []

    def add(self, name: str, lane: str, start: float, end: float) -> None:
        """One event on a lane: "compute", "communication", or the name of a thread."""
        self.events.append((name, lane, start, end))

    def chrome(self) -> list[dict[str, Any]]:
        """The events as Chrome trace records; ``ts`` and ``dur`` in microseconds."""
        return [
            {
                "name": name, "cat": "futurex", "ph": "X", "pid": self.rank, "tid": lane,
                "ts": (start + self.shift) * 1e6, "dur": (end - start) * 1e6,
            }
            for name, lane, start, end in tuple(self.events)
        ]  # fmt: skip


def active() -> Recorder | None:
    """The recorder of the innermost :func:`trace`, if one is open."""
    return _active


@contextmanager
def trace(rank: int = 0) -> Iterator[Recorder]:
    """Record every instruction that this process runs inside the block. One trace at a time.

    >>> with trace() as recorder:
    ...     pass
    >>> recorder.chrome()
    []
    """
    global _active
    with _starting:
        if _active is not None:
            raise RuntimeError("a trace is being recorded already; close it before starting another")
        _active = recorder = Recorder(rank)
    try:
        yield recorder
    finally:
        _active = None


def lane() -> str:
    """The lane of the calling thread."""
    thread = threading.current_thread()
    return "compute" if thread is threading.main_thread() else thread.name


def write(path: str | os.PathLike[str], recorders: Iterable[Recorder | list[dict[str, Any]]]) -> None:
    """One JSON file of several recorders, or of the lists that :meth:`Recorder.chrome` gave on other localities."""
    events = [event for each in recorders for event in (each.chrome() if isinstance(each, Recorder) else each)]
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"traceEvents": sorted(events, key=lambda event: event["ts"]), "displayTimeUnit": "ms"}, file)
