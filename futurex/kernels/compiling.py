"""When machine code is made: before the call that needs it, or behind it, by a thread of its own.

A plan that is compiled *behind* starts at once: what is not in memory or on disk is computed by NumPy until its code is
there. LLVM does one thing at a time in a process, whichever thread asks. The thread has the priority of all others:
with a lower one it got a twentieth of a processor beside busy programs, and every call meanwhile was NumPy's.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Job = Callable[[], object]
_EXIT_SECONDS = 10.0
_PAUSE = 1e-4
"""Seconds between two jobs: locks of Python go to whoever comes first, and a thread that waits for the compiler would
come after all of the jobs."""
TURN = 5e-4
"""Seconds for which one thread has Python while another waits for it, while there are jobs. What a job does beside a
plain call in Python, which never rests, is a hundred short trips to files and libraries, and behind each one it waits
for its turn: with Python's 5 ms a loop whose code lay on disk was compiled after 0.1 to 0.6 s, with these after 0.1."""

working = threading.RLock()
"""Held while LLVM works, and while modules are loaded for it. A fork waits for it, so that a child does not inherit a
compiler that stopped half-way."""


class _Setting(threading.local):
    behind = False
    put_off: list[Job] | None = None


_setting = _Setting()


@contextmanager
def behind(wanted: bool) -> Iterator[None]:
    """Kernels claimed in the block may come after their first calls, if ``wanted``; by default they come before."""
    before, _setting.behind = _setting.behind, wanted
    try:
        yield
    finally:
        _setting.behind = before


def is_behind() -> bool:
    """May a kernel that is claimed now come later?"""
    return _setting.behind


@contextmanager
def put_off() -> Iterator[list[Job]]:
    """Of kernels that this thread claims in the block, those that would be compiled behind are not: the jobs that have
    it done are what the block gets."""
    before, _setting.put_off = _setting.put_off, []
    try:
        yield _setting.put_off
    finally:
        _setting.put_off = before


def is_put_off(job: Job) -> bool:
    """May a kernel that is claimed now come even later? Then its job is kept."""
    if _setting.put_off is not None:
        _setting.put_off.append(job)
    return _setting.put_off is not None


class Background:
    """Jobs done one after the other by a daemon thread, which ends when there are none.

    At exit the job at hand is finished (LLVM must not be torn down while it works), the others are forgotten.
    """

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._turn = 0.0  # Python's own, while it is another one

    def submit(self, job: Job) -> None:
        """Do ``job`` soon; never, if the process is about to end."""
        with self._lock, contextlib.suppress(RuntimeError):  # no thread can be started while Python ends
            if self._closed:
                return
            self._jobs.append(job)
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="compile", daemon=True)
                thread.start()
                self._thread = thread
                self._turn = sys.getswitchinterval()
                if self._turn > TURN:
                    sys.setswitchinterval(TURN)

    def close(self, timeout: float = _EXIT_SECONDS) -> None:
        """Take no more jobs, forget those that have not begun, wait for the one at hand."""
        with self._lock:
            self._closed = True
            self._jobs.clear()
            thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def go_on(self) -> None:
        """End the job that calls, if the process is about to end: what it loads now is not told of that any more."""
        if self._closed and threading.current_thread() is self._thread:
            raise SystemExit

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._take_turns_as_before()
                    self._thread = None  # last: who sees that there is none finds turns as they were
                    return
                job = self._jobs.popleft()
            try:
                job()
            except SystemExit:
                return
            except Exception:
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
            time.sleep(_PAUSE)

    def _take_turns_as_before(self) -> None:
        """Unless somebody else has said meanwhile how long turns are."""
        if self._turn > TURN and sys.getswitchinterval() == TURN:
            sys.setswitchinterval(self._turn + 5e-7)  # Python cuts it to whole microseconds

    def renew(self) -> None:
        """In a child after a fork: the thread is the parent's."""
        if self._thread is not None:
            self._take_turns_as_before()
        self.__init__()  # type: ignore[misc]


background = Background()
atexit.register(background.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=working.acquire, after_in_parent=working.release, after_in_child=working.release)
    os.register_at_fork(after_in_child=background.renew)
