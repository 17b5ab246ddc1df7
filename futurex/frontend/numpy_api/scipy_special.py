"""``scipy.special`` in staged code: its ufuncs are staged like NumPy's, its softmax and logsumexp have an op.

Nothing here imports SciPy: a function of it that is called proves that the program did.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.numpy_api.ufuncs import applied, as_numpy, normal_axes
from futurex.frontend.trace import emit
from futurex.frontend.tracer import array_node, entered, fresh
from futurex.ops.special import PREFIX, SLOPES
from futurex.tree.node import Node

_EXPONENTIALS = ("logsumexp", "softmax", "log_softmax")


def special_name(function: Any) -> str:
    """The name of a function of ``scipy.special`` that has an op, or an empty text."""
    module = sys.modules.get("scipy.special")
    name = getattr(function, "__name__", "")
    known = name in _EXPONENTIALS or name in SLOPES
    return name if known and module is not None and getattr(module, name, None) is function else ""


def call_special(name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A Python function of ``scipy.special`` on traced arrays."""
    if name not in _EXPONENTIALS:
        if kwargs:
            raise Escape(f"scipy.special.{name} with {', '.join(kwargs)}", "these options are not traced")
        return as_numpy(applied("ufunc_call", *args, ufunc=PREFIX + name))
    given = inspect.signature(function).bind(*args, **kwargs).arguments
    x = array_node(entered(given.pop("a") if name == "logsumexp" else given.pop("x")))
    axis, keepdims, weights = given.pop("axis", None), given.pop("keepdims", False), given.pop("b", None)
    operands = [x] if weights is None else _weighted(x, array_node(entered(weights)))
    x = operands[0]
    if any(given.values()) or x.dtype.char not in "fd" or not x.aval.static or x.size == 0:
        raise Escape(f"scipy.special.{name} of this", "these options and types are not traced")
    options = {"keepdims": bool(keepdims)} if name == "logsumexp" else {}
    return fresh(emit("special_exponentials", *operands, function=name, axis=normal_axes(axis, x.ndim), **options))


def _weighted(x: Node, weights: Node) -> list[Node]:
    """Both in one shape and in x's type, where that is the type that they meet in."""
    if not (x.aval.static and weights.aval.static) or np.result_type(x.dtype, weights.dtype) != x.dtype:
        raise Escape("scipy.special.logsumexp with such weights", "these types are not traced")
    if weights.dtype != x.dtype:
        weights = emit("cast", weights, dtype=x.dtype)
    shape = np.broadcast_shapes(x.shape, weights.shape)
    return [each if each.shape == shape else emit("broadcast_to", each, shape=shape) for each in (x, weights)]
