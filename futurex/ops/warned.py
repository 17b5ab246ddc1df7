"""Calls of the user's functions that name the line they are made from, whoever makes them: ``warnings.warn`` is told
it, and what looks for its caller, as ``logging`` does, finds a frame that stands there."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

import numpy as np

from futurex.ops.control import Failure
from futurex.tree.aval import Aval
from futurex.tree.record import op
from futurex.tree.source import is_internal

Line = tuple[str, int, str, str]
"""A file, a line in it, and the names of its module and its function."""
_NUMPY = str(Path(np.__file__).parent)
_registries: dict[str, dict[Any, Any]] = {}


def lines(until: CodeType | None = None) -> tuple[Line, ...]:
    """The user's lines on the stack, innermost first, up to where this code runs."""
    found: list[Line] = []
    inner: CodeType | None = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (code := frame.f_code) is not until:
        if not is_internal(code.co_filename):
            if inner is None or not _is_part(inner, code):
                module = str(frame.f_globals.get("__name__"))
                found.append((code.co_filename, frame.f_lineno, module, code.co_name))
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
    file, line, name, _ = stack[min(max(stacklevel, 1), len(stack)) - 1]
    kind = type(message) if isinstance(message, Warning) else category or UserWarning
    module = sys.modules.get(name)
    noted = _registries.setdefault(file, {}) if module is None else vars(module).setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, kind, file, line, name, noted, source=source)


def warn_here(*args: Any, **kwargs: Any) -> None:
    """``warnings.warn`` in code that is called through functions that are not the user's."""
    warn(lines(), *args, **kwargs)


def looks_back(function: Any) -> bool:
    """May it look for the line that it is called from? NumPy's own and compiled functions do not."""
    function = function.__func__ if type(function) is MethodType else function
    file = function.__code__.co_filename if type(function) is FunctionType else _NUMPY
    return not (file.startswith(_NUMPY) or is_internal(file))


def called_from(within: Sequence[Line], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which finds that it is called from these lines, innermost first, and from those on the stack behind
    them."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return _called_from(within, function, args, kwargs)

    return call


def _called_from(within: Sequence[Line], function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    level = kwargs.get("stacklevel", 1)
    level = max(level, 1) if type(level) is int else 1
    stack = within[:level] if len(within) >= level else (*within, *lines())[:level]
    call: tuple[Any, Any, Any] = function, args, kwargs
    for line in stack:
        call = _frame_at(*line), call, {}
    try:
        return call[0](*call[1], **call[2])
    except BaseException as error:  # the lines themselves are there, or are put in
        here = error.__traceback__
        assert here is not None
        behind = here.tb_next
        for _ in stack:
            behind = behind.tb_next if behind is not None else None
        here.tb_next = behind
        raise


@functools.lru_cache(maxsize=1024)
def _frame_at(file: str, line: int, module: str, name: str) -> Callable[..., Any]:
    """A function that makes a call as if it stood there."""
    code = _make.__code__.replace(co_filename=file, co_firstlineno=line - 1, co_name=name, co_qualname=name)
    known = sys.modules.get(module)  # where it is noted of which line something has been said
    return FunctionType(code, {"__name__": module} if known is None else vars(known))


def _make(function: Any, args: Any, kwargs: Any) -> Any:
    return function(*args, **kwargs)


def _warning(*values: Any, warning: Failure, stacklevel: int, within: tuple[Line, ...]) -> Any:
    """``within``: the user's lines inside the function that is staged, innermost first."""
    warn((*within, *lines()), warning.made(values), stacklevel=stacklevel)
    return np.True_


op(
    "warning", _warning, aval=lambda *values, warning, stacklevel, within: Aval((), np.dtype(bool)), effect=True,
    acts=True, fails=True,
)  # fmt: skip
