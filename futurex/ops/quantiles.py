"""Medians, percentiles and quantiles: NumPy's own, differentiated as interpolation between sorted elements.

Whatever the method, a quantile of sorted numbers lies between two of them; where, the same quantile of 0, 1, 2, ...
tells.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.ops.medians import median_by_exchanges, room_of_exchanges
from futurex.ops.selection import by_selection, room_of_selection, selects
from futurex.tree.aval import Aval
from futurex.tree.dims import Dim
from futurex.tree.node import Node, apply, const, size_node
from futurex.tree.record import Sample, op

Q = float | tuple[Any, ...] | None


def _kernel(x: Any, function: str, q: Q, axis: tuple[int, ...], keepdims: bool, method: str) -> Any:
    axes = axis[0] if len(axis) == 1 else axis
    if function == "median":
        found = median_by_exchanges(x, axis)
        if found is not None:
            return found.reshape([1 if k in axis else n for k, n in enumerate(x.shape)]) if keepdims else found
    if selects(x, function, axis, method):
        found = by_selection(x, function, q, axis)
        if found is not None:
            kept = [1 if k in axis else n for k, n in enumerate(x.shape)]
            several = [len(q)] if isinstance(q, tuple) else []
            return found.reshape(*several, *kept) if keepdims else found
    if q is None:
        return getattr(np, function)(x, axis=axes, keepdims=keepdims)
    points = list(q) if isinstance(q, tuple) else q
    return getattr(np, function)(x, points, axis=axes, keepdims=keepdims, method=method)


def _aval(x: Aval, function: str, q: Q, axis: tuple[int, ...], keepdims: bool, method: str) -> Aval:
    kept = tuple(1 if k in axis else n for k, n in enumerate(x.shape) if keepdims or k not in axis)
    if any(isinstance(x.shape[k], int) and x.shape[k] == 0 for k in axis):
        raise ValueError(f"the {function} of no elements has no fixed form")
    one = _kernel(np.zeros((1,) * x.ndim, x.dtype), function, q, axis, keepdims, method)
    return Aval(np.shape(one)[: np.ndim(one) - len(kept)] + kept, np.asarray(one).dtype)


def _decomposed(x: Node, function: str, q: Q, axis: tuple[int, ...], keepdims: bool, method: str) -> Node:
    out = _aval(x.aval, function, q, axis, keepdims, method)
    rest = [k for k in range(x.ndim) if k not in axis]
    count = math.prod(x.shape[k] for k in axis)
    lanes = apply("transpose", x, axes=(*rest, *axis))
    lanes = apply("reshape", lanes, shape=(*(x.shape[k] for k in rest), count))
    if lanes.dtype != out.dtype:
        lanes = apply("cast", lanes, dtype=out.dtype)
    ordered = apply("sort", lanes, axis=lanes.ndim - 1, kind=None)
    last: Any = count - 1
    if isinstance(count, Dim):
        if method != "linear":
            raise ValueError(f"of as many elements as data says, quantiles by {method!r} have no derivative")
        last = size_node(count - 1)
    if function.startswith("nan"):
        below, weight = _present(lanes, function, q)
    elif isinstance(count, Dim):
        below, weight = _between(apply("cast", last, dtype=np.dtype(float)), lanes, function, q)
    else:
        place = np.asarray(_kernel(np.arange(float(count)), function, q, (0,), False, method)).reshape(-1)
        shape = (*(1,) * len(rest), place.size)
        below = const(np.floor(place).astype(np.intp).reshape(shape))
        weight = const((place % 1).astype(out.dtype).reshape(shape))
    above = apply("minimum", below + 1, last)
    low, high = (apply("take_along_axis", ordered, k, axis=lanes.ndim - 1) for k in (below, above))
    found = low + (high - low) * weight
    found = apply("transpose", found, axes=(found.ndim - 1, *range(found.ndim - 1)))
    return apply("reshape", found, shape=out.shape)


def _present(lanes: Node, function: str, q: Q) -> tuple[Node, Node]:
    """Where the quantiles lie among the numbers that are not NaN, which are sorted to the front."""
    present = apply("cast", apply("logical_not", apply("isnan", lanes)), dtype=np.dtype(float))
    count = apply("sum", present, axis=(lanes.ndim - 1,), keepdims=True, dtype=None)
    return _between(apply("maximum", count, 1.0) - 1.0, lanes, function, q)


def _between(last: Node, lanes: Node, function: str, q: Q) -> tuple[Node, Node]:
    """Behind which of the sorted numbers up to the ``last`` quantiles lie, and how far."""
    points = np.asarray(0.5 if q is None else q, float).reshape(-1) / (100 if "percentile" in function else 1)
    place = last * const(points.reshape(*(1,) * (lanes.ndim - 1), -1))
    below = apply("floor", place)
    return apply("cast", below, dtype=np.dtype(np.intp)), apply("cast", place - below, dtype=lanes.dtype)


def _factors(x: Aval, function: str, q: Q, axis: tuple[int, ...], keepdims: bool, method: str) -> str:
    names = [f"!d{k}" if k in axis else f"d{k}" for k in range(x.ndim)]
    outs = ["!q"] if isinstance(q, tuple) else []
    outs += ["1" if k in axis else name for k, name in enumerate(names) if keepdims or k not in axis]
    return f"{' '.join(names)} -> {' '.join(outs)}"


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    def attrs(function: str, q: Q, axis: tuple[int, ...], keepdims: bool = False, method: str = "linear") -> Any:
        return {"function": function, "q": q, "axis": axis, "keepdims": keepdims, "method": method}

    x = rng.normal(size=(3, 6))
    yield Sample((x,), attrs("median", None, (1,)))
    yield Sample((x,), attrs("median", None, (0, 1), True))
    yield Sample((x,), attrs("percentile", (10.0, 35.0), (1,)))
    yield Sample((x,), attrs("quantile", 0.3, (0,), True))
    yield Sample((x,), attrs("quantile", (0.25, 0.5), (0, 1), False, "nearest"))
    yield Sample((x,), attrs("nanquantile", (0.3,), (1,)))
    yield Sample((x,), attrs("nanmedian", None, (0,)))
    yield Sample((rng.integers(0, 9, (3, 4)),), attrs("median", None, (1,)), order=0)


def _room(x: Aval, function: str, q: Q, axis: tuple[int, ...], keepdims: bool, method: str) -> int:
    """NumPy puts a copy in order, and goes from one neighbour to the other in six arrays; ``nanmedian`` of few numbers
    takes up to four copies more."""
    found = room_of_exchanges(x, axis) if function == "median" else None
    if found is not None:
        return found
    copied = room_of_selection(x) if selects(x, function, axis, method) else x.nbytes
    return copied + (0 if q is None else 6 * _aval(x, function, q, axis, keepdims, method).nbytes)


op("quantile", _kernel, aval=_aval, decompose=_decomposed, factors=_factors, room=_room, samples=_samples)
