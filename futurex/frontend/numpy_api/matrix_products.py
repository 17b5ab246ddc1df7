"""Products of matrices in ``numpy.linalg``: powers, chains, tensor equations, and the array API's names."""

from __future__ import annotations

import builtins
import math
import operator
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.numpy_api.linalg import inv, known
from futurex.frontend.numpy_api.products import dot, outer, tensordot
from futurex.frontend.numpy_api.reductions import trace
from futurex.frontend.numpy_api.registry import handles
from futurex.frontend.numpy_api.shapes import diagonal, matrix_transpose
from futurex.frontend.numpy_api.ufuncs import call_ufunc
from futurex.frontend.trace import emit
from futurex.frontend.tracer import Tracer, as_tracer, fresh, new_array
from futurex.tree.node import const


@handles(np.linalg.matrix_power)
def matrix_power(a: Any, n: Any) -> Any:
    x: Any = as_tracer(a)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        np.linalg.inv(np.broadcast_to(np.zeros(()), x.shape))  # raises NumPy's error
    try:
        n = operator.index(known(n, "an exponent"))
    except TypeError as error:
        raise TypeError("exponent must be an integer") from error
    if n == 0:
        zeros = emit("full", const(np.zeros((), x.dtype)[()]), shape=x.shape, dtype=x.dtype)
        mask = const(np.eye(x.shape[-1], dtype=bool))
        return fresh(emit("where", mask, const(np.ones((), x.dtype)[()]), zeros))
    if n < 0:
        x, n = inv(x), -n
    if n == 3:
        return x @ x @ x
    power = result = None
    while n:  # by squares
        power = x if power is None else power @ power
        n, odd = divmod(n, 2)
        if odd:
            result = power if result is None else result @ power
    return result


@handles(np.linalg.multi_dot)
def multi_dot(arrays: Any, *, out: Any = None) -> Any:
    """The product in the cheapest order (Cormen et al., *Introduction to Algorithms*, section 14.2)."""
    n = len(arrays)
    if n < 2:
        raise ValueError("Expecting at least two arrays.")
    if n == 2:
        return dot(arrays[0], arrays[1], out)
    parts = [as_tracer(each) for each in arrays]
    first, last = parts[0].ndim, parts[-1].ndim
    if first == 1:
        parts[0] = parts[0].reshape(1, -1)
    if last == 1:
        parts[-1] = parts[-1].reshape(-1, 1)
    for part in parts:
        if part.ndim != 2:
            raise np.linalg.LinAlgError(f"{part.ndim}-dimensional array given. Array must be two-dimensional")
    if out is not None and 1 in (first, last):
        raise Escape("numpy.linalg.multi_dot with out= and vectors", "this option is not traced")
    result = _in_order(parts, _cheapest(parts), 0, n - 1, out)
    if first == 1 and last == 1:
        return result[0, 0]
    return result.ravel() if 1 in (first, last) else result


def _cheapest(parts: list[Tracer]) -> dict[tuple[int, int], int]:
    """Where to split each run of factors."""
    n, sizes = len(parts), [part.shape[0] for part in parts] + [parts[-1].shape[1]]
    cost = {(i, i): 0 for i in range(n)}
    split = {}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            ways = [cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1] for k in range(i, j)]
            cost[i, j] = builtins.min(ways)
            split[i, j] = i + ways.index(cost[i, j])
    return split


def _in_order(parts: list[Tracer], split: dict[tuple[int, int], int], i: int, j: int, out: Any) -> Any:
    if i == j:
        return parts[i]
    k = split[i, j]
    return dot(_in_order(parts, split, i, k, None), _in_order(parts, split, k + 1, j, None), out)


@handles(np.linalg.tensorsolve)
def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    x, y = as_tracer(a), as_tracer(b)
    order = list(range(x.ndim))
    for k in axes or ():
        order.remove(k)
        order.insert(x.ndim, k)
    x = fresh(emit("transpose", x._node, axes=tuple(order)))
    shape = x.shape[-(x.ndim - y.ndim) :]
    size = math.prod(shape)
    if x.size != size**2:
        raise np.linalg.LinAlgError(
            "Input arrays must satisfy the requirement prod(a.shape[b.ndim:]) == prod(a.shape[:b.ndim])"
        )
    matrix = emit("reshape", x._node, shape=(size, size))
    return new_array(emit("reshape", emit("solve", matrix, emit("reshape", y._node, shape=(y.size,))), shape=shape))


@handles(np.linalg.tensorinv)
def tensorinv(a: Any, ind: int = 2) -> Any:
    x, ind = as_tracer(a), known(ind, "ind=")
    if ind <= 0:
        raise ValueError("Invalid ind argument.")
    size = math.prod(x.shape[ind:])
    inverse = emit("inv", as_tracer(x).reshape(size, -1)._node)
    return new_array(emit("reshape", inverse, shape=x.shape[ind:] + x.shape[:ind]))


@handles(np.linalg.outer)
def _outer(x1: Any, x2: Any, /) -> Any:
    x, y = as_tracer(x1), as_tracer(x2)
    if x.ndim != 1 or y.ndim != 1:
        raise ValueError(f"Input arrays must be one-dimensional, but they are x1.ndim={x.ndim} and x2.ndim={y.ndim}.")
    return outer(x, y)


@handles(np.linalg.matmul)
def _matmul(x1: Any, x2: Any, /) -> Any:
    return call_ufunc(np.matmul, "__call__", (x1, x2), {})


@handles(np.linalg.vecdot)
def _vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    return call_ufunc(np.vecdot, "__call__", (x1, x2), {"axis": axis})


@handles(np.linalg.tensordot)
def _tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    return tensordot(x1, x2, axes)


@handles(np.linalg.diagonal)
def _diagonal(x: Any, /, *, offset: int = 0) -> Any:
    return diagonal(x, offset, -2, -1)


@handles(np.linalg.trace)
def _trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    return trace(x, offset, -2, -1, dtype)


@handles(np.linalg.matrix_transpose)
def _matrix_transpose(x: Any, /) -> Any:
    return matrix_transpose(x)
