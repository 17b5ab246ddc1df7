"""Grids, diagonals and functions applied along axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from futurex.frontend.errors import Escape
from futurex.frontend.numpy_api.creation import zeros
from futurex.frontend.numpy_api.registry import handles
from futurex.frontend.numpy_api.shapes import broadcast_to, moveaxis, stack
from futurex.frontend.trace import current
from futurex.frontend.tracer import Tracer, as_tracer, new_array
from futurex.tree.node import const

LANES = 256  # how often a function applied along an axis is traced


@handles(np.broadcast_arrays)
def broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Tracer, ...]:
    arrays = [new_array(each._node) if each.is_scalar else each for each in map(as_tracer, args)]
    shape = np.broadcast_shapes(*(each.shape for each in arrays))
    return tuple(each if each.shape == shape else broadcast_to(each, shape) for each in arrays)


@handles(np.meshgrid)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    n = len(xi)
    places = [1, 0, *range(2, n)] if indexing == "xy" and n > 1 else list(range(n))
    grids = [
        as_tracer(x).reshape((1,) * place + (-1,) + (1,) * (n - 1 - place))
        for x, place in zip(xi, places, strict=True)
    ]
    if copy:
        return tuple(new_array(grid._node) for grid in (grids if sparse else broadcast_arrays(*grids)))
    return current().remember(grids) if sparse else broadcast_arrays(*grids)


@handles(np.diag)
def diag(v: Any, k: int = 0) -> Tracer:
    x = as_tracer(v)
    if x.ndim == 2:
        return x.diagonal(k)
    if x.ndim != 1:
        raise ValueError("Input must be 1- or 2-d.")
    n = x.size + abs(k)
    result = zeros((n, n), x.dtype)
    if x.size:
        result._extended(("diagonal", k, 0, 1))._write(x)
    return result


@handles(np.diagflat)
def diagflat(v: Any, k: int = 0) -> Tracer:
    return diag(as_tracer(v).ravel(), k)


@handles(np.tril_indices_from)
def tril_indices_from(arr: Any, k: int = 0) -> Any:
    return _indices(np.tril_indices, arr, k)


@handles(np.triu_indices_from)
def triu_indices_from(arr: Any, k: int = 0) -> Any:
    return _indices(np.triu_indices, arr, k)


def _indices(function: Callable[..., Any], arr: Any, k: int) -> tuple[Tracer, ...]:
    if isinstance(arr, list | tuple):
        raise Escape("the indices of a triangle of a list", "NumPy asks it for its dimensions")
    x = as_tracer(arr)
    if x.ndim != 2:
        raise ValueError("input array must be 2-d")
    return tuple(new_array(const(index)) for index in function(x.shape[0], k=k, m=x.shape[1]))


@handles(np.apply_along_axis)
def apply_along_axis(func1d: Any, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Tracer:
    """The function is traced for each of a few lanes, and its results are put together; the many of a matrix are the
    rounds of a loop."""
    from futurex.frontend.calls import call
    from futurex.frontend.vectorized import along_rows

    x = as_tracer(arr)
    along = normalize_axis_index(axis, x.ndim)
    lanes = moveaxis(x, along, -1)
    rest = lanes.shape[:-1]
    count = math.prod(rest)
    if not count or (count > LANES and len(rest) > 1):
        raise Escape(f"a function applied along {count} lanes", f"1 to {LANES} are traced, or those of a matrix")
    if count > LANES:
        found = along_rows(func1d, lanes, args, kwargs)
    else:
        results = [as_tracer(call(func1d, (lanes[place], *args), kwargs)) for place in np.ndindex(rest)]
        if len({(each.shape, each.dtype) for each in results}) > 1:
            raise Escape("results along an axis that differ in shape or type", "NumPy casts or refuses them")
        found = stack([new_array(each._node) for each in results]).reshape(*rest, *results[0].shape)
    shape = found.shape[len(rest) :]
    inner = tuple(range(len(rest), found.ndim))
    places = tuple(range(along, along + len(shape)))
    return found if inner == places else moveaxis(found, inner, places)


@handles(np.ndenumerate)
def ndenumerate(arr: Any) -> Any:
    x = as_tracer(arr)
    return current().remember(iter([(place, x[place]) for place in np.ndindex(x.shape)]))
