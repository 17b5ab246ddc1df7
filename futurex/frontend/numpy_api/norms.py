"""Norms, condition numbers and ranks of traced arrays."""

from __future__ import annotations

import builtins
import math
import operator
from typing import Any

import numpy as np

from futurex.frontend.numpy_api.linalg import known, result_array, svd, svdvals
from futurex.frontend.numpy_api.registry import handles
from futurex.frontend.numpy_api.shapes import moveaxis
from futurex.frontend.numpy_api.ufunc_methods import reduce
from futurex.frontend.numpy_api.ufuncs import call_ufunc, keeps_dims, normal_axes
from futurex.frontend.trace import emit
from futurex.frontend.tracer import Tracer, array_node, as_tracer, fresh, new_array
from futurex.tree.dims import is_static


def _axis(axis: Any) -> Any:
    if axis is None or isinstance(axis, tuple):
        return axis if axis is None else tuple(operator.index(known(k, "axis=")) for k in axis)
    try:
        return int(known(axis, "axis="))
    except (TypeError, ValueError) as error:
        raise TypeError("'axis' must be None, an integer or a tuple of integers") from error


@handles(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    a, ord, axis = as_tracer(x), known(ord, "ord="), _axis(axis)
    keep = keeps_dims(keepdims)
    pair = tuple(range(a.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if len(pair) == 2 and ord in (2, -2, "nuc"):
        return _singular_norm(a, ord, pair, keep)
    return fresh(emit("norm", array_node(a), ord=ord, axis=axis, keepdims=keep))


def _singular_norm(a: Tracer, ord: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    rows, columns = (normal_axes(k, a.ndim) for k in axis)
    if rows == columns:
        raise ValueError("Duplicate axes given.")
    if a.dtype.kind in "biu":
        a = fresh(emit("cast", a._node, dtype=np.dtype(float)))
    values = svdvals(moveaxis(a, axis, (-2, -1)))
    ufunc = {2: np.maximum, -2: np.minimum, "nuc": np.add}[ord]
    result = reduce(ufunc, values, -1, **({} if ord == -2 else _from_zero(values)))
    if keepdims:
        gone = (*(rows or ()), *(columns or ()))
        return fresh(emit("reshape", result._node, shape=_with_ones(a.shape, gone)))
    return result


def _from_zero(values: Tracer) -> dict[str, Any]:
    """The option that NumPy gives for matrices without singular values; with some it makes no difference."""
    some = is_static(values.shape[-1:]) and values.shape[-1] > 0
    return {} if some else {"initial": 0}


def _with_ones(shape: tuple[int, ...], axes: Any) -> tuple[int, ...]:
    return tuple(1 if k in axes else extent for k, extent in enumerate(shape))


@handles(np.linalg.vector_norm)
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    a, keep = as_tracer(x), keeps_dims(keepdims)
    axes = normal_axes(axis, a.ndim) or ()
    if axis is None:
        axes, line = tuple(range(a.ndim)), fresh(emit("reshape", a._node, shape=(a.size,)))
        result = norm(line, ord, 0)
    elif isinstance(axis, tuple):
        rest = [k for k in range(a.ndim) if k not in axes]
        turned = emit("transpose", a._node, axes=(*(operator.index(k) % a.ndim for k in axis), *rest))
        shape = (math.prod(a.shape[k] for k in axes), *(a.shape[k] for k in rest))
        result = norm(fresh(emit("reshape", turned, shape=shape)), ord, 0)
    else:
        result = norm(a, ord, axis)
    return result.reshape(_with_ones(a.shape, axes)) if keep else result


@handles(np.linalg.matrix_norm)
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    return norm(x, ord, (-2, -1), keepdims)


@handles(np.linalg.cond)
def cond(x: Any, p: Any = None) -> Any:
    return result_array(emit("condition_number", array_node(x), p=known(p, "p=")))


@handles(np.linalg.matrix_rank)
def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    if rtol is not None and tol is not None:
        raise ValueError("`tol` and `rtol` can't be both set.")
    a = as_tracer(A)
    if a.ndim < 2:
        zero = reduce(np.logical_and, call_ufunc(np.equal, "__call__", (a, 0), {}), None)
        return fresh(emit("python_scalar", emit("logical_not", zero._node), kind="i"))
    values = svd(a, compute_uv=False, hermitian=hermitian)
    if tol is None:
        largest = reduce(np.maximum, values, -1, keepdims=True, **_from_zero(values))
        if rtol is None:
            rtol = builtins.max(a.shape[-2:]) * np.finfo(values.dtype).eps
        else:
            rtol = _stacked(rtol)
        tol = largest * rtol
    else:
        tol = _stacked(tol)
    above = call_ufunc(np.greater, "__call__", (values, tol), {})
    return reduce(np.add, above, -1, np.intp)


def _stacked(tolerance: Any) -> Tracer:
    node = array_node(tolerance)
    return new_array(emit("reshape", node, shape=(*node.shape, 1)))
