"""What of a call's arguments its trace depends on, as one flat tuple.

A key is read from left to right without doubt: every entry begins with a type, which says how many values follow.
Values that compare equal and still differ (``1``, ``True`` and ``1.0``; ``range(0)`` and ``range(1, 1)``) have their
types and parts in the key.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from futurex.frontend.array import Array
from futurex.frontend.errors import Escape, StagingError
from futurex.frontend.held import can_be_input
from futurex.frontend.number_lists import numbers_of, values_of
from futurex.frontend.outside import fingerprint, is_users
from futurex.frontend.reads import Alike
from futurex.frontend.standing import METHODS
from futurex.ops.streams import GENERATORS, bits_of
from futurex.tree.pytree import Structure, leaf_paths, parts_of

Key = tuple[Any, ...]
_BY_VALUE = frozenset({bool, int, str, bytes})
_BY_TYPE = frozenset({float, complex})
_OF_ROWS = _BY_VALUE | _BY_TYPE
_FEWEST = 32
"""Entries of a list or tuple that are looked at all at once."""
_SURE_NAMES = _BY_VALUE | {type(None)}
"""Kinds of keys of a dict that are the same where they are equal and of one kind."""
_SINGLETONS = frozenset({type(None), type(Ellipsis), type(NotImplemented)})


class Untraceable(Exception):
    """An argument of a kind that no trace takes: a subclass of ndarray, a slice whose bounds are arrays."""

    def __init__(self, what: str, do: str = "") -> None:
        super().__init__(what)
        self.do = do

    def as_error(self) -> StagingError:
        """What to raise where only staged code will do."""
        return Escape(f"an argument of type {self}", "only plain arrays are traced", self.do).as_error()


def call_key(args: tuple[Any, ...], kwargs: Mapping[str, Any], leaves: list[Any]) -> Key:
    """The key of a call; its leaves are appended to ``leaves``, in the order of ``pytree.flatten``.

    Raises Untraceable for subclasses of ndarray, and for what holds itself.

    >>> call_key((np.ones(3), 2), {}, []) == call_key((np.zeros(3), 2), {}, [])
    True
    >>> call_key((1,), {}, []) == call_key((True,), {}, [])
    False
    """
    key: list[Any] = [len(args)]
    arrays: list[int] = []
    try:
        for value in args:
            _extend(value, key, leaves, arrays)
        for name, value in kwargs.items():
            key.append(name)
            _extend(value, key, leaves, arrays)
    except RecursionError:
        raise Untraceable("nest that holds itself, or is too deep", "pass an object of a class of its own") from None
    if len(arrays) > 1 and len(set(arrays)) < len(arrays):
        key.append((None, *map(arrays.index, arrays)))  # which arguments are one array: no strides, as (0, 0) may be
    return tuple(key)


def _extend(value: Any, key: list[Any], leaves: list[Any], arrays: list[int]) -> None:
    kind: Any = type(value)
    if kind is np.ndarray:
        leaves.append(value)
        arrays.append(id(value))
        key += (kind, value.dtype, value.shape)
        if not value.flags.c_contiguous:
            key.append(value.strides)
    elif kind in _BY_TYPE:
        leaves.append(value)
        key.append(kind)
    elif kind is list and (found := numbers_of(value)) is not None:
        leaves.append(value)
        key += _numbers_key(value, *found)
    elif kind is tuple or kind is list:
        key += (kind, len(value))
        if len(value) < _FEWEST or not _extend_by_row(value, key, leaves):
            for entry in value:
                _extend(entry, key, leaves, arrays)
    elif kind is dict:
        names = tuple(value)
        kinds = tuple(map(type, names))
        key += (kind, names, kinds)
        if not _SURE_NAMES.issuperset(kinds):
            key.append(tuple(map(_name_key, names)))
        for entry in value.values():
            _extend(entry, key, leaves, arrays)
    elif (parts := parts_of(kind)) is not None:
        names, entries = parts(value)
        key += (kind, names)
        for entry in entries:
            _extend(entry, key, leaves, arrays)
    else:
        leaves.append(value)
        if kind in GENERATORS:
            arrays.append(id(value))
        key += leaf_key(value)


def _extend_by_row(values: Sequence[Any], key: list[Any], leaves: list[Any]) -> bool:
    """The same for all entries of a long list or tuple at once, where these are Python's numbers and texts of one kind.
    """
    kinds = set(map(type, values))
    if len(kinds) > 1 or not kinds <= _OF_ROWS:
        return False
    leaves += values
    key += map(type, values) if kinds <= _BY_TYPE else chain.from_iterable(zip(map(type, values), values, strict=True))
    return True


def _numbers_key(value: list[Any], kind: type, shape: tuple[int, ...]) -> Key:
    """The key of a long list of numbers. Its second entry is no length, as those of other lists are."""
    return (list, kind, shape) if kind in _BY_TYPE else (list, kind, shape, values_of(value))


def _name_key(name: Any) -> Any:
    """What tells a key of a dict from others that are equal to it: a trace may read what equality does not ask."""
    kind = type(name)
    if issubclass(kind, tuple) and kind.__eq__ is tuple.__eq__ and not kind.__dictoffset__:
        return kind, *map(_name_key, name)
    return kind if kind in _SURE_NAMES else (kind, id(name) if is_users(kind) else repr(name))


def _bound_key(bound: Any) -> Key:
    """A bound of a slice or range: its value is part of the trace, whatever type of number it is."""
    if bound is None or isinstance(bound, int | float):
        return type(bound), bound
    if isinstance(bound, np.generic):
        return type(bound), bound.item()
    raise Untraceable(f"slice with a bound of type {type(bound).__name__}")


def leaf_key(leaf: Any) -> Key:
    """What of an argument leaf a trace depends on. Objects are told apart by identity: traces keep them alive."""
    kind = type(leaf)
    if kind is Array:
        return kind, leaf.dtype, leaf.shape, leaf.aval.weak, leaf._is_array
    if kind is np.ndarray:
        return (kind, leaf.dtype, leaf.shape, *([] if leaf.flags.c_contiguous else [leaf.strides]))
    if isinstance(leaf, np.generic):
        if kind is not leaf.dtype.type:  # a class that the user derived: its operators may be others
            raise Untraceable(kind.__name__, f"pass {leaf.dtype.type.__name__} of it")
        return kind, leaf.dtype
    if kind in _BY_TYPE or kind in _SINGLETONS:
        return (kind,)
    if kind in _BY_VALUE or isinstance(leaf, np.dtype):
        return kind, leaf
    if kind in GENERATORS:
        return kind, type(bits_of(leaf)).__name__
    if kind is list and (found := numbers_of(leaf)) is not None:
        return _numbers_key(leaf, *found)
    if kind is slice or kind is range:
        return kind, *(part for each in (leaf.start, leaf.stop, leaf.step) for part in _bound_key(each))
    if kind is set or kind is frozenset:
        return kind, fingerprint(leaf)
    if kind in METHODS:
        return kind, id(leaf.__self__), id(leaf.__func__)
    if kind is types.BuiltinMethodType:
        return kind, leaf
    if isinstance(leaf, np.ndarray):
        raise Untraceable(kind.__name__, "pass np.asarray of it")
    return kind, id(leaf)


def is_by_identity(leaf: Any, key: Key) -> bool:
    """Does a trace depend on which object the leaf is, as this key of it says?"""
    return type(leaf) not in _BY_VALUE and type(key[-1]) is int and key == (type(leaf), id(leaf))


def remedy(changing: Iterable[Iterable[Key]]) -> str:
    """What to do about leaves of which each call has another key."""
    objects = [key[0].__name__ for keys in changing for key in keys if len(key) == 2 and is_users(key[0])]
    if not objects:
        return "Pass changing numbers as floats or arrays"
    return (
        f"Objects of {objects[0]} are told apart, whatever they hold: pass what is read of them, or make it a "
        "dataclass, which is taken apart as dicts and lists are"
    )


def alike(leaf: Any, key: Key | None = None) -> Alike | None:
    """A test whether something else is an input as this one is, with the same key; None where there is no short one.
    Of an array the key is what it was when the trace was made, which may have been changed in place since."""
    kind, is_it = type(leaf), "{0}({now}) is {1}"
    if key is not None:
        lies = "{now}.strides == {4}" if len(key) > 3 else "{now}.flags.c_contiguous"
        test = f"{is_it} and {{now}}.dtype is {{2}} and {{now}}.shape == {{3}} and {lies}"
        return test, (type, *key)
    if isinstance(leaf, np.generic):
        return f"{is_it} and {{now}}.dtype is {{2}}", (type, kind, leaf.dtype)
    if kind is float or kind is complex:
        return is_it, (type, kind)
    return (f"{is_it} and {{2}}({{now}})", (type, kind, can_be_input)) if kind is int else None


def argument_paths(function: Any, structure: Structure) -> list[str]:
    """A readable path for every leaf of ``(args, kwargs)``: the parameter's name, then keys, as ``params/layer/w``."""
    positional, keyword = structure.children
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a callable without a signature
        names = []
    names += [f"argument_{number}" for number in range(len(names), len(positional.children))]
    named = [*zip(names, positional.children, strict=False), *zip(keyword.keys, keyword.children, strict=True)]
    return [path for name, child in named for path in leaf_paths(child, f"/{name}")]


def foreign_argument(function: Any, leaves: list[Any], structure: Structure) -> str:
    """Says which leaf of ``(args, kwargs)`` is an array of another library, which is not staged; "" if none is."""
    for place, leaf in enumerate(leaves):
        kind = type(leaf)
        if hasattr(kind, "__array__") and not isinstance(leaf, np.ndarray | np.generic | Array):
            path, library = argument_paths(function, structure)[place], kind.__module__.partition(".")[0]
            return f"{path}, a {kind.__qualname__} of {library}, is not staged: give np.asarray of it"
    return ""
