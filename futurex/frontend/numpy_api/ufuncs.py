"""Ufuncs and their methods on traced arrays, by the op records that name them."""

from __future__ import annotations

import builtins
import operator
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.layout import Strides, result_strides
from futurex.frontend.numpy_api.registry import HANDLERS, NO_VALUE
from futurex.frontend.trace import emit
from futurex.frontend.tracer import Tracer, array_node, as_tracer, entered, fresh, is_arraylike, node_of
from futurex.tree.aval import Aval
from futurex.tree.node import Node
from futurex.tree.record import record, records

UFUNCS = {ufunc: record.name for record in records() for ufunc in record.numpy if isinstance(ufunc, np.ufunc)}
_REDUCTIONS = {
    np.add: "sum",
    np.multiply: "prod",
    np.maximum: "max",
    np.minimum: "min",
    np.logical_and: "all",
    np.logical_or: "any",
}


def call_ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A ufunc or one of its methods; its results are NumPy's own, never Python numbers."""
    if not builtins.all(is_arraylike(value) for value in inputs):
        return NotImplemented
    if method == "reduce":
        return _ufunc_reduce(ufunc, *inputs, **kwargs)
    if method == "outer":
        x, y = (array_node(value) for value in inputs)
        x = emit("reshape", x, shape=(*x.shape, *(1,) * y.ndim))
        return call_ufunc(ufunc, "__call__", (fresh(x), fresh(y)), kwargs)
    name = UFUNCS.get(ufunc)
    if method != "__call__" or name is None:
        what = f"numpy.{ufunc.__name__}{'' if method == '__call__' else '.' + method}"
        raise Escape(what, "this ufunc has no translation yet")
    kwargs = dict(kwargs)
    out, condition = kwargs.pop("out", None), kwargs.pop("where", True)
    dtype, casting = kwargs.pop("dtype", None), kwargs.pop("casting", "same_kind")
    out = out[0] if isinstance(out, tuple) and len(out) == 1 else out
    if kwargs or isinstance(out, tuple) or len(inputs) != ufunc.nin:
        raise Escape(f"numpy.{ufunc.__name__} with {', '.join(kwargs) or 'several out'}", "this option is not traced")
    if dtype is not None:
        inputs = tuple(_as_loop_type(value, np.dtype(dtype), casting, ufunc) for value in inputs)
    result = applied(name, *inputs)
    if out is not None:
        return into(out, result._node, condition, casting)
    if condition is not True:
        raise Escape(f"numpy.{ufunc.__name__} with where= and no out=", "unselected elements would be uninitialised")
    return fresh(emit("cast", result._node, dtype=result.dtype)) if result.aval.weak else result


def applied(name: str, *inputs: Any) -> Tracer:
    """The result of an elementwise op, with what is known of its layout. All Python numbers give a Python number."""
    tracers = [entered(value) for value in inputs]
    nodes = [node_of(value) for value in tracers]
    result = fresh(emit(name, *nodes))
    if result.ndim > 1:
        result._cell.strides = layout_of(result.aval, tracers, nodes)
    loose = [isinstance(value, Tracer) and value._loose for value in tracers]
    if builtins.any(loose):
        avals = tuple(
            Aval(node.shape, node.dtype, weak=node.aval.weak or bool(flag))
            for node, flag in zip(nodes, loose, strict=True)
        )
        other = record(name).infer(avals, (None,) * len(nodes), {})
        assert isinstance(other, Aval)
        if other.dtype != result.dtype:
            raise Escape(
                "an operation on a value that is a Python number in some branch and a NumPy scalar in another",
                f"NumPy gives {other.dtype} for the one and {result.dtype} for the other",
                "give it one type before, as with np.float64(0)",
                site=next(flag for flag in loose if flag),
            )
        result._loose = next(flag for flag in loose if flag) if other.weak else False
    return result


def layout_of(aval: Aval, values: Any, nodes: Any) -> Strides:
    """The layout of a result that keeps the order of its operands."""
    return result_strides(
        aval,
        [
            (node.shape, value.strides_in_memory if isinstance(value, Tracer) else None)
            for value, node in zip(values, nodes, strict=True)
            if isinstance(value, Tracer)
        ],
    )


def _as_loop_type(value: Any, dtype: np.dtype[Any], casting: Any, ufunc: Any) -> Tracer:
    """An operand cast to the type that ``dtype=`` asks the loop to run in."""
    node = node_of(value)
    loop = dtype.char * ufunc.nin + "->" + dtype.char
    if loop not in ufunc.types or not (node.aval.weak or np.can_cast(node.dtype, dtype, casting)):
        raise Escape(f"numpy.{ufunc.__name__} with dtype={dtype}", "this choice of loop is not traced")
    return fresh(emit("cast", node, dtype=dtype) if node.dtype != dtype or node.aval.weak else node)


def into(out: Any, result: Node, condition: Any, casting: Any) -> Any:
    """Write a result into the ``out=`` array."""
    target = entered(out)
    if not isinstance(target, Tracer) or target.is_scalar:
        raise TypeError("return arrays must be of ArrayType")
    if np.broadcast_shapes(result.shape, target.shape) != target.shape:
        raise ValueError(
            f"non-broadcastable output operand with shape {target.shape} "
            f"doesn't match the broadcast shape {result.shape}"
        )
    if not _can_cast(result, target.dtype, casting):
        raise TypeError(f"Cannot cast output from {result.dtype!r} to {target.dtype!r} with casting rule {casting!r}")
    if condition is not True:
        old = target._node
        chosen = node_of(condition)
        if chosen.dtype.kind != "b":
            raise Escape("where= with an array that is not boolean", "NumPy refuses or casts it")
        result = emit("where", chosen, emit("cast", result, dtype=target.dtype), old)
    target._write(result)
    return target


def exactly_into(out: Any, result: Tracer, what: str) -> Any:
    """Write a result into an ``out=`` array of its own shape and type; what NumPy does with others is not traced."""
    target = entered(out)
    if not isinstance(target, Tracer) or target.is_scalar or target.aval != result.aval:
        raise Escape(f"{what} with out= of another shape or type", "what NumPy casts then is not traced")
    return into(target, result._node, True, "same_kind")


def _can_cast(result: Node, dtype: np.dtype[Any], casting: Any) -> bool:
    if not result.aval.weak or casting == "unsafe":
        return np.can_cast(result.dtype, dtype, casting)
    ranks = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}  # a Python number fits into any array of its kind
    return ranks[result.dtype.kind] <= ranks[dtype.kind]


def normal_axes(axis: Any, ndim: int) -> tuple[int, ...] | None:
    """Axes as sorted non-negative numbers, None for all. Raises AxisError and ValueError as NumPy does."""
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
    """One of the reductions that have a record of their own."""
    a = entered(a)
    x = array_node(a)
    keep = bool(keepdims) and keepdims is not NO_VALUE
    attrs: dict[str, Any] = {"axis": normal_axes(axis, x.ndim), "keepdims": keep}
    if name in ("sum", "prod"):
        attrs["dtype"] = np.dtype(dtype) if dtype is not None else None
    result = fresh(emit(name, x, **attrs))
    if out is not None:
        if entered(out).dtype != result.dtype:
            raise Escape(
                f"numpy.{name} with out= of another type", "NumPy reduces in the type of the array it writes to"
            )
        return into(out, result._node, True, "same_kind")
    result._cell.strides = layout_of(result.aval, [a], [x])
    return result


def _ufunc_reduce(
    ufunc: Any, x: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False, **rest: Any
) -> Any:
    name = _REDUCTIONS.get(ufunc)
    if name is None or rest or out is not None or (dtype is not None and name not in ("sum", "prod")):
        raise Escape(f"numpy.{ufunc.__name__}.reduce", "this reduction has no translation yet")
    return reduce_with(name, as_tracer(x), axis, dtype, None, keepdims)


for _ufunc in UFUNCS:
    HANDLERS.setdefault(_ufunc, (lambda u: lambda *args, **kwargs: call_ufunc(u, "__call__", args, kwargs))(_ufunc))
