"""A call that has printed and fails is made again as plain NumPy, and prints only what is missing."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from collections.abc import Iterator
from typing import Any

from futurex.ops.python import printed


def printed_here() -> int:
    """How many characters runs of this thread have printed so far."""
    return printed.count


class _Rest(io.TextIOBase):
    """Writes of one thread but for its first ones, and those of all others, to another stream."""

    def __init__(self, stream: Any, skipped: int) -> None:
        self.stream, self.skipped, self.thread = stream, skipped, threading.get_ident()

    def write(self, text: str, /) -> int:
        rest = text
        if threading.get_ident() == self.thread:
            rest, self.skipped = text[self.skipped :], max(0, self.skipped - len(text))
        if rest:
            self.stream.write(rest)
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextlib.contextmanager
def without_printed(count: int) -> Iterator[None]:
    """Inside, this thread's first ``count`` characters for the standard output are dropped: they are there already."""
    if not count:
        yield
        return
    with contextlib.redirect_stdout(_Rest(sys.stdout, count)):
        yield
