"""Who else holds what a call returned: an array that nobody does may be handed on as the caller's own.

A list, tuple, dict or dataclass that somebody else holds stays the one that it is, with all that is in it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.tree.pytree import LEAF, Structure, parts_of

_LEAVES = frozenset({int, float, str, bool, type(None), np.ndarray})  # of which results have most


@dataclass(slots=True)
class Looked:
    """What a call returned: as it is, and its leaves; ``alone`` says of which nobody else refers to the array.

    A list, tuple, dict or dataclass that somebody else refers to is a leaf.
    """

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
    leaves: list[Any] = []
    try:
        (structure,) = _apart([result], leaves)
    except RecursionError:  # it holds itself
        leaves[:], structure = [result], LEAF
    counts: list[tuple[int | None, int]] = []
    for k in range(len(leaves)):
        if not isinstance(leaves[k], np.ndarray):
            counts.append((None, 0))
            continue
        base = 0 if leaves[k].base is None else sys.getrefcount(leaves[k].base)
        counts.append((sys.getrefcount(leaves[k]), base))
    return result, leaves, structure, counts


def _apart(values: Sequence[Any], leaves: list[Any]) -> tuple[Structure, ...]:
    """The structures of values, whose leaves are added to ``leaves``."""
    structures = []
    for value in values:
        kind: Any = type(value)
        parts = None if kind in _LEAVES else parts_of(kind)
        if parts is None or sys.getrefcount(value) > _HELD:
            leaves.append(value)
            structures.append(LEAF)
        else:
            keys, entries = parts(value)
            entries = list(entries)  # as many references as for those of any other container
            structures.append(Structure(kind, keys, _apart(entries, leaves)))
    return tuple(structures)


def _references() -> int:
    """The count of a list that is looked at, and that nobody else holds than what it is in."""
    nest = [[]]  # type: ignore[var-annotated]
    (value,) = entries = list(nest)
    return sys.getrefcount(value) if entries else 0


_HELD = _references()


def _calibrated() -> tuple[int, int]:
    """The counts of a view of an array that was made just now."""
    ((own, base),) = _counted(lambda: np.empty(4)[:2])[3]
    assert own is not None
    return own, base


_ALONE = _calibrated()
