"""``warnings.warn`` of the user's functions names their own lines, whoever makes the call."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import Any

import numpy as np

from futurex.ops.control import Failure
from futurex.tree.aval import Aval
from futurex.tree.record import op
from futurex.tree.source import is_internal

Line = tuple[str, int, str]
"""A file, a line in it, and the name of its module."""
_registries: dict[str, dict[Any, Any]] = {}


def lines(until: CodeType | None = None) -> tuple[Line, ...]:
    """The user's lines on the stack, innermost first, up to where this code runs."""
    found: list[Line] = []
    inner: CodeType | None = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (code := frame.f_code) is not until:
        if not is_internal(code.co_filename):
            if inner is None or not _is_part(inner, code):
                found.append((code.co_filename, frame.f_lineno, str(frame.f_globals.get("__name__"))))
            inner = code
        frame = frame.f_back
    return tuple(found)


def _is_part(inner: CodeType, outer: CodeType) -> bool:
    """Is it a branch or the rounds of a staged function, whose calls are none of the user's?"""
    return inner.co_qualname == outer.co_qualname and any(const is inner for const in outer.co_consts)


def warn(
    stack: Sequence[Line], message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **others: Any
) -> None:
    """``warnings.warn`` on a stack of these lines. What has been said of a line is noted in its module."""
    if not stack or others:
        warnings.warn(message, category, stacklevel + 1, source, **others)
        return
    file, line, name = stack[min(max(stacklevel, 1), len(stack)) - 1]
    kind = type(message) if isinstance(message, Warning) else category or UserWarning
    module = sys.modules.get(name)
    noted = _registries.setdefault(file, {}) if module is None else vars(module).setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, kind, file, line, name, noted, source=source)


def warn_here(*args: Any, **kwargs: Any) -> None:
    """``warnings.warn`` in code that is called through functions that are not the user's."""
    warn(lines(), *args, **kwargs)


def _warning(*values: Any, warning: Failure, stacklevel: int, within: tuple[Line, ...]) -> Any:
    """``within``: the user's lines inside the function that is staged, innermost first."""
    warn((*within, *lines()), warning.made(values), stacklevel=stacklevel)
    return np.True_


op(
    "warning", _warning, aval=lambda *values, warning, stacklevel, within: Aval((), np.dtype(bool)), effect=True,
    acts=True, fails=True,
)  # fmt: skip
