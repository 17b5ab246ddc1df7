"""Counts and sums by position: ``np.bincount`` and ``np.histogram``."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.numpy_api.registry import handles
from futurex.frontend.trace import emit
from futurex.frontend.tracer import Tracer, array_node, fresh, new_array
from futurex.tree.node import const


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
