"""Choosing among elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib import NumpyVersion
from numpy.lib.array_utils import normalize_axis_index

from futurex.frontend.errors import Escape
from futurex.frontend.numpy_api.registry import NO_VALUE, call_numpy, handles
from futurex.frontend.numpy_api.ufuncs import applied, call_ufunc, exactly_into, one_axis
from futurex.frontend.trace import emit
from futurex.frontend.tracer import Tracer, array_node, as_tracer, fresh, new_array, node_of
from futurex.tree.dims import is_static, same
from futurex.tree.node import Node, const


@handles(np.where)
def where(condition: Any, /, *branches: Any) -> Any:
    if not branches:
        return call_numpy(np.nonzero, (condition,), {})
    if len(branches) != 2:
        raise ValueError("either both or neither of x and y should be given")
    test = node_of(condition)
    if test.dtype.kind != "b":
        test = emit("not_equal", test, 0)
    result = applied("where", fresh(test) if test is not node_of(condition) else condition, *_in_one_type(*branches))
    return result if result.ndim else new_array(result._node)


_CHECKS = NumpyVersion(np.__version__) >= "2.5.0"  # does np.where look whether a Python integer fits?


def _in_one_type(x: Any, y: Any) -> tuple[Any, Any]:
    """A Python number beside an array, in the array's type."""
    first, second = node_of(x), node_of(y)
    if first.aval.weak == second.aval.weak:
        return x, y
    number, array = (first, second) if first.aval.weak else (second, first)
    if number.dtype.kind not in "bi" or array.dtype.kind not in "biu" or number.dtype == array.dtype == bool:
        return x, y
    dtype = array.dtype if array.dtype != bool else np.dtype(np.int64)
    cast = fresh(emit("element" if _CHECKS else "cast", number, dtype=dtype))
    return (cast, y) if first.aval.weak else (x, cast)


@handles(np.clip)
def clip(
    a: Any, a_min: Any = NO_VALUE, a_max: Any = NO_VALUE, out: Any = None, *, min: Any = NO_VALUE, max: Any = NO_VALUE,
    **options: Any,
) -> Any:  # fmt: skip
    old, new = ([bound for bound in pair if bound is not NO_VALUE] for pair in ((a_min, a_max), (min, max)))
    if options or len(old) == 1 or (old and new):
        raise Escape("numpy.clip with these options", "they are not traced, or NumPy refuses them")
    low, high = (None if bound is NO_VALUE else bound for bound in ((a_min, a_max) if old else (min, max)))
    result = as_tracer(a)
    if result.dtype.kind in "iu":  # Python ints out of range bound nothing
        limits = np.iinfo(result.dtype)
        low = None if type(low) is int and low <= limits.min else _no_less(low, limits.min)
        high = None if type(high) is int and high >= limits.max else _no_more(high, limits.max)
    if any(bound is not None and node_of(bound).dtype.kind == "c" for bound in (result, low, high)):
        raise Escape("numpy.clip of complex numbers", "it orders NaN in its own way")
    into = {} if out is None else {"out": out}
    if low is None and high is None:
        return call_ufunc(np.positive, "__call__", (result,), into)
    if low is None or high is None:
        ufunc, bound = (np.maximum, low) if high is None else (np.minimum, high)
        return call_ufunc(ufunc, "__call__", (result, bound), into)
    result, keeps = _within(result, node_of(low), node_of(high))
    result = call_ufunc(np.maximum, "__call__", (low, result) if keeps else (result, low), {})
    return call_ufunc(np.minimum, "__call__", (high, result) if keeps else (result, high), into)


def _no_less(bound: Any, least: int) -> Any:
    """A bound that is a Python int of which only the run knows that it is out of range."""
    return fresh(emit("maximum", bound._node, least)) if _is_traced_int(bound) else bound


def _no_more(bound: Any, largest: int) -> Any:
    """As :func:`_no_less`; a traced int is 64 bits wide."""
    return fresh(emit("minimum", bound._node, largest)) if _is_traced_int(bound) and largest < 2**63 else bound


def _is_traced_int(bound: Any) -> bool:
    return isinstance(bound, Tracer) and bound.aval.weak and bound.dtype.kind == "i"


def _within(x: Tracer, low: Node, high: Node) -> tuple[Tracer, bool]:
    """What is bounded in the type that NumPy gives it beside both bounds; and does a zero that equals a bound keep its
    own sign? Beside two numbers it does, and else has that of the bound: of equal ones an extreme is the second."""
    bounds = [bound.dtype.type(0).item() if bound.aval.weak else bound.dtype for bound in (low, high)]
    common = np.result_type(x.dtype, *bounds)
    numbers = all(not bound.ndim or (same(bound.aval.size, 1) and not same(x.size, 1)) for bound in (low, high))
    return x if x.dtype == common else applied("cast", x, dtype=common), numbers and common.char in "fd"


@handles(np.take)
def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    x = as_tracer(a)
    if axis is None:
        x, axis = x.ravel(), 0
    axis = one_axis(axis, x.ndim)
    shape = (*x.shape[:axis], *np.shape(indices), *x.shape[axis + 1 :])
    if is_static((*shape, x.shape[axis])) and not x.shape[axis] and math.prod(shape):
        raise IndexError("cannot do a non-empty take from an empty axes.")
    taken = x[(slice(None),) * axis + (_positions(indices, x.shape[axis], mode),)]
    taken = taken if not taken.ndim else new_array(taken._node)
    return taken if out is None else exactly_into(out, taken, "numpy.take")


@handles(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    x, index = as_tracer(arr), as_tracer(indices)
    if axis is None and index.ndim == 1:
        x, axis = new_array(emit("reshape", x._node, shape=(x.size,))), 0
    if axis is None or x.ndim != index.ndim:
        raise Escape("numpy.take_along_axis of differently shaped arrays", "NumPy refuses it")
    return fresh(emit("take_along_axis", x._node, index._node, axis=normalize_axis_index(axis, x.ndim)))


def _positions(indices: Any, extent: Any, mode: str) -> Tracer:
    """Indices as integers, brought into range where ``mode`` says so; booleans count as 0 and 1."""
    known = not isinstance(indices, Tracer) and not np.size(indices)
    node = const(np.asarray(indices, np.intp)) if known else array_node(indices)
    if node.dtype.kind not in "biu" or mode not in ("raise", "wrap", "clip"):
        raise Escape("numpy.take with such indices or options", "NumPy refuses them, or they are not traced")
    node = emit("cast", node, dtype=np.dtype(np.intp)) if node.dtype.kind == "b" else node
    if mode == "wrap":
        node = emit("remainder", node, extent)
    elif mode == "clip":
        node = emit("minimum", emit("maximum", node, 0), extent - 1)
    return new_array(node)
