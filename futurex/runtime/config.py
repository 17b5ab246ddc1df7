"""What the runtime may use: threads, how long it waits before it gives up, where it runs, whether it waits to compile.

One budget of threads per process: a pool has that many workers. Either they run kernels of one thread, or one run at a
time uses kernels of as many threads as the budget has (:mod:`futurex.runtime.budget`). An empty variable is one that
is not set.
"""

from __future__ import annotations

import os
import threading

_DEADLINE, _PATIENCE = 600.0, 30.0
_MOST_THREADS = 4096


def threads(sharers: int = 1) -> int:
    """The budget: FUTUREX_THREADS, or the processors this process may run on, but no more than its share of the
    machine's where ``sharers`` processes compute side by side there."""
    text = os.environ.get("FUTUREX_THREADS", "")
    if not text:
        there = os.cpu_count() or 1
        mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else there
        return min(mine, max(1, there // sharers))
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_THREADS:
        raise ValueError(f"FUTUREX_THREADS={text!r} must be a whole number from 1 to {_MOST_THREADS}")
    return int(text)


def background() -> bool:
    """Are kernels of calls compiled behind their first runs? FUTUREX_COMPILE: ``background`` (default) or ``wait``."""
    text = os.environ.get("FUTUREX_COMPILE") or "background"
    if text not in ("background", "wait"):
        raise ValueError(f"FUTUREX_COMPILE={text!r} must be background or wait")
    return text == "background"


def machine() -> str | None:
    """What this process calls its machine, where that is not to be found out: FUTUREX_MACHINE."""
    return os.environ.get("FUTUREX_MACHINE") or None


def deadline() -> float:
    """Seconds that a run waits for other localities: FUTUREX_DEADLINE, or ten minutes; ``inf`` for ever."""
    return _seconds("FUTUREX_DEADLINE", _DEADLINE)


def patience() -> float:
    """Seconds after which a run that waits for other localities says so: FUTUREX_STALL, or half a minute."""
    return _seconds("FUTUREX_STALL", _PATIENCE)


def _seconds(name: str, default: float) -> float:
    text = os.environ.get(name, "")
    try:
        seconds = float(text) if text else default
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ValueError(f"{name}={text!r} must be a positive number of seconds")
    return min(seconds, threading.TIMEOUT_MAX)
