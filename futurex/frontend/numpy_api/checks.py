"""Where Python's numbers raise and NumPy's do not: division by zero, and integers wider than 64 bits."""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import fresh
from futurex.frontend.wide import COUNTED, SMALL, WIDE, bits_of_int
from futurex.tree.node import Node
from futurex.tree.source import without_frames

_DIVISIONS = {
    np.divide: operator.truediv, np.floor_divide: operator.floordiv, np.remainder: operator.mod, np.divmod: divmod,
}  # fmt: skip
_LIMIT = 2.0**63
_LEAST = -(1 << 63)


def check_numbers(ufunc: Any, nodes: list[Node]) -> None:
    """Check, at run time, that an operator on Python numbers does what it does in Python."""
    if ufunc in _DIVISIONS and not (nodes[1].op == "const" and nodes[1].value != 0):
        _require(emit("not_equal", nodes[1], 0), _division_error(ufunc, *(node.dtype.kind for node in nodes)))
    elif ufunc in (np.left_shift, np.right_shift) and not (nodes[1].op == "const" and nodes[1].value >= 0):
        _require(emit("greater_equal", nodes[1], 0), ValueError("negative shift count"))
    if all(node.dtype.kind == "i" for node in nodes):
        fits = _fits(ufunc, *nodes) if len(nodes) == 2 else _opposite_fits(ufunc, *nodes)
        if fits is not None:
            current().waits = True  # the call that fails this check is run again as plain Python
            wide = "a Python int of staged code does not fit into 64 bits; use floats, or keep it out of staged code"
            _require(fits, OverflowError(wide))


def check_power(base: Node, exponent: Node) -> None:
    """Check that a power of two ints is one, too: by a negative one it is a float. One of more than 64 bits fails."""
    if exponent.op != "const":
        _require(emit("greater_equal", exponent, 0), OverflowError("a negative power of a Python int of staged code"))
    elif bits_of_int(base) * exponent.value <= WIDE or exponent.value <= 1:
        return
    current().waits = True  # the call that fails is run again as plain Python


@functools.cache
def _division_error(ufunc: Any, *kinds: str) -> ZeroDivisionError:
    """What Python itself says."""
    one, zero = ({"f": 1.0, "c": 1j}.get(kinds[0], 1), {"f": 0.0, "c": 0j}.get(kinds[1], 0))
    try:
        _DIVISIONS[ufunc](one, zero)
    except ZeroDivisionError as error:
        return without_frames(error)
    raise AssertionError("division by zero is an error")


def _require(ok: Node, error: Exception) -> None:
    """Raise where ``ok`` is false, as an ``if`` of the user's would."""
    from futurex.frontend.control import assert_not

    trace = current()
    if trace.is_bound(ok):  # checked before
        return
    assert_not(fresh(emit("logical_not", ok)), error)
    trace.regions[-1].bound.add(ok)


def _fits(ufunc: Any, a: Node, b: Node) -> Node | None:
    """A node that is true where the result has 64 bits; None if it surely has."""
    low, high = sorted((bits_of_int(a), bits_of_int(b)))
    if ufunc in (np.add, np.subtract):
        if high < WIDE and (low <= SMALL or high < COUNTED):
            return None
        if high < WIDE and high + 1 < COUNTED:
            return None
        result = emit("add" if ufunc is np.add else "subtract", a, b)
        first = emit("bitwise_xor", a, result)
        second = emit("bitwise_xor", b if ufunc is np.add else emit("invert", b), result)
        return emit("greater_equal", emit("bitwise_and", first, second), 0)
    if ufunc is np.multiply:
        if low + high <= WIDE or low == 0 or (low == 1 and _is_unit(a, b)):
            return None
        product = emit("multiply", emit("python_scalar", a, kind="f"), emit("python_scalar", b, kind="f"))
        return emit("less", emit("absolute", product), _LIMIT)
    if ufunc is np.floor_divide and bits_of_int(a) == WIDE and (b.op != "const" or b.value == -1):
        return emit("logical_or", emit("not_equal", a, _LEAST), emit("not_equal", b, -1))
    if ufunc is np.left_shift:
        shift = emit("power", 2.0, emit("python_scalar", b, kind="f"))
        product = emit("multiply", emit("python_scalar", a, kind="f"), shift)
        return emit("less", emit("absolute", product), _LIMIT)
    return None


def _opposite_fits(ufunc: Any, a: Node) -> Node | None:
    """The same for what changes signs: the least integer has no opposite of 64 bits."""
    if ufunc not in (np.negative, np.absolute) or bits_of_int(a) < WIDE:
        return None
    return emit("not_equal", a, _LEAST)


def _is_unit(*nodes: Node) -> bool:
    return any(node.op == "const" and abs(node.value) <= 1 for node in nodes)
