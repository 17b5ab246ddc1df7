"""Who else holds what a call returned: an array that nobody does may be handed on as the caller's own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.tree.pytree import Structure, flatten


@dataclass(slots=True)
class Looked:
    """What a call returned: as it is, and its leaves; ``alone`` says of which nobody else refers to the array."""

    result: Any
    leaves: list[Any]
    structure: Structure
    alone: list[bool]


def call_and_look(make: Callable[[], Any]) -> Looked:
    """``make()``, and for every leaf of its result whether it is an array that nobody else refers to."""
    result, leaves, structure, counts = _counted(make)
    most, most_of_base = _ALONE
    alone = [own is not None and own <= most and base <= most_of_base for own, base in counts]
    return Looked(result, leaves, structure, alone)


def _counted(make: Callable[[], Any]) -> tuple[Any, list[Any], Structure, list[tuple[int | None, int]]]:
    """References to every array among the leaves and to the array that it is a view of.

    An array is held by the list of leaves, and by the result or the container that it is in: as often in either case.
    """
    result = make()
    leaves, structure = flatten(result)
    counts: list[tuple[int | None, int]] = []
    for k in range(len(leaves)):
        if not isinstance(leaves[k], np.ndarray):
            counts.append((None, 0))
            continue
        base = 0 if leaves[k].base is None else sys.getrefcount(leaves[k].base)
        counts.append((sys.getrefcount(leaves[k]), base))
    return result, leaves, structure, counts


def _calibrated() -> tuple[int, int]:
    """The counts of a view of an array that was made just now."""
    ((own, base),) = _counted(lambda: np.empty(4)[:2])[3]
    assert own is not None
    return own, base


_ALONE = _calibrated()
