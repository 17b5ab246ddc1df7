"""NumPy indices as data: views (basic indexing) and gathers (advanced indexing)."""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.frontend.errors import Escape
from futurex.tree.node import Node

Entry = tuple[Any, ...]


class Index:
    """An encoded index: ``entries`` in the form of :mod:`futurex.ops.views`, ``dynamic`` the nodes they refer to."""

    def __init__(self, entries: list[Entry], dynamic: list[Node], advanced: bool) -> None:
        self.entries = tuple(entries)
        self.dynamic = dynamic
        self.advanced = advanced


def encode(index: Any, ndim: int, node_of: Any) -> Index:
    """Encode any NumPy index of an array with ``ndim`` axes.

    ``node_of(value)`` gives the node of a traced value or array, None for anything else. Raises IndexError as NumPy
    does, and Escape for indices whose result has no known shape.
    """
    parts = list(index) if isinstance(index, tuple) else [index]
    used = sum(1 for part in parts if part is not None and part is not Ellipsis)
    if used > ndim:
        raise IndexError(f"too many indices for array: array is {ndim}-dimensional, but {used} were indexed")
    if Ellipsis in [part for part in parts if part is None or part is Ellipsis]:
        position = next(k for k, part in enumerate(parts) if part is Ellipsis)
        parts[position : position + 1] = [slice(None)] * (ndim - used)
        if any(part is Ellipsis for part in parts):
            raise IndexError("an index can only have a single ellipsis ('...')")
    entries: list[Entry] = []
    dynamic: list[Node] = []
    advanced = False
    for part in parts:
        entry, is_array = _entry(part, dynamic, node_of)
        entries.append(entry)
        advanced |= is_array
    return Index(entries, dynamic, advanced)


def _entry(part: Any, dynamic: list[Node], node_of: Any) -> tuple[Entry, bool]:
    if part is None:
        return ("n",), False
    if isinstance(part, slice):
        return ("s", *(_bound(bound, node_of) for bound in (part.start, part.stop, part.step))), False
    if isinstance(part, bool | np.bool_):
        raise Escape("a boolean scalar index", "it has no form in the tree")
    if isinstance(part, int | np.integer):
        return ("i", int(part)), False
    node = node_of(part)
    if node is None:
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays "
            "are valid indices"
        )
    return _array_entry(node, dynamic)


def _array_entry(node: Node, dynamic: list[Node]) -> tuple[Entry, bool]:
    if node.dtype.kind == "b":
        raise Escape(
            "indexing with a boolean mask",
            "the shape of the result depends on data",
            "use np.where, or multiply by the mask",
        )
    if node.dtype.kind not in "iu":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    if node.ndim == 0 and node.op == "const":
        return ("i", int(node.value)), False
    dynamic.append(node)
    return ("d", len(dynamic) - 1), node.ndim > 0


def _bound(bound: Any, node_of: Any) -> int | None:
    if bound is None:
        return None
    if isinstance(bound, int | np.integer):
        return int(bound)
    node = node_of(bound)
    if node is not None and node.op == "const":
        return int(node.value)
    if node is None:
        raise TypeError("slice indices must be integers or None or have an __index__ method")
    raise Escape("a slice with bounds that are computed by the function", "the shape of the result depends on data")
