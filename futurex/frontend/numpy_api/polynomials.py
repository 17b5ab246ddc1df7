"""Polynomials that are fitted, and Bessel's ``i0``: operations where the arguments are plain, else NumPy's code."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from futurex.frontend.numpy_api.native import call_native
from futurex.frontend.numpy_api.registry import handles
from futurex.frontend.trace import emit
from futurex.frontend.tracer import array_node, entered, fresh, new_array
from futurex.tree.dims import is_static


@handles(np.polyfit)
def polyfit(
    x: Any, y: Any, deg: Any, rcond: Any = None, full: Any = False, w: Any = None, cov: Any = False
) -> Any:  # fmt: skip
    nodes = [array_node(entered(each)) for each in (x, y, *(() if w is None else (w,)))]
    plain = type(deg) is int and deg >= 0 and (rcond is None or type(rcond) is float) and full is False and cov is False
    at, values = nodes[:2]
    fits = at.ndim == 1 and values.ndim in (1, 2) and all(each.shape[:1] == at.shape for each in nodes)
    fits = fits and all(is_static(each.shape) and each.dtype.char in "?bBhHiIlLqQfd" for each in nodes)
    fits = fits and all(each.ndim == 1 for each in nodes[2:]) and 0 not in at.shape
    if not (plain and fits):
        options = {"rcond": (rcond, None), "full": (full, False), "w": (w, None), "cov": (cov, False)}
        given = {name: value for name, (value, default) in options.items() if value is not default}
        return call_native(np.polyfit, (x, y, deg), given)
    return fresh(emit("polyfit", *nodes, deg=operator.index(deg), rcond=rcond))


@handles(np.i0)
def i0(x: Any) -> Any:
    node = array_node(entered(x))
    if node.dtype.char not in "fd":
        return call_native(np.i0, (x,), {})
    return new_array(emit("i0", node))
