"""Triangular systems on a GPU by ``trsm`` of cuBLAS, through the function that CuPy has in the place of SciPy's.

That one divides by zero without a word, and takes the triangle from the left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.kernels.cupy_.devices import Device
from futurex.tree.node import Node


def kernel_for(device: Device, node: Node) -> Callable[..., tuple[Any, ...]] | None:
    """The kernel of a triangular system in one dtype of cuBLAS's, or None."""
    if node.op != "solve_triangular" or not node.is_static or node.dtype.char not in "fdFD" or not node.size:
        return None
    if any(source.dtype != node.dtype for source in node.inputs):
        return None
    try:
        solve = device.solve_triangular
    except (ImportError, AttributeError):
        return None
    xp, stack, (lower, right) = device.xp, node.shape[:-2], (node.attrs["lower"], node.attrs["right"])

    def call(a: Any, b: Any) -> tuple[Any, ...]:
        if not bool(xp.all(xp.diagonal(a, 0, -2, -1) != 0)):
            raise np.linalg.LinAlgError("Singular matrix")
        a, b = (xp.broadcast_to(each, (*stack, *each.shape[-2:])) for each in (a, b))
        if right:
            a, b = xp.swapaxes(a, -1, -2), xp.swapaxes(b, -1, -2)
        found = solve(a, b, lower=lower != right)
        return (xp.ascontiguousarray(xp.swapaxes(found, -1, -2) if right else found),)

    return call
