"""Where plans keep what only they see: small arenas are each plan's own, large ones are lent by the process in turns.

A training step, the evaluation behind it and the last, smaller batch are three plans of which one runs at a time: they
work in the same memory, and the process needs as much as the largest.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.kernels.addresses import LINE, on_lines

ALIGNMENT = LINE
HUGE_PAGE = 2 << 20
LEAST_LENT = HUGE_PAGE // 2
"""Bytes from which an arena is lent, and lies on pages of its own."""


class Arena:
    """At least ``nbytes`` bytes in which one run works at a time; ``left`` once larger ones have taken its place."""

    __slots__ = ("__weakref__", "_pages", "_user", "left", "memory")

    def __init__(self, nbytes: int) -> None:
        self._pages = pages(nbytes)
        self.memory: Any = aligned(self._pages, nbytes)
        self.left = False
        self._user: Callable[[], Any] | None = None

    def take(self, user: Any) -> bool:
        """Begin a run, if no other one works here. A user who is lost, as by an interrupt, works no more."""
        with _guard:
            return self._take(user)

    def _take(self, user: Any) -> bool:
        reference = weakref.ref(user)  # first: making it may collect garbage, whose finalizers may run plans
        if self.left or self._busy:
            return False
        self._user = reference
        return True

    @property
    def _busy(self) -> bool:
        return self._user is not None and self._user() is not None

    def give(self) -> None:
        """End a run: others may write over what it left."""
        self._user = None

    def _leave(self) -> None:
        """Let nobody work here from now on; the pages go back at once. Who lies here sees it before the next run."""
        self.left = True
        _known.discard(self)
        if hasattr(mmap, "MADV_DONTNEED"):
            self._pages.madvise(mmap.MADV_DONTNEED)


_known: weakref.WeakSet[Arena] = weakref.WeakSet()
_guard = threading.RLock()  # finalizers of what is collected meanwhile may run plans, too


def lent(nbytes: int, user: Any) -> Arena:
    """The smallest arena of so many bytes in which nobody works, taken by ``user``; where there is none a new one, in
    place of those that are idle."""
    with _guard:
        for arena in sorted(_known, key=lambda each: each.memory.nbytes):
            if arena.memory.nbytes >= nbytes and arena._take(user):
                return arena
        for arena in [each for each in _known if not each._busy]:
            arena._leave()
        new = Arena(nbytes)
        new._take(user)
        _known.add(new)
        return new


def allocate(nbytes: int) -> Any:
    """``nbytes`` bytes that start on a 64-byte boundary; on huge pages where they are enough to gain by them."""
    if nbytes >= LEAST_LENT:
        return aligned(pages(nbytes), nbytes)
    return on_lines((nbytes,), np.dtype(np.uint8))


def pages(nbytes: int) -> mmap.mmap:
    """Room for ``nbytes`` bytes on huge pages, of which the last one, too, is huge only if all of it is there."""
    found = mmap.mmap(-1, -(-nbytes // HUGE_PAGE) * HUGE_PAGE + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        found.madvise(mmap.MADV_HUGEPAGE)
    return found


def aligned(room: mmap.mmap, nbytes: int) -> Any:
    """The bytes of the room from its first huge page on."""
    start = -ctypes.addressof(ctypes.c_char.from_buffer(room)) % HUGE_PAGE
    return np.frombuffer(room, np.uint8)[start : start + nbytes]


def _in_child() -> None:
    """After a fork: whoever works in an arena does so in the parent only."""
    global _guard
    _guard = threading.RLock()
    for arena in [each for each in _known if each._busy]:
        arena._leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
