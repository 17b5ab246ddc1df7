"""Who else holds what a call returned: an array that nobody does may be handed on as the caller's own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.tree.pytree import flatten


def call_and_look(make: Callable[[], Any]) -> tuple[Any, list[bool]]:
    """``make()``, and for every leaf of its result whether it is an array that nobody else refers to."""
    result = make()
    counts = _references(result)
    return result, [own is not None and own <= _ALONE[0] and base <= _ALONE[1] for own, base in counts]


def _references(result: Any) -> list[tuple[int | None, int]]:
    """References to every array among the leaves and to the array that it is a view of."""
    leaves, _ = flatten(result)
    counts: list[tuple[int | None, int]] = []
    for k in range(len(leaves)):
        if not isinstance(leaves[k], np.ndarray):
            counts.append((None, 0))
            continue
        base = 0 if leaves[k].base is None else sys.getrefcount(leaves[k].base)
        counts.append((sys.getrefcount(leaves[k]), base))
    return counts


def _alone(make: Callable[[], Any]) -> tuple[int, int]:
    """The counts, taken in the same way, of a view of an array that was made just now."""
    result = make()
    ((own, base),) = _references(result)
    assert own is not None
    return own, base


_ALONE = _alone(lambda: np.empty(4)[:2])
