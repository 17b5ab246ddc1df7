"""Sorting, order statistics, convolution and interpolation of traced arrays."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.layout import c_strides
from futurex.frontend.numpy_api.registry import HANDLERS, Handler, handles
from futurex.frontend.numpy_api.ufuncs import exactly_into, layout_of, normal_axes, one_axis
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import Tracer, array_node, as_number, as_tracer, entered, fresh, new_array, node_of
from futurex.ops.control import Failure
from futurex.tree.aval import PYTHON_SCALARS
from futurex.tree.dims import Dim
from futurex.tree.node import Node

_KINDS = {None: None, "quicksort": "quicksort", "heapsort": "heapsort", "mergesort": "mergesort", "stable": "stable"}


def along(a: Any, axis: Any) -> tuple[Tracer, Node, int]:
    """The array, its node and the number of an axis; None flattens."""
    x = as_tracer(a)
    node = x._node
    if axis is None:
        node = emit("reshape", node, shape=(x.size,))
        return fresh(node), node, 0
    return x, node, one_axis(axis, x.ndim)


def _sorted(name: str) -> Handler:
    def handler(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Tracer:
        if order is not None or kind not in _KINDS or (kind is not None and stable is not None):
            raise Escape(f"numpy.{name} with these options", "only kind= or stable= is traced")
        if name == "argsort" and as_tracer(a).ndim == 0:
            a = as_tracer(a).reshape(-1)  # numpy.sort refuses such an array, this does not
        x, node, k = along(a, axis)
        result = fresh(emit(name, node, axis=k, kind="stable" if stable else kind))
        result._cell.strides = c_strides(result.aval) if name == "argsort" else layout_of(result.aval, [x], [node])
        return result

    return handler


HANDLERS[np.sort] = _sorted("sort")
HANDLERS[np.argsort] = _sorted("argsort")


_LONG = 4096
"""Numbers from which NumPy's own merging takes longer than orders one after the other."""


@handles(np.lexsort)
def lexsort(keys: Any, axis: Any = -1) -> Tracer:
    """A stable order by each key, of what the one before has brought in order."""
    if not isinstance(keys, tuple | list):
        raise Escape("numpy.lexsort of one array", "only several keys have a translation")
    nodes = [array_node(key) for key in keys]
    rows = {node.shape for node in nodes}
    if len(nodes) < 2 or len(rows) > 1 or axis not in (-1, 0) or isinstance(axis, bool):
        raise Escape("numpy.lexsort of other keys", "only several keys of one length have a translation")
    if not all(node.is_static and node.ndim == 1 and node.shape[0] >= _LONG for node in nodes):
        raise Escape("numpy.lexsort of short keys", "NumPy is as fast")
    order = emit("argsort", nodes[0], axis=0, kind="stable")
    for node in nodes[1:]:
        there = emit("gather", node, order, pattern=(("d", 0),))
        order = emit("gather", order, emit("argsort", there, axis=0, kind="stable"), pattern=(("d", 0),))
    return new_array(order)


@handles(np.partition)
def partition(a: Any, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None) -> Tracer:
    if order is not None or kind != "introselect":
        raise Escape("numpy.partition with these options", "they are not traced")
    given = kth if isinstance(kth, tuple | list) else (kth,)
    if any(isinstance(place, bool | np.bool_) for place in given):
        raise Escape("numpy.partition at a boolean", "NumPy refuses it")
    places = tuple(map(operator.index, given))
    x, node, k = along(a, axis)
    if any(not -x.shape[k] <= place < x.shape[k] for place in places):
        raise Escape("numpy.partition at a place outside of the array", "NumPy refuses it")
    result = fresh(emit("partition", node, axis=k, kth=places))
    result._cell.strides = layout_of(result.aval, [x], [node])
    return result


_OF_NOTHING = Failure(ValueError, ("a quantile of no elements",))


def _quantile(function: str, a: Any, q: Any, axis: Any, out: Any, keepdims: Any, method: str) -> Any:
    x = array_node(a)
    axes = normal_axes(axis, x.ndim)
    if x.dtype.kind not in "fiu" or any(isinstance(extent, int) and not extent for extent in x.shape):
        raise Escape(f"numpy.{function} of booleans, of complex numbers or of nothing", "this use is not traced")
    if isinstance(x.size, Dim):
        current().waits = True  # of nothing NumPy finds a NaN, or raises, and that as plain Python
        current().effect("check", emit("greater", as_number(x.size)._node, 0), failure=_OF_NOTHING)
    keep = bool(keepdims) and keepdims is not np._NoValue
    if q is not None and function.startswith("nan") and method != "linear":
        raise Escape(f"numpy.{function} with method={method!r}", "this method is not traced")
    axes = tuple(range(x.ndim)) if axes is None else axes
    node = emit("quantile", x, function=function, q=_points(q), axis=axes, keepdims=keep, method=method)
    result = new_array(node) if keep else fresh(node)
    return result if out is None else exactly_into(out, result, f"numpy.{function}")


def _points(q: Any) -> Any:
    """Quantiles that are known: a number, or a tuple of numbers."""
    if isinstance(q, Tracer):
        known = q._node.value
        if not isinstance(known, np.ndarray) or known.ndim != 1 or known.dtype not in (np.float64, np.int64):
            raise Escape("quantiles that are not known before the run", "their derivative is not traced")
        return tuple(known.tolist())
    if isinstance(q, list | tuple) and all(type(entry) in PYTHON_SCALARS for entry in q):
        return tuple(map(float, q))
    if q is None or type(q) in (int, float):
        return q
    raise Escape("quantiles of this kind", "only numbers and lists of them are traced")


def _median(function: str) -> Handler:
    def handler(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False) -> Any:
        if overwrite_input:
            raise Escape(f"numpy.{function} with overwrite_input=True", "what is left in the input is not defined")
        return _quantile(function, a, None, axis, out, keepdims, "linear")

    return handler


def _percentile(function: str) -> Handler:
    def handler(
        a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, method: str = "linear",
        keepdims: Any = False, *, weights: Any = None,
    ) -> Any:  # fmt: skip
        if overwrite_input or weights is not None:
            raise Escape(f"numpy.{function} with overwrite_input= or weights=", "these options are not traced")
        return _quantile(function, a, q, axis, out, keepdims, method)

    return handler


for _name in ("median", "nanmedian"):
    HANDLERS[getattr(np, _name)] = _median(_name)
for _name in ("percentile", "quantile", "nanpercentile", "nanquantile"):
    HANDLERS[getattr(np, _name)] = _percentile(_name)


def _convolution(name: str, default: str) -> Handler:
    def handler(a: Any, v: Any, mode: Any = default) -> Tracer:
        x, y = array_node(a), array_node(v)
        if name == "convolve":
            x, y = (emit("reshape", node, shape=(1,)) if node.ndim == 0 else node for node in (x, y))
        if mode not in ("full", "same", "valid") or x.ndim != 1 or y.ndim != 1 or not x.size or not y.size:
            raise Escape(f"numpy.{name} of these arrays, or in this mode", "NumPy refuses it, or it is not traced")
        return fresh(emit(name, x, y, mode=mode))

    return handler


HANDLERS[np.convolve] = _convolution("convolve", "full")
HANDLERS[np.correlate] = _convolution("correlate", "valid")


_NO_PERIOD = Failure(ValueError, ("period must be a non-zero value",))


@handles(np.interp)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Tracer:
    at, table, values = array_node(x), array_node(xp), array_node(fp)
    if table.ndim != 1 or values.ndim != 1 or table.shape != values.shape or not table.size or at.dtype.kind == "c":
        raise Escape("numpy.interp with such a table", "NumPy refuses it")
    if period is not None:
        at, table, values = _periodic(at, table, values, period)
        left = right = None
    outside = []
    if left is not None or right is not None:
        ends = as_tracer(values)
        outside = [node_of(ends[0] if left is None else left), node_of(ends[-1] if right is None else right)]
    return fresh(emit("interp", at, table, values, *outside))


def _periodic(x: Node, xp: Node, fp: Node, period: Any) -> tuple[Node, Node, Node]:
    """Everything in one period, with a point of the one before and one of the next, as NumPy has them."""
    if type(period) not in (int, float):
        period = node_of(entered(period))
        if period.ndim or period.dtype.kind not in "iuf":
            raise Escape("numpy.interp with such a period=", "NumPy refuses it")
        current().effect("check", emit("not_equal", period, 0), failure=_NO_PERIOD)
        period = emit("absolute", period)
    elif not period:
        raise Escape("numpy.interp with such a period=", "NumPy refuses it")
    else:
        period = abs(period)
    kinds = (np.float64, np.float64, np.complex128 if fp.dtype.kind == "c" else np.float64)
    x, xp, fp = (
        node if node.dtype == kind and not node.aval.weak else emit("cast", node, dtype=np.dtype(kind))
        for node, kind in zip((x, xp, fp), kinds, strict=True)
    )
    x, xp = emit("remainder", x, period), emit("remainder", xp, period)
    order = emit("argsort", xp, axis=0, kind=None)
    xp, fp = (emit("gather", node, order, pattern=(("d", 0),)) for node in (xp, fp))
    (last, first), (before, behind) = (
        [emit("load", node, chain=(("index", (("s", *part, None),)),)) for part in ((-1, None), (0, 1))]
        for node in (xp, fp)
    )
    ends = emit("subtract", last, period), emit("add", first, period)
    return (
        x,
        emit("concatenate", ends[0], xp, ends[1], axis=0),
        emit("concatenate", before, fp, behind, axis=0),
    )


@handles(np.gradient)
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Tracer:
    """Along one axis, at given coordinates; NumPy's source says what equal distances mean."""
    y = as_tracer(f)
    if len(varargs) != 1 or edge_order != 1 or (axis is None and y.ndim != 1):
        raise Escape("numpy.gradient of this form", "only one axis with its coordinates has an operation")
    place = normal_axes(0 if axis is None else operator.index(axis), y.ndim)
    x = array_node(varargs[0])
    assert place is not None
    if x.ndim != 1 or x.shape[0] != y.shape[place[0]] or x.shape[0] < 2 or not y.dtype == x.dtype == np.float64:
        raise Escape("numpy.gradient with such coordinates", "NumPy refuses them, or casts")
    return fresh(emit("gradient", y._node, x, axis=place[0]))
