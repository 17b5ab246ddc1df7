"""The process's one OpenMP library: oneDNN brings it, and generated kernels use its threads where both run in turns.

libgomp gives every thread that starts a parallel region helpers of its own, and where the process then has more threads
than processors, none of them waits for work any more, but sleeps at once: each region costs 50 µs for waking it. So one
thread at a time has helpers: who needs them takes them over, and who had them sends its own away as soon as it can.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable

SPIN_COUNT = "2000"
"""How long idle OpenMP threads spin before they sleep: long enough between two kernels, too short to rob NumPy's BLAS
of its cores (left to its default, libgomp makes a product that follows a kernel several times slower), or other
processes: with 10000 steps of a millisecond took 0.92 to 0.95 of the time, but 2.5 times as long beside a busy one."""
_chosen = bool({"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys())  # by the user


def configure() -> None:
    """Set what libgomp reads when it is first loaded, unless the user has; call before loading what uses it."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)


def make_way_for_blas() -> None:
    """Idle OpenMP threads are to sleep at once, because products are NumPy's: two pools that both spin halve the speed.

    As :func:`configure`, it must come before libgomp is loaded, and leaves what the user has set.
    """
    if not _chosen:
        os.environ["GOMP_SPINCOUNT"] = "0"


class _Team:
    """Who has helpers, whom to ask to send them away, and who was asked."""

    lock = threading.Lock()
    owner = 0
    rouse: dict[int, Callable[[], None]] = {}  # noqa: RUF012 (there is one)
    asked: set[int] = set()  # noqa: RUF012


LIBRARY_RUNS = ctypes.c_int64(0)
"""Do generated kernels use OpenMP's threads, because a library's primitives run between them? Their code reads it:
helpers of their own (:mod:`futurex.kernels.numba_.team`) and OpenMP's would take turns in waking and sleeping."""


def take_team(*, library: bool) -> None:
    """The calling thread is about to run kernels of several threads; ``library``: some of them are a library's."""
    LIBRARY_RUNS.value = library
    if not library:
        return
    me = threading.get_ident()
    if _Team.owner == me:
        return
    with _Team.lock:
        before, _Team.owner = _Team.owner, me
        _Team.asked.discard(me)
        rouse = _Team.rouse.get(before)
        if rouse is not None:
            _Team.asked.add(before)
    if rouse is not None:
        rouse()


def hand_over() -> None:
    """Another thread will run what comes: send the helpers of this one away, unless it can be asked to when needed."""
    me = threading.get_ident()
    if _Team.owner == me and me not in _Team.rouse:
        _leave(me)


def _leave(me: int) -> None:
    with _Team.lock:
        _Team.asked.discard(me)
        if _Team.owner == me:
            _Team.owner = 0
    library = openmp()
    if library is not None and hasattr(library, "omp_pause_resource_all"):
        library.omp_pause_resource_all(_SOFT)


def obey() -> None:
    """Send helpers away if somebody else wants to have some; for threads that said how to rouse them."""
    me = threading.get_ident()
    if me in _Team.asked:
        _leave(me)


def rouse_by(rouse: Callable[[], None]) -> None:
    """``rouse()`` has the calling thread call :func:`obey` soon, unless it is at work."""
    _Team.rouse[threading.get_ident()] = rouse


_SOFT = 1  # omp_pause_soft


def _before_fork() -> None:
    """A child would wait for helpers that only its parent has."""
    if openmp.cache_info().currsize:
        _leave(threading.get_ident())


def _in_child() -> None:
    _Team.lock, _Team.owner = threading.Lock(), 0
    _Team.rouse.clear()
    _Team.asked.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)


@functools.cache
def openmp() -> ctypes.CDLL | None:
    """libgomp, or None where the machine has none (kernels then use one thread)."""
    configure()
    try:
        library = ctypes.CDLL("libgomp.so.1")
        library.GOMP_parallel.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint, ctypes.c_uint]
        library.GOMP_parallel.restype = None
    except (OSError, AttributeError):
        return None
    return library
