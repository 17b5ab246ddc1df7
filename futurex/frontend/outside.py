"""What a trace takes from outside the function: guarded values, captured arrays, containers it may not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.trace import Guard, current
from futurex.frontend.tracer import Tracer, lift

PLAIN = (int, float, complex, bool, str, bytes, type(None), type(Ellipsis), slice, range)


def any_traced(values: Any) -> bool:
    return any(
        isinstance(value, Tracer) or hasattr(type(value), "__fx_future__") or (isinstance(value, list | tuple) and any_traced(value))
        or (isinstance(value, dict) and any_traced(value.values()))
        for value in values
    )  # fmt: skip


def captured_value(name: str, value: Any, read: Callable[[], Any], key: Any) -> Any:
    """Guard a value from outside; an array becomes an input read again at every call."""
    if isinstance(value, Tracer):
        return value
    trace = current()
    if isinstance(value, np.ndarray):
        return lift(value, read)
    if hasattr(type(value), "__fx_future__"):
        return Tracer(trace.capture(value, read))
    if key not in trace.guards and not trace.is_own(value):
        trace.guards[key] = Guard(name, read, fingerprint(value))
    return value


def fingerprint(value: Any, depth: int = 0) -> Any:
    """What must stay the same for a trace to stay valid: value for plain data, contents of containers, identity else."""
    if isinstance(value, PLAIN) or isinstance(value, np.generic):
        return (type(value), repr(value))
    if isinstance(value, np.ndarray):
        return ("array", id(value))
    if isinstance(value, tuple | list) and depth < 6:
        return (type(value), id(value) if isinstance(value, list) else 0, tuple(fingerprint(entry, depth + 1) for entry in value))
    if isinstance(value, dict) and depth < 6 and len(value) < 10_000:
        return (dict, id(value), tuple((repr(k), fingerprint(entry, depth + 1)) for k, entry in value.items()))
    return ("object", id(value))


def own_container(container: Any, what: str, unchanged: Callable[[], bool] | None = None) -> None:
    """Refuse to change a Python object that code outside the trace can see."""
    if current().is_own(container):
        return
    try:
        if unchanged is not None and unchanged():
            return
    except (LookupError, AttributeError):
        pass
    where = "inside a staged branch or loop" if current().scopes else "that was not made by the function"
    raise Escape(f"changing {what} {where}", "the change would happen once, while tracing, not at every run")
