"""What NumPy functions that are called whole mean in simpler operations, for their derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.ops.elementwise import where
from futurex.ops.library import MEANINGS
from futurex.tree.dims import is_static
from futurex.tree.node import Node, apply, const

_FIRST = (("d", 0),)


def _node(value: Any) -> Node:
    return value if isinstance(value, Node) else const(np.asarray(value)[()])


def _line(value: Any) -> Node:
    """All elements, as ``np.ravel`` has them."""
    node = _node(value)
    return apply("reshape", node, shape=(node.size,))


def _part(x: Node, start: int | None, stop: int | None) -> Node:
    return apply("load", x, chain=(("index", (("s", start, stop, None),)),))


def _extreme(name: str, x: Node) -> Node:
    return apply(name, x, axis=None, keepdims=False)


def _sum(x: Node) -> Node:
    return apply("sum", x, axis=None, keepdims=False, dtype=None)


def _in(x: Node, dtype: Any) -> Node:
    return x if x.dtype == dtype and not x.aval.weak else apply("cast", x, dtype=np.dtype(dtype))


def _polymul(a: Any, b: Any) -> Any:
    """The product of all coefficients without those in front that the leading zeros make."""
    a, b = (_line(each) for each in (a, b))
    if not is_static((*a.shape, *b.shape)) or not a.size or not b.size:
        return NotImplemented
    start = const(np.intp(0))
    for each in (a, b):
        known = apply("not_equal", each, 0)
        first = apply("argmax", known, axis=0, keepdims=False)
        start = start + where(apply("any", known, axis=None, keepdims=False), first, each.size - 1)
    product = apply("convolve", a, b, mode="full")
    return apply("load", product, start, chain=(("index", (("s", ("d", 0), None, None),)),))


def _ends(a: Node, range: Any) -> tuple[Node, Node]:
    if range is not None:
        first, last = map(_node, range)
    else:
        first, last = _extreme("min", a), _extreme("max", a)
    alike = apply("equal", first, last)
    return where(alike, first - 0.5, first), where(alike, last + 0.5, last)


def _edges(a: Node, bins: Any, range: Any) -> Any:
    """Those of equal bins are what ``np.linspace`` gives."""
    if isinstance(bins, str) or a.dtype.kind not in "iuf" or not is_static(a.shape) or not a.size:
        return NotImplemented
    if not isinstance(bins, int):
        return _node(bins)
    first, last = _ends(a, range)
    dtype = np.result_type(first.dtype, last.dtype, a.dtype)
    dtype = dtype if dtype.kind == "f" else np.result_type(dtype, float)
    first, last = _in(first, dtype), _in(last, dtype)
    inner = const(np.arange(bins, dtype=dtype)) * ((last - first) / bins) + first
    return apply("concatenate", inner, apply("reshape", last, shape=(1,)), axis=0)


def _histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    """Weights that are added up in their bins: these hold their lower edge, the last one both."""
    a = _line(a)
    edges = _edges(a, bins, range)
    if edges is NotImplemented or (density is not None and type(density) is not bool):
        return NotImplemented
    last = edges.shape[0] - 2
    low, high = (apply("load", edges, chain=(("index", (("i", k),)),)) for k in (0, last + 1))
    inside = apply("logical_and", apply("less_equal", low, a), apply("less_equal", a, high))
    place = apply("native", edges, a, call="np.searchsorted(_0, _1, side='right')") - 1
    place = where(inside, apply("minimum", place, last), 0)
    added = const(np.float64(1.0)) if weights is None else _line(weights)
    added = where(inside, added, added.dtype.type(0))
    zeros = apply("full", added.dtype.type(0), shape=(last + 1,), dtype=added.dtype)
    counts = apply("scatter", zeros, added, place, pattern=_FIRST, mode="add")
    if density:
        counts = counts / (_part(edges, 1, None) - _part(edges, None, -1)) / _sum(counts)
    return counts, edges


def _histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    return _edges(_line(a), bins, range)


def _quantile(scale: float) -> Any:
    def meaning(a: Any, q: Any, axis: Any = None, method: str = "linear", **options: Any) -> Any:
        """Between the two elements around a place in their order."""
        x, q = _node(a), _node(q)
        if options or method != "linear" or not (axis is None or type(axis) is int) or x.dtype.kind != "f":
            return NotImplemented
        if not is_static(x.shape) or not x.size:
            return NotImplemented
        x = _line(x) if axis is None else x
        k = 0 if axis is None else axis % x.ndim
        x = apply("transpose", x, axes=(k, *(each for each in range(x.ndim) if each != k)))
        n = x.shape[0]
        place = q * ((n - 1) / scale)
        low = apply("minimum", apply("maximum", _in(apply("floor", place), np.intp), 0), n - 1)
        ordered = apply("sort", x, axis=0, kind=None)
        below, above = (
            apply("gather", ordered, each, pattern=_FIRST)
            for each in (low, apply("minimum", low + 1, n - 1))
        )
        along = apply("reshape", place - low, shape=(*q.shape, *(1,) * (x.ndim - 1)))
        return below + (above - below) * along

    return meaning


def _kaiser(M: Any, beta: Any) -> Any:
    if type(M) is not int or M < 2:
        return NotImplemented
    half = (M - 1) / 2
    inside = np.sqrt(1 - ((np.arange(M) - half) / half) ** 2)
    return apply("i0", _node(beta) * const(inside)) / apply("i0", _node(beta))


MEANINGS |= {
    "polymul": _polymul, "histogram": _histogram, "histogram_bin_edges": _histogram_bin_edges,
    "quantile": _quantile(1.0), "percentile": _quantile(100.0), "kaiser": _kaiser,
}  # fmt: skip
