"""Matrix and tensor products of traced arrays."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.numpy_api.registry import handles
from futurex.frontend.numpy_api.ufuncs import call_ufunc, exactly_into
from futurex.frontend.trace import emit
from futurex.frontend.tracer import Tracer, array_node, as_tracer, fresh, new_array
from futurex.tree.node import Node


@handles(np.dot)
def dot(a: Any, b: Any, out: Any = None) -> Any:
    x, y = array_node(a), array_node(b)
    if x.ndim == 0 or y.ndim == 0:
        result = emit("multiply", x, y)
    else:
        result = emit("matmul" if x.ndim <= 2 and y.ndim <= 2 else "dot", x, y)
    return fresh(result) if out is None else exactly_into(out, fresh(result), "numpy.dot")


def _tensordot(x: Node, y: Node, axes: Any) -> Node:
    left = [k % x.ndim for k in axes[0]]
    right = [k % y.ndim for k in axes[1]]
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
    if isinstance(axes, int):
        axes = (list(range(x.ndim - axes, x.ndim)), list(range(axes)))
    pair = [entry if isinstance(entry, tuple | list) else [entry] for entry in axes]
    return new_array(_tensordot(x, y, pair))


@handles(np.outer)
def outer(a: Any, b: Any, out: Any = None) -> Any:
    x, y = as_tracer(a).ravel(), as_tracer(b).ravel()
    return call_ufunc(np.multiply, "__call__", (x[:, None], y[None, :]), {} if out is None else {"out": (out,)})


@handles(np.inner)
def inner(a: Any, b: Any) -> Any:
    x, y = array_node(a), array_node(b)
    if x.ndim == 0 or y.ndim == 0:
        return fresh(emit("multiply", x, y))
    if x.ndim > 2 or y.ndim > 2:
        return fresh(emit("inner", x, y))
    return fresh(_tensordot(x, y, ([x.ndim - 1], [y.ndim - 1])))


@handles(np.vdot)
def vdot(a: Any, b: Any) -> Any:
    first = as_tracer(a).ravel()
    if first.dtype.kind == "c":
        first = call_ufunc(np.conjugate, "__call__", (first,), {})
    return dot(first, as_tracer(b).ravel())


@handles(np.einsum)
def einsum(subscripts: Any, *operands: Any, **options: Any) -> Tracer:
    if not isinstance(subscripts, str) or set(options) - {"optimize"}:
        raise Escape("numpy.einsum with lists of axes or with options", "only the text form is traced")
    text = subscripts.replace(" ", "")
    nodes = [array_node(operand) for operand in operands]
    if "." in text or builtins.any(len(set(part)) != len(part) for part in text.split("->")[0].split(",")):
        raise Escape("numpy.einsum with an ellipsis or a repeated index", "only plain index letters are traced")
    inputs, arrow, out = text.partition("->")
    if not arrow:
        letters = inputs.replace(",", "")
        out = "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    names = inputs.split(",")
    if len(names) == 1:
        return fresh(_einsum_one(nodes[0], names[0], out))
    if len(names) != 2:
        raise Escape("numpy.einsum of more than two operands", "contract two at a time")
    if len(names) != len(nodes):
        raise ValueError("fewer operands provided to einstein sum function than specified in the subscripts string")
    return fresh(emit("einsum", nodes[0], nodes[1], subscripts=f"{names[0]},{names[1]}->{out}"))


def _einsum_one(x: Node, names: str, out: str) -> Node:
    summed = tuple(k for k, name in enumerate(names) if name not in out)
    rest = [name for name in names if name in out]
    result = emit("sum", x, axis=summed, keepdims=False, dtype=x.dtype) if summed else x
    axes = tuple(rest.index(name) for name in out)
    return emit("transpose", result, axes=axes) if axes != tuple(range(len(axes))) else result
