"""Reductions of many short rows, written out as operations on their columns, which are views with a step.

The lengths of a million vectors in space, sums over three colours, means and largest elements of blocks of 4 x 4: NumPy
calls a loop for each row, which takes longer than what is in it. Fewer than eight neighbours it adds up one after the
other, so that the bits are those of additions, of whole columns at once.

So are those along axes between which others lie, of which the last axis is none: means of blocks of an image whose
channels lie side by side. NumPy adds up one row of channels after the other.

So are reductions of windows (``sliding_window_view(x, 5).mean(-1)``): each place in a window is the array itself, begun
a little later. From eight elements on NumPy adds up eight sums.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from futurex.ops.fusion import SUPPORTED, loop_of
from futurex.ops.reduce import axes_of, reduced_shape
from futurex.ops.strides import LEAST_ROW
from futurex.ops.sweeps import VIEWS, turned
from futurex.passes.fuse import LARGE_ELEMENTS, MOST_ARRAYS
from futurex.passes.reductions import EXACT, bits_of
from futurex.passes.rewrite import rewrite, users_of
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, const

Dtype = np.dtype[Any]
_JOINS = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
_LONGEST = 7
_SUMS = _LONGEST + 1
"""That NumPy adds up side by side, of longer rows."""
_MOST_WRITTEN = 64
"""Operations that are written out for all elements of a row."""
_LEAST = 1024
"""Elements from which that is faster where no kernel reduces rows as they lie: see :mod:`futurex.passes.fuse`."""
_ALL = ("s", None, None, None)


def write_out_short_rows(graph: Graph) -> Graph:
    """The graph with large reductions of short rows as elementwise operations.

    Not those along the last axis that enter arrays of the full shape again: these are one trip, by a kernel for rows.
    """
    found = [node for node in graph.nodes if _suits(node)]
    if not found:
        return graph
    users, results = users_of(graph), set(graph.outs)
    makers = {
        node: functools.partial(_written_out, node, _computed_for(node, users, results))
        for node in found
        if _lies_apart(node) or not _returns(node, users)
    }
    return rewrite(graph, lambda node: None, makers) if makers else graph


def _lies_apart(node: Node) -> bool:
    """Is it along axes of which the last one of all is none?"""
    return _axes(node)[-1] != node.inputs[0].ndim - 1


def _axes(node: Node) -> list[int]:
    x = node.inputs[0]
    return [axis for axis in axes_of(x.ndim, node.attrs["axis"]) if x.shape[axis] != 1]


def _suits(node: Node) -> bool:
    """Is it a reduction over a few elements, along the last axis, and at most one other, or along some apart?"""
    if node.op not in _JOINS or not node.is_static or not isinstance(node.aval, Aval):
        return False
    x, axes = node.inputs[0], _axes(node)
    least = _LEAST if node.op in ("max", "min") and x.dtype.kind == "f" else LARGE_ELEMENTS
    if x.aval.weak or x.ndim < 2 or x.size < least or not {x.dtype, node.dtype} <= SUPPORTED:
        return False
    if _added_as(node) is None or not axes:
        return False
    if _lies_apart(node):
        return _are_apart(x, axes)
    if len(axes) > 2:
        return False
    windows = _windows(x)
    if windows:
        last = axes == list(range(x.ndim - len(axes), x.ndim)) and len(axes) <= windows
        few = math.prod(x.shape[axis] for axis in axes) <= MOST_ARRAYS
        return last and few and x.ndim > windows and x.shape[-windows - 1] >= LEAST_ROW
    if turned(x) or x.ndim - 2 in axes:
        return False
    few = 2 <= x.shape[-1] <= _LONGEST and math.prod(x.shape[axis] for axis in axes) <= MOST_ARRAYS
    return few and x.shape[-2] >= LEAST_ROW


def _are_apart(x: Node, axes: Sequence[int]) -> bool:
    """Are they few elements, along axes that do not follow each other, in long rows of what lies behind?"""
    first, last = axes[0], axes[-1]
    if turned(x) or all(axis in axes or x.shape[axis] == 1 for axis in range(first, last)):
        return False
    row = math.prod(extent for axis, extent in enumerate(x.shape) if axis > first and axis not in axes)
    return math.prod(x.shape[axis] for axis in axes) <= MOST_ARRAYS and row >= LEAST_ROW


def _added_as(node: Node) -> Dtype | None:
    """The type in which elements are joined; None where that is not their sum in NumPy's order, to the bit. Narrow
    integers whose sum is a float are added as integers, which no order can round."""
    source, x = node.inputs[0].dtype, node.inputs[0]
    if source.kind in "iub" and node.op == "sum" and node.dtype in EXACT:
        bits, exact = bits_of(source) + math.log2(math.prod(x.shape[axis] for axis in _axes(node))), EXACT[node.dtype]
        wide = next((each for each, most in ((np.int32, 31), (np.int64, 63)) if bits <= min(most, exact)), None)
        return None if wide is None else np.dtype(wide)
    if source.kind == "b":  # how many are true
        return node.dtype if node.op == "sum" and _axes(node) and _lies_apart(node) else None
    if source == node.dtype or (node.op in ("sum", "prod") and node.dtype.kind in "iu"):
        return node.dtype
    return None


def _windows(x: Node) -> int:
    """How many of the last axes are windows of an array whose elements lie as they are counted."""
    if x.op != "load" or len(x.inputs) != 1:
        return 0
    chain = x.attrs["chain"]
    before = next((k for k, step in enumerate(chain) if step[0] == "windows"), len(chain))
    if any(step[0] != "windows" for step in chain[before:]):
        return 0
    source = apply("load", x.inputs[0], chain=chain[:before]) if before else x.inputs[0]
    return 0 if turned(source) else len(chain) - before


def _returns(node: Node, users: Mapping[Node, Sequence[Node]]) -> bool:
    """Does what becomes of the result meet arrays of the full size again?"""
    full, seen, pending = node.inputs[0].size, {node}, [node]
    while pending:
        for user in users[pending.pop()]:
            if user in seen or not isinstance(user.aval, Aval) or not user.is_static:
                continue
            if user.op in VIEWS or loop_of(user) is not None:
                if user.size >= full:
                    return True
                seen.add(user)
                pending.append(user)
    return False


def _computed_for(node: Node, users: Mapping[Node, Sequence[Node]], results: Collection[Node]) -> frozenset[Node]:
    """The elementwise operations whose values nobody but the reduction reads; none, if that would be too many."""
    found, pending = {node}, [node.inputs[0]]
    while pending:
        source = pending.pop()
        own = source not in results and found.issuperset(users[source])
        if own and source.inputs and source.op != "load" and loop_of(source) is not None:
            found.add(source)
            pending += [each for each in source.inputs if isinstance(each.aval, Aval) and each.is_static]
    count = math.prod(node.inputs[0].shape[axis] for axis in _axes(node))
    return frozenset(found - {node}) if len(found) * count <= _MOST_WRITTEN else frozenset()


def _written_out(node: Node, own: Collection[Node], new: Mapping[Node, Node]) -> Node:
    x, axes, dtype = node.inputs[0], _axes(node), _added_as(node)
    behind = [axis - x.ndim for axis in axes]
    # axes of one element at the end, which a kernel would take for its rows: they come back with the result's shape
    single = {axis: 0 for axis in range(-x.ndim, 0) if set(x.shape[axis:]) == {1}}

    def at(*place: int) -> Node:
        value = _part(x, single | dict(zip(behind, place, strict=True)), own, new, {})
        return value if value.dtype == dtype else apply("cast", value, dtype=dtype)

    places = itertools.product(*(range(x.shape[axis]) for axis in axes))
    if behind[-1] < -1:
        rows = [at(*place) for place in places]
    else:
        outer = itertools.groupby(places, lambda place: place[:-1])
        rows = [_joined(node, [at(*place) for place in row]) for _, row in outer]
    if node.op == "sum" and rows[0].dtype.kind == "f":  # NumPy begins with zero, which a sum of -0.0 shows
        rows[0] = apply("add", rows[0], const(node.dtype.type(0)))
    total = functools.reduce(functools.partial(apply, _JOINS[node.op]), rows)
    total = total if total.dtype == node.dtype else apply("cast", total, dtype=node.dtype)
    shape = reduced_shape(x.shape, node.attrs["axis"], node.attrs["keepdims"])
    return total if total.shape == shape else apply("reshape", total, shape=shape)


def _joined(node: Node, values: list[Node]) -> Node:
    """The elements of a row, in NumPy's order."""
    join = functools.partial(apply, _JOINS[node.op])
    if len(values) <= _LONGEST or node.op != "sum" or values[0].dtype.kind != "f":
        return functools.reduce(join, values)
    whole = len(values) - len(values) % _SUMS
    sums = [functools.reduce(join, values[k:whole:_SUMS]) for k in range(_SUMS)]
    while len(sums) > 1:
        sums = [join(*pair) for pair in zip(sums[::2], sums[1::2], strict=True)]
    return functools.reduce(join, [*sums, *values[whole:]])


def _part(
    node: Node, place: Mapping[int, int], own: Collection[Node], new: Mapping[Node, Node], known: dict[Node, Node]
) -> Node:
    """What stands at a place along some axes, counted from the end; what is in ``own`` is computed there."""
    if node not in known:
        if node in own:
            sources = [_part(source, place, own, new, known) for source in node.inputs]
            known[node] = apply(node.op, *sources, **node.attrs)
        else:
            known[node] = _view(new[node], place)
    return known[node]


def _view(node: Node, place: Mapping[int, int]) -> Node:
    if not node.ndim or all(axis < -node.ndim for axis in place):
        return node
    entries = [
        ("i", place[axis] if node.shape[axis] > 1 else 0) if axis in place else _ALL for axis in range(-node.ndim, 0)
    ]
    chain = (("index", tuple(entries)),)
    if node.op == "load" and len(node.inputs) == 1:
        return apply("load", node.inputs[0], chain=(*node.attrs["chain"], *chain))
    return apply("load", node, chain=chain)
