"""NumPy functions that write into the array they are given, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.frontend.elements import as_element
from futurex.frontend.errors import Escape
from futurex.frontend.numpy_api.creation import any_array, stack_nested
from futurex.frontend.numpy_api.registry import METHODS, handles
from futurex.frontend.trace import emit
from futurex.frontend.tracer import Tracer, array_node, entered, node_of
from futurex.tree.node import Node, const


def _target(a: Any, what: str) -> Tracer:
    target = entered(a)
    if not isinstance(target, Tracer) or target.is_scalar:
        raise Escape(f"{what} of something that is not an array", "NumPy refuses it, or writes into a copy")
    return target


def _flat(node: Node) -> Node:
    return emit("reshape", node, shape=(node.size,)) if node.ndim != 1 else node


def _repeated(values: Any, count: int, dtype: Any) -> Node:
    """The first ``count`` of the values, over and over again, in the type of the array they are written to."""
    node = _flat(_in_dtype(values, dtype))
    if node.size == count:
        return node
    return _rows(node, const(np.arange(count) % max(node.size, 1)))


def _in_dtype(values: Any, dtype: Any) -> Node:
    """Values in the type of the array they are written to; NumPy looks whether Python numbers fit."""
    if isinstance(values, list | tuple):
        return stack_nested(list(values), dtype)
    return as_element(node_of(values), dtype) if any_array(values) else const(np.asarray(values, dtype))


def _rows(node: Node, index: Node) -> Node:
    return emit("gather", node, index, pattern=(("d", 0),))


def _write_flat(target: Tracer, flat: Node) -> None:
    target._write(emit("reshape", flat, shape=target.shape) if target.ndim != 1 else flat)


@handles(np.put)
def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    """Positions count in C order, values are repeated as needed."""
    target, index, values = _target(a, "numpy.put"), _flat(array_node(ind)), array_node(v)
    if not all(each.aval.static for each in (target, index, values)):
        raise Escape("numpy.put with arrays of unknown shape", "how often values are repeated depends on data")
    if mode not in ("raise", "wrap", "clip") or index.dtype.kind not in "iu" or not target.size:
        raise Escape("numpy.put with these options", "they are not traced")
    if not values.size or not index.size:
        return
    if mode != "raise":
        index, size = emit("cast", index, dtype=np.dtype(np.int64)), target.size
        low = emit("maximum", index, 0)
        index = emit("remainder", index, size) if mode == "wrap" else emit("minimum", low, size - 1)
    flat = emit(
        "scatter", _flat(target._node), _repeated(v, index.size, target.dtype), index, pattern=(("d", 0),), mode="set"
    )
    _write_flat(target, flat)


METHODS["put"] = put


@handles(np.place)
def place(arr: Any, mask: Any, vals: Any) -> None:
    """The k-th selected element takes the k-th value, counted round."""
    target, test = _target(arr, "numpy.place"), _flat(_test(mask))
    _refuse_unsafe(vals, target)
    values = _flat(_in_dtype(vals, target.dtype))
    if test.size != target.size or not values.size:
        raise Escape("numpy.place with a mask of another size, or with no values", "NumPy refuses it")
    number = emit("cumsum", emit("cast", test, dtype=np.dtype(np.intp)), axis=0, dtype=None)
    chosen = _rows(values, emit("remainder", emit("subtract", number, 1), values.size))
    _write_flat(target, emit("where", test, chosen, _flat(target._node)))


@handles(np.putmask)
def putmask(a: Any, /, mask: Any, values: Any) -> None:
    target, test = _target(a, "numpy.putmask"), _flat(_test(mask))
    if test.size != target.size:
        raise Escape("numpy.putmask with a mask of another size", "NumPy refuses it")
    _refuse_unsafe(values, target)
    if array_node(values).size:
        chosen = _repeated(values, target.size, target.dtype)
        _write_flat(target, emit("where", test, chosen, _flat(target._node)))


def _refuse_unsafe(values: Any, target: Tracer) -> None:
    node, given = array_node(values), entered(values)
    is_scalar = isinstance(given, Tracer) and given.is_scalar
    if any_array(values) and not is_scalar and not np.can_cast(node.dtype, target.dtype, "safe"):
        what = "array data" if node.ndim else "scalar"  # an array without dimensions: numbers are cast
        raise TypeError(f"Cannot cast {what} from {node.dtype!r} to {target.dtype!r} according to the rule 'safe'")


def _test(mask: Any) -> Node:
    node = array_node(mask)
    return node if node.dtype.kind == "b" else emit("not_equal", node, 0)


@handles(np.fill_diagonal)
def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    target = _target(a, "numpy.fill_diagonal")
    if target.ndim < 2 or (target.ndim > 2 and len(set(target.shape)) != 1) or not target.size:
        raise Escape("numpy.fill_diagonal of such an array", "NumPy refuses it, or there is nothing to fill")
    step = target.shape[1] + 1 if target.ndim == 2 else 1 + int(np.cumprod(target.shape[:-1]).sum())
    end = target.shape[1] ** 2 if target.ndim == 2 and not wrap else None
    places = np.arange(target.size)[:end:step]
    if array_node(val).size:
        put(target, places, val)
