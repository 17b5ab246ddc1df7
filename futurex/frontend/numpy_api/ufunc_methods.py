"""``reduce``, ``accumulate``, ``reduceat``, ``outer`` and ``at`` of ufuncs on traced arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.masks import mask_of
from futurex.frontend.numpy_api.registry import NO_VALUE, Handler, check_type
from futurex.frontend.numpy_api.ufuncs import (
    call_ufunc,
    check_target,
    dummy_of,
    integer_axes,
    into,
    keeps_dims,
    layout_of,
    one_axis,
    op_of,
)  # fmt: skip
from futurex.frontend.trace import emit
from futurex.frontend.tracer import Tracer, array_node, entered, fresh, index_node, node_of
from futurex.tree.dims import is_static
from futurex.tree.node import Node

_REDUCTIONS = {
    np.add: "sum", np.multiply: "prod", np.maximum: "max", np.minimum: "min", np.logical_and: "all",
    np.logical_or: "any",
}  # fmt: skip


def reduce(
    ufunc: Any, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: Any = False,
    initial: Any = NO_VALUE, where: Any = True,
) -> Any:  # fmt: skip
    """``ufunc.reduce`` with all its options."""
    array = entered(array)
    x = array_node(array)
    target = _target(out)
    axes = () if x.ndim == 0 and axis in (0, -1) else integer_axes(axis, x.ndim)
    attrs: dict[str, Any] = {"axis": axes, "keepdims": keeps_dims(keepdims)}
    dtype = None if dtype is None else _known_dtype(dtype)
    whole = where is True or where is NO_VALUE
    name = _REDUCTIONS.get(ufunc)
    if name is not None and target is None and initial is NO_VALUE and whole and (dtype is None or _takes_dtype(name)):
        node = emit(name, x, **attrs, **({"dtype": dtype} if _takes_dtype(name) else {}))
    else:
        start = [] if initial is NO_VALUE or initial is None else [node_of(initial)]
        mask = [] if whole else [node_of(where)]
        if any(each.ndim for each in start) or any(each.dtype.kind != "b" for each in mask):
            raise Escape("initial= that is an array, or where= that is not boolean", "NumPy refuses or casts it")
        node = emit(
            "ufunc_reduce", x, *start, *mask, **attrs, ufunc=_name(ufunc), dtype=dtype, masked=bool(mask),
            out=None if target is None else target.dtype,
            initial="default" if initial is NO_VALUE else "none" if initial is None else "given",
        )  # fmt: skip
    if target is not None:
        return _delivered(node, target)
    result = fresh(node)
    result._cell.strides = layout_of(result.aval, [array], [x])
    return result


def accumulate(ufunc: Any, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Any:
    """``ufunc.accumulate`` with all its options."""
    x, target = array_node(entered(array)), _target(out)
    place = one_axis(axis, x.ndim)
    dtype = None if dtype is None else _known_dtype(dtype)
    if ufunc is np.add and target is None:
        return fresh(emit("cumsum", x, axis=place, dtype=dtype))
    node = emit(
        "accumulate", x, ufunc=_name(ufunc), axis=place, dtype=dtype, out=None if target is None else target.dtype
    )
    return fresh(node) if target is None else _delivered(node, target)


def reduceat(ufunc: Any, array: Any, indices: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Any:
    """``ufunc.reduceat`` with all its options."""
    x, target = array_node(entered(array)), _target(out)
    place = one_axis(axis, x.ndim)
    places = array_node(entered(indices))
    if places.ndim != 1 or places.dtype.kind not in "iu":
        raise Escape(f"numpy.{ufunc.__name__}.reduceat at this", "indices are a vector of integers")
    extent = x.shape[place]
    known = places.op == "const" and is_static((extent,))
    if known and not np.all((places.value >= 0) & (places.value < extent)):
        raise IndexError(f"an index of reduceat is out of bounds for axis of size {extent}")
    node = emit(
        "reduceat", x, places, ufunc=_name(ufunc), axis=place, dtype=None if dtype is None else _known_dtype(dtype),
        out=None if target is None else target.dtype,
    )  # fmt: skip
    return fresh(node) if target is None else _delivered(node, target)


def outer(ufunc: Any, first: Any, second: Any, **options: Any) -> Any:
    """``ufunc.outer``: every element of one with every element of the other; Python numbers are arrays here."""
    if ufunc.signature is not None or ufunc.nin != 2:
        raise Escape(f"numpy.{ufunc.__name__}.outer", "NumPy refuses it")
    x, y = array_node(entered(first)), array_node(entered(second))
    x = emit("reshape", x, shape=(*x.shape, *(1,) * y.ndim))
    return call_ufunc(ufunc, "__call__", (fresh(x), fresh(y)), options)


def at(ufunc: Any, a: Any, indices: Any, b: Any = None) -> None:
    """``ufunc.at``: unbuffered, an element whose index comes twice is changed twice."""
    target = entered(a)
    if not isinstance(target, Tracer) or target.is_scalar or ufunc.nout != 1 or (b is None) != (ufunc.nin == 1):
        raise Escape(f"numpy.{ufunc.__name__}.at of this", "only arrays and numbers are traced")
    values = [] if b is None else [node_of(entered(b))]
    ufunc.at(np.ones(1, target.dtype), np.array([], int), *map(dummy_of, values))
    mask = mask_of(target.shape, indices, index_node)
    if mask is not None:
        if mask.shape != target.shape or any(value.ndim for value in values):
            raise Escape(f"numpy.{ufunc.__name__}.at of a mask", "how many elements it takes depends on data")
        call_ufunc(ufunc, "__call__", (target, *map(fresh, values)), {"out": target, "where": fresh(mask)})
        return
    encoded = target._encode(indices)
    target._check_bounds(encoded)
    if ufunc is np.add:
        node = emit("scatter", target._node, *values, *encoded.dynamic, pattern=encoded.entries, mode="add")
    else:
        node = emit("ufunc_at", target._node, *values, *encoded.dynamic, ufunc=_name(ufunc), pattern=encoded.entries)
    target._write(node)


def _takes_dtype(name: str) -> bool:
    return name in ("sum", "prod")


def _name(ufunc: Any) -> str:
    name, attrs = op_of(ufunc)
    return attrs.get("ufunc", name)


def _known_dtype(dtype: Any) -> np.dtype[Any]:
    check_type(dtype)
    known = np.dtype(dtype)
    if known.kind not in "biufc" or not known.isnative:
        raise Escape(f"a reduction in {known}", "only numbers and booleans are traced")
    return known


def _target(out: Any) -> Tracer | None:
    """The array of ``out=``, which may stand in a tuple."""
    if isinstance(out, tuple):
        (out,) = out
    target = entered(out)
    if target is ...:
        raise Escape("a reduction with out=...", "this option is not traced")
    check_target(target)
    return target


def _delivered(node: Node, target: Tracer) -> Tracer:
    """Write a result that was computed in the target's own type."""
    if node.shape != target.shape:
        raise ValueError(f"the output of shape {target.shape} does not fit a reduction of shape {node.shape}")
    return into(target, node, True, "unsafe")


METHODS_OF_UFUNCS: dict[str, Handler] = {
    "reduce": reduce,
    "accumulate": accumulate,
    "reduceat": reduceat,
    "outer": outer,
    "at": at,
}
