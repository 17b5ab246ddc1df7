"""Exceptions that a run raises: what they are made of, and whether that is all that they are.

A check makes its exception anew, from the type and the arguments. What the program gave it besides, attributes, notes,
the exception that it came from, is there where the call is run again as plain NumPy: such a call waits for its run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from futurex.frontend.errors import Escape, mark
from futurex.frontend.texts import TracedText, kind_of_value
from futurex.frontend.trace import current
from futurex.frontend.tracer import Tracer
from futurex.ops.control import Failure
from futurex.ops.python import Value
from futurex.tree.node import Node

_NAMED = (AttributeError, ImportError, NameError, OSError)
"""Python raises these with attributes that are no arguments."""
_SIMPLE = (str, int, float, complex, bytes, type(None), type, np.generic, Tracer, TracedText)


def raise_(thunk: Callable[[], Any], cause: Callable[[], Any] | None = None) -> NoReturn:
    """``raise error`` and ``raise error from cause``."""
    error, trace = _made_now(thunk), current()
    if isinstance(error, BaseException) and not isinstance(error, Exception):
        raise Escape(f"raising {type(error).__name__}", "it would end the trace, taken or not")
    mark(error)
    if trace.handles and error.__context__ is None:
        error.__context__ = np.linalg.LinAlgError()  # which only the run makes
    if cause is not None:
        raise error from _made_now(cause)
    raise error


def _made_now(thunk: Callable[[], Any]) -> Any:
    error = thunk()
    if isinstance(error, type):
        error = error()
        note_made(error, (), {})
    return error


def note_made(error: BaseException, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Staged code has made an exception of these arguments."""
    error.__made_from__ = args, kwargs, _state(error)  # type: ignore[attr-defined]


def failure_of(error: BaseException) -> tuple[Failure, list[Node]]:
    """An exception to be raised at run time, and the values that its arguments wait for."""
    made, kwargs, _ = getattr(error, "__made_from__", (error.args, {}, None))
    args: list[Any] = []
    nodes: list[Node] = []
    for arg in (*made, *kwargs.values()):
        if isinstance(arg, TracedText):
            args.append(arg.text)
            nodes += arg.nodes
        elif isinstance(arg, Tracer):
            args.append(Value(kind_of_value(arg)))
            nodes.append(arg._node)
        elif _is_constant(arg):
            args.append(arg)
        else:
            raise Escape(f"an exception with a {type(arg).__name__} in it", "it cannot be kept for the run")
    return Failure(type(error), tuple(args), tuple(kwargs)), nodes


def _is_constant(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_constant, value))
    return isinstance(value, str | int | float | complex | bytes | type(None))


def is_as_made(error: BaseException) -> bool:
    """Is it all that its type makes of its arguments, and came from no other one?"""
    if error.__cause__ is not None or error.__suppress_context__ or _came_from(error):
        return False
    before, now = getattr(error, "__made_from__", (0, 0, None))[2], _state(error)
    if before is None:
        return set(now) == {"args"} and not isinstance(error, _NAMED)
    same = before.keys() == now.keys() and all(now[name] is value for name, value in before.items())
    return same and all(map(_is_simple, now.values()))


def _came_from(error: BaseException) -> bool:
    """Was another exception being handled? Tracing has some of its own."""
    before = error.__context__
    while before is not None and type(before).__module__.startswith("futurex."):
        before = before.__context__
    return before is not None


def _state(error: BaseException) -> dict[str, Any]:
    """Its attributes: arguments, notes, those in its dict, and others that staged code has set."""
    own = {name: value for name, value in vars(error).items() if name == "__notes__" or not name.startswith("__")}
    others = [name for key, name in current().assigned if key == id(error)]
    return {"args": error.args, **own, **{name: getattr(error, name, None) for name in others}}


def _is_simple(value: Any) -> bool:
    return all(map(_is_simple, value)) if type(value) is tuple else isinstance(value, _SIMPLE)
