"""Ufuncs and their methods on traced arrays, by the op records that name them."""

from __future__ import annotations

import builtins
import operator
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.numpy_api.registry import HANDLERS, NO_VALUE
from futurex.frontend.trace import emit
from futurex.frontend.tracer import Tracer, fresh, is_arraylike, lift, node_of
from futurex.tree.node import Node
from futurex.tree.record import records

UFUNCS = {ufunc: record.name for record in records() for ufunc in record.numpy if isinstance(ufunc, np.ufunc)}


def call_ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A ufunc or one of its methods."""
    if not builtins.all(is_arraylike(value) for value in inputs):
        return NotImplemented
    if method == "reduce":
        return _ufunc_reduce(ufunc, *inputs, **kwargs)
    if method == "outer":
        x, y = (node_of(value) for value in inputs)
        x = emit("reshape", x, shape=(*x.shape, *(1,) * y.ndim))
        return call_ufunc(ufunc, "__call__", (fresh(x), fresh(y)), kwargs)
    name = UFUNCS.get(ufunc)
    if method != "__call__" or name is None:
        raise Escape(f"numpy.{ufunc.__name__}{'' if method == '__call__' else '.' + method}", "this ufunc has no translation yet")
    out = kwargs.pop("out", None)
    condition = kwargs.pop("where", True)
    dtype = kwargs.pop("dtype", None)
    casting = kwargs.pop("casting", "same_kind")
    if kwargs or len(inputs) != ufunc.nin:
        raise Escape(f"numpy.{ufunc.__name__} with {', '.join(kwargs) or 'positional out'}", "this option is not traced")
    nodes = [_ufunc_operand(value, dtype, ufunc) for value in inputs]
    result = emit(name, *nodes)
    out = out[0] if isinstance(out, tuple) else out
    if out is None:
        if condition is not True:
            raise Escape(f"numpy.{ufunc.__name__} with where= and no out=", "unselected elements would be uninitialised")
        return fresh(result)
    return into(out, result, condition, casting)


def _ufunc_operand(value: Any, dtype: Any, ufunc: Any) -> Node:
    node = node_of(value)
    if dtype is None or ufunc is np.matmul:
        return node
    return emit("cast", node, dtype=np.dtype(dtype)) if node.dtype != np.dtype(dtype) or node.aval.weak else node


def into(out: Any, result: Node, condition: Any, casting: str) -> Any:
    target = out if isinstance(out, Tracer) else fresh(node_of(out)) if not isinstance(out, np.ndarray) else lift(out)
    if np.broadcast_shapes(result.shape, target.shape) != target.shape:
        raise ValueError(f"non-broadcastable output operand with shape {target.shape} doesn't match the broadcast shape {result.shape}")
    if not np.can_cast(result.dtype, target.dtype, casting):
        raise np._core._exceptions._UFuncOutputCastingError(np.add, casting, result.dtype, target.dtype, 0)  # type: ignore[attr-defined]
    if condition is not True:
        old = target._node
        result = emit("where", node_of(condition), emit("cast", result, dtype=target.dtype), old)
    target._write(result)
    return target


def normal_axes(axis: Any, ndim: int) -> tuple[int, ...] | None:
    if axis is None:
        return None
    axes = axis if isinstance(axis, tuple) else (axis,)
    normal = []
    for entry in axes:
        entry = operator.index(entry)
        if not -ndim <= entry < ndim:
            raise np.exceptions.AxisError(entry, ndim)
        normal.append(entry % ndim)
    if len(set(normal)) != len(normal):
        raise ValueError("duplicate value in 'axis'")
    return tuple(sorted(normal))


def reduce_with(name: str, a: Any, axis: Any, dtype: Any, out: Any, keepdims: Any) -> Any:
    x = node_of(a)
    attrs: dict[str, Any] = {"axis": normal_axes(axis, x.ndim), "keepdims": bool(keepdims) and keepdims is not NO_VALUE}
    if name in ("sum", "prod"):
        attrs["dtype"] = np.dtype(dtype) if dtype is not None else None
    result = emit(name, x, **attrs)
    return fresh(result) if out is None else into(out, result, True, "same_kind")


def _ufunc_reduce(ufunc: Any, x: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False, **rest: Any) -> Any:
    names = {np.add: "sum", np.multiply: "prod", np.maximum: "max", np.minimum: "min", np.logical_and: "all", np.logical_or: "any"}
    if ufunc not in names or rest:
        raise Escape(f"numpy.{ufunc.__name__}.reduce", "this reduction has no translation yet")
    return reduce_with(names[ufunc], x, axis, dtype, out, keepdims)


for _ufunc in UFUNCS:
    HANDLERS.setdefault(_ufunc, (lambda u: lambda *args, **kwargs: call_ufunc(u, "__call__", args, kwargs))(_ufunc))
