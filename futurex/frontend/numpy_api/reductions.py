"""Sums, means, extremes and cumulative sums of traced arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.numpy_api.registry import HANDLERS, METHODS, NO_VALUE, Handler, handles
from futurex.frontend.numpy_api.ufunc_methods import accumulate, reduce
from futurex.frontend.numpy_api.ufuncs import call_ufunc, integer_axes, into, one_axis
from futurex.frontend.trace import emit
from futurex.frontend.tracer import Tracer, array_node, as_number, as_tracer, entered, fresh, node_of
from futurex.tree.node import Node, const

_COUNT = np.dtype(np.intp)


def _reduction(ufunc: Any) -> Handler:
    """The function of a reduction whose result has a type of its own choice."""

    def handler(
        a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, initial: Any = NO_VALUE,
        where: Any = NO_VALUE,
    ) -> Any:  # fmt: skip
        return reduce(ufunc, a, axis, dtype, out, keepdims, initial, where)

    return handler


def _extreme(ufunc: Any) -> Handler:
    def handler(
        a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = NO_VALUE, where: Any = NO_VALUE
    ) -> Any:
        return reduce(ufunc, a, axis, None, out, keepdims, initial, where)

    return handler


def _test(ufunc: Any) -> Handler:
    def handler(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = NO_VALUE) -> Any:
        return reduce(ufunc, a, axis, None if out is None else bool, out, keepdims, NO_VALUE, where)

    return handler


def _test_method(ufunc: Any) -> Handler:
    """The method, which has a place for a data type where the function has ``out``."""
    test = _test(ufunc)

    def handler(
        a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = NO_VALUE
    ) -> Any:
        if dtype is not None:
            raise Escape(f"{ufunc.__name__} as a method with a data type", "NumPy refuses it, as a rule")
        return test(a, axis, out, keepdims, where=where)

    return handler


for _name, _maker, _ufunc, _functions in (
    ("sum", _reduction, np.add, (np.sum,)),
    ("prod", _reduction, np.multiply, (np.prod,)),
    ("max", _extreme, np.maximum, (np.max, np.amax)),
    ("min", _extreme, np.minimum, (np.min, np.amin)),
    ("any", _test, np.logical_or, (np.any,)),
    ("all", _test, np.logical_and, (np.all,)),
):
    METHODS[_name] = _maker(_ufunc)
    for _function in _functions:
        HANDLERS[_function] = METHODS[_name]
METHODS.update(any=_test_method(np.logical_or), all=_test_method(np.logical_and))


# -- means and variances -----------------------------------------------------------------------------------------------


def _counted(x: Node, axis: Any, keepdims: Any, where: Any) -> int | Tracer:
    """How many elements each mean is of."""
    if where is not NO_VALUE and where is not True:
        mask = emit("broadcast_to", node_of(where), shape=x.shape)
        return reduce(np.add, fresh(mask), axis, _COUNT, None, keepdims)
    axes = integer_axes(axis, x.ndim)
    return as_number(math.prod(x.shape if axes is None else (x.shape[k] for k in axes)))


def _divided(total: Tracer, count: Any, dtype: np.dtype[Any] | None = None) -> Tracer:
    """``total / count`` in the type of ``total``, as NumPy computes it: in float64 where that rounds differently."""
    dtype = dtype or total.dtype
    same = isinstance(count, int) and (total.dtype == float or (total.dtype == np.float32 and count <= 1 << 24))
    divisor = const(count if same and dtype == total.dtype else np.intp(count)) if isinstance(count, int) else count
    quotient = call_ufunc(np.divide, "__call__", (total, fresh(divisor) if isinstance(count, int) else divisor), {})
    return quotient if quotient.dtype == dtype else fresh(emit("cast", quotient._node, dtype=dtype))


def _written(result: Tracer, out: Any) -> Tracer:
    return result if out is None else into(out, result._node, True, "unsafe")


@handles(np.mean)
def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = NO_VALUE
) -> Any:
    x = array_node(entered(a))
    half = x.dtype == np.float16 and dtype is None
    if dtype is None and x.dtype.kind in "iub":
        dtype = np.dtype(float)
    total = reduce(np.add, a, axis, np.dtype(np.float32) if half else dtype, out, keepdims, NO_VALUE, where)
    count = _counted(x, axis, keepdims, where)
    if half and out is None and total.ndim:  # rounded twice
        return fresh(emit("cast", _divided(total, count)._node, dtype=x.dtype))
    return _written(_divided(fresh(total._node), count, x.dtype if half and out is None else None), out)


@handles(np.var)
def var(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = False, *,
    where: Any = NO_VALUE, mean: Any = NO_VALUE, correction: Any = NO_VALUE,
) -> Any:  # fmt: skip
    if correction is not NO_VALUE:
        if ddof != 0:
            raise Escape("a variance with ddof and correction", "NumPy refuses it")
        ddof = correction
    values = as_tracer(a)
    x = values._node
    if type(ddof) not in (int, float):
        raise Escape("a variance with a traced ddof", "only numbers are traced")
    if isinstance(ddof, int) and not -(2**62) < ddof < 2**62:
        raise Escape("a variance with this ddof", "what NumPy computes with it may not fit into 64 bits")
    if dtype is None and x.dtype.kind in "iub":
        dtype = np.dtype(float)
    if mean is NO_VALUE or mean is None:
        centre = reduce(np.add, values, axis, dtype, None, True, NO_VALUE, where)
        centre = _divided(centre, _counted(x, axis, True, where))
    else:
        centre = entered(mean)  # a Python number decides no type
    squares = _squares(x, call_ufunc(np.subtract, "__call__", (values, centre), {}))
    total = reduce(np.add, squares, axis, dtype, out, keepdims, NO_VALUE, where)
    count = _counted(x, axis, keepdims, where)
    degrees: Any = max(count - ddof, 0) if isinstance(count, int) else np.maximum(count - ddof, 0)
    if isinstance(degrees, float):
        quotient = call_ufunc(np.divide, "__call__", (total, fresh(const(np.float64(degrees)))), {})
        return _written(fresh(emit("cast", quotient._node, dtype=total.dtype)), out)
    return _written(_divided(fresh(total._node), degrees), out)


def _squares(x: Node, centred: Tracer) -> Tracer:
    """The squared moduli of what remains after the mean was taken away."""
    if x.dtype.kind in "iuf":
        return call_ufunc(np.square, "__call__", (centred,), {})
    if centred.dtype.kind != "c":
        return call_ufunc(np.multiply, "__call__", (centred, centred), {})
    parts = [np.square(fresh(emit(part, centred._node))) for part in ("real", "imag")]
    return call_ufunc(np.add, "__call__", tuple(parts), {})


@handles(np.std)
def std(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = False, *,
    where: Any = NO_VALUE, mean: Any = NO_VALUE, correction: Any = NO_VALUE,
) -> Any:  # fmt: skip
    variance = var(a, axis, dtype, out, ddof, keepdims, where=where, mean=mean, correction=correction)
    if out is not None or (variance.ndim and variance.dtype.kind not in "fc"):  # which NumPy refuses of integers
        return call_ufunc(np.sqrt, "__call__", (variance,), {"out": variance})
    root = call_ufunc(np.sqrt, "__call__", (variance,), {})
    return root if root.dtype == variance.dtype else fresh(emit("cast", root._node, dtype=variance.dtype))


METHODS.update(mean=mean, var=var, std=std)


# -- places of extremes ------------------------------------------------------------------------------------------------


def _arg_reduction(name: str) -> Handler:
    def handler(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
        x = array_node(entered(a))
        keep = keepdims is not NO_VALUE and bool(keepdims) and x.ndim > 0
        shape = (1,) * x.ndim
        flat = axis is None
        if flat:
            x, axis = emit("reshape", x, shape=(x.size,)), 0
        place = one_axis(axis, x.ndim or 1)
        if not x.ndim:
            x = emit("reshape", x, shape=(1,))
        node = emit(name, x, axis=place, keepdims=keep and not flat)
        node = emit("reshape", node, shape=shape) if flat and keep else node
        if out is None:
            return fresh(node)
        if node.shape != entered(out).shape:
            raise ValueError(f"output array does not match result of np.{name}.")
        if entered(out).dtype != node.dtype:
            raise Escape(f"numpy.{name} with out= of another type", "NumPy refuses or casts it")
        return into(out, node, True, "safe")

    return handler


HANDLERS[np.argmax] = METHODS["argmax"] = _arg_reduction("argmax")
HANDLERS[np.argmin] = METHODS["argmin"] = _arg_reduction("argmin")


# -- running sums and products -----------------------------------------------------------------------------------------


def _running(ufunc: Any) -> Handler:
    def handler(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        x = array_node(entered(a))
        if axis is None or x.ndim == 0:
            one_axis(0 if axis is None else axis, 1)
            x, axis = emit("reshape", x, shape=(x.size,)), 0
        return accumulate(ufunc, fresh(x), axis, dtype, out)

    return handler


def _running_of_standard(ufunc: Any) -> Handler:
    """The form of the array standard: a vector, or an axis that is named."""

    def handler(
        x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None, include_initial: bool = False
    ) -> Any:
        values = as_tracer(x)
        if values.ndim == 0 or (axis is None and values.ndim > 1) or (include_initial and out is not None):
            raise Escape("a running sum of this", "NumPy refuses it, or it is not traced")
        place = one_axis(0 if axis is None else axis, values.ndim)
        result = accumulate(ufunc, values, place, dtype, out)
        if not include_initial:
            return result
        shape = (*values.shape[:place], 1, *values.shape[place + 1 :])
        start = emit("full", const(result.dtype.type(ufunc.identity)), shape=shape, dtype=result.dtype)
        return fresh(emit("concatenate", start, result._node, axis=place))

    return handler


for _name, _ufunc, _old, _new in (
    ("cumsum", np.add, np.cumsum, np.cumulative_sum),
    ("cumprod", np.multiply, np.cumprod, np.cumulative_prod),
):
    HANDLERS[_old] = METHODS[_name] = _running(_ufunc)
    HANDLERS[_new] = _running_of_standard(_ufunc)


# -- what is made of them ----------------------------------------------------------------------------------------------


@handles(np.ptp)
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    largest = reduce(np.maximum, a, axis, None, out, keepdims)
    smallest = reduce(np.minimum, a, axis, None, None, keepdims)
    return call_ufunc(np.subtract, "__call__", (largest, smallest), {} if out is None else {"out": out})


@handles(np.count_nonzero)
def count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    truth = call_ufunc(np.not_equal, "__call__", (as_tracer(a), 0), {})
    return reduce(np.add, truth, axis, _COUNT, None, keepdims)


@handles(np.trace)
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    return reduce(np.add, as_tracer(a).diagonal(offset, axis1, axis2), -1, dtype, out)
