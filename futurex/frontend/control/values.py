"""What staged control flow asks about values: known or not, truth, type, and how two become one."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.frontend.cells import Cell
from futurex.frontend.errors import Escape
from futurex.frontend.layout import Strides
from futurex.frontend.objects import LISTS
from futurex.frontend.placeholders import Conflict, Either
from futurex.frontend.trace import SAME_IN_SOME_BRANCHES, current, emit
from futurex.frontend.tracer import SCALARS, Placeholder, Tracer, entered, fresh, node_of
from futurex.frontend.which import UNKNOWN, Which
from futurex.tree.aval import Aval
from futurex.tree.dims import Dim, Fresh, nominal, same
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


def raw(value: Any) -> Node:
    """The node of a value that is merged or carried: no check that its name is bound."""
    return value._raw if isinstance(value, Tracer) else node_of(value)


def values_now(values: Sequence[Any]) -> dict[int, Node]:
    """The nodes of all views among values, by identity: after a scope their storage holds again what it held before."""
    found = [leaf for value in values if value is not UNDEF for leaf in flatten(value)[0]]
    leaves = [each for leaf in found for each in (leaf.values if type(leaf) is Either else (leaf,))]
    return {id(leaf): leaf._raw for leaf in leaves if isinstance(leaf, Tracer)}


def bound_flag(value: Any) -> Node | None:
    """The node that says whether a value's name is bound; None if it surely is."""
    if not isinstance(value, Tracer) or value._guard is None or current().is_bound(value._guard[0]):
        return None
    return value._guard[0]


def read_name(value: Any) -> Any:
    """The value of a name that need not be bound, where it is read. All numbers and arrays of a nest that only some
    runs bind have a flag."""
    first = value
    while isinstance(first, list | tuple | dict) and first:
        first = next(iter(first.values() if isinstance(first, dict) else first))
    if bound_flag(first) is not None:
        current().check_bound(*first._guard)
    return value


def is_internal_name(name: str) -> bool:
    """Variables of the rewriter: read only where a flag says that they are bound."""
    return name.startswith("__fx_loop_")


def asked(value: Any) -> Any:
    """What decides a test: the answer of ``__bool__`` or ``__len__`` for objects of the user's classes."""
    if type(value) is Either:
        from futurex.frontend.control.either import chosen, of_one_dtype

        value = of_one_dtype(value)
        return chosen(value, lambda each: truth_of(asked(each))) if type(value) is Either else value
    value = entered(value) if type(value) is Conflict else value
    if isinstance(value, Tracer | np.ndarray | Placeholder) or hasattr(type(value), "__fx_future__"):
        return value
    for name in ("__bool__", "__len__"):
        method = getattr(type(value), name, None)
        if type(method) is types.FunctionType:
            from futurex.frontend.calls import call
            from futurex.frontend.outside import of_class

            of_class(type(value), name)
            if hasattr(type(value), "__fx_traced__"):
                return call(method, (value,), {})
            return call(len, (value,), {}) if name == "__len__" else _answer(call(method, (value,), {}))
    return value


def _answer(value: Any) -> Any:
    """What a ``__bool__`` returns, which has to be Python's own."""
    if type(value) is Either:
        from futurex.frontend.control.either import chosen

        return chosen(value, _answer)
    value = entered(value)
    known = type(value) is bool
    if not known and not (isinstance(value, Tracer) and value.aval.weak and value.dtype.kind == "b"):
        raise Escape("a __bool__ that returns no Python bool", "Python refuses it")
    if not known and value._loose:
        current().tell()
        raise Escape("a __bool__ that returns Python's or NumPy's bool", "Python refuses the latter")
    return value


def is_unknown(value: Any) -> bool:
    """A value that is not known before the run. Refuses objects whose truth is a method's answer."""
    if isinstance(value, Tracer):
        return value._node.op != "const"
    if isinstance(value, np.ndarray) or hasattr(type(value), "__fx_future__"):
        return True
    if isinstance(value, Placeholder):
        return is_unknown(value.used())
    for name in ("__bool__", "__len__"):
        if type(getattr(type(value), name, None)) is types.FunctionType:
            raise Escape(f"the truth of a {type(value).__qualname__}", "its class computes it", "compare explicitly")
    return False


def truth_of(value: Any) -> Any:
    """``bool(value)``, traced where it is not known."""
    return fresh(emit("python_scalar", truth(value), kind="b")) if is_unknown(value) else bool(value)


def truth(value: Any) -> Node:
    """A boolean node for a test."""
    if isinstance(value, (*LISTS, tuple)):
        return const(len(value) > 0)  # no array, as it would be elsewhere
    node = node_of(value)
    if node.size != 1 or node.ndim > 0:
        if node.size != 1:
            raise ValueError(
                "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()"
            )
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


Aliases = tuple[Cell, ...]


def aliases_of(value: Any, owned: dict[Cell, int]) -> Aliases:
    """The storage through which another name could see a write into this value, or this one a write into that.

    What a branch has merged itself may be an array from before it.
    """
    value = entered(value)
    if not isinstance(value, Tracer) or value.is_scalar:
        return ()
    cell = value._cell
    return (cell,) if cell.entangled or owned.get(cell, 0) != 1 else ()


def common_type(a: Aval, b: Aval, what: str) -> Aval:
    """The type of a value that is ``a`` or ``b``: a Python number may stand where NumPy's default type of it stands."""
    if a == b:
        return a
    if a.ndim == b.ndim == 0 and a.weak != b.weak and a.dtype == b.dtype:
        return b if a.weak else a
    if a.ndim == b.ndim and a.weak == b.weak and a.dtype == b.dtype:
        extents = zip(a.shape, b.shape, strict=True)
        return Aval(tuple(x if same(x, y) else Fresh(axis) for axis, (x, y) in enumerate(extents)), a.dtype)
    raise Escape(
        f"{what} is {a!r} in one branch or round and {b!r} in another (~ marks Python numbers)",
        "one node has one type",
        "give it the same shape and dtype everywhere, as with np.float64(0) or x.dtype.type(0)",
    )


def check_exact(a: Aval, b: Aval, what: str) -> None:
    """Refuses a number of Python's and one of NumPy's default type for it where the two are to be told apart."""
    if current().exact and a.weak != b.weak:
        raise Escape(f"{what} is Python's number in one branch or round and NumPy's in another", "which the run tells")


def coerce(node: Node, target: Aval) -> Node:
    if node.aval.dtype == target.dtype and node.aval.weak == target.weak:
        return node  # of its shape a carried or merged value may know more
    if target.weak:
        return emit("python_scalar", node, kind=target.dtype.kind)
    return emit("cast", node, dtype=target.dtype)


def same_view(a: Any, b: Any) -> bool:
    """Are both the same part of the same storage?"""
    return (
        isinstance(a, Tracer)
        and isinstance(b, Tracer)
        and a._cell is b._cell
        and a._chain == b._chain
        and a._dynamic == b._dynamic
    )


_BY_VALUE = frozenset((bool, int, str, bytes, slice, types.MethodType, types.BuiltinMethodType))


def same_value(a: Any, b: Any) -> bool:
    """May either stand for the other? Objects that their class calls equal may differ in all that it does not ask."""
    if a is b:
        return True
    if isinstance(a, Placeholder) or type(a) is not type(b):
        return False
    if isinstance(a, float | complex | np.generic | range):
        return repr(a) == repr(b)  # 0.0 is not -0.0, and empty ranges have their beginnings
    if type(a) not in _BY_VALUE and type(a).__module__.partition(".")[0] not in ("futurex", "numpy"):
        return False
    try:
        return bool(a == b)
    except (TypeError, ValueError):
        return False


def is_numeric(value: Any) -> bool:
    return isinstance(value, Tracer | np.ndarray | np.generic) or type(value) in SCALARS


def kind_of(value: Any) -> str:
    return repr(value) if isinstance(value, str | type(None)) else f"a {type(value).__name__}"


@dataclass(frozen=True)
class Kind:
    """Is a value an array or a scalar, how is the array laid out, and does NumPy let nobody write into it?"""

    is_array: bool
    strides: Strides = None
    readonly: bool = False

    @classmethod
    def of(cls, value: Any) -> Kind:
        value = entered(value)
        if not isinstance(value, Tracer) or value.is_scalar:
            return SCALAR
        return cls(True, value.strides_in_memory, value._readonly)

    @classmethod
    def of_both(cls, a: Any, b: Any, what: str) -> Kind:
        """The kind of a merger. Arrays and scalars do not merge; layouts that differ are not known."""
        first, second = cls.of(a), cls.of(b)
        if first.is_array != second.is_array:
            raise Escape(f"{what} is an array in one branch or round and a scalar in another", "one node has one type")
        if first.readonly != second.readonly:
            raise Escape(f"{what} is read-only in one branch or round and not in another", "one node has one type")
        return first if first == second else cls(first.is_array, readonly=first.readonly)


SCALAR = Kind(False)


def merged_tracer(
    node: Node,
    kind: Kind,
    aliases: Aliases,
    bound: Node | None = None,
    name: str = "",
    loose: bool = False,
    site: Any = None,
    which: Which = UNKNOWN,
) -> Tracer:
    """The value of a name after a branch or loop, which may be the same array as the ``aliases``: ``which`` one.

    ``bound`` says whether the name is bound; ``site`` is the choice that is merged.
    """
    tracer = fresh(node)
    if kind.is_array:
        tracer._cell.is_array = True
        tracer._cell.strides = kind.strides
        tracer._readonly = kind.readonly
    if aliases:
        tracer._cell.which = which
    for cell in (tracer._cell, *aliases) if aliases else ():
        cell.entangle(SAME_IN_SOME_BRANCHES, site)
    tracer._loose = (site or True) if loose and not node.aval.weak else False
    if bound is not None and not (bound.op == "const" and bound.value):
        tracer._guard = (bound, name)
    return tracer


def is_loose(*values: Any) -> bool:
    """Is a merger of the values a Python number in some branch and a NumPy scalar in another?"""
    weak = [raw(value).aval.weak for value in values]
    return any(isinstance(value, Tracer) and bool(value._loose) for value in values) or (any(weak) and not all(weak))


def zeros(aval: Aval) -> Node:
    """A stand-in that nobody reads; where an extent is unknown it has no elements."""
    if aval.weak:
        return const(aval.dtype.type(0).item())
    return emit("full", const(np.zeros((), aval.dtype)[()]), shape=nominal(aval.shape, 0), dtype=aval.dtype)


def opened(aval: Aval) -> Aval:
    """The abstract value of what other rounds hold: extents that only one round knows are open."""
    extents = (Fresh(axis) if isinstance(extent, Dim) else extent for axis, extent in enumerate(aval.shape))
    return Aval(tuple(extents), aval.dtype, aval.weak)
