"""Where the core dimensions of generalised ufuncs (``matmul`` and its relatives) stand: their option ``axes=``."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.frontend.trace import emit
from futurex.frontend.tracer import Tracer
from futurex.tree.node import Node


def core_last(ufunc: Any, nodes: Sequence[Node], axes: Any) -> tuple[list[Node], Any]:
    """Operands with their core dimensions at the end, and where those of the result belong (None: at the end)."""
    places = [entry if isinstance(entry, tuple) else (entry,) for entry in axes]
    if len(places) not in (2, 3) or any(isinstance(each, Tracer) for entry in places for each in entry):
        raise Escape(f"numpy.{ufunc.__name__} with these axes", "two or three entries of numbers are traced")
    turned = [_core_last(node, entry) for node, entry in zip(nodes, places, strict=False)]
    return turned, places[2] if len(places) == 3 else None


def _normal(axes: Any, ndim: int) -> list[int]:
    places = [operator.index(axis) for axis in axes]
    for place in places:
        if not -ndim <= place < ndim:
            raise np.exceptions.AxisError(place, ndim)
    normal = [place % ndim for place in places]
    if len(set(normal)) != len(normal):
        raise ValueError("axes entry has repeated axes")
    return normal


def _core_last(node: Node, axes: tuple[Any, ...]) -> Node:
    core = _normal(axes, node.ndim)
    return emit("transpose", node, axes=(*(k for k in range(node.ndim) if k not in core), *core))


def from_end(axes: tuple[Any, ...], ndim: int) -> tuple[int, ...]:
    """The permutation that puts the last dimensions at ``axes``."""
    core = _normal(axes, ndim)
    others = iter(range(ndim - len(core)))
    return tuple(ndim - len(core) + core.index(k) if k in core else next(others) for k in range(ndim))
