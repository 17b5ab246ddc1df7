"""What Python's mutable objects hold, entry by entry: to be noted, put back, merged and carried."""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import Callable
from typing import Any

from futurex.tree.pytree import opened, unflatten

LISTS = (list, collections.deque)
DICTS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
_FIXED = frozenset({bool, int, float, complex, str, bytes, type(None), types.FunctionType, types.ModuleType})
_LIBRARIES = ("futurex", "numpy")
Contents = dict[int, tuple[Any, dict[Any, Any]]]  # objects by identity, and what they held


def is_state(value: Any) -> bool:
    """Can what the object holds be noted and put back? Iterators, files and the like cannot."""
    kind = type(value)
    if is_container(value):
        return True
    builtin = isinstance(value, list | dict | set | collections.deque | bytearray | type | types.ModuleType)
    return not builtin and not hasattr(kind, "__next__") and (hasattr(value, "__dict__") or bool(_slots(kind)))


def is_container(value: Any) -> bool:
    """Is it what Python or the tracer keeps entries in, no object with attributes?"""
    return type(value) in (*LISTS, *DICTS, set, types.CellType) or hasattr(type(value), "__fx_traced__")


def entries_of(value: Any) -> dict[Any, Any]:
    """The entries of a container, the attributes of an object, or the value of a closure variable."""
    kind = type(value)
    if kind in LISTS:
        return dict(enumerate(value))
    if kind in DICTS:
        return dict(value)
    if kind is set:
        return dict.fromkeys(value, True)
    if kind is types.CellType:
        try:
            return {"value": value.cell_contents}
        except ValueError:  # not bound
            return {}
    slots = {name: getattr(value, name) for name in _slots(kind) if hasattr(value, name)}
    return {**slots, **vars(value)} if kind.__dictoffset__ else slots


def fill(value: Any, entries: dict[Any, Any]) -> None:
    """Make the object hold these entries."""
    kind = type(value)
    if kind in LISTS:
        if kind is list:
            value[:] = entries.values()  # at once: another thread may look at it
            return
        value.clear()
        value.extend(entries.values())
    elif kind in DICTS:
        if len(value) != len(entries) or not all(map(operator.is_, value, entries)):
            value.clear()
        for key, entry in entries.items():
            value[key] = entry
    elif kind is set:
        value.clear()
        value.update(entries)
    elif kind is types.CellType:
        if entries:
            value.cell_contents = entries["value"]
        elif entries_of(value):
            del value.cell_contents
    else:
        for name in [name for name in entries_of(value) if name not in entries]:
            object.__delattr__(value, name)
        for name, entry in entries.items():
            object.__setattr__(value, name, entry)


def restore(contents: Contents) -> None:
    for value, entries in contents.values():
        fill(value, entries)


def has_attributes(value: Any) -> bool:
    """Does it keep attributes that can be set, in a ``__dict__`` or in slots? Functions and variables are other things.
    """
    if isinstance(value, types.FunctionType | types.CellType):
        return False
    return hasattr(value, "__dict__") or bool(_slots(type(value)))


def has_state(leaf: Any) -> bool:
    """Could somebody change this leaf of a nest?"""
    return type(leaf) not in _FIXED and type(leaf).__module__.partition(".")[0] not in _LIBRARIES and is_state(leaf)


def describe(value: Any) -> str:
    """What to call the object in an explanation."""
    return "a variable of the function around" if type(value) is types.CellType else f"a {type(value).__name__}"


def _slots(kind: type) -> list[str]:
    """The names under which instances have the slots of their classes: those of private ones begin with the class's."""
    bases = [vars(base) for base in kind.__mro__ if "__slots__" in vars(base)]
    return [name for base in bases for name, each in base.items() if type(each) is types.MemberDescriptorType]


def renewed(nest: Any, of: Callable[[Any], Any]) -> Any:
    """A nest with ``of(entry)`` for its entries: lists and objects stay the ones that they are, tuples are made anew. A
    leaf is itself."""
    found = opened(nest)
    if found is None:
        return nest
    structure, entries = found
    mine = list(map(of, entries))
    if all(map(operator.is_, mine, entries)):
        return nest
    if isinstance(nest, tuple):
        return unflatten(structure, mine)
    fill(nest, dict(zip(structure.keys or range(len(mine)), mine, strict=True)))
    return nest
