"""Operators of None: errors of the program itself, which a test on data may lead to like any other outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.frontend.errors import python
from futurex.frontend.tracer import Tracer


def refused(operator: Callable[..., Any], *operands: Any) -> None:
    """Raise Python's error of an operator with None among its operands, if every run would raise it.

    An empty array and None give an empty array, so nothing is raised where elements may be missing.
    """
    tracers = [each for each in operands if isinstance(each, Tracer)]
    if all(all(isinstance(extent, int) and extent for extent in each.shape) for each in tracers):
        with python():
            operator(*map(_alike, operands))


def _alike(operand: Any) -> Any:
    """A value of the same type, for NumPy and Python to say what they refuse."""
    if not isinstance(operand, Tracer):
        return operand
    return operand.dtype.type(1) if operand.is_scalar else np.ones((1,) * operand.ndim, operand.dtype)
