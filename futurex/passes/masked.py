"""Writes where a mask is true, of what is computed of elements there: computed everywhere, and chosen.

``z[m] = z[m] ** 2 + c[m]`` picks elements, computes and puts them back, each a trip of NumPy's on one thread. As
``where(m, z ** 2 + c, z)`` it is one region. So are writes to rows (``x[m] *= 2`` of a matrix), to a part of them
(``x[m, 0] *= -1``), and those by the places that ``np.nonzero(m)`` gives. What is computed beside the mask nobody sees:
regions say nothing of floating-point errors.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from futurex.ops.fusion import CORRECTLY_ROUNDED, PARTS, function_of, is_generated, loop_of
from futurex.passes.rewrite import Maker, rewrite, users_of
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply

LEAST_ELEMENTS = 2 * 1024
"""Smaller arrays may become operations of NumPy's, which warn of what is computed beside the mask."""
MOST_OPERATIONS, MOST_FUNCTIONS = 16, 2
"""Operations, and functions among them, that take no longer everywhere than what they replace takes at some places."""
_ALL = ("s", None, None, None)
Entries = tuple[Any, ...]


def compute_everywhere(graph: Graph) -> Graph:
    """The graph with such writes as choices between elements."""
    if not any(node.op in ("masked_store", "scatter") for node in graph.nodes):
        return graph
    users, outs = users_of(graph), set(graph.outs)
    makers: dict[Node, Maker] = {}
    for node in graph.nodes:
        target = _target(node)
        if target is not None:
            mask, entries = target
            picked = _Picked(mask)
            if picked.follows(node.inputs[_value_of(node)]) and picked.pays(users, outs, node):
                makers[node] = functools.partial(_chosen, node, picked, entries)
    return rewrite(graph, lambda node: None, makers) if makers else graph


def _value_of(node: Node) -> int:
    return 2 if node.op == "masked_store" else 1


def _target(node: Node) -> tuple[Node, Entries] | None:
    """The mask of a write, and how the axes behind it are indexed; None for another node."""
    if node.op == "masked_store":
        mask, entries = node.inputs[1], ()
    elif node.op == "scatter":
        found = _at_places(node.attrs["pattern"], node.inputs[2:])
        if found is None:
            return None
        mask, entries = found
    else:
        return None
    x, value = node.inputs[0], node.inputs[_value_of(node)]
    if not all(isinstance(each.aval, Aval) for each in (x, mask, value)) or not (x.aval.static and mask.aval.static):
        return None
    if mask.shape != x.shape[: mask.ndim] or x.size < LEAST_ELEMENTS or not is_generated(x.dtype):
        return None
    return (mask, entries) if _fits(value, x) else None


def _fits(value: Node, x: Node) -> bool:
    """Would NumPy put a value into the array, and Python numbers without a look at them?"""
    if not value.aval.weak or x.dtype.kind not in "iu":
        return np.can_cast(value.dtype, x.dtype, "same_kind")
    limits = np.iinfo(x.dtype)
    return value.op == "const" and value.dtype.kind == "i" and bool(limits.min <= value.value <= limits.max)


def _at_places(pattern: Entries, indices: Sequence[Node]) -> tuple[Node, Entries] | None:
    """The mask whose places index the first axes, and the entries for those behind; None for other indices."""
    count = len(indices)
    if not count or pattern[:count] != tuple(("d", k) for k in range(count)):
        return None
    places = indices[0].inputs[0] if indices[0].op == "item" else indices[0]
    if places.op != "nonzero" or places.attrs["extents"] is not None or places.inputs[0].ndim != count:
        return None
    if any(each.op != "item" or each.inputs[0] is not places or each.attrs["index"] != k
           for k, each in enumerate(indices)):  # fmt: skip
        return None
    entries = pattern[count:]
    known = all(entry[0] in "sin" and not any(isinstance(part, tuple) for part in entry[1:]) for entry in entries)
    return (places.inputs[0], entries) if known else None


class _Picked:
    """What is computed of elements picked by a mask: its first axis counts them."""

    def __init__(self, mask: Node) -> None:
        self.mask = mask
        self.sources: dict[Node, tuple[Node, int, Entries]] = {}
        self.operations: set[Node] = set()

    def follows(self, value: Node) -> bool:
        """Is a value one of them, or one for all of them?"""
        if value in self.sources or value in self.operations or not value.shape:
            return True
        source = self._source(value)
        if source is not None:
            self.sources[value] = source
            return True
        if value.op == "load":
            steps = value.attrs["chain"]
            if len(value.inputs) > 1 or any(step[0] != "index" or step[1][:1] != (_ALL,) for step in steps):
                return False
        elif not value.record.elementwise or not value.inputs or loop_of(value) is None or "dims" in value.attrs:
            return False
        self.operations.add(value)
        return all(self._suits(each, value) for each in value.inputs)

    def _suits(self, operand: Node, result: Node) -> bool:
        """Is an operand one of them with as many axes, or one for all of them?"""
        if isinstance(operand.aval, Aval) and operand.aval.static:
            return result.op != "load" and operand.ndim < result.ndim
        return (result.op == "load" or operand.ndim == result.ndim) and self.follows(operand)

    def _source(self, value: Node) -> tuple[Node, int, Entries] | None:
        """The array of which the mask's elements are picked, how many of its axes are the mask's, which may stand in a
        row, and how those behind them are indexed."""
        if value.op != "gather":
            return None
        array, *indices = value.inputs
        found = _at_places(value.attrs["pattern"], indices)
        if found is None:
            return None
        mask, entries = found
        known = isinstance(array.aval, Aval) and array.aval.static and is_generated(array.dtype)
        in_a_row = mask.op == "reshape" and mask.ndim == 1 and mask.inputs[0] is self.mask
        return (array, mask.ndim, entries) if known and (mask is self.mask or in_a_row) else None

    def pays(self, users: Mapping[Node, Sequence[Node]], outs: Collection[Node], write: Node) -> bool:
        """Is there little to compute, which nobody but the write reads?"""
        held = [*self.operations, *self.sources]
        if any(user is not write and user not in self.operations for each in held for user in users[each]):
            return False
        known = CORRECTLY_ROUNDED | PARTS | {"load"}
        functions = [node for node in self.operations if function_of(node) not in known]
        few = len(self.operations) <= MOST_OPERATIONS and len(functions) <= MOST_FUNCTIONS
        return few and not any(each in outs for each in held)


def _behind(mask: Node, array: Node, entries: Entries) -> Node:
    """A part of an array: all along the mask's axes, and of those behind what their entries say."""
    if all(entry == _ALL for entry in entries):
        return array
    return apply("load", array, chain=(("index", ((_ALL,) * mask.ndim + tuple(entries))),))


def _reshaped(array: Node, shape: tuple[int, ...]) -> Node:
    while array.op == "reshape":
        array = array.inputs[0]
    return array if array.shape == shape else apply("reshape", array, shape=shape)


def _chosen(node: Node, picked: _Picked, entries: Entries, new: Mapping[Node, Node]) -> Node:
    x, mask = new[node.inputs[0]], new[picked.mask]
    made: dict[Node, Node] = {}

    def everywhere(each: Node) -> Node:
        if each in picked.sources:
            array, count, own = picked.sources[each]
            return _behind(mask, _reshaped(new[array], (*mask.shape, *array.shape[count:])), own)
        if each not in picked.operations:
            return new[each]
        if each not in made:
            attrs = dict(each.attrs)
            if each.op == "load":
                attrs["chain"] = tuple(("index", (_ALL,) * (mask.ndim - 1) + step[1]) for step in attrs["chain"])
            made[each] = apply(each.op, *map(everywhere, each.inputs), **attrs)
        return made[each]

    value, part = everywhere(node.inputs[_value_of(node)]), _behind(mask, x, entries)
    if node.attrs.get("mode") == "add":
        value = apply("add", part, value)
    value = value if value.dtype == x.dtype and not value.aval.weak else apply("cast", value, dtype=x.dtype)
    rest = part.ndim - mask.ndim
    test = apply("reshape", mask, shape=(*mask.shape, *(1,) * rest)) if rest else mask
    found = apply("where", test, value, part)
    if part is x:
        return found
    return apply("store", x, found, chain=(("index", (_ALL,) * mask.ndim + tuple(entries)),), mode="set")
