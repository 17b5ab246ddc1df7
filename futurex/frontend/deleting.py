"""``del`` of items and attributes in staged code."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from futurex.frontend.calls import call
from futurex.frontend.errors import Escape, python
from futurex.frontend.lists import TracedList
from futurex.frontend.outside import of_class, own_container
from futurex.frontend.trace import current
from futurex.frontend.tracer import entered


def delete_item(container: Any, index: Any) -> None:
    container = entered(container)
    if isinstance(container, TracedList) and not isinstance(index, slice):
        container.pop(entered(index))
        return
    method = of_class(type(container), "__delitem__")
    if type(method) is types.FunctionType:
        call(method, (container, index), {})
        return
    own_container(container, f"an item of a {type(container).__name__}")
    with python():
        del container[index]


def delete_attribute(target: Any, name: str, read: Callable[[Any, str], Any]) -> None:
    """``read``: how staged code reads an attribute. It is looked at where it is deleted, so that there is a guard: a
    call that has deleted it finds it missing the next time. Arrays have none, as they may be others at every call."""
    target = entered(target)
    of_users = type(of_class(type(target), "__delattr__")) is types.FunctionType
    if of_users or hasattr(type(getattr(type(target), name, None)), "__delete__"):
        raise Escape(f"del of the attribute {name!r} of a {type(target).__qualname__}", "its class says what it does")
    read(target, name)
    trace, place = current(), (id(target), name)
    if not (trace.is_own(target) or place in trace.assigned or place in trace.guards):
        raise Escape(f"del of the attribute {name!r}, an array", "whether later calls find it is not known")
    own_container(target, f"the attribute {name!r}")
    with python():
        delattr(target, name)
