"""``np.choose``, rounding to decimals, and counts of known positions."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.numpy_api.registry import METHODS, handles
from futurex.frontend.numpy_api.ufuncs import exactly_into, layout_of
from futurex.frontend.trace import emit
from futurex.frontend.tracer import Tracer, array_node, as_tracer, fresh, new_array


@handles(np.choose)
def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    number = array_node(a)
    if number.dtype.kind not in "biu" or mode not in ("raise", "wrap", "clip"):
        raise Escape("numpy.choose with such numbers or options", "NumPy refuses them, or they are not traced")
    result = fresh(emit("choose", number, *(array_node(choice) for choice in choices), mode=mode))
    return result if out is None else exactly_into(out, result, "numpy.choose")


@handles(np.round, np.around)
def round_(a: Any, decimals: Any = 0, out: Any = None) -> Any:
    x = as_tracer(a) if not isinstance(a, Tracer) or a.aval.weak else a
    result = fresh(emit("round", array_node(x), decimals=operator.index(decimals)))
    result._cell.strides = layout_of(result.aval, [x], [result._node])
    if out is not None:
        return exactly_into(out, result, "numpy.round")
    return result if x.is_scalar or x.ndim else new_array(result._node)


@handles(np.bincount)
def bincount(x: Any, /, weights: Any = None, minlength: Any = 0) -> Tracer:
    """Weights are added up at positions that are known; how many there are depends on them."""
    positions = array_node(x)
    if weights is None or positions.op != "const" or positions.ndim != 1 or positions.value.min(initial=0) < 0:
        raise Escape("numpy.bincount of positions that are not known", "the shape of the result depends on data")
    added = array_node(weights)
    if added.shape != positions.shape or added.dtype.kind not in "biuf" or positions.dtype.kind not in "iu":
        raise Escape("numpy.bincount with such weights", "NumPy refuses them")
    length = max(int(positions.value.max(initial=-1)) + 1, operator.index(minlength))
    added = added if added.dtype == float else emit("cast", added, dtype=np.dtype(float))
    zeros = emit("full", np.float64(0.0), shape=(length,), dtype=np.dtype(float))
    return new_array(emit("scatter", zeros, added, positions, pattern=(("d", 0),), mode="add"))


METHODS.update(choose=choose)
