"""Python's warnings, silenced by one thread at a time."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_turn = threading.RLock()
if hasattr(os, "register_at_fork"):  # a child would stay silent
    os.register_at_fork(before=_turn.acquire, after_in_parent=_turn.release, after_in_child=_turn.release)


@contextmanager
def silenced() -> Iterator[None]:
    """No warnings in the block. That is so for the whole process: of two threads that left it in the order in which
    they came, the second one would leave it silent for good. A fork waits for the end of it, too."""
    with _turn, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
