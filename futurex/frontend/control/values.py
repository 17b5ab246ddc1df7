"""What staged control flow asks about values: known or not, truth, type, and how two become one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.trace import Cell, emit
from futurex.frontend.tracer import SCALARS, Tracer, fresh, node_of
from futurex.tree.aval import Aval
from futurex.tree.node import Node, const
from futurex.tree.pytree import flatten


class _Undefined:
    """A name that is not bound."""

    def __repr__(self) -> str:
        return "UNDEF"


UNDEF = _Undefined()
State = tuple[Any, ...]
Get = Callable[[], State]
Set = Callable[[State], None]


@dataclass(frozen=True)
class TracedRange:
    """``range`` with a bound that is not known before the run."""

    start: Any
    stop: Any
    step: int


def raw(value: Any) -> Node:
    """The node of a value that is merged or carried: no check that its name is bound."""
    return value._raw if isinstance(value, Tracer) else node_of(value)


def bound_flag(value: Any) -> Node | None:
    """The node that says whether a value's name is bound; None if it surely is."""
    return value._guard[0] if isinstance(value, Tracer) and value._guard is not None else None


def is_internal_name(name: str) -> bool:
    """Variables of the rewriter: read only where a flag says that they are bound."""
    return name.startswith("__loop_")


def is_unknown(value: Any) -> bool:
    """A traced value that is not a constant."""
    return isinstance(value, Tracer) and value._node.op != "const"


def truth(value: Any) -> Node:
    """A boolean node for a test."""
    node = node_of(value)
    if node.size != 1 or node.ndim > 0:
        if node.size != 1:
            raise ValueError("The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()")
        node = emit("reshape", node, shape=())
    return node if node.dtype.kind == "b" else emit("not_equal", node, 0)


def owned_cells(values: Sequence[Any], start: int) -> dict[Cell, int]:
    """Cells made since ``start``, and how many of the values refer to each."""
    counts: dict[Cell, int] = {}
    for value in values:
        for leaf in flatten(value)[0] if value is not UNDEF else ():
            if isinstance(leaf, Tracer) and leaf._cell.born >= start:
                counts[leaf._cell] = counts.get(leaf._cell, 0) + 1
    return counts


def is_shared(value: Any, owned: dict[Cell, int]) -> bool:
    """Could another name see a write into this value?"""
    if isinstance(value, Tracer):
        return value.ndim > 0 and owned.get(value._cell, 0) != 1
    return isinstance(value, np.ndarray)


def common_type(a: Aval, b: Aval, what: str) -> Aval:
    """The type of a value that is ``a`` or ``b``. Python scalars give way to arrays; anything else must be equal."""
    if a == b:
        return a
    if a.shape == b.shape:
        if a.weak and b.weak and "b" not in (a.dtype.kind, b.dtype.kind):
            return Aval(a.shape, np.result_type(a.dtype, b.dtype), weak=True)
        if a.weak != b.weak:
            strong, weak = (b, a) if a.weak else (a, b)
            if "biufc".index(strong.dtype.kind) >= "biufc".index("i" if weak.dtype.kind == "b" else weak.dtype.kind):
                return strong
    raise Escape(
        f"{what} is {a!r} in one branch and {b!r} in the other", "one node has one type", "make both the same shape and dtype"
    )


def coerce(node: Node, target: Aval) -> Node:
    if node.aval == target:
        return node
    if target.weak:
        return emit("python_scalar", node, kind=target.dtype.kind)
    return emit("cast", node, dtype=target.dtype)


def same_value(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except (TypeError, ValueError):
        return False


def is_numeric(value: Any) -> bool:
    return isinstance(value, Tracer | np.ndarray | np.generic) or type(value) in SCALARS


def kind_of(value: Any) -> str:
    return repr(value) if isinstance(value, str | type(None)) else f"a {type(value).__name__}"


def merged_tracer(node: Node, shared: bool, bound: Node | None = None, name: str = "") -> Tracer:
    tracer = fresh(node)
    tracer._cell.entangled = shared
    if bound is not None and not (bound.op == "const" and bound.value):
        tracer._guard = (bound, name)
    return tracer


def zeros(aval: Aval) -> Node:
    if aval.weak:
        return const(aval.dtype.type(0).item())
    return emit("full", const(np.zeros((), aval.dtype)[()]), shape=aval.shape, dtype=aval.dtype)
