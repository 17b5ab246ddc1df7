"""Whether futurized functions are plain Python: ``FUTUREX=off`` for a process, ``fx.disable()`` for a block."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


def _is_off() -> bool:
    """Does the environment turn futurex off? FUTUREX: ``on`` (default) or ``off``."""
    text = os.environ.get("FUTUREX") or "on"
    if text.lower() not in ("on", "off"):
        raise ValueError(f"FUTUREX={text!r} must be on or off")
    return text.lower() == "off"


class _Settings(threading.local):
    disabled = _is_off()


_settings = _Settings()
disabling = [True] * _settings.disabled
"""Who has turned it off, of all threads: where nobody has, a call need not ask for its own."""


def disabled() -> bool:
    """Is it off in this thread?"""
    return _settings.disabled


@contextmanager
def disable() -> Iterator[None]:
    """Run futurized functions as plain Python inside the block (``FUTUREX=off`` does it for the whole process).

    >>> import futurex as fx
    >>> f = fx.futurize(lambda x: x + 1)
    >>> with fx.disable():
    ...     f(1)
    2
    """
    before, _settings.disabled = _settings.disabled, True
    disabling.append(True)
    try:
        yield
    finally:
        disabling.pop()
        _settings.disabled = before
