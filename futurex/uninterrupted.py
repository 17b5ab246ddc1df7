"""What must not be left in its middle: Ctrl-C comes when it is done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uninterrupted() -> Iterator[None]:
    """What this process is sent by Ctrl-C, or a notebook's interrupt, in the block comes when the block ends.

    A package that is left in the middle of its import cannot be imported in this process any more.
    """
    handler, came = signal.getsignal(signal.SIGINT), []
    if handler is None or threading.current_thread() is not threading.main_thread():  # Python acts in that one alone
        yield
        return
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)
