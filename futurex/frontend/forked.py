"""Locks that a child after a fork finds free: a thread that held one runs in the parent only."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def lock() -> Any:
    """A lock that its holder may take again."""
    made = threading.RLock()
    _locks.add(made)
    return made


def _free() -> None:
    for each in _locks:
        each._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free)
