"""Vector and tensor products of traced arrays."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from futurex.frontend.errors import Escape
from futurex.frontend.layout import is_contiguous
from futurex.frontend.numpy_api.registry import handles
from futurex.frontend.numpy_api.ufuncs import call_ufunc, exactly_into
from futurex.frontend.trace import emit
from futurex.frontend.tracer import Tracer, array_node, entered, fresh, new_array
from futurex.tree.dims import same
from futurex.tree.node import Node, const


@handles(np.dot)
def dot(a: Any, b: Any, out: Any = None) -> Any:
    x, y = array_node(a), array_node(b)
    if x.ndim == 0 or y.ndim == 0:
        result = _scaled(x, y)
    else:
        result = emit("matmul" if x.ndim <= 2 and y.ndim <= 2 and _meet(x, y) else "dot", x, y)
    if out is not None:
        _check_place(out, result)
        return exactly_into(out, fresh(result), "numpy.dot")
    return new_array(result) if result.op == "matmul" and result.ndim else fresh(result)


def _meet(x: Node, y: Node) -> bool:
    """Does a product surely add up as many elements of one as of the other? Elsewhere the error is ``dot``'s own."""
    return same(x.shape[-1], y.shape[max(-2, -y.ndim)])


def _scaled(x: Node, y: Node) -> Node:
    """An array times a number: BLAS adds that to zeros, of which those with a sign lose it."""
    result = emit("multiply", x, y)
    if result.dtype.char not in "fdFD" or result.ndim not in (1, 2) or same(result.size, 1):
        return result
    return emit("add", result, const(result.dtype.type(0)))


def _check_place(out: Any, result: Node) -> None:
    """NumPy's ``dot`` writes into arrays of the very type and in C order alone, and raises for others."""
    target = entered(out)
    if isinstance(target, Tracer) and target.aval.static:
        strides = target.strides_in_memory
        scattered = strides is not None and not is_contiguous(target.aval, strides)
        if scattered or target.dtype.num != result.dtype.num:
            raise Escape("numpy.dot with out= of another type or order", "NumPy refuses it")


def _tensordot(x: Node, y: Node, axes: Any) -> Node:
    left = [normalize_axis_index(k, x.ndim) for k in axes[0]]
    right = [normalize_axis_index(k, y.ndim) for k in axes[1]]
    if [x.shape[k] for k in left] != [y.shape[k] for k in right]:
        raise ValueError("shape-mismatch for sum")
    free_x = [k for k in range(x.ndim) if k not in left]
    free_y = [k for k in range(y.ndim) if k not in right]
    k_size = math.prod(x.shape[k] for k in left)
    a = emit(
        "reshape", emit("transpose", x, axes=(*free_x, *left)), shape=(math.prod(x.shape[k] for k in free_x), k_size)
    )
    b = emit(
        "reshape", emit("transpose", y, axes=(*right, *free_y)), shape=(k_size, math.prod(y.shape[k] for k in free_y))
    )
    return emit(
        "reshape", emit("matmul", a, b), shape=tuple([x.shape[k] for k in free_x] + [y.shape[k] for k in free_y])
    )


@handles(np.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Tracer:
    x, y = array_node(a), array_node(b)
    if np.iterable(axes):
        left, right = axes
    else:
        count = operator.index(axes)
        left, right = range(-count, 0), range(count)
    pair = [[operator.index(k) for k in (entry if np.iterable(entry) else (entry,))] for entry in (left, right)]
    if any(len(set(entry)) != len(entry) for entry in pair):
        raise ValueError("duplicate axes are not allowed in tensordot")
    if len(pair[0]) != len(pair[1]):
        raise ValueError("shape-mismatch for sum")
    extents = [[node.shape[k] for k in entry] for node, entry in zip((x, y), pair, strict=True)]  # or an IndexError
    if extents[0] != extents[1]:
        raise ValueError("shape-mismatch for sum")
    return new_array(_tensordot(x, y, pair))


def _line(a: Any) -> Node:
    """All elements in C order, as a value: no view of the array."""
    node = array_node(a)
    return emit("reshape", node, shape=(node.size,))


@handles(np.outer)
def outer(a: Any, b: Any, out: Any = None) -> Any:
    x, y = _line(a), _line(b)
    x, y = emit("reshape", x, shape=(x.size, 1)), emit("reshape", y, shape=(1, y.size))
    return call_ufunc(np.multiply, "__call__", (new_array(x), new_array(y)), {} if out is None else {"out": (out,)})


@handles(np.inner)
def inner(a: Any, b: Any) -> Any:
    x, y = array_node(a), array_node(b)
    if x.ndim == 0 or y.ndim == 0:
        return fresh(_scaled(x, y))
    if x.ndim > 2 or y.ndim > 2:
        return fresh(emit("inner", x, y))
    return fresh(_tensordot(x, y, ([x.ndim - 1], [y.ndim - 1])))


@handles(np.vdot)
def vdot(a: Any, b: Any) -> Any:
    x = _line(a)
    return dot(fresh(emit("conjugate", x) if x.dtype.kind == "c" else x), fresh(_line(b)))


@handles(np.kron)
def kron(a: Any, b: Any) -> Any:
    x, y = array_node(a), array_node(b)
    if x.ndim == 0 or y.ndim == 0:
        return fresh(emit("multiply", x, y))
    n = max(x.ndim, y.ndim)
    first, second = ((1,) * (n - node.ndim) + node.shape for node in (x, y))
    blocks = emit("reshape", x, shape=tuple(extent for size in first for extent in (size, 1)))
    cells = emit("reshape", y, shape=tuple(extent for size in second for extent in (1, size)))
    shape = tuple(p * q for p, q in zip(first, second, strict=True))
    return fresh(emit("reshape", emit("multiply", blocks, cells), shape=shape))
