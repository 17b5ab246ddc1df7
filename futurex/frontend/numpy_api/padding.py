"""``np.pad``: constants have an operation of their own, repeated elements are read, the rest is left to NumPy."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.numpy_api.memory import laid_out
from futurex.frontend.numpy_api.registry import handles
from futurex.frontend.numpy_api.selection import take
from futurex.frontend.trace import emit
from futurex.frontend.tracer import SCALARS, Tracer, array_node, as_tracer, new_array

_REPEATING = frozenset({"edge", "reflect", "symmetric", "wrap"})


def _widths(pad_width: Any, ndim: int) -> tuple[tuple[int, int], ...]:
    if isinstance(pad_width, dict):
        pairs: list[Any] = [(0, 0)] * ndim
        for axis, width in pad_width.items():
            pairs[operator.index(axis)] = width if isinstance(width, tuple) else (width, width)
        pad_width = pairs
    widths = np.broadcast_to(np.asarray(pad_width), (ndim, 2))
    if widths.dtype.kind not in "iu":
        raise TypeError("`pad_width` must be of integral type.")
    if (widths < 0).any():
        raise ValueError("index can't contain negative values")
    return tuple((int(lo), int(hi)) for lo, hi in widths)


@handles(np.pad)
def pad(array: Any, pad_width: Any, mode: Any = "constant", **options: Any) -> Tracer:
    x = as_tracer(array)
    if x.ndim == 0:
        raise Escape("numpy.pad of an array without dimensions", "there is nothing to pad")
    widths = _widths(pad_width, x.ndim)
    if mode == "constant" and not options.keys() - {"constant_values"}:
        value = options.get("constant_values", 0)
        if type(value) in SCALARS or isinstance(value, np.generic):
            return laid_out(new_array(emit("pad", array_node(x), value, widths=widths)), x, "A")
    if mode not in _REPEATING or options or 0 in x.shape:
        raise Escape(f"numpy.pad with mode={mode!r} and these options", "they are not traced")
    for axis, width in enumerate(widths):
        x = take(x, np.pad(np.arange(x.shape[axis]), width, mode=mode), axis)
    return laid_out(new_array(x._node), as_tracer(array), "A")
