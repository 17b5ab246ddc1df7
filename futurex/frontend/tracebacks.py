"""Tracebacks show the user's lines: frames of this package are left out, lines that ran in a plan are put in.

An exception of a run was raised far from the user's program. What it shows instead are frames made of the lines that
its node was born at, with the columns of the expression, as if Python had run them. ``FUTUREX_TRACEBACK=full`` shows
everything as it happened.
"""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar, cast

from futurex.frontend.errors import StagingError
from futurex.runtime.inline import forget_checks
from futurex.tree.source import Source, visible

F = TypeVar("F", bound=Callable[..., Any])


def fold(error: BaseException) -> None:
    """Leave out the frames of this package; the caller re-raises with a bare ``raise``, which adds none."""
    if os.environ.get("FUTUREX_TRACEBACK") == "full":
        return
    own = getattr(error, "__lines__", None)
    entries = visible(error.__traceback__)
    if own is None:
        error.__traceback__ = _linked(entries, _lines_of(error, entries))
        return
    error.__traceback__ = _linked(entries[: entries.index(own)] if own in entries else entries, own)


def settle(error: BaseException) -> None:
    """Forget where an exception of a run was raised before; the user's lines in it remain."""
    if os.environ.get("FUTUREX_TRACEBACK") == "full":
        return
    if not hasattr(error, "__lines__"):
        error.__lines__ = _linked(visible(error.__traceback__), None)  # type: ignore[attr-defined]
        source = getattr(error, "__source__", None)
        if source is not None:
            forget_checks(error)
            error.__lines__ = _linked(_frames(source), error.__lines__)  # type: ignore[attr-defined]
    error.__traceback__ = error.__lines__  # type: ignore[attr-defined]


def folds(function: F) -> F:
    """A method at the edge of the package: exceptions leave it without frames of the package."""

    def method(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (Exception, KeyboardInterrupt) as error:
            fold(error)
            raise

    functools.update_wrapper(method, function)
    return cast(F, method)


def _lines_of(error: BaseException, entries: list[types.TracebackType]) -> types.TracebackType | None:
    """The line of an error about staging, where it is not among the entries."""
    source = error.source if isinstance(error, StagingError) else None
    if source is None:
        return None
    shown = set(map(_place, entries))  # an edge inside this one may have put it in
    return _linked([frame for frame in _frames(source) if _place(frame) not in shown], None)


def _place(entry: types.TracebackType) -> tuple[str, int]:
    return entry.tb_frame.f_code.co_filename, entry.tb_lineno


def _linked(entries: list[types.TracebackType], last: types.TracebackType | None) -> types.TracebackType | None:
    for entry in reversed(entries):
        last = types.TracebackType(last, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return last


def _frames(source: Source) -> list[types.TracebackType]:
    """Frames that stand at the lines of a source and its callers, the outermost first."""
    frames: list[types.TracebackType] = []
    place: Source | None = source
    while place is not None:
        frames.insert(0, _frame_at(place))
        place = place.caller
    return frames


def _frame_at(source: Source) -> types.TracebackType:
    """A frame as it is where an exception is raised at these lines and columns."""
    statement = ast.Raise(ast.Name("error", ast.Load()), None)
    start, stop = source.columns or (0, len(linecache.getline(source.file, source.line)))
    for node in ast.walk(statement):
        if isinstance(node, ast.expr | ast.stmt):
            node.lineno = node.end_lineno = source.line
            node.col_offset, node.end_col_offset = start, stop
    code = compile(ast.Module([statement], []), source.file, "exec")
    try:
        exec(code.replace(co_name=source.function, co_qualname=source.function), {"error": Exception()})
    except Exception:
        traceback = sys.exc_info()[2]
        assert traceback is not None
        assert traceback.tb_next is not None
        return traceback.tb_next
    raise AssertionError("the statement raises")
