"""NumPy's floating-point error state (``np.errstate``, ``np.seterr``) of the caller, where kernels run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from typing import Any

import numpy as np
from numpy._core import umath

_state: Any = umath._extobj_contextvar
"""NumPy keeps its state in a context variable; asking for the object costs a fortieth of asking what is in it."""


_seen: tuple[Any, bool] = (None, False)
"""The last state that was looked at, and whether an error there is more than a warning."""


def strict() -> bool:
    """Would a floating-point error raise, print, call or be logged here? Then only NumPy itself will do."""
    global _seen
    state, seen = _state.get(), _seen
    if state is not seen[0]:
        seen = _seen = state, any(mode not in ("ignore", "warn") for mode in np.geterr().values())
    return seen[1]


def raising() -> dict[str, Any]:
    """The state for others, elsewhere, if an error raises in it; what calls or logs here warns there."""
    state = np.geterr()
    if "raise" not in state.values():
        return {}
    return {kind: mode if mode in ("ignore", "warn", "raise") else "warn" for kind, mode in state.items()}


def silenced(quiet: Mapping[str, str]) -> AbstractContextManager[Any]:
    """The state of a run in which these errors are silenced: all that are to be ignored, and of those that filters of
    warnings ignore ("warn") what would be a warning."""
    if not quiet:
        return nullcontext()
    state: Mapping[str, Any] = {**np.geterr()}
    modes: dict[str, Any] = {kind: "ignore" for kind, mode in quiet.items() if mode == "ignore" or state[kind] == mode}
    return np.errstate(**modes)


def untold() -> np.errstate:
    """The state in which nothing is told of constants that are computed for a branch or round to which no run may come.
    Where warnings are errors it is the state as it is: who sees the error leaves all to NumPy."""
    filters = (each for each in warnings.filters if each[1] is None and each[3] is None)  # for all texts and modules
    if next((action for action, _, kind, *_ in filters if issubclass(RuntimeWarning, kind)), "") == "error":
        return np.errstate()
    quiet: dict[str, Any] = {error: "ignore" for error, mode in np.geterr().items() if mode == "warn"}
    return np.errstate(**quiet)


def carried(function: Callable[[], None]) -> Callable[[], None]:
    """``function`` for another thread, with the state of this one."""
    context = copy_context()
    return lambda: context.run(function)
