"""Arrays made by staged code: filled, copied, from nested lists."""

from __future__ import annotations

import builtins
import operator
from typing import Any

import numpy as np

from futurex.frontend.numpy_api.registry import handles
from futurex.frontend.numpy_api.ufuncs import into
from futurex.frontend.trace import emit
from futurex.frontend.tracer import Tracer, abstract, fresh, node_of
from futurex.tree.node import Node, const


def _extent(value: Any) -> int:
    return operator.index(value)


def as_shape(shape: Any) -> tuple[int, ...]:
    return tuple(_extent(extent) for extent in shape) if isinstance(shape, tuple | list) else (_extent(shape),)


def _filled(shape: Any, value: Any, dtype: Any) -> Tracer:
    node = node_of(value)
    dtype = np.dtype(dtype) if dtype is not None else (np.asarray(node.value).dtype if node.op == "const" else node.dtype)
    shape = as_shape(shape)
    if node.ndim:
        return fresh(emit("store", _filled(shape, 0, dtype)._node, node, chain=(), mode="set"))
    return fresh(emit("full", const(np.asarray(node.value, dtype)[()]) if node.op == "const" else node, shape=shape, dtype=dtype))


@handles(np.full)
def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> Tracer:
    return _filled(shape, fill_value, dtype)


@handles(np.zeros, np.empty)
def zeros(shape: Any, dtype: Any = float, order: str = "C") -> Tracer:
    return _filled(shape, 0, np.dtype(dtype or float))


@handles(np.ones)
def ones(shape: Any, dtype: Any = float, order: str = "C") -> Tracer:
    return _filled(shape, 1, np.dtype(dtype or float))


@handles(np.full_like)
def full_like(a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None) -> Tracer:
    aval = abstract(a)
    return _filled(aval.shape if shape is None else shape, fill_value, dtype or aval.dtype)


@handles(np.zeros_like, np.empty_like)
def zeros_like(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None) -> Tracer:
    return full_like(a, 0, dtype, shape=shape)


@handles(np.ones_like)
def ones_like(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None) -> Tracer:
    return full_like(a, 1, dtype, shape=shape)


def stack_nested(values: list[Any]) -> Node:
    """The array that NumPy makes of a nested list, some of whose elements are traced."""
    if not _any_traced(values):
        return const(np.array(values))
    parts = [node_of(value) for value in values]
    shapes = {part.shape for part in parts}
    if len(shapes) != 1:
        raise ValueError(
            "setting an array element with a sequence. The requested array has an inhomogeneous shape after "
            f"{1 if not parts[0].ndim else parts[0].ndim} dimensions: {sorted(shapes)}"
        )
    dtype = np.result_type(*(_result_operand(part) for part in parts))
    rows = [emit("reshape", as_dtype(part, dtype), shape=(1, *part.shape)) for part in parts]
    return emit("concatenate", *rows, axis=0)


def _result_operand(node: Node) -> Any:
    return np.dtype(node.dtype)


def as_dtype(node: Node, dtype: Any) -> Node:
    return node if node.dtype == dtype and not node.aval.weak else emit("cast", node, dtype=np.dtype(dtype))


def _any_traced(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return builtins.any(_any_traced(entry) for entry in value)
    return isinstance(value, Tracer) or hasattr(value, "__fx_future__")


@handles(np.array)
def array(object: Any, dtype: Any = None, *, copy: Any = True, order: str = "K", subok: bool = False, ndmin: int = 0) -> Tracer:
    node = node_of(object)
    if node.aval.weak and dtype is None:
        dtype = node.dtype
    if dtype is not None:
        node = as_dtype(node, np.dtype(dtype))
    if node.ndim < ndmin:
        node = emit("reshape", node, shape=(1,) * (ndmin - node.ndim) + node.shape)
    return fresh(node)


@handles(np.asarray, np.asanyarray, np.ascontiguousarray)
def asarray(a: Any, dtype: Any = None, order: Any = None) -> Tracer:
    if isinstance(a, Tracer) and not a.aval.weak and (dtype is None or np.dtype(dtype) == a.dtype):
        return a
    return array(a, dtype)


@handles(np.copy)
def copy(a: Any, order: str = "K", subok: bool = False) -> Tracer:
    return array(a)


@handles(np.copyto)
def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    into(dst, node_of(src), where, casting)


@handles(np.arange)
def arange(*args: Any, dtype: Any = None) -> Tracer:
    known = [value._known("a bound of arange") if isinstance(value, Tracer) else value for value in args]
    return fresh(const(np.arange(*known, dtype=dtype)))
