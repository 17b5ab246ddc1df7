"""Counts and sums by position, ``np.bincount`` and ``np.histogram``; and which elements are among a few numbers."""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.numpy_api.registry import handles
from futurex.frontend.numpy_api.ufuncs import call_ufunc
from futurex.frontend.trace import emit
from futurex.frontend.tracer import Tracer, array_node, as_tracer, entered, fresh, new_array
from futurex.tree.node import const

_FEW, _MANY = 16, 32
"""Numbers among which elements are looked for one by one, and how many elements have NumPy do so, too."""


@handles(np.isin)
def isin(element: Any, test_elements: Any, assume_unique: Any = False, invert: Any = False, *, kind: Any = None) -> Any:
    """Comparisons with each of a few numbers that are known."""
    x, numbers = as_tracer(element), _numbers(test_elements)
    plain = assume_unique is False and kind is None and isinstance(invert, bool)
    if numbers is not None and x.dtype.kind in "iu" and numbers.dtype.kind in "iu":
        limits = np.iinfo(x.dtype)
        numbers = np.array([each for each in numbers.tolist() if limits.min <= each <= limits.max], x.dtype)
    many = x.ndim > 0 and x._node.is_static and x.size >= _MANY and x.dtype.kind in "iuf"
    if numbers is None or not numbers.size or not many or not plain:
        raise Escape("numpy.isin of other numbers", "NumPy sorts them, or makes a table")
    same = [call_ufunc(np.equal, "__call__", (x, number), {}) for number in numbers]
    found = functools.reduce(lambda one, other: call_ufunc(np.logical_or, "__call__", (one, other), {}), same)
    return call_ufunc(np.logical_not, "__call__", (found,), {}) if invert else found


def _numbers(values: Any) -> np.ndarray[Any, Any] | None:
    """A few numbers that the trace knows, as one row of them."""
    values = entered(values)
    if isinstance(values, Tracer):
        values = values._node.value
    elif not isinstance(values, list | tuple) or not all(isinstance(each, int | float) for each in values):
        return None
    found = np.ravel(np.asarray(values))
    return found if 0 < found.size <= _FEW and found.dtype.kind in "iuf" else None


@handles(np.bincount)
def bincount(x: Any, /, weights: Any = None, minlength: Any = 0) -> Tracer:
    """Weights are added up at positions that are known, and bytes are counted where all have a place; elsewhere how
    long the result is depends on positions."""
    positions = array_node(x)
    if weights is None and positions.ndim == 1 and positions.dtype == np.uint8 and _holds_bytes(minlength):
        counts = emit("full", np.intp(0), shape=(int(minlength),), dtype=np.dtype(np.intp))
        pattern = (("d", 0),)
        return new_array(emit("scatter", counts, const(np.intp(1)), positions, pattern=pattern, mode="add"))
    if weights is None or positions.op != "const" or positions.ndim != 1 or positions.value.min(initial=0) < 0:
        raise Escape("numpy.bincount of positions that are not known", "the shape of the result depends on data")
    added = array_node(weights)
    if added.shape != positions.shape or added.dtype.kind not in "biuf" or positions.dtype.kind not in "iu":
        raise Escape("numpy.bincount with such weights", "NumPy refuses them")
    if (least := operator.index(minlength)) < 0:
        raise Escape("numpy.bincount with a negative minlength", "NumPy refuses it")
    length = max(int(positions.value.max(initial=-1)) + 1, least)
    added = added if added.dtype == float else emit("cast", added, dtype=np.dtype(float))
    zeros = emit("full", np.float64(0.0), shape=(length,), dtype=np.dtype(float))
    return new_array(emit("scatter", zeros, added, positions, pattern=(("d", 0),), mode="add"))


def _holds_bytes(minlength: Any) -> bool:
    return isinstance(minlength, int) and minlength > np.iinfo(np.uint8).max


@handles(np.histogram)
def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Tracer, Tracer]:
    """With the edges given, they are the second result themselves."""
    if not isinstance(bins, Tracer) or bins.ndim != 1 or range is not None:
        raise Escape("numpy.histogram with a number of bins", "only edges have a translation of their own")
    inputs = [array_node(a), bins._node] + ([] if weights is None else [array_node(weights)])
    options = "".join([", weights=_2" * (weights is not None), f", density={bool(density)}"])
    return fresh(emit("native", *inputs, call=f"np.histogram(_0, _1{options})[0]")), bins
