"""The long-lived process of one peer: reads commands as JSON lines, answers as JSON lines.

Started by ``harness.Child`` as ``python -m benchmarks.child``. Anything a library prints goes to standard error, so the
answers stay parseable.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any, Protocol


class Workload(Protocol):
    """What a factory returns: ``step`` runs one unit of work and returns when its result is there."""

    def step(self) -> object:
        """Run one unit of work to its end."""


def pin(threads: int) -> None:
    """Keep this process on the last ``threads`` of its CPUs, so that every stack has exactly that many."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, set(allowed[-threads:]))


def time_steps(workload: Any, repetitions: int) -> list[float]:
    """Return the seconds of each of ``repetitions`` steps; a workload with its own ``time`` measures itself."""
    own = getattr(workload, "time", None)
    if own is not None:
        return list(own(repetitions))
    seconds = []
    for _ in range(repetitions):
        start = time.perf_counter()
        workload.step()
        seconds.append(time.perf_counter() - start)
    return seconds


class Server:
    """Holds the workload of this process and answers the commands start, time, call and stop."""

    def __init__(self) -> None:
        self.workload: Any = None

    def answer(self, command: dict[str, Any]) -> Any:
        """Return the JSON-able answer to one command."""
        match command["do"]:
            case "start":
                module, _, name = command["factory"].partition(":")
                self.workload = getattr(importlib.import_module(module), name)(**command["options"])
                return None
            case "time":
                return time_steps(self.workload, command["repetitions"])
            case "call":
                return getattr(self.workload, command["method"])(**command["arguments"])
            case "stop":
                close = getattr(self.workload, "close", None)
                return close() if close is not None else None
        raise ValueError(f"unknown command {command['do']!r}: the child answers start, time, call and stop")


def main() -> None:
    """Serve commands from standard input until ``stop`` or end of file."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    pin(int(sys.argv[1]))
    server = Server()
    for line in sys.stdin:
        command = json.loads(line)
        try:
            reply = {"value": server.answer(command)}
        except ImportError as error:
            reply = {"absent": f"{type(error).__name__}: {error}"}
        except Exception as error:  # the parent decides what a failed peer means; the traceback goes to its log
            sys.excepthook(*sys.exc_info())
            reply = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(reply) + "\n")
        if command["do"] == "stop":
            return


if __name__ == "__main__":
    main()
