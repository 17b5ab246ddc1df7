"""Text that takes named tuples and dataclasses apart and puts them together, for functions that are written for one
kind of call or result."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Sequence
from typing import Any

from futurex.tree.pytree import LEAF, Structure, attributes, fields_of, unflatten

Constant = Callable[[Any], str]
"""Takes a value, and gives the name that it has in the text."""


class Unwritten(Exception):
    """There is no short text for something of this kind."""


def taken_apart(structure: Structure, name: str, constant: Constant) -> tuple[str, str]:
    """The test whether what has this name is such an object, and the tuple of its parts. Raises Unwritten."""
    kind = structure.kind
    test = f"type({name}) is {constant(kind)}"
    if issubclass(kind, tuple):
        if structure.keys:  # an object of a class that was derived of one, which holds more than its fields
            raise Unwritten
        return f"{test} and not {name}.__dict__" if kind.__dictoffset__ else test, name
    if any(not key.isidentifier() or keyword.iskeyword(key) for key in structure.keys):
        raise Unwritten
    parts = "".join(f"{name}.{key}, " for key in structure.keys)
    names, known = fields_of(kind)
    if structure.keys == names and kind.__dictoffset__:  # as most are: attributes() says so, too
        return f"{test} and {name}.__dict__.keys() == {constant(known)}", f"({parts})"
    return f"{test} and {constant(attributes)}({name}) == {constant(structure.keys)}", f"({parts})"


def put_together(structure: Structure, parts: Sequence[str], constant: Constant) -> str:
    """The object of such parts."""
    kind, inner = structure.kind, "".join(f"{each}, " for each in parts)
    if issubclass(kind, tuple) and not kind.__dictoffset__:
        return f"{constant(kind)}({inner})"
    nest = Structure(kind, structure.keys, (LEAF,) * len(parts))
    return f"{constant(unflatten)}({constant(nest)}, ({inner}))"
