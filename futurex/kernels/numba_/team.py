"""A team of threads for generated kernels: nobody waits for a helper that has not come.

A call is cut into tickets. Who is free takes the next one: the calling thread, and helpers that look for work for a
moment after they had some, and then sleep. A sleeping helper takes 50 to 100 µs to come, several times what a small
kernel takes; meanwhile the others go on, and if nothing is left when it comes, nobody has waited for it. What a ticket
computes does not depend on who takes it.

Regions of OpenMP's wait for all threads. Nothing here uses them: primitives of the kernel library, too, are tickets
(:mod:`futurex.kernels.onednn.shared`).
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.kernels.addresses import address_of_function
from futurex.kernels.numba_.tickets import CALLER, FUNCTIONS, HELP, HELPER, HELPERS, LINE, LOOKS, OFFERS, RUN, SETTINGS
from futurex.kernels.steps import Step

MOST = 64
"""Threads of a team."""
BRIEF_BYTES, BRIEF_PRODUCT = 1_500_000, 1 << 23
"""Bytes moved, and multiply-adds, below which a call is brief."""
TICKET_BYTES = 512 * 1024
"""Bytes that one ticket is worth at least, 15 to 40 µs of one thread: a thousand times what it takes to get it."""
MOST_TICKETS = 8
"""For each thread: where one comes late, or is taken from its processor, the others wait for an eighth of its part."""


@dataclass(frozen=True, slots=True)
class Share:
    """How a call is shared: among how many ``threads``, in how many ``tickets``; ``brief``: it is over before a helper
    that sleeps would come.

    >>> Share(2, 8).word
    524290
    """

    threads: int
    tickets: int
    brief: bool = False

    @classmethod
    def each(cls, threads: int, moved: int) -> Share:
        """A ticket for each thread, of a call that moves so many bytes and has memory for each ticket."""
        return cls(threads, threads, moved < BRIEF_BYTES)

    @classmethod
    def of(cls, threads: int, moved: int, pieces: int) -> Share:
        """Several tickets for each thread, of a call that can be cut into ``pieces``, and takes as long as moving so
        many bytes.

        >>> Share.of(2, 8_000_000, 1_000_000).tickets
        15
        >>> Share.of(2, 8_000_000, 3).tickets
        3
        """
        wanted = min(max(threads, moved // TICKET_BYTES), MOST_TICKETS * threads, max(threads, pieces))
        return cls(threads, wanted if threads > 1 else 1, moved < BRIEF_BYTES)

    @property
    def word(self) -> int:
        """All of it, as the code takes it."""
        return self.threads | self.tickets << 16 | self.brief << 32


class _Team:
    """The process's one team: its words, which generated code reads and writes, and its helpers."""

    def __init__(self) -> None:
        from futurex.kernels.numba_.compiler import compiled

        self._lock = threading.Lock()
        library, words = ctypes.CDLL(None), HELPERS + MOST * HELPER
        library.aligned_alloc.restype, library.aligned_alloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t] * 2
        self.address = library.aligned_alloc(64, 8 * words)  # never freed: threads may look at it to the very end
        self._words = np.ctypeslib.as_array((ctypes.c_int64 * words).from_address(self.address))
        self._threads: list[threading.Thread] = []
        self._code = compiled(RUN).address
        self._call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_void_p)(
            self._code
        )
        self._help = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(compiled(HELP).address)
        self._clear()
        atexit.register(self._dismiss)

    def asleep(self, k: int) -> bool:
        """Does this helper sleep?"""
        return bool(self._words[HELPERS + k * HELPER])

    def looks_longer(self, k: int) -> bool:
        """Has this helper slept for nothing, the last time?"""
        return bool(self._words[HELPERS + k * HELPER + 1])

    @property
    def passed(self) -> int:
        """Brief calls that have let helpers sleep since one woke some."""
        return int(self._words[SETTINGS + 2])

    def _clear(self) -> None:
        """A team without helpers."""
        library, words = ctypes.CDLL(None), self._words
        functions = [library.sem_post, library.sem_wait, library.sched_yield, library.clock_gettime]
        words[:] = 0
        words[FUNCTIONS : FUNCTIONS + len(functions)] = [address_of_function(each) for each in functions]
        library.sem_init(ctypes.c_void_p(self.address + 8 * CALLER), 0, 0)
        words[SETTINGS + 1] = LOOKS + OFFERS
        self._threads = []

    def _dismiss(self) -> None:
        """Send the helpers away, before the process takes apart what they run."""
        self._words[SETTINGS + 1] = 0
        for k in range(len(self._threads)):
            self._words[HELPERS + k * HELPER] = 0
            ctypes.CDLL(None).sem_post(self._signal(k))
        for thread in self._threads:
            thread.join()

    def _signal(self, k: int) -> ctypes.c_void_p:
        """What a helper sleeps by."""
        return ctypes.c_void_p(self.address + 8 * (HELPERS + k * HELPER + LINE))

    def run(self, code: int, block: Any, share: Share) -> None:
        """Call the kernel at an address for each of its tickets; return when all are done."""
        self._want(share.threads)
        self._call(code, block, share.word, self.address)

    def step(self, code: int, block: int, share: Share) -> Step:
        """The same as a step."""
        self._want(share.threads)
        return self._code, code, block, share.word, self.address, 0

    def _want(self, threads: int) -> None:
        """Have enough helpers for so many threads."""
        if len(self._threads) >= threads - 1:
            return
        with self._lock:
            while len(self._threads) < min(threads, MOST) - 1:
                k = len(self._threads)
                ctypes.CDLL(None).sem_init(self._signal(k), 0, 0)
                work = functools.partial(self._help, self.address, k)
                helper = threading.Thread(target=work, name=f"kernel {k}", daemon=True)
                try:
                    helper.start()
                except RuntimeError:  # the system, or a process that ends, allows no more
                    return
                self._threads.append(helper)
                self._words[SETTINGS] = len(self._threads)

    def forget(self) -> None:
        """A process that has forked has none of its parent's threads."""
        self._lock = threading.Lock()
        self._clear()


class _Only:
    lock = threading.Lock()
    team: _Team | None = None


def team() -> _Team:
    """The team; made with the first kernel of several threads."""
    if _Only.team is None:
        with _Only.lock:
            if _Only.team is None:
                _Only.team = _Team()
    return _Only.team


def _in_child() -> None:
    _Only.lock = threading.Lock()
    if _Only.team is not None:
        _Only.team.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
