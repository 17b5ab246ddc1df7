"""``recur``: a function's call of itself, which stands in trees only while the function is being staged.

:mod:`futurex.frontend.control.machine` makes a tree with such calls a loop with a stack, which any run understands.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from futurex.tree.aval import Aval
from futurex.tree.record import op


def described(aval: Aval) -> tuple[Any, ...]:
    """A type as it stands among the attributes."""
    return aval.shape, aval.dtype.str, aval.weak


def _aval(*inputs: Aval, results: tuple[Any, ...]) -> tuple[Aval, ...]:
    return tuple(Aval(shape, np.dtype(dtype), weak) for shape, dtype, weak in results)


def _recur(*inputs: Any, results: tuple[Any, ...]) -> NoReturn:
    raise TypeError("a call of the function that is being staged has no kernel")


op("recur", _recur, aval=_aval, effect=True)
