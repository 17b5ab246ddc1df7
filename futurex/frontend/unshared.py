"""Arrays of which one name alone knows: before a write it gets one of its own, where branches have made it several.

Which names these are is in :mod:`futurex.frontend.rewrite.unshared`. Operators of users' classes may keep their
operands, and return what they keep; a trace in which there is one does without.
"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.trace import SAME_IN_SOME_BRANCHES, current
from futurex.frontend.tracer import Tracer, new_array

_KNOWN = frozenset(map(id, (np, builtins.len, builtins.float, builtins.int, builtins.abs, builtins.bool)))


def apart(value: Any, *relied: Any) -> Any:
    """What a name is bound to whose array is about to be written: the same elements, in storage of the name's own.

    ``relied``: modules and functions that must be NumPy and Python's own.
    """
    if type(value) is not Tracer or value.is_scalar or value._cell.entangled != SAME_IN_SOME_BRANCHES:
        return value
    trace = current()
    if trace.meets_objects or not all(id(each) in _KNOWN for each in relied):
        return value
    trace.shares = True
    return new_array(value._node) if trace.keeps_apart else value


def meet_object() -> None:
    """A method of a user's class is about to be an operator."""
    trace = current()
    if trace.shares and trace.keeps_apart:
        raise Escape("an operator of a class, and writes into arrays that branches made", "it may keep one of these")
    trace.meets_objects = True
