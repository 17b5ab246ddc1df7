"""``np.vectorize`` in staged code, a loop over the elements, which it gives to the function as Python's numbers, and
``np.apply_along_axis``, one over rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from futurex.frontend import control
from futurex.frontend.calls import call, in_call, special, staged_twin
from futurex.frontend.errors import Escape
from futurex.frontend.numpy_api.creation import zeros
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import Tracer, array_node, as_tracer, entered, new_array
from futurex.tree.dims import is_static


@special(np.vectorize)
def _vectorize(*args: Any, **kwargs: Any) -> Any:
    return current().remember(np.vectorize(*args, **kwargs))


def call_vectorized(function: np.vectorize, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tracer:
    """A call of such an object. Its result has the type of what the function gives for the first elements."""
    otypes = function.otypes
    if kwargs or not args or function.signature is not None or function.excluded:
        raise Escape("np.vectorize with keywords, a signature or arguments that are excluded", "it is not traced")
    nodes = [array_node(entered(arg)) for arg in args]
    if not all(is_static(node.shape) for node in nodes):
        raise Escape("np.vectorize of arrays of unknown shape", "its loop is over elements that are known")
    shape = np.broadcast_shapes(*(node.shape for node in nodes))
    count = math.prod(shape)
    if not count or (otypes is not None and len(otypes) != 1):
        raise Escape("np.vectorize of nothing, or with several results", "it is not traced")
    wide = (node if node.shape == shape else emit("broadcast_to", node, shape=shape) for node in nodes)
    columns = [new_array(emit("reshape", node, shape=(count,))) for node in wide]
    if otypes is None:
        first = call(function.pyfunc, tuple(column[0] for column in columns), {})
        if isinstance(first, tuple):
            raise Escape("np.vectorize of a function with several results", "it is not traced")
        dtype = as_tracer(first).dtype
    else:
        dtype = np.dtype(otypes[0])
    if dtype.kind not in "biufc":
        raise Escape(f"np.vectorize with results of dtype {dtype}", "only numbers and booleans are traced")
    out = zeros(count, dtype)
    each: Any = _each
    twin = staged_twin(each)
    with in_call(each):
        control.body(lambda: twin(function.pyfunc, count, out, columns))
    return out.reshape(shape)


def _each(function: Any, count: int, out: Any, columns: Any) -> None:
    for k in range(count):
        out[k] = function(*[column[k].item() for column in columns])


def along_rows(function: Any, rows: Tracer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tracer:
    """What a function gives for each row. The first result has the shape and the type of all: NumPy writes the others
    into an array of these."""
    first = as_tracer(call(function, (rows[0], *args), kwargs))
    if first.dtype.kind not in "biufc" or not is_static((rows.shape[0], *first.shape)):
        raise Escape(f"results of dtype {first.dtype} along an axis", "numbers and booleans of known shapes are traced")
    out = zeros((rows.shape[0], *first.shape), first.dtype)
    out[0] = first
    rest: Any = _rest
    twin = staged_twin(rest)
    with in_call(rest):
        control.body(lambda: twin(function, out, rows, args, kwargs))
    return out


def _rest(function: Any, out: Any, rows: Any, args: Any, kwargs: Any) -> None:
    for k in range(1, len(rows)):
        out[k] = function(rows[k], *args, **kwargs)
