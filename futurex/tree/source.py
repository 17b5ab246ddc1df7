"""Where in the user's program a node was born."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
MODELS = os.path.join(PACKAGE, "models", "")  # plain functions, such as a user writes


@dataclass(frozen=True, slots=True)
class Source:
    """A line of the user's program."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"

    def text(self) -> str:
        """The line itself, stripped; empty where the source cannot be read."""
        import linecache

        return linecache.getline(self.file, self.line).strip()


class _Override(threading.local):
    source: Source | None = None
    active: bool = False


_override = _Override()


def is_internal(filename: str) -> bool:
    """True for frames that are not the user's: futurex itself but for its models, and modules without a file."""
    return filename.startswith((PACKAGE, "<frozen", "<string>")) and not filename.startswith(MODELS)


def here() -> Source | None:
    """The innermost line outside futurex on the current stack, or the line set by :func:`at`."""
    if _override.active:
        return _override.source
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not is_internal(code.co_filename):
            return Source(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return None


@contextmanager
def at(source: Source | None) -> Iterator[None]:
    """Give the nodes built inside the block the line of ``source``: derived nodes belong to the line they derive
    from."""
    before = _override.source, _override.active
    _override.source, _override.active = source, True
    try:
        yield
    finally:
        _override.source, _override.active = before
