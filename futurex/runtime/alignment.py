"""Arrays as they come over a network, which may begin at any byte: NumPy and plans copy such an array at every use."""

from __future__ import annotations

from typing import Any

import numpy as np


def aligned(value: Any) -> Any:
    """``value`` with every array in its tuples, lists and dicts where its elements may lie; itself where they do.

    >>> import numpy as np
    >>> odd = np.zeros(17, np.uint8)[1:].view(np.float32)
    >>> [found] = aligned([odd])
    >>> odd.flags.aligned, found.flags.aligned, found.tolist()
    (False, True, [0.0, 0.0, 0.0, 0.0])
    """
    if isinstance(value, np.ndarray):
        return np.require(value, requirements="A")
    if type(value) in (tuple, list):
        return type(value)(aligned(entry) for entry in value)
    if type(value) is dict:
        return {key: aligned(entry) for key, entry in value.items()}
    return value
