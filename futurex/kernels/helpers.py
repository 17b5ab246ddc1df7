"""Threads that help the one that runs a plan: they call NumPy's functions on parts of arrays, without Python's lock.

A run whose kernels use several threads has the whole budget of the process to itself, so there is one set of helpers;
who finds it taken does all the work alone. Idle helpers sleep.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from queue import SimpleQueue

Task = Callable[[], None]
End = SimpleQueue[BaseException | None]


class _Helper:
    """A thread that takes one task after the other."""

    def __init__(self, number: int) -> None:
        self._tasks: SimpleQueue[tuple[Task, End]] = SimpleQueue()
        threading.Thread(target=self._work, name=f"helper {number}", daemon=True).start()

    def begin(self, task: Task) -> End:
        """Have the task run, in the context of the calling thread; what it raised comes when it is over.

        Every task has an end of its own: who was interrupted while he waited leaves none behind for the next.
        """
        context, end = copy_context(), End()
        self._tasks.put((lambda: context.run(task), end))
        return end

    def _work(self) -> None:
        while True:
            task, end = self._tasks.get()
            end.put(_raised(task))


class _Helpers:
    """All of them, and who may ask them."""

    lock = threading.Lock()
    threads: list[_Helper] = []  # noqa: RUF012 (there is one list)
    asked = 0


def asked() -> int:
    """How many tasks helpers have taken in this process."""
    return _Helpers.asked


def together(tasks: Sequence[Task]) -> None:
    """Run the tasks, the first one here, each of the others on a helper. Raises what the first one that failed raised.

    >>> found = []
    >>> together([lambda: found.append(1), lambda: found.append(2)])
    >>> sorted(found)
    [1, 2]
    """
    if not _Helpers.lock.acquire(blocking=False):
        for task in tasks:
            task()
        return
    try:
        others = tasks[1:]
        while len(_Helpers.threads) < len(others):
            _Helpers.threads.append(_Helper(len(_Helpers.threads)))
        helpers = _Helpers.threads[: len(others)]
        ends = [helper.begin(task) for helper, task in zip(helpers, others, strict=True)]
        _Helpers.asked += len(others)
        errors = [_raised(tasks[0]), *(end.get() for end in ends)]
    finally:
        _Helpers.lock.release()
    for error in errors:
        if error is not None:
            raise error


def _raised(task: Task) -> BaseException | None:
    try:
        task()
    except BaseException as error:
        return error
    return None


def _forget() -> None:
    """A process that has forked has none of its parent's threads."""
    _Helpers.lock, _Helpers.threads, _Helpers.asked = threading.Lock(), [], 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
