"""Writes at the true elements of a mask: what ``x[mask] = value`` makes of the array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from futurex.frontend.trace import emit
from futurex.ops.dynamic import check_mask
from futurex.tree.dims import same
from futurex.tree.node import Node


def mask_of(shape: tuple[Any, ...], index: Any, node_of: Callable[[Any], Node | None]) -> Node | None:
    """The mask that is the whole index of an array of this shape, or None. Raises IndexError if it does not fit."""
    if isinstance(index, tuple | slice | int) or index is None or index is ...:
        return None
    node = node_of(index)
    if node is None or node.dtype.kind != "b" or node.ndim == 0 or same(node.size, 0):
        return None
    if node.ndim > len(shape):
        raise IndexError(
            f"too many indices for array: array is {len(shape)}-dimensional, but {node.ndim} were indexed"
        )
    check_mask(node.shape, shape[: node.ndim])
    return node


def masked(array: Node, mask: Node, value: Node) -> Node:
    """The array after the write: a ``where``, if the value does not depend on how many elements are selected."""
    if value.aval.weak and array.dtype.kind in ("iu" if value.dtype.kind != "c" else "iuf"):
        return emit("masked_store", array, mask, value)  # NumPy looks whether a Python number fits
    rest = array.ndim - mask.ndim
    fits = same(mask.shape, array.shape[: mask.ndim])
    if value.ndim > rest or not fits:
        if not (value.aval.static and value.size == 1 and fits):
            return emit("masked_store", array, mask, value)
        value = emit("reshape", value, shape=(1,) * rest)
    test = emit("reshape", mask, shape=(*mask.shape, *(1,) * rest)) if rest else mask
    if value.aval.weak or value.dtype != array.dtype:
        value = emit("cast", value, dtype=array.dtype)
    return emit("where", test, value, array)
