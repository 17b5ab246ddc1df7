"""Reductions in the form that generated kernels know, to the bit: along axes that lie together, of numbers as they are.

Axes apart from each other (``axis=(0, 2)`` of three) are reduced from the last one on, as NumPy's own loops do it. What
NumPy converts before it adds is converted first; where its pieces of 8192 numbers are part of the order, and all
elements are added up, these are rows, whose sums are added one after the other. Narrow integers that become floats are
added as integers, which no order can round. Halves are single precision, rounded once.

Few columns of many rows are reduced in wide rows, many of theirs each, where any order will do: extremes, truths, and
sums of integers.

Reductions of a part of the elements (``where=``) take what changes nothing in the place of the others, and ``fmax`` and
``fmin`` the smallest and the largest number in the place of NaN.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from futurex.ops.elementwise import where
from futurex.ops.fusion import HALF, SUPPORTED
from futurex.ops.reduce import axes_of, reduced_shape
from futurex.ops.strides import has_gaps, is_scattered
from futurex.ops.sweeps import REDUCTIONS, Space, space_of, turned
from futurex.passes.fuse import LARGE_ELEMENTS, least_alone
from futurex.passes.rewrite import rewrite
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, const

_PIECE = 8192
"""Elements that NumPy converts at once (``np.getbufsize()``)."""
_TOGETHER, _FEW_COLUMNS = 64, 16
"""Rows of a few columns that are one wide one, whole lines of the caches whatever the columns are; and how many columns
are few."""
_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
EXACT = {_SINGLE: 24, _DOUBLE: 53}
"""Bits of the integers that a float holds."""


_PLAIN = {
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "fmax": "max", "fmin": "min",
    "logical_or": "any", "logical_and": "all",
}  # fmt: skip
"""What reductions of ufuncs are called that have records of their own."""
_JOINS = {
    "max": "maximum", "min": "minimum", "any": "logical_or", "all": "logical_and", "sum": "add", "prod": "multiply",
}  # fmt: skip
"""What joins two results of a reduction."""


def arrange_reductions(graph: Graph, *, inside: bool = False) -> Graph:
    """The graph with large reductions in the form that regions may hold."""
    if not any(node.op in REDUCTIONS or node.op == "ufunc_reduce" for node in graph.nodes):
        return graph
    return rewrite(graph, functools.partial(_arranged, least=least_alone(graph, inside)))


def _arranged(node: Node, least: int) -> Node | None:
    if node.op == "ufunc_reduce":
        return of_part(node, least)
    if node.op not in REDUCTIONS or not node.is_static or not isinstance(node.aval, Aval):
        return None
    x = node.inputs[0]
    if x.aval.weak or x.size < least or not node.size:
        return None
    for way in (_converted, _apart, _in_wide_rows):
        found = way(node, x)
        if found is not None:
            return found
    return None


def of_part(node: Node, least: int = LARGE_ELEMENTS) -> Node | None:
    """A reduction with a mask, a start value, or of all that is no NaN, as one of all elements."""
    x, *rest = node.inputs
    asked, name = node.attrs, node.attrs["ufunc"]
    op = _PLAIN.get(name)
    if op is None or asked["out"] is not None or not node.is_static or not isinstance(node.aval, Aval):
        return None
    if x.aval.weak or x.size < least or not node.size or not {x.dtype, node.dtype} <= SUPPORTED:
        return None  # sums of halves, which NumPy rounds at every run of the mask, may outgrow them there
    sums = op in ("sum", "prod")
    if asked["dtype"] not in (None, node.dtype) or not (sums or node.dtype == x.dtype or op in ("any", "all")):
        return None
    if asked["initial"] == "none" and op == "sum" and node.dtype.kind == "f":
        return None  # which begins with the first element, and keeps the sign of a zero
    start = _start(node, op, rest[0]) if asked["initial"] == "given" else None
    if asked["initial"] == "given" and start is None:
        return None
    attrs = {"axis": asked["axis"], "keepdims": asked["keepdims"]} | ({"dtype": asked["dtype"]} if sums else {})
    nothing = const(_nothing(op, x.dtype))
    if name in ("fmax", "fmin") and x.dtype.kind == "f":
        if rest:
            return None
        odd = apply("isnan", x)
        best = apply(op, where(odd, nothing, x), **attrs)
        return where(apply("all", odd, **attrs), const(x.dtype.type(np.nan)), best)
    found = apply(op, where(rest[-1], x, nothing) if asked["masked"] else x, **attrs)
    return found if start is None else apply(name, found, start)


def _start(node: Node, op: str, start: Node) -> Node | None:
    """A start value that may be joined to what the elements give, in the result's dtype. Floats would be added up in
    another order, and some that NumPy converts need not fit."""
    if start.op == "const" and start.size == 1:
        value = np.asarray(start.value)
        if value.dtype.kind not in {"f": "iuf", "i": "i", "u": "u", "b": "b"}.get(node.dtype.kind, ""):
            return None
        if node.dtype.kind in "iu" and not np.iinfo(node.dtype).min <= value <= np.iinfo(node.dtype).max:
            return None
        start = const(value.astype(node.dtype)[()])
    if start.dtype != node.dtype or start.aval.weak or start.size != 1:
        return None
    return start if op in ("max", "min") or node.dtype.kind in "iu" else None


def _nothing(op: str, dtype: np.dtype[np.generic]) -> Any:
    """The element that changes no result: of sums -0.0, as 0.0 would take the sign off one."""
    if op in ("max", "min"):
        if dtype.kind == "b":
            return np.bool_(op == "min")
        if dtype.kind == "f":
            return dtype.type(-np.inf if op == "max" else np.inf)
        limits = np.iinfo(dtype)  # type: ignore[type-var]
        return dtype.type(limits.min if op == "max" else limits.max)
    return dtype.type({"sum": -0.0, "prod": 1, "any": 0, "all": 1}[op])


def bits_of(dtype: np.dtype[np.generic]) -> int:
    """Of an integer or a truth value."""
    return 1 if dtype.kind == "b" else 8 * dtype.itemsize


def _reduced(node: Node, x: Node, dtype: np.dtype[np.generic] | None = None) -> Node:
    """The same reduction of another array."""
    attrs = {"axis": node.attrs["axis"], "keepdims": node.attrs["keepdims"]}
    return apply(node.op, x, **attrs, **({"dtype": dtype} if node.op in ("sum", "prod") else {}))


def _converted(node: Node, x: Node) -> Node | None:
    space = Space(x.shape, axes_of(x.ndim, node.attrs["axis"]))
    if x.dtype == HALF:
        return _of_halves(node, x, space)
    if node.op != "sum" or node.dtype.kind != "f" or node.dtype == x.dtype:
        return None
    if x.dtype.kind in "iub" and bits_of(x.dtype) + math.log2(space.count) <= EXACT.get(node.dtype, 0):
        whole = _reduced(node, x, np.dtype(np.int64))
        apart = _apart(whole, x)
        return apply("cast", whole if apart is None else apart, dtype=node.dtype)
    wide = _DOUBLE if x.dtype.kind in "iub" else x.dtype
    if x.dtype in SUPPORTED and node.dtype in SUPPORTED and wide.itemsize <= node.dtype.itemsize:
        return _cast_first(node, x, space)
    return None


def _cast_first(node: Node, x: Node, space: Space) -> Node | None:
    return _reduced(node, apply("cast", x, dtype=node.dtype)) if _whole_pieces(space) else _in_pieces(node, x, space)


def _in_pieces(node: Node, x: Node, space: Space) -> Node | None:
    """A sum over all elements as they lie: pairwise in each piece, and one piece after the other."""
    if space.pattern != "R" or turned(x) or has_gaps(x):
        return None
    whole = x.size // _PIECE * _PIECE
    flat = apply("reshape", x, shape=(x.size,))
    pieces = apply("reshape", _slice(flat, 0, whole), shape=(whole // _PIECE, _PIECE))
    attrs = {"keepdims": False, "dtype": None}
    sums = apply("sum", apply("cast", pieces, dtype=node.dtype), axis=(1,), **attrs)
    running = apply("cumsum", sums, axis=0, dtype=None)
    total = apply("reshape", _slice(running, whole // _PIECE - 1, whole // _PIECE), shape=node.shape)
    total = apply("add", total, const(node.dtype.type(0)))  # NumPy begins with zero
    if whole == x.size:
        return total
    rest = apply("sum", apply("cast", _slice(flat, whole, x.size), dtype=node.dtype), axis=(0,), **attrs)
    return apply("add", total, rest)


def _slice(x: Node, start: int, stop: int) -> Node:
    return apply("load", x, chain=(("index", (("s", start, stop, None),)),))


def _whole_pieces(space: Space) -> bool:
    """Does what is added without a break fit a piece?"""
    return space.pattern in ("RK", "KRK") or (space.pattern in ("R", "KR") and space.count <= _PIECE)


def _of_halves(node: Node, x: Node, space: Space) -> Node | None:
    if node.op in ("any", "all"):
        return _reduced(node, apply("cast", x, dtype=np.dtype(bool)))
    if node.op == "sum" and node.dtype == _SINGLE:
        return _cast_first(node, x, space)
    by_row = space.pattern in ("R", "KR")  # along columns every sum is rounded
    if node.dtype != HALF or not (node.op in ("max", "min") or (node.op == "sum" and by_row)):
        return None
    return apply("cast", _reduced(node, apply("cast", x, dtype=_SINGLE)), dtype=HALF)


def _apart(node: Node, x: Node) -> Node | None:
    """The last run of axes first."""
    axes = [axis for axis in axes_of(x.ndim, node.attrs["axis"]) if x.shape[axis] != 1]
    kept = [axis for axis in range(x.ndim) if axis not in axes and x.shape[axis] != 1]
    before = max((axis for axis in kept if axes and axis < axes[-1]), default=-1)
    last = [axis for axis in axes if axis > before]
    if len(last) == len(axes) or not _may_split(node, x, axes, last):
        return None
    extra = {"dtype": None} if node.op in ("sum", "prod") else {}
    inner = apply(node.op, x, axis=tuple(last), keepdims=True, **extra)
    if space_of(inner) is None:
        return None
    outer = apply(node.op, inner, axis=tuple(axes[: -len(last)]), keepdims=True, **extra)
    shape = reduced_shape(x.shape, node.attrs["axis"], node.attrs["keepdims"])
    return outer if outer.shape == shape else apply("reshape", outer, shape=shape)


def _may_split(node: Node, x: Node, axes: list[int], last: list[int]) -> bool:
    """Does the order give NumPy's bits? It adds up the last run pairwise and joins these sums one after the other."""
    if node.op not in ("sum", "prod") or node.dtype.kind in "iub":
        return True
    if node.op != "sum" or node.dtype != x.dtype or x.dtype not in SUPPORTED or turned(x):
        return False
    rest = axes[: -len(last)]
    neighbours = all(x.shape[axis] == 1 or axis in rest for axis in range(rest[0], rest[-1] + 1))
    return neighbours and last[-1] == _innermost(x)


def _innermost(x: Node) -> int:
    return max(axis for axis, extent in enumerate(x.shape) if extent != 1)


def _in_wide_rows(node: Node, x: Node) -> Node | None:
    """What may be joined in any order of few columns, of rows that are many of theirs first."""
    axes = [axis for axis in axes_of(x.ndim, node.attrs["axis"]) if x.shape[axis] != 1]
    kept = [axis for axis in range(x.ndim) if axis not in axes and x.shape[axis] != 1]
    free = node.op in _JOINS and (node.op not in ("sum", "prod") or node.dtype.kind in "iu")
    if not free or not axes or not kept or axes[-1] > kept[0] or node.dtype != x.dtype or x.dtype not in SUPPORTED:
        return None
    columns = math.prod(x.shape[axis] for axis in kept)
    if columns >= _FEW_COLUMNS or x.size < LARGE_ELEMENTS or turned(x) or has_gaps(x) or is_scattered(x):
        return None
    rows = x.size // columns
    whole = rows // _TOGETHER * _TOGETHER
    attrs: dict[str, Any] = {"axis": (0,), "keepdims": False} | ({"dtype": None} if node.op in ("sum", "prod") else {})
    flat = apply("reshape", x, shape=(rows, columns))
    wide = apply("reshape", _slice(flat, 0, whole), shape=(whole // _TOGETHER, _TOGETHER * columns))
    found = apply(node.op, apply("reshape", apply(node.op, wide, **attrs), shape=(_TOGETHER, columns)), **attrs)
    if whole < rows:
        rest = apply(node.op, _slice(flat, whole, rows), **attrs)
        found = apply(_JOINS[node.op], found, rest)
    return apply("reshape", found, shape=node.shape)

