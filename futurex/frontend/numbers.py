"""Traced Python numbers: they have the attributes of their own type, not those of arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.trace import emit
from futurex.frontend.tracer import Conflict, Tracer, entered, fresh

_EXACT = 2**53  # ints up to here are floats


def attribute(number: Tracer, name: str) -> Any:
    """``number.name`` of a traced bool, int, float or complex. Raises AttributeError as Python does."""
    kind = type(number.dtype.type(0).item())
    if number._loose:
        raise Escape(f"{name!r} of a value that is a Python number in some branch", "the two have other attributes")
    if not hasattr(kind, name):
        raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")
    if name in ("real", "imag") and kind is complex:
        return fresh(emit("python_scalar", emit(name, number._node), kind="f"))
    if name == "imag":
        return kind(0).imag
    if name in ("real", "numerator"):
        return number if kind is not bool else fresh(emit("python_scalar", number._node, kind="i"))
    if name == "denominator":
        return 1
    if name == "conjugate":
        return lambda: conjugate(number)
    raise Escape(f"{name!r} of a Python {kind.__name__} that is not known before the run", "plain Python needs it here")


def conjugate(number: Tracer) -> Tracer:
    if number.dtype.kind == "c":
        return fresh(emit("python_scalar", emit("conjugate", number._node), kind="c"))
    return attribute(number, "real")


# -- numbers that are Python's in one branch, and NumPy's in the other -------------------------------------------------


def is_float(value: Any) -> bool:
    """Is it a NumPy scalar of floats, surely bound?"""
    if not isinstance(value, Tracer) or not value.is_scalar or value._guard is not None:
        return False
    return not value.aval.weak and value.dtype.kind == "f"


def is_exact(value: Any, dtype: np.dtype[Any]) -> bool:
    """Is a number of Python's, known by now, exactly one of these floats?"""
    if type(value) not in (int, float) or not abs(value) <= _EXACT:
        return False
    return float(dtype.type(value)) == value


def beside(value: Any, other: Any) -> Any:
    """A value that is about to meet another one: beside a float or array of floats of its own type a number of Python's
    does what such a float does, so that it does not matter which of the two it is."""
    if type(value) is not Conflict or value.number is None:
        return value
    other = entered(other)
    if not isinstance(other, Tracer) or other.aval.weak or other._loose or other.dtype != value.number.dtype:
        return value
    return value.number


def compared(value: Any, other: Any) -> Any:
    """The same for a comparison of which only the outcome matters, also with a number of Python's."""
    if type(value) is Conflict and value.number is not None and is_exact(other, value.number.dtype):
        return value.number
    return beside(value, other)


def argument(function: Any, value: Any) -> Any:
    """A value that a function is about to be given: a few look at nothing but what number it is."""
    if type(value) is Conflict and value.number is not None:
        if function is max or function is min:
            return value
        if value.number.dtype == np.float64 and any(function is each for each in _OF_NUMBERS):
            return value.number
    return entered(value)


_OF_NUMBERS = (float, math.sqrt, math.exp, math.log, np.sqrt, np.exp, np.log)
