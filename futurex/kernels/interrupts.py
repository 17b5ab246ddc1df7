"""Runs that end before they are done: who is told to, and where compiled code looks whether it is.

Python handles signals between two of its own instructions, in the main thread. A compiled loop has none, so its code
looks for itself every now and then (:mod:`futurex.kernels.loops.looking`): in the main thread it lets Python handle
what has come, in others it reads here whether the run that it works on was told to end.
"""

from __future__ import annotations

import ctypes
import os
import threading
from concurrent.futures import CancelledError
from typing import Any

from futurex.kernels.addresses import address_of_function

MAIN, TRUTH, FUNCTIONS, TOLD = 0, 1, 2, 17
"""Words of the desk: the main thread, ``True``, functions that code calls, and the threads that were told to end."""
MOST = 64
"""Threads that can have been told at once; others go on to the end."""
_desk = (ctypes.c_uint64 * (TOLD + MOST))()
DESK = ctypes.addressof(_desk)
_api: Any = ctypes.PyDLL(None)
_NAMES = (
    "PyThread_get_thread_ident", "PyGILState_Ensure", "PyErr_CheckSignals", "PyGILState_Release", "clock_gettime",
    "PyErr_Fetch", "PyLong_FromLongLong", "PyObject_CallOneArg", "Py_DecRef", "PyFloat_FromDouble",
    "PyObject_Vectorcall", "PyFloat_AsDouble", "PyLong_AsLongLong", "PyErr_Occurred", "PyErr_Clear",
)  # fmt: skip
_desk[FUNCTIONS : FUNCTIONS + len(_NAMES)] = [address_of_function(getattr(_api, name)) for name in _NAMES]
_desk[TRUTH] = id(True)
_restore = ctypes.PYFUNCTYPE(None, *[ctypes.c_void_p] * 3)(("PyErr_Restore", _api))
_told: list[int] = []
_working: list[int] = []  # the threads inside of a stop
_lock = threading.Lock()


class Stop:
    """Tells the threads that work on a run, each of them inside ``with stop:``, to end it.

    >>> stop = Stop()
    >>> with stop:
    ...     look()
    ...     stop.ask()
    ...     look()
    Traceback (most recent call last):
    ...
    concurrent.futures._base.CancelledError: somebody was interrupted who waited for this run; call the function again
    """

    def __init__(self) -> None:
        self.asked = False
        self._threads: list[int] = []

    def ask(self) -> None:
        with _lock:
            if not self.asked:
                self.asked = True
                _told.extend(self._threads)
                _publish()

    def __enter__(self) -> None:
        with _lock:
            self._threads.append(threading.get_ident())
            _working.append(threading.get_ident())
            if self.asked:
                _told.append(threading.get_ident())
                _publish()

    def __exit__(self, *_: object) -> None:
        with _lock:
            self._threads.remove(threading.get_ident())
            _working.remove(threading.get_ident())
            if self.asked:
                _told.remove(threading.get_ident())
                _publish()


def end_all() -> None:
    """Tell every thread that works on a run to end it, for good: the process ends, and takes apart what they run."""
    with _lock:
        _told.extend(set(_working) - set(_told))
        _publish()


def _publish() -> None:
    for k, thread in enumerate([*_told, *[0] * MOST][:MOST]):
        _desk[TOLD + k] = thread


def look() -> None:
    """End here if this thread was told to. Raises CancelledError."""
    if _told and threading.get_ident() in _told:
        raise CancelledError("somebody was interrupted who waited for this run; call the function again")


def raise_again(kind: int, value: int, trace: int) -> None:
    """Raise an exception that code has fetched from Python; it is gone afterwards."""
    _restore(kind, value or None, trace or None)


def _in_process() -> None:
    """Know the main thread: a child has the one that forked, and none of the parent's others."""
    global _lock
    _lock = threading.Lock()
    _told.clear()
    _working.clear()
    _publish()
    _desk[MAIN] = threading.main_thread().ident or 0


_in_process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_process)
