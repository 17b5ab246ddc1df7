"""Numbers that become elements of an array: NumPy looks whether Python's fit, and whether its own do where they are
written one by one; arrays are cast, and wrap."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from futurex.frontend.entry_kinds import Mixed, of_several_types, parts_of
from futurex.frontend.errors import Escape, python
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import SCALARS, Tracer, entered, fresh, new_array, node_of
from futurex.ops.control import Failure
from futurex.ops.python import may_refuse
from futurex.tree.aval import Aval
from futurex.tree.dims import same
from futurex.tree.node import Node, const


def as_element(node: Node, dtype: np.dtype[Any]) -> Node:
    """A number or an array in the type of the array that it becomes a part of."""
    if node.aval.weak and node.op == "const":
        return const(np.array(node.value, dtype)[()])
    if node.aval.weak and may_refuse(node.aval, dtype):
        return emit("element", node, dtype=dtype)
    return node if node.dtype == dtype and not node.aval.weak else emit("cast", node, dtype=dtype)


_MISFIT = Failure(OverflowError, ("a number of a list does not fit into an array of another type",))


def of_rows(rows: Any, dtype: Any) -> Tracer:
    """The array that NumPy makes of a list whose length depends on data. It looks at each number where they become
    signed integers of another type, and at Python's for unsigned ones: a run with one that does not fit goes as plain
    Python."""
    mixed = of_several_types(rows.kind)
    if mixed is not None:
        return _of_several_types(rows, mixed, dtype)
    node = rows.__fx_node__()
    kind = np.dtype(dtype) if dtype is not None else node.dtype
    python = any(part.python for part in parts_of(rows.kind))
    looked_at = kind.kind == "i" or (python and kind.kind == "u")
    if looked_at and node.dtype.kind in "uif" and may_refuse(Aval((), node.dtype, weak=python), kind):
        whole = node if node.dtype.kind != "f" else emit("trunc", node)
        fits = emit("equal", emit("cast", node, dtype=kind), whole)
        current().waits = True
        current().effect("check", emit("all", fits, axis=None, keepdims=False), failure=_MISFIT)
    return new_array(node)


def _of_several_types(rows: Any, kind: Mixed, dtype: Any) -> Any:
    """The same of numbers of two types, of which NumPy takes the wider one if any entry has it."""
    from futurex.frontend.control.choices import if_expression

    columns = rows.columns()
    if dtype is not None and np.dtype(dtype).kind in "fc":
        return new_array(kind.array(columns, np.dtype(dtype)))
    common = np.result_type(*kind.dtypes)
    wide = kind.test_of(common, columns)
    if dtype is not None or len(kind.dtypes) > 2 or wide is None:
        raise Escape("an array of a list of numbers of several types", "NumPy chooses its type by all entries")
    (other,) = set(kind.dtypes) - {common}
    some = emit("python_scalar", emit("any", wide, axis=None, keepdims=False), kind="b")
    current().waits = True
    return if_expression(fresh(some), lambda: new_array(kind.array(columns, common)),
                         lambda: new_array(kind.array(columns, other)))  # fmt: skip


def element(value: Any, dtype: np.dtype[Any], by_arrays: bool = False) -> Any:
    """A value to be written into an array of ``dtype``; behind index arrays NumPy does not look at its own scalars."""
    value = entered(value)
    if isinstance(value, list | tuple) and dtype.kind in "iuf":
        from futurex.frontend.numpy_api import stack_nested

        return new_array(stack_nested(list(value), dtype))
    if hasattr(type(value), "__fx_node__"):
        return of_rows(value, dtype)
    if not (isinstance(value, (*SCALARS, np.generic)) or (isinstance(value, Tracer) and value.is_scalar)):
        return value
    node = node_of(value)
    if not may_refuse(node.aval, dtype) or (by_arrays and not node.aval.weak):
        return value
    if isinstance(value, Tracer) and value._loose:
        current().tell()
        raise Escape("writing a value that is a Python number in some branch", "NumPy takes the two differently")
    return fresh(emit("element", node, dtype=dtype))


def read_before(value: Any, target: Tracer) -> Any:
    """A value whose elements may all be read before ``target`` is written, in any order.

    Through masks and flat iterators NumPy writes one element before it reads the next, which may be the same one.
    """
    if isinstance(value, Tracer) and value._cell is target._cell and not (value.is_scalar or same(value.aval.size, 1)):
        raise Escape(
            "elements of an array written into itself through a mask or a flat iterator",
            "NumPy reads some that it has already written", "copy them first",
        )  # fmt: skip
    return value


def through_mask(value: Any, target: Tracer) -> Any:
    """The same for what is written through a mask over all axes, which takes a number or a vector."""
    if node_of(entered(value)).ndim > 1:
        raise Escape("an array of several dimensions written through a mask", "NumPy refuses it", "write a vector")
    return read_before(value, target)


def fit_for(ndim: int, is_element: bool, given: Any, value: Node) -> None:
    """Escape for what NumPy does not write into an element, or into so many dimensions: lists that are nested deeper,
    of which arrays with dimensions of extent one are taken."""
    if is_element and value.ndim:
        if value.aval.static and math.prod(value.shape) != 1:
            with python():
                np.zeros(1)[0] = np.broadcast_to(0.0, value.shape)
        raise Escape("an array written into one element", "NumPy refuses it, as a rule", "write one number")
    if value.ndim > ndim and isinstance(given, list | tuple):
        raise Escape("a list that is nested deeper than what it is written into", "NumPy refuses it")
