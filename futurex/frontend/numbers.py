"""Traced Python numbers: they have the attributes of their own type, not those of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import Tracer, fresh
from futurex.tree.node import Node


def attribute(number: Tracer, name: str) -> Any:
    """``number.name`` of a traced bool, int, float or complex. Raises AttributeError as Python does."""
    kind = type(number.dtype.type(0).item())
    if number._loose:
        current().tell()
        raise Escape(f"{name!r} of a value that is a Python number in some branch", "the two have other attributes")
    if not _has(kind, name):
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


def array_attribute(value: Tracer, name: str) -> Any:
    """``value.name`` of a traced array or NumPy scalar, of which a tracer has more than NumPy, and other ones."""
    from futurex.frontend.numpy_api.registry import missing

    check_attribute(value, name)
    if not _has(value.dtype.type if value.is_scalar else np.ndarray, name):
        raise missing(value, lambda like: getattr(like, name))
    if name == "__doc__" or (hasattr(object, name) and getattr(Tracer, name) is getattr(object, name)):
        raise Escape(f"the attribute {name!r} of an array", "the tracer has another one")
    return getattr(value, name)


def _has(kind: type, name: str) -> bool:
    """Have its instances the attribute? The class has others, such as a name; of some arrays asking for one fails."""
    return any(name in vars(each) for each in kind.__mro__)


def number_of(node: Node, kind: str) -> Tracer:
    """An element as one of Python's numbers. Of ints a trace knows 64 bits: where an unsigned one is wider, the call
    runs again as plain Python."""
    if kind in "iu" and node.dtype == np.uint64:
        current().waits = True
    return fresh(emit("python_scalar", node, kind=kind))


def check_attribute(number: Tracer, name: str) -> None:
    """Refuses an attribute of a number that is NumPy's in some branch and Python's, which has none such, in another."""
    if number._loose and not number.aval.weak and not hasattr(type(number.dtype.type(0).item()), name):
        current().tell()
        what = f"{name!r} of a value that is a Python number in some branch"
        raise Escape(what, "which has no such attribute", "give it one type before, as with np.float64(0)")


def has_attribute(value: Tracer, name: str) -> bool:
    """``hasattr(value, name)`` of a traced array or number: Python's numbers have the attributes of their own type."""
    if not value.aval.weak:
        check_attribute(value, name)
        if name == "mT" and not value.is_scalar:
            array_attribute(value, name)  # of vectors NumPy raises, and no AttributeError
        return _has(value.dtype.type if value.is_scalar else np.ndarray, name)
    has = _has(type(value.dtype.type(0).item()), name)
    if value._loose and has != _has(value.dtype.type, name):
        current().tell()
        raise Escape(f"{name!r} of a value that is a Python number in some branch", "the two have other attributes")
    return has


def conjugate(number: Tracer) -> Tracer:
    if number.dtype.kind == "c":
        return fresh(emit("python_scalar", emit("conjugate", number._node), kind="c"))
    return attribute(number, "real")
