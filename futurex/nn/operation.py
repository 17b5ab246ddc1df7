"""Ops of the tree as functions: on arrays they run as any futurized function, in staged code they become nodes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from futurex.frontend import Futurized
from futurex.frontend.trace import emit, emit_many
from futurex.frontend.tracer import fresh, node_of


@functools.lru_cache(maxsize=256)
def _function(name: str, results: int, attrs: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    def apply_op(*arrays: Any) -> Any:
        nodes = [node_of(array) for array in arrays]
        if results == 1:
            return fresh(emit(name, *nodes, **dict(attrs)))
        return tuple(map(fresh, emit_many(name, *nodes, **dict(attrs))))

    apply_op.__name__ = apply_op.__qualname__ = name
    return Futurized(apply_op, strict=True, library=True)


def operation(name: str, *arrays: Any, results: int = 1, **attrs: Any) -> Any:
    """The result of the op ``name`` on arrays (a tuple of ``results`` of them); ``attrs`` are part of the tree."""
    return _function(name, results, tuple(attrs.items()))(*arrays)


def shape_of(value: Any, name: str, layer: str) -> tuple[int, ...]:
    """The shape of an array argument. Raises TypeError naming the argument if it is none."""
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple):
        raise TypeError(f"{layer}: {name} must be an array, got {type(value).__name__}; np.asarray makes it one")
    return shape
