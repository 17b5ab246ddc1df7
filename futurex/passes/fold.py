"""Constant folding: a node whose inputs are all constants becomes a constant, if the result is small.

It is computed by NumPy; what raises or warns is left to do so when the graph runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.tree.aval import Aval, aval_of
from futurex.tree.graph import evaluate
from futurex.tree.node import Node, const

LARGEST = 64 * 1024
"""Bytes above which a constant is computed at run time rather than carried by the tree."""

_FOLDABLE = frozenset((
    "reshape", "transpose", "concatenate", "pad", "flip", "sum", "prod", "max", "min", "any", "all",
    "argmax", "argmin", "cumsum", "load", "store", "gather", "scatter", "matmul", "einsum",
))  # fmt: skip


def fold(node: Node) -> Node | None:
    """The constant that a node is, or None."""
    if not node.inputs or not all(source.op == "const" for source in node.inputs):
        return None
    if not (node.record.elementwise or node.op in _FOLDABLE):
        return None  # random numbers, ranks and effects are not constants; filled arrays are cheaper as they are
    if (
        not isinstance(node.aval, Aval)
        or not node.aval.static
        or node.aval.nbytes > LARGEST
        or (node.aval.weak and node.aval.dtype.kind in "iu")
    ):
        return None  # the value of a Python int takes part in typing its users
    return constant(node, [source.value for source in node.inputs])


def constant(node: Node, values: list[Any]) -> Node | None:
    """The value of ``node`` for given inputs as a constant of its dtype; None if NumPy would raise or warn."""
    try:
        with np.errstate(all="raise"):
            value = evaluate(node, values)
    except (ArithmeticError, ValueError, TypeError, IndexError):
        return None
    if not node.aval.weak and not isinstance(value, np.ndarray | np.generic):
        return None
    return const(value) if aval_of(value).dtype == node.aval.dtype else None
