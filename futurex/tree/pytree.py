"""Nested tuples, lists, dicts, namedtuples and dataclasses as flat lists of leaves."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Structure:
    """The shape of a nest without its leaves; hashable. ``kind`` None is a leaf."""

    kind: Any
    keys: tuple[Any, ...] = ()
    children: tuple[Structure, ...] = ()

    @property
    def n_leaves(self) -> int:
        return 1 if self.kind is None else sum(child.n_leaves for child in self.children)


LEAF = Structure(None)
_LEAVES = {np.ndarray, *np.sctypeDict.values(), bool, int, float, complex, str, type(None)}
"""Kinds that are found to be leaves without a closer look."""


def leaf(kind: type) -> type:
    """A class decorator: instances are leaves, which is found without a closer look."""
    _LEAVES.add(kind)
    return kind


def flatten(value: Any) -> tuple[list[Any], Structure]:
    """Leaves in order, and the structure that :func:`unflatten` needs.

    >>> flatten({"w": 1, "b": (2, 3)})[0]
    [1, 2, 3]
    """
    leaves: list[Any] = []
    return leaves, _flatten(value, leaves)


def _flatten(value: Any, leaves: list[Any]) -> Structure:
    kind: Any = type(value)
    if kind in _LEAVES:
        leaves.append(value)
        return LEAF
    if kind is tuple or kind is list:
        if _LEAVES.issuperset(map(type, value)):
            leaves += value
            return _row(kind, len(value))
        return Structure(kind, (), tuple([_flatten(entry, leaves) for entry in value]))
    if kind is dict:
        return Structure(dict, tuple(value), tuple([_flatten(entry, leaves) for entry in value.values()]))
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        more = vars(value) if kind.__dictoffset__ else {}
        names = (*kind._fields, *more) if more else ()
        return Structure(kind, names, tuple(_flatten(entry, leaves) for entry in (*value, *more.values())))
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "__array__"):
        names = attributes(value)
        return Structure(kind, names, tuple(_flatten(getattr(value, name), leaves) for name in names))
    leaves.append(value)
    return LEAF


def containers(value: Any) -> Iterator[Any]:
    """The lists, dicts and dataclasses in a nest: what is made anew where the nest is put together of its leaves."""
    kind = type(value)
    if kind in (list, dict) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        yield value
    if kind is dict:
        inner = list(value.values())
    elif kind is list or isinstance(value, tuple):
        inner = list(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        inner = [getattr(value, name) for name in attributes(value)]
    else:
        return
    for entry in inner:
        yield from containers(entry)


def opened(value: Any) -> tuple[Structure, list[Any]] | None:
    """A nest one level deep: what is in it are the leaves of the structure. None for leaves.

    >>> opened([1, (2, 3)])[1]
    [1, (2, 3)]
    """
    kind: Any = type(value)
    keys: tuple[Any, ...] = ()
    if kind in _LEAVES:
        return None
    if kind is tuple or kind is list:
        entries = list(value)
    elif kind is dict:
        keys, entries = tuple(value), list(value.values())
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        more = vars(value) if kind.__dictoffset__ else {}
        keys, entries = (*kind._fields, *more) if more else (), [*value, *more.values()]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "__array__"):
        keys = attributes(value)
        entries = [getattr(value, name) for name in keys]
    else:
        return None
    return Structure(kind, keys, (LEAF,) * len(entries)), entries


def attributes(value: Any) -> tuple[str, ...]:
    """The names under which a dataclass instance holds something: its fields, and whatever else was assigned to it.

    ``__post_init__`` and methods assign what is no field, and it may hide an attribute of the class.

    >>> @dataclass
    ... class Point:
    ...     x: float
    >>> point = Point(1.0)
    >>> point.label = "a"
    >>> attributes(point)
    ('x', 'label')
    """
    kind: Any = type(value)
    names, known = _fields(kind)
    held = getattr(value, "__dict__", None)
    if held is not None and held.keys() == known:
        return names
    return *(name for name in names if hasattr(value, name)), *(name for name in held or () if name not in known)


@functools.lru_cache(maxsize=1000)
def _fields(kind: Any) -> tuple[tuple[str, ...], frozenset[str]]:
    names = tuple(field.name for field in dataclasses.fields(kind))
    return names, frozenset(names)


@functools.lru_cache(maxsize=256)
def _row(kind: type, count: int) -> Structure:
    """The structure of a tuple or list of leaves."""
    return Structure(kind, (), (LEAF,) * count)


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """The nest with the given leaves."""
    return next(iter(leaves)) if structure is LEAF else _unflatten(structure, iter(leaves))


def _unflatten(structure: Structure, leaves: Iterator[Any]) -> Any:
    kind = structure.kind
    if kind is None:
        return next(leaves)
    children = [next(leaves) if child is LEAF else _unflatten(child, leaves) for child in structure.children]
    if kind is tuple or kind is list:
        return kind(children)
    if kind is dict:
        return dict(zip(structure.keys, children, strict=True))
    if hasattr(kind, "_fields"):
        if not kind.__dictoffset__:
            return kind(*children)
        count = len(kind._fields)
        result = tuple.__new__(kind, children[:count])  # a class of the user's: its __new__ may do more, too
        if structure.keys:
            vars(result).update(zip(structure.keys[count:], children[count:], strict=True))
        return result
    result = object.__new__(kind)  # a dataclass: its __init__ may do more than assign
    for name, child in zip(structure.keys, children, strict=True):
        object.__setattr__(result, name, child)
    return result


def leaf_paths(structure: Structure, prefix: str = "") -> list[str]:
    """A readable path for each leaf, as ``layers/0/w``."""
    if structure.kind is None:
        return [prefix.removeprefix("/") or "value"]
    fields: Iterable[Any] = getattr(structure.kind, "_fields", ())
    keys = structure.keys or fields or range(len(structure.children))
    return [
        path
        for key, child in zip(keys, structure.children, strict=True)
        for path in leaf_paths(child, f"{prefix}/{key}")
    ]


def tree_map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """``function`` applied leaf by leaf to trees of one structure.

    Raises ValueError where the structures differ.
    """
    leaves, structure = flatten(tree)
    columns = [leaves]
    for other in others:
        more, same = flatten(other)
        if same != structure:
            raise ValueError(f"trees differ in structure: {structure} and {same}")
        columns.append(more)
    return unflatten(structure, [function(*row) for row in zip(*columns, strict=True)])
