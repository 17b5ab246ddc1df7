"""Sums, means, extremes and cumulative sums of traced arrays."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.numpy_api.registry import HANDLERS, METHODS, NO_VALUE, Handler, handles
from futurex.frontend.numpy_api.ufuncs import call_ufunc, normal_axes, reduce_with
from futurex.frontend.trace import emit
from futurex.frontend.tracer import array_node, as_tracer, fresh, node_of
from futurex.tree.node import const


def _plain_options(initial: Any, where: Any) -> None:
    if initial is not NO_VALUE or (where is not NO_VALUE and where is not True):
        raise Escape("a reduction with initial= or where=", "these options are not traced")


def _reduction(name: str) -> Handler:
    def handler(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: Any = False,
        initial: Any = NO_VALUE,
        where: Any = NO_VALUE,
    ) -> Any:
        _plain_options(initial, where)
        return reduce_with(name, a, axis, dtype, out, keepdims)

    return handler


def _extreme(name: str) -> Handler:
    def handler(
        a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = NO_VALUE, where: Any = NO_VALUE
    ) -> Any:
        _plain_options(initial, where)
        return reduce_with(name, a, axis, None, out, keepdims)

    return handler


for _name, _function in {"sum": np.sum, "prod": np.prod}.items():
    HANDLERS[_function] = METHODS[_name] = _reduction(_name)
for _name, _functions in {
    "max": (np.max, np.amax),
    "min": (np.min, np.amin),
    "any": (np.any,),
    "all": (np.all,),
}.items():
    METHODS[_name] = _extreme(_name)
    for _function in _functions:
        HANDLERS[_function] = METHODS[_name]


@handles(np.mean)
def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = NO_VALUE
) -> Any:
    _plain_options(NO_VALUE, where)
    x = array_node(a)
    if out is not None:
        raise Escape("numpy.mean with out=", "this option is not traced")
    final = np.mean(np.ones(1, x.dtype), dtype=dtype).dtype
    half = x.dtype == np.float16 and dtype is None
    wide = (
        np.dtype(dtype)
        if dtype is not None
        else np.dtype(np.float32)
        if half
        else np.dtype(float)
        if x.dtype.kind in "iub"
        else None
    )
    total = node_of(reduce_with("sum", as_tracer(a), axis, wide, None, keepdims))
    count = _count(x.shape, normal_axes(axis, x.ndim))
    result = emit("divide", total, const(count)) if count else emit("divide", total, const(0))
    return fresh(emit("cast", result, dtype=final) if result.dtype != final else result)


def _count(shape: tuple[int, ...], axes: tuple[int, ...] | None) -> int:
    return math.prod(shape if axes is None else (shape[k] for k in axes))


@handles(np.var)
def var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: int = 0,
    keepdims: Any = False,
    *,
    where: Any = NO_VALUE,
) -> Any:
    _plain_options(NO_VALUE, where)
    if (
        out is not None
        or dtype is not None
        or array_node(a).dtype.kind not in "fiub"
        or array_node(a).dtype == np.float16
    ):
        raise Escape("numpy.var with out=, dtype=, or a half or complex array", "these options are not traced")
    x = as_tracer(a)
    axes = normal_axes(axis, x.ndim)
    n = _count(x.shape, axes)
    centred = x - mean(x, axis, keepdims=True)
    total = reduce_with("sum", centred * centred, axis, None, None, keepdims)
    return call_ufunc(np.divide, "__call__", (total, builtins.max(n - ddof, 0)), {})


@handles(np.std)
def std(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: int = 0,
    keepdims: Any = False,
    *,
    where: Any = NO_VALUE,
) -> Any:
    return call_ufunc(np.sqrt, "__call__", (var(a, axis, dtype, out, ddof, keepdims, where=where),), {})


def _arg_reduction(name: str) -> Handler:
    def handler(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
        x = array_node(a)
        keep = keepdims is not NO_VALUE and bool(keepdims)
        if out is not None or (axis is None and keep):
            raise Escape(f"numpy.{name} with out= or with keepdims over all axes", "these options are not traced")
        if axis is None:
            x, axis = emit("reshape", x, shape=(x.size,)), 0
        axes = normal_axes(axis, x.ndim)
        assert axes is not None
        return fresh(emit(name, x, axis=axes[0], keepdims=keep))

    return handler


for _name, _function in {"argmax": np.argmax, "argmin": np.argmin}.items():
    HANDLERS[_function] = METHODS[_name] = _arg_reduction(_name)


@handles(np.cumsum)
def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    x = array_node(a)
    if axis is None:
        x, axis = emit("reshape", x, shape=(x.size,)), 0
    axes = normal_axes(axis, x.ndim)
    assert axes is not None
    result = emit("cumsum", x, axis=axes[0], dtype=np.dtype(dtype) if dtype is not None else None)
    if out is not None:
        raise Escape("numpy.cumsum with out=", "this option is not traced")
    return fresh(result)


@handles(np.ptp)
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    x = as_tracer(a)
    if out is not None or x.dtype.kind == "b":
        raise Escape("numpy.ptp with out= or of booleans", "this use is not traced")
    return reduce_with("max", x, axis, None, None, keepdims) - reduce_with("min", x, axis, None, None, keepdims)


@handles(np.count_nonzero)
def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return reduce_with(
        "sum", call_ufunc(np.not_equal, "__call__", (as_tracer(a), 0), {}), axis, np.intp, None, keepdims
    )


@handles(np.trace)
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    return reduce_with("sum", as_tracer(a).diagonal(offset, axis1, axis2), -1, dtype, out, False)
