"""Arrays made by staged code: filled, copied, from nested lists."""

from __future__ import annotations

import builtins
from collections import deque
from typing import Any

import numpy as np

from futurex.frontend.control.collected import blocks
from futurex.frontend.control.either import of_one_dtype
from futurex.frontend.elements import as_element, element, of_rows
from futurex.frontend.errors import AS_NUMBERS, ONLY_NUMBERS, Escape
from futurex.frontend.lists import TracedList
from futurex.frontend.numpy_api.memory import copied_out, lying
from futurex.frontend.numpy_api.registry import handles
from futurex.frontend.numpy_api.ufuncs import into
from futurex.frontend.placeholders import Placeholder
from futurex.frontend.tables import TracedRow
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import (
    Tracer,
    abstract,
    array_node,
    as_shape,
    as_tracer,
    entered,
    fresh,
    new_array,
    node_of,
)
from futurex.ops.control import Failure
from futurex.tree.dims import Dim, may_be_same, same
from futurex.tree.node import Node, const, dim_of


def _filled(shape: Any, value: Any, dtype: Any, order: str = "C") -> Tracer:
    node = node_of(value)
    dtype = (
        np.dtype(dtype) if dtype is not None else (np.asarray(node.value).dtype if node.op == "const" else node.dtype)
    )
    shape = as_shape(shape)
    if dtype.kind not in "biufc" or order not in ("C", "F"):
        raise Escape(f"an array of dtype {dtype} in order {order!r}", "only numbers in C and Fortran order are traced")
    if node.ndim:
        result = new_array(emit("store", _filled(shape, 0, dtype)._node, node, chain=(), mode="set"))
    else:
        if node.op == "const":
            node = const(np.full((), node.value, dtype)[()])
        elif not (node.aval.weak and node.dtype.kind == "i"):  # NumPy looks at Python's ints alone
            node = as_dtype(node, dtype)
        result = new_array(emit("full", node, shape=shape, dtype=dtype))
    return copied_out(result, result, order) if order == "F" else result


@handles(np.full)
def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> Tracer:
    return _filled(shape, fill_value, dtype, order)


@handles(np.zeros, np.empty)
def zeros(shape: Any, dtype: Any = float, order: str = "C") -> Tracer:
    return _filled(shape, 0, np.dtype(dtype or float), order)


@handles(np.ndarray)
def ndarray(
    shape: Any, dtype: Any = float, buffer: Any = None, offset: int = 0, strides: Any = None, order: Any = None
) -> Tracer:
    """NumPy's constructor, which makes what ``np.empty`` does."""
    if buffer is not None or strides is not None:
        raise Escape("numpy.ndarray over a buffer, or with strides", "it shows memory that somebody else has")
    return zeros(shape, dtype, order or "C")


@handles(np.ones)
def ones(shape: Any, dtype: Any = float, order: str = "C") -> Tracer:
    return _filled(shape, 1, np.dtype(dtype or float), order)


@handles(np.eye)
def eye(N: Any, M: Any = None, k: Any = 0, dtype: Any = float, order: str = "C") -> Tracer:
    """Ones on a diagonal, of so many rows and columns as the run tells."""
    sizes = [entered(value) for value in (N, N if M is None else M, k)]
    if not any(isinstance(value, Tracer) and value._node.op != "const" for value in sizes):
        known = [value._known("an extent of eye") if isinstance(value, Tracer) else value for value in sizes]
        result = np.eye(*known, dtype=dtype, order=order)  # type: ignore[call-overload]
        if result.dtype.kind not in "biufc":
            raise Escape(f"an array of dtype {result.dtype}", "only numbers and booleans are traced")
        return new_array(const(result)) if result.flags.c_contiguous else fresh(const(result))
    above = node_of(sizes[2])
    if above.ndim or above.dtype.kind not in "iu":
        raise Escape("numpy.eye with such a diagonal", "NumPy refuses it")
    blank = zeros((sizes[0], sizes[1]), dtype, order)
    rows, columns = (emit("iota", shape=blank.shape, axis=axis, dtype=np.dtype(np.int64)) for axis in (0, 1))
    on_it = emit("equal", emit("add", rows, above), columns)
    result = new_array(emit("where", on_it, const(blank.dtype.type(1)), blank._node))
    return copied_out(result, blank, order)


@handles(np.identity)
def identity(n: Any, dtype: Any = None) -> Tracer:
    return eye(n, dtype=float if dtype is None else dtype)


@handles(np.full_like)
def full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None
) -> Tracer:
    a = as_tracer(a)
    return copied_out(_filled(a.shape if shape is None else shape, fill_value, dtype or a.dtype), a, order)


@handles(np.zeros_like, np.empty_like)
def zeros_like(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None) -> Tracer:
    return full_like(a, 0, dtype, order, shape=shape)


@handles(np.ones_like)
def ones_like(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None) -> Tracer:
    return full_like(a, 1, dtype, order, shape=shape)


def stack_nested(values: list[Any], dtype: np.dtype[Any] | None = None) -> Node:
    """The array that NumPy makes of a nested list, some of whose elements are traced."""
    if not any_array(values):
        return const(np.array(values, dtype))
    values = list(map(of_one_dtype, values))
    parts = [array_node(value) if dtype is None else _entry(value, dtype) for value in values]
    of_one_shape(
        parts,
        "setting an array element with a sequence. The requested array has an inhomogeneous shape after "
        f"{parts[0].ndim or 1} dimensions: {sorted({part.shape for part in parts}, key=str)}",
    )
    dtype = np.result_type(*(np.dtype(part.dtype) for part in parts))
    rows = blocks(parts, lambda part: emit("reshape", part, shape=(1, *part.shape)))
    rows = [as_dtype(part, dtype) for part in rows]
    return rows[0] if len(rows) == 1 and len(parts) > 1 else emit("concatenate", *rows, axis=0)


def _entry(value: Any, dtype: np.dtype[Any]) -> Node:
    if isinstance(value, list | tuple):
        return stack_nested(list(value), dtype)
    return as_element(node_of(element(value, dtype) if dtype.kind == "i" else value), dtype)


def of_one_shape(parts: list[Node], message: str) -> None:
    """Raise ValueError if these have several shapes; the run looks at extents that only it knows."""
    for part in parts[1:]:
        if not may_be_same(part.shape, parts[0].shape):
            raise ValueError(message)
        for axis, (own, first) in enumerate(zip(part.shape, parts[0].shape, strict=True)):
            if not same(own, first):
                fits = emit("equal", emit("dim", part, axis=axis), emit("dim", parts[0], axis=axis))
                current().effect("check", fits, failure=Failure(ValueError, (message,)))


def as_dtype(node: Node, dtype: Any) -> Node:
    """A node in a data type. Raises Escape for types that are not traced."""
    if np.dtype(dtype).kind not in "biufc":
        raise Escape(f"an array of dtype {np.dtype(dtype)}", ONLY_NUMBERS, AS_NUMBERS)
    return node if node.dtype == dtype and not node.aval.weak else emit("cast", node, dtype=np.dtype(dtype))


def any_array(value: Any) -> bool:
    """Is there an array in a nested list, traced or from outside?"""
    if isinstance(value, list | tuple | deque):
        return builtins.any(any_array(entry) for entry in value)
    if isinstance(value, TracedList | TracedRow):
        current().waits = True  # where they are of several lengths, NumPy says so
        return True
    return isinstance(value, Tracer | Placeholder | np.ndarray) or hasattr(type(value), "__fx_future__")


def _copied(a: Tracer, dtype: Any, order: str) -> Tracer:
    node = array_node(a) if dtype is None else as_dtype(a._node, np.dtype(dtype))
    casts = order == "A" and node.dtype != a.dtype  # NumPy's casts take A for K
    return copied_out(new_array(node), a, "K" if casts else order)


def _of_entries(value: Any, dtype: Any) -> Tracer:
    """An array of a number, or of nested lists of numbers and arrays."""
    if dtype is not None and not any_array(value):
        return new_array(const(np.array(value, dtype)))  # NumPy looks whether Python numbers fit
    node = node_of(value)
    if dtype is None:
        return new_array(node)
    if node.dtype.kind == "c" and np.dtype(dtype).kind != "c":
        raise Escape("an array of real numbers made of complex ones", "NumPy refuses or casts them one by one")
    return new_array(_entry(value, np.dtype(dtype)))


def _copies(copy: Any) -> Any:
    """Whether an array is copied, also where it is said in the words that NumPy 1 had for it."""
    return {"ALWAYS": True, "NEVER": False, "IF_NEEDED": None}[copy.name] if type(copy) is np._CopyMode else copy


@handles(np.array)
def array(
    object: Any, dtype: Any = None, *, copy: Any = True, order: str = "K", subok: bool = False, ndmin: int = 0
) -> Tracer:
    if dtype is not None and np.dtype(dtype).kind not in "biufc":
        raise Escape(f"an array of dtype {np.dtype(dtype)}", "only numbers and booleans are traced")
    value, copy = entered(object), _copies(copy)
    if hasattr(type(value), "__fx_node__"):
        value = of_rows(value, dtype)
        if isinstance(value, Placeholder) and ndmin < 2 and copy is not False:
            return value  # of one of two types
    if not copy and isinstance(value, Tracer):
        if copy is False and (value.is_scalar or (dtype is not None and np.dtype(dtype) != value.dtype)):
            raise ValueError("Unable to avoid copy while creating an array as requested.")
        result = asarray(value, dtype, order)
    elif isinstance(value, Tracer) and not value.is_scalar:
        result = _copied(value, dtype, order)
    elif copy is False:
        raise Escape("np.array of this with copy=False", "it is not traced")
    else:
        result = _of_entries(value, dtype)
        result = copied_out(result, result, order)
    return result.reshape((1,) * (ndmin - result.ndim) + result.shape) if result.ndim < ndmin else result


@handles(np.asarray, np.asanyarray)
def asarray(a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None) -> Tracer:
    value, copy = entered(a), _copies(copy)
    if copy is not None:
        return array(value, dtype, copy=copy, order=order or "K")
    if isinstance(value, Tracer) and not value.is_scalar and (dtype is None or np.dtype(dtype) == value.dtype):
        return value if order in (None, "K", "A") else lying(value, order)
    return array(value, dtype, order=order or "K")


@handles(np.ascontiguousarray)
def ascontiguousarray(a: Any, dtype: Any = None) -> Tracer:
    value = asarray(a, dtype, "C")
    return value if value.ndim else value.reshape(1)


@handles(np.copy)
def copy(a: Any, order: str = "K", subok: bool = False) -> Tracer:
    return array(a, order=order)


@handles(np.copyto)
def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    source, extra = node_of(src), max(0, abstract(src).ndim - abstract(dst).ndim)
    if extra and source.shape[:extra] == (1,) * extra:  # as in assignments
        source = emit("reshape", source, shape=source.shape[extra:])
    if where is not True and source.aval.weak and source.dtype.kind == "i" and abstract(dst).dtype.kind in "iu":
        source = as_element(source, abstract(dst).dtype)  # as in assignments, also where nothing is written
    into(dst, source, where, casting)


def _arange_open(*args: Any, dtype: Any) -> Tracer:
    """A range whose length the run tells."""
    if len(args) > 3:
        raise Escape("np.arange with these options", "only start, stop, step and dtype are traced")
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    nodes = [node_of(value) for value in (start, stop, step)]
    if any(node.ndim for node in nodes):
        raise Escape("np.arange of arrays", "only numbers are traced")
    extent = dim_of(nodes[1])
    line = [const(0), nodes[1], const(1)]
    if nodes == line and dtype is None and isinstance(extent, Dim) and extent.low is not None:
        return new_array(emit("iota", shape=(extent,), axis=0, dtype=np.dtype(np.int64)))
    return new_array(emit("arange", *nodes, dtype=np.dtype(dtype) if dtype is not None else None))


@handles(np.arange)
def arange(*args: Any, dtype: Any = None) -> Tracer:
    if any(isinstance(value, Tracer) and value._node.op != "const" for value in args):
        return _arange_open(*args, dtype=dtype)
    known = [value._known("a bound of arange") if isinstance(value, Tracer) else value for value in args]
    result = np.arange(*known, dtype=dtype)
    if result.dtype.kind not in "biufc":
        raise Escape(f"an array of dtype {result.dtype}", "only numbers and booleans are traced")
    return new_array(const(result))
