"""Recording who did what when, in one process; :mod:`futurex.runtime.timeline` puts several together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from futurex.tree.node import Node

_active: Recorder | None = None
_starting = threading.Lock()

Event = dict[str, Any]
SENT, RECEIVED = "sent", "received"


class Recorder:
    """Collects events of this process; ``rank`` is its number in a merged trace.

    Times are ``time.perf_counter()`` seconds; ``seconds`` turns them into seconds since 1970 on a clock that all traces
    of a merged one share, and ``error`` bounds how wrong that may be.
    """

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank
        shift = time.time() - time.perf_counter()
        self.seconds: Callable[[float], float] = lambda at: at + shift
        self.error = 0.0
        self.events: list[tuple[str, str, float, float, Mapping[str, Any] | None]] = []

    def add(self, name: str, lane: str, start: float, end: float, about: Mapping[str, Any] | None = None) -> None:
        """One event; the lane is "compute", "communication", "waiting" or a thread's name, ``about`` explains it."""
        self.events.append((name, lane, start, end, about))

    def chrome(self) -> list[Event]:
        """The events as Chrome trace records; ``ts`` and ``dur`` in microseconds, ``tid`` the lane's name."""
        return [
            {
                "name": name, "cat": "futurex", "ph": "X", "pid": self.rank, "tid": lane,
                "ts": self.seconds(start) * 1e6, "dur": (end - start) * 1e6,
                **({"args": dict(about)} if about else {}),
            }
            for name, lane, start, end, about in tuple(self.events)
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
    recorder = start(rank)
    try:
        yield recorder
    finally:
        stop()


def start(rank: int = 0) -> Recorder:
    """Begin to record; RuntimeError if something records already."""
    global _active
    with _starting:
        if _active is not None:
            raise RuntimeError("a trace is being recorded already; close it before starting another")
        _active = recorder = Recorder(rank)
    return recorder


def stop() -> None:
    """End what :func:`start` began."""
    global _active
    _active = None


def about(node: Node, key: tuple[int, ...] | None = None) -> dict[str, Any]:
    """What a trace says of an instruction: the user's line, and the bytes and the name of an exchange."""
    found: dict[str, Any] = {"line": f"{node.src}: {node.src.text()}"} if node.src is not None else {}
    if key is not None:
        arrays = [node.aval] if not isinstance(node.aval, tuple) else node.aval
        found |= {"bytes": sum(array.nbytes for array in arrays), "exchange": " ".join(map(str, key))}
    return found


def lane() -> str:
    """The lane of the calling thread."""
    thread = threading.current_thread()
    return "compute" if thread is threading.main_thread() else thread.name
