"""NumPy's floating-point error state (``np.errstate``, ``np.seterr``) of the caller, where kernels run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import numpy as np
from numpy._core import umath

_state: Any = umath._extobj_contextvar
"""NumPy keeps its state in a context variable; asking for the object costs a fortieth of asking what is in it."""


class _Seen(threading.local):
    """The last state that was looked at, and whether an error there is more than a warning."""

    state: Any = None
    strict: bool = False


_seen = _Seen()


def strict() -> bool:
    """Would a floating-point error raise, print, call or be logged here? Then only NumPy itself will do."""
    state = _state.get()
    if state is not _seen.state:
        _seen.strict = any(mode not in ("ignore", "warn") for mode in np.geterr().values())
        _seen.state = state
    return _seen.strict


def carried(function: Callable[[], None]) -> Callable[[], None]:
    """``function`` for another thread, with the state of this one."""
    context = copy_context()
    return lambda: context.run(function)
