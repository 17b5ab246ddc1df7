"""Dicts and sets at a key that the run tells: which of the keys that are known it is, if it is any of them."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from futurex.frontend import control
from futurex.frontend.errors import Escape
from futurex.frontend.outside import own_container
from futurex.frontend.picking import picked, put
from futurex.frontend.trace import current, emit
from futurex.frontend.tracer import Tracer, entered, fresh, node_of
from futurex.tree.node import Node, const

MOST = 64
"""Keys that one is compared with."""
_NUMBERS = (bool, int, float, np.integer, np.floating, np.bool_)


def is_open(key: Any) -> bool:
    """Is a key, or a part of it, not known before the run?"""
    if type(key) is tuple:
        return any(map(is_open, key))
    return isinstance(key, Tracer) and key.is_scalar and key._node.op != "const"


def item(container: dict[Any, Any], key: Any) -> Any:
    """``container[key]``."""
    return picked(list(container.values()), _found(container, key))


def put_item(container: dict[Any, Any], key: Any, value: Any) -> None:
    """``container[key] = value`` where the dict has the key: every entry is the old one or the new one."""
    entries, place = current().remember(list(container.values())), _found(container, key)
    own_container(container, "an item of a dict")
    put(entries, place, value)
    container.update(zip(container, entries, strict=True))


def get(container: dict[Any, Any], key: Any, default: Any = None) -> Any:
    """``container.get(key, default)``."""
    return control.if_expression(holds(container, key), lambda: item(container, key), lambda: default)


def holds(container: Any, key: Any) -> Any:
    """``key in container``."""
    found = const(False)
    for known in _keys(container):
        found = emit("logical_or", found, _is(key, known))
    return fresh(emit("python_scalar", found, kind="b"))


def _found(container: dict[Any, Any], key: Any) -> Tracer:
    """The place of the entry with the key. The run looks whether there is one; then plain Python raises its own
    exception, or adds an entry."""
    if not container:
        refuse(container)
    place: Node = const(-1)
    for number, known in enumerate(_keys(container)):
        place = emit("where", _is(key, known), const(number), place)
    current().waits = True
    missing = fresh(emit("less", place, const(0)))
    control.assert_not(missing, KeyError("a key that the run tells"))
    return fresh(emit("python_scalar", place, kind="i"))


def _keys(container: Any) -> list[Any]:
    keys = list(container)
    if len(keys) > MOST:
        raise Escape(f"a {type(container).__name__} of more than {MOST} keys, at one that is not known before the run",
                     "each of them is compared with it", "keep an array")  # fmt: skip
    return keys


def _is(key: Any, known: Any) -> Node:
    """Is a key this one?"""
    if type(key) is tuple or type(known) is tuple:
        if type(key) is not tuple or type(known) is not tuple or len(key) != len(known):
            return const(False)
        same = const(True)
        for one, other in zip(key, known, strict=True):
            same = emit("logical_and", same, _is(one, other))
        return same
    key, known = entered(key), entered(known)
    if isinstance(key, Tracer) and key.is_scalar and isinstance(known, _NUMBERS):
        return emit("equal", key._node, node_of(known))
    if isinstance(key, Tracer) or isinstance(known, Tracer):
        if isinstance(key, str | type(None)) or isinstance(known, str | type(None)):
            return const(False)
        raise Escape("a key that is not known before the run", "what it is compared with is no number")
    return const(bool(key == known))


def refuse(container: Any) -> NoReturn:
    """A key is put in, or taken out, that is not known."""
    what = f"a {type(container).__name__} that changes at a key which is not known before the run"
    raise Escape(what, "which keys it has depends on data", "count in an array, or use np.unique")
