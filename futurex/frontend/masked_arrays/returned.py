"""Masked arrays that a futurized function returns: ``np.ma.MaskedArray``s, made when the run has ended."""

from __future__ import annotations

from typing import Any

import numpy as np

from futurex.frontend.array import Array
from futurex.frontend.errors import Escape
from futurex.frontend.masked import MASKED, Masked
from futurex.frontend.trace import current
from futurex.tree.pytree import flatten, unflatten


class Returned(tuple):
    """Data, mask, whether there is one, and fill value, in the structure of a result.

    To ``pytree`` it is a named tuple. What it makes of the four values of a run is the masked array.
    """

    __slots__ = ()
    _fields = ("data", "hidden", "present", "filling")

    def __new__(cls, data: Any, hidden: Any, present: Any, filling: Any) -> Any:
        array: Any = _settled(data).view(np.ma.MaskedArray)
        if hidden is not None and bool(_value(present)):
            array._mask = _settled(hidden)
        if filling is not None:
            array._fill_value = np.array(_value(filling))
        return array


def _value(leaf: Any) -> Any:
    return leaf.result() if isinstance(leaf, Array) else leaf


def _settled(leaf: Any) -> np.ndarray[Any, Any]:
    """An array that the caller may change; an argument, or a view of one, as it is."""
    value = _value(leaf)
    return np.array(value) if isinstance(leaf, Array) and not value.flags.writeable else value


def taken_apart(result: Any) -> Any:
    """A result in which the parts of masked arrays stand for them; a call that returns such waits for its run."""
    leaves, structure = flatten(result)
    if not any(isinstance(leaf, Masked) or leaf is MASKED for leaf in leaves):
        return result
    current().waits = True
    return unflatten(structure, [_parts(leaf) for leaf in leaves])


def _parts(leaf: Any) -> Any:
    if leaf is MASKED:
        raise Escape("np.ma.masked as a result", "it is no masked array of a run")
    if not isinstance(leaf, Masked):
        return leaf
    filling = None if leaf.unsure else leaf.filling
    return tuple.__new__(Returned, (leaf.values, leaf.hidden, leaf.present, filling))
