"""Long lists of Python's numbers, and lists of such lists, among a call's arguments: one leaf each, and one array."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import countOf
from typing import Any

import numpy as np

from futurex.tree.pytree import Structure, flatten

LEAST = 32
"""Numbers in a list that is one leaf: of fewer each is one."""
_KINDS = (float, int)
_ENTERS = 1 << 61  # an int so far from the widest that counting does not reach these


def numbers_of(value: Any) -> tuple[type, tuple[int, ...]] | None:
    """The type of the numbers in such a list, and the shape of their array; None for any other value.

    >>> numbers_of([0.5] * 40)
    (<class 'float'>, (40,))
    >>> numbers_of([[1, 2], [3, 4]]) is None
    True
    """
    if type(value) is not list or len(value) < 2:
        return None
    first: Any = type(value[0])
    if first is not list:
        alike = first in _KINDS and len(value) >= LEAST and countOf(map(type, value), first) == len(value)
        return (first, (len(value),)) if alike else None
    width = len(value[0])
    first = type(value[0][0]) if width else None
    if first not in _KINDS or len(value) * width < LEAST or countOf(map(type, value), list) < len(value):
        return None
    if countOf(map(len, value), width) < len(value) or len(set(map(id, value))) < len(value):
        return None
    alike = countOf(map(type, chain.from_iterable(value)), first) == len(value) * width
    return (first, (len(value), width)) if alike else None


def shape_of(leaf: Any) -> tuple[int, ...]:
    """The shape of an array, or of that of such a list."""
    if type(leaf) is not list:
        return tuple(leaf.shape)
    return (len(leaf), len(leaf[0])) if type(leaf[0]) is list else (len(leaf),)


def flat_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Structure]:
    """The leaves of a call and their structure, where such lists are leaves."""
    return flatten((args, kwargs), is_leaf=lambda value: numbers_of(value) is not None)


def values_of(value: list[Any]) -> tuple[Any, ...]:
    """The numbers in such a list as what is compared: one tuple, or one for each of the lists."""
    return tuple(value) if type(value[0]) is not list else tuple(map(tuple, value))


def copy_of(value: list[Any]) -> list[Any]:
    """Such a list as a trace may change it, where its numbers are constants."""
    return [*map(list, value)] if type(value[0]) is list else [*value]


def can_enter(values: Iterable[int]) -> bool:
    """Are ints such as an array takes that the tree counts in?"""
    found = [*values]
    return min(found) >= -_ENTERS and max(found) < _ENTERS


def numbers_enter(value: Sequence[Any]) -> bool:
    """The same of the numbers in such a list, or in the tuples of what it is compared by."""
    nested = type(value[0]) in (list, tuple)
    first = value[0][0] if nested else value[0]
    return type(first) is float or can_enter(chain.from_iterable(value) if nested else value)


def array_of(value: Sequence[Any]) -> np.ndarray:
    """The numbers in such a list as an array."""
    first = value[0][0] if type(value[0]) is list else value[0]
    return np.array(value, np.float64 if type(first) is float else np.int64)
