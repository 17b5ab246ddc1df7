"""Comparing tuples of traced numbers: entry by entry, as far as they are the same."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.frontend import control
from futurex.frontend.control.either import of_one_dtype
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import Tracer, entered, fresh, node_of
from futurex.ops.control import Failure

_NAN = Failure(ValueError, ("Python compares a NaN in a tuple by identity, too",))
_ORDERS = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}
Compare = Callable[[str, Any, Any], Any]


def comparable(name: str, left: Any, right: Any) -> tuple[Any, Any] | None:
    """Two values that are no arrays, if they can be compared so. Equality is that of integers and tuples of such."""
    if name in ("eq", "ne"):
        return (left, right) if _is_of(left, "biu") and _is_of(right, "biu") else None
    if name not in _ORDERS or type(left) is not tuple or type(right) is not tuple:
        return None
    pair = _in_order(left), _in_order(right)
    return pair if all(_is_of(each, "biuf") for each in pair) else None


def _in_order(value: Any) -> Any:
    """A number that is Python's or NumPy's, or a tuple with such, for who asks only which is less."""
    return tuple(map(_in_order, value)) if type(value) is tuple else of_one_dtype(value)


def _is_of(value: Any, kinds: str) -> bool:
    """Is it a number of these kinds, or a tuple of such?"""
    if isinstance(value, Tracer):
        return value.is_scalar and value.dtype.kind in kinds
    if type(value) is tuple:
        return all(_is_of(each, kinds) for each in value)
    if type(value) is float:
        return "f" in kinds
    return type(value) in (int, bool) or (isinstance(value, np.generic) and value.dtype.kind in kinds)


def compared(compare: Compare, name: str, left: Any, right: Any) -> Any:
    """``left <name> right``, of numbers by ``compare``."""
    if name in _ORDERS:
        return _ordered(compare, name, left, right)
    found = _equal(compare, left, right)
    return found if name == "eq" else control.not_(found)


def _equal(compare: Compare, left: Any, right: Any) -> Any:
    """Equality of exact values: that of their entries, one after the other."""
    if type(left) is not tuple or type(right) is not tuple:
        return False if tuple in (type(left), type(right)) else compare("eq", left, right)
    if len(left) != len(right):
        return False
    tests = [functools.partial(_equal, compare, *pair) for pair in zip(left, right, strict=True)]
    return control.truth_of(control.and_(True, *tests))


def _ordered(compare: Compare, name: str, left: tuple[Any, ...], right: tuple[Any, ...]) -> Any:
    """The first entries that differ decide, or else the lengths. What NumPy's numbers give is NumPy's truth."""
    found: Any = _ORDERS[name](len(left), len(right))
    loose = False
    for a, b in reversed(list(zip(left, right, strict=False))):
        nested = type(a) is tuple or type(b) is tuple
        if nested and type(a) is not type(b):
            raise TypeError(f"{name} of a tuple and a number")
        loose |= nested or not (_is_pythons(a) and _is_pythons(b))
        same = _equal(compare, a, b) if nested else compare("eq", _without_nan(a, b), b)
        decides = compared(compare, name, a, b) if nested else compare(name, a, b)
        if not isinstance(same, Tracer):
            found = found if same else decides
            continue
        nodes = [node_of(entered(each)) for each in (found, decides)]
        found = fresh(emit("python_scalar", emit("where", same._node, *nodes), kind="b"))
    if isinstance(found, Tracer):
        found._loose = found._loose or loose
    return found


def _is_pythons(number: Any) -> bool:
    return bool(number.aval.weak) if isinstance(number, Tracer) else not isinstance(number, np.generic)


def _without_nan(a: Any, b: Any) -> Any:
    """The first of two numbers, of which one is no NaN: Python takes the same one for equal to itself."""
    for each in (a, b):
        if isinstance(each, Tracer) and each.dtype.kind == "f":
            continue
        if isinstance(each, Tracer) or each == each:
            return a
    tests = [emit("equal", node, node) for node in map(node_of, (a, b))]
    current().waits = True
    current().effect("check", emit("logical_or", *tests), failure=_NAN)
    return a
