"""Which short loops are loops of the tree: those whose rounds work on small arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from futurex.frontend.trace import current
from futurex.tree.graph import Graph
from futurex.tree.node import Node

COMPACT = 1 << 12  # elements of the largest array in a short loop that is not unrolled
LESS_COMPACT = 1 << 15  # the same in one of which there would be many copies: compiled loops have no larger ones
SPREAD = "a short loop over large arrays"
_IN_PARTS = frozenset(("param", "const", "item", "store", "scatter", "cond", "loop"))
"""Of which a round writes parts, if any."""
_PICKING = frozenset(("load", "gather"))


def is_compact(body: Graph, most: int) -> bool:
    """Are all values that are computed small and of known size, or lists? Then the loop, compiled, outruns its rounds
    written one by one. ``most``: elements of what a round is done with; what it leaves is smaller, or is written in
    parts."""
    inner = (value for node in body.nodes for value in node.attrs.values() if isinstance(value, Graph))
    left = all(node.op in _IN_PARTS or _is_small((node.aval,), COMPACT) for node in body.outs)
    return left and all(_is_light(node, most) for node in body.nodes) and all(is_compact(each, most) for each in inner)


def _is_light(node: Node, most: int) -> bool:
    if node.op in _IN_PARTS:
        return _is_small((node.aval,), None)
    read = () if node.op in _PICKING else [source.aval for source in node.inputs]
    return _is_small((node.aval, *read), most)


def _is_small(avals: Sequence[Any], most: int | None) -> bool:
    """Have arrays so many elements at most, as far as is known? Any number (None) that is known, or is a list's."""
    flat = [each for aval in avals for each in (aval if isinstance(aval, tuple) else (aval,))]
    lists = bool(current().stacks)
    return all(most is None or aval.size <= most if aval.static else lists for aval in flat)
