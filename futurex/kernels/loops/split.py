"""Loops that are many loops: rows that never meet run apart, each thread its own, through all rounds.

The examples of a recurrent network, or the points of an iteration, need nothing of each other. Where a loop's body
keeps one axis of all its arrays apart, threads share that axis once, before the first round, and never wait for each
other again; what they work on is small enough for their own caches.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from futurex.partition.factors import recipe_of
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node

Axis = tuple[Any, int]  # an array and the number of one of its dimensions


@dataclass(frozen=True)
class Split:
    """``parts`` of equal size along one axis of each input of a loop, None where every part needs the whole.

    ``shape(node, number)``: that of a result of a node of the body, as every part has it.
    """

    parts: int
    axes: tuple[int | None, ...]
    shape: Callable[[Node, int], tuple[int, ...]]


class _Axes:
    """Which dimensions of which arrays are one and the same (a union-find structure)."""

    def __init__(self) -> None:
        self._above: dict[Hashable, Hashable] = {}
        self._whole: set[Hashable] = set()

    def same(self, one: Axis, two: Axis) -> None:
        one_root, two_root = self.root(one), self.root(two)
        if one_root != two_root:
            self._above[one_root] = two_root
            if one_root in self._whole:
                self._whole.add(two_root)

    def whole(self, axis: Axis) -> None:
        """Nobody can work on a part of it."""
        self._whole.add(self.root(axis))

    def root(self, axis: Hashable) -> Hashable:
        path = []
        while (above := self._above.get(axis, axis)) != axis:
            path.append(axis)
            axis = above
        for each in path:
            self._above[each] = axis
        return axis

    def is_whole(self, root: Hashable) -> bool:
        return root in self._whole


def splits(node: Node) -> Iterator[Callable[[int], Split]]:
    """The ways in which a ``loop`` may be split: the number of parts must divide ``split(1)``'s extent."""
    body, test = node.attrs["body"], node.attrs["test"]
    if any(_shapes(each) != [()] for each in test.nodes if each.op != "param" or each in _read(test)):
        return
    axes = _joined(body)
    if axes is None:
        return
    carried = [k for k, out in enumerate(body.outs) if out.ndim]
    if not carried:
        return
    first = body.params[carried[0]]
    for axis in range(first.ndim):
        found = _along(body, axes, axes.root((first, axis)), carried)
        if found is not None:
            yield found


def extent(node: Node, split: Split) -> int:
    """How many rows there are to share."""
    k, axis = next((k, axis) for k, axis in enumerate(split.axes) if axis is not None)
    return int(node.inputs[k].shape[axis])


def _read(graph: Graph) -> set[Node]:
    return {source for each in graph.nodes for source in each.inputs} | set(graph.outs)


def _shapes(node: Node) -> list[tuple[Any, ...]]:
    return [aval.shape for aval in (node.aval if isinstance(node.aval, tuple) else (node.aval,))]


def _joined(body: Graph) -> _Axes | None:
    """Which axes are the same throughout the body and from round to round; None where a node says nothing of it."""
    axes = _Axes()
    for node in body.nodes:
        if not all(isinstance(aval, Aval) and aval.static for aval in _avals(node)):
            return None
        if node.op == "const":
            for axis in range(node.ndim):
                axes.whole((node, axis))
        elif node.op == "item":
            source = _value(node.inputs[0], node.attrs["index"])
            for axis in range(node.ndim):
                axes.same((node, axis), (source, axis))
        elif node.op != "param" and not _join(axes, node):
            return None
    for param, out in zip(body.params, body.outs, strict=False):
        for axis in range(param.ndim):
            axes.same((param, axis), (out, axis))
    return axes


def _avals(node: Node) -> Sequence[Any]:
    return node.aval if isinstance(node.aval, tuple) else (node.aval,)


def _value(node: Node, index: int) -> Any:
    """A result of a node with several."""
    return (node, index)


def _results(node: Node) -> list[Any]:
    return [_value(node, k) for k in range(len(node.aval))] if isinstance(node.aval, tuple) else [node]


def _join(axes: _Axes, node: Node) -> bool:
    """Note which axes a node keeps apart; False where it says nothing of that."""
    if node.record.effect:
        return False
    if not any(shape for each in (node, *node.inputs) for shape in _shapes(each)):
        return True
    if node.op in ("load", "store"):
        return _join_view(axes, node)
    if node.op in ("room", "full"):
        return True  # whose axes are those of what is written there, or computed with it
    if not (node.record.elementwise or node.op in _APART):
        return False
    recipe = recipe_of(node)
    if recipe is None:
        return False
    of: dict[str, Axis] = {}
    made = {name for names in recipe.outs for name in names}
    for value, names in [*zip(node.inputs, recipe.inputs, strict=True), *zip(_results(node), recipe.outs, strict=True)]:
        for axis, name in enumerate(names):
            if name == "1":
                continue
            axes.same((value, axis), of.setdefault(name, (value, axis)))
            if name not in made or not recipe.shardable(name):
                axes.whole((value, axis))
    return True


def _join_view(axes: _Axes, node: Node) -> bool:
    """A part of an array: dimensions that are taken whole stay the same."""
    chain = node.attrs["chain"]
    if not chain or chain[0][0] != "index" or any(step[0] not in ("sized", "transpose") for step in chain[1:]):
        return False
    base = node.inputs[0]
    part = node if node.op == "load" else node.inputs[1]
    axis, seen = 0, list[int | None]()  # for each dimension of the part that of the array
    for entry in chain[0][1]:
        if entry[0] == "n":
            seen.append(None)
            continue
        if entry[0] == "s":
            seen.append(axis if _is_all(entry, base.shape[axis]) else None)
        if entry[0] == "d" or seen[-1:] != [axis]:
            axes.whole((base, axis))
        axis += 1
    seen += range(axis, base.ndim)
    for step in chain[1:]:
        if step[0] == "transpose":
            seen = [seen[k] for k in step[1]]
    late = len(seen) - part.ndim  # what is stored may have fewer dimensions
    for place, own in enumerate(seen):
        mine = place - late
        if mine < 0 or (own is not None and part.shape[mine] != base.shape[own]):
            continue
        if own is None:
            axes.whole((part, mine))
        else:
            axes.same((part, mine), (base, own))
    if node.op == "store":
        for axis in range(base.ndim):
            axes.same((node, axis), (base, axis))
    return late >= 0


def _is_all(entry: Sequence[Any], extent: int) -> bool:
    """Does a slice show an axis of this extent as it is?"""
    start, stop, step = entry[1:]
    return start in (None, 0) and (stop is None or stop == extent) and step in (None, 1)


def _along(body: Graph, axes: _Axes, root: Hashable, carried: Sequence[int]) -> Callable[[int], Split] | None:
    """The split along one class of axes; None where some carried array, or a product, would be everybody's."""
    if axes.is_whole(root):
        return None

    def axis_of(value: Any, rank: int) -> int | None:
        found = [axis for axis in range(rank) if axes.root((value, axis)) == root]
        if len(found) > 1:
            raise _Twice
        return found[0] if found else None

    try:
        if any(axis_of(body.params[k], body.params[k].ndim) is None for k in carried):
            return None
        for node in body.nodes:
            for value, aval in zip(_results(node), _avals(node), strict=True):
                if axis_of(value, aval.ndim) is None and aval.ndim and node.op not in _SHARED:
                    return None
        places = tuple(axis_of(param, param.ndim) for param in body.params)
    except _Twice:
        return None

    def split(parts: int) -> Split:
        def shape(node: Node, number: int) -> tuple[int, ...]:
            own = _shapes(node)[number]
            axis = axis_of(_results(node)[number], len(own))
            return tuple(n // parts if k == axis else n for k, n in enumerate(own))

        return Split(parts, places, shape)

    return split


_APART = frozenset((
    "fused", "fused_reduction", "matmul", "matmul_epilogue", "concatenate", "transpose", "sum", "max", "min",
))  # fmt: skip
"""What takes its extents from its operands, so that a part of these gives a part of the result."""
_SHARED = frozenset(("param", "const", "load", "transpose"))
"""What may be the same for all parts: arrays from outside, and views of them."""


class _Twice(Exception):
    """Two axes of one array would be split."""
