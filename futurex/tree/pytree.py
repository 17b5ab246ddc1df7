"""Nested tuples, lists, dicts, namedtuples and dataclasses as flat lists of leaves."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, repr=False)
class Structure:
    """The shape of a nest without its leaves; hashable. ``kind`` None is a leaf."""

    kind: Any
    keys: tuple[Any, ...] = ()
    children: tuple[Structure, ...] = ()

    @property
    def n_leaves(self) -> int:
        return 1 if self.kind is None else sum(child.n_leaves for child in self.children)

    def __repr__(self) -> str:
        """As Python writes it, with ``*`` for leaves.

        >>> flatten({"w": 1, "b": (2, [3])})[1]
        {'w': *, 'b': (*, [*])}
        """
        if self.kind is None:
            return "*"
        parts = [repr(child) for child in self.children]
        if self.kind is dict:
            return f"{{{', '.join(f'{key!r}: {part}' for key, part in zip(self.keys, parts, strict=True))}}}"
        if self.kind is tuple:
            return f"({', '.join(parts)}{',' * (len(parts) == 1)})"
        if self.kind is list:
            return f"[{', '.join(parts)}]"
        names = [f"{key}=" for key in self.keys] if self.keys else [""] * len(parts)
        name = getattr(self.kind, "__name__", type(self.kind).__name__)
        return f"{name}({', '.join(map(str.__add__, names, parts))})"


LEAF = Structure(None)
_LEAVES = {np.ndarray, *np.sctypeDict.values(), bool, int, float, complex, str, type(None)}
"""Kinds that are found to be leaves without a closer look."""


def leaf(kind: type) -> type:
    """A class decorator: instances are leaves, which is found without a closer look."""
    _LEAVES.add(kind)
    return kind


def flatten(value: Any, is_leaf: Callable[[list[Any]], bool] | None = None) -> tuple[list[Any], Structure]:
    """Leaves in order, and the structure that :func:`unflatten` needs. ``is_leaf``: is a list to be one?

    >>> flatten({"w": 1, "b": (2, 3)})[0]
    [1, 2, 3]
    """
    leaves: list[Any] = []
    return leaves, _flatten(value, leaves, is_leaf)


def _flatten(value: Any, leaves: list[Any], is_leaf: Callable[[list[Any]], bool] | None) -> Structure:
    kind: Any = type(value)
    if kind in _LEAVES or (is_leaf is not None and kind is list and is_leaf(value)):
        leaves.append(value)
        return LEAF
    if kind is tuple or kind is list:
        if _LEAVES.issuperset(map(type, value)):
            leaves += value
            return _row(kind, len(value))
        return Structure(kind, (), tuple([_flatten(entry, leaves, is_leaf) for entry in value]))
    if (parts := parts_of(kind)) is None:
        leaves.append(value)
        return LEAF
    keys, entries = parts(value)
    return Structure(kind, keys, tuple([_flatten(entry, leaves, is_leaf) for entry in entries]))


def containers(value: Any) -> Iterator[Any]:
    """The lists, dicts and dataclasses in a nest: what is made anew where the nest is put together of its leaves."""
    return (each for _, each in placed_containers(value))


def placed_containers(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The lists, dicts and dataclasses in a nest, and where they stand.

    >>> list(placed_containers(([1], {"a": 2})))
    [((0,), [1]), ((1,), {'a': 2})]
    """
    kind: Any = type(value)
    if (parts := parts_of(kind)) is None:
        return
    if not isinstance(value, tuple):
        yield place, value
    keys, entries = parts(value)
    for key, entry in zip(keys or range(len(entries)), entries, strict=True):
        yield from placed_containers(entry, (*place, key))


def opened(value: Any) -> tuple[Structure, list[Any]] | None:
    """A nest one level deep: what is in it are the leaves of the structure, in a new list. None for leaves.

    >>> opened([1, (2, 3)])[1]
    [1, (2, 3)]
    """
    kind: Any = type(value)
    if (parts := parts_of(kind)) is None:
        return None
    keys, entries = parts(value)
    return Structure(kind, keys, (LEAF,) * len(entries)), list(entries)


Parts = Callable[[Any], tuple[tuple[Any, ...], Sequence[Any]]]
"""Takes a nest apart: what tells its entries apart, where that is not their position, and the entries."""


@functools.lru_cache(maxsize=1000)
def parts_of(kind: Any) -> Parts | None:
    """How values of a kind are taken apart; None for leaves."""
    if kind in _LEAVES:
        return None
    if kind is tuple or kind is list:
        return lambda value: ((), value)
    if kind is dict:
        return lambda value: (tuple(value), tuple(value.values()))
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _parts_of_row if kind.__dictoffset__ else lambda value: ((), value)
    is_data = dataclasses.is_dataclass(kind) and not hasattr(kind, "__array__")
    if is_data and kind.__getattribute__ is object.__getattribute__:  # of others nobody knows what they hold
        return lambda value: (names := attributes(value), [getattr(value, name) for name in names])
    return None


def _parts_of_row(value: Any) -> tuple[tuple[Any, ...], Sequence[Any]]:
    """A named tuple of a class that the user derived: its instances may hold more than fields."""
    more = vars(value)
    return ((*type(value)._fields, *more) if more else ()), (*value, *more.values())


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
    names, known = fields_of(kind)
    held = getattr(value, "__dict__", None)
    if held is not None and held.keys() == known:
        return names
    return *(name for name in names if hasattr(value, name)), *(name for name in held or () if name not in known)


@functools.lru_cache(maxsize=1000)
def fields_of(kind: Any) -> tuple[tuple[str, ...], frozenset[str]]:
    """The names of a dataclass's fields, in order and as a set."""
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


def leaf_places(structure: Structure, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The keys, names and positions on the way to each leaf.

    >>> list(leaf_places(flatten(([1], {"a": 2}))[1]))
    [(0, 0), (1, 'a')]
    """
    if structure.kind is None:
        yield place
    for key, child in zip(structure.keys or range(len(structure.children)), structure.children, strict=True):
        yield from leaf_places(child, (*place, key))


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
