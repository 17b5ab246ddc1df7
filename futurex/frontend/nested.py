"""Calls of futurized functions by a futurized one whose call runs as plain NumPy: they give NumPy's arrays and numbers.

Staged, such calls are part of the caller's tree, and what they give may be written to, is a key of dicts by its value,
and raises at its line. A call that cannot be staged means the same: what is futurized in it runs as it would anywhere,
and is waited for.
"""

from __future__ import annotations

from typing import Any

from futurex.frontend.array import Array
from futurex.frontend.objects import renewed
from futurex.ops.plainly import called_futurized


def waited_for(function: Any, args: Any, kwargs: Any) -> Any:
    """What a futurized function gives in a plain call."""
    with called_futurized(function.plain):
        result = function(*args, **kwargs)
        try:
            return _values(result)
        except RecursionError:  # what holds itself is no staged call's result
            return result


def _values(result: Any) -> Any:
    """The result with values for futures; lists and objects stay the ones that they are."""
    if isinstance(result, Array):
        return result.result()
    return renewed(result, _values)
