"""Elementwise operations on transposed arrays are done in the order in which these lie in memory, as NumPy does them.

``(x.T - m) / s`` reads ``x`` across its rows, and writes another order than it reads. NumPy's results lie as its
operands do; here the operations are those on ``x`` itself, with vectors that are turned round, and what comes out is
transposed: a view. That is done where all who read such a value go on so, transpose it, or are the caller; and where it
is written back through the view (``v = x.T; v -= m``).

The other way round, where a result that is transposed or flipped behind the operations is to lie in C order: the
operations read what is turned, and write once.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from futurex.ops.reduce import axes_of
from futurex.ops.strides import undone
from futurex.passes.rewrite import Maker, rewrite, users_of
from futurex.passes.simplify import takes_all
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, param

LEAST_ELEMENTS = 16 * 1024
"""Smaller arrays lie in the nearest caches, in whatever order they are read."""

Axes = tuple[int, ...]
_NONE: Mapping[int, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Steps:
    """A view with gaps of a dense array of one axis, of ``size`` elements: its axes in the order of memory, so many
    elements from one to the next along each, and by which exchange of axes it comes into that order."""

    size: int
    start: int
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    axes: Axes

    def of(self, array: Node) -> Node:
        """The view."""
        return _exchanged(
            apply("load", array, chain=(("strided", self.start, self.shape, self.steps),)), undone(self.axes)
        )


def keep_orders(graph: Graph) -> Graph:
    """The graph with such operations on the arrays themselves."""
    if all(_exchange(node) is None for node in graph.nodes):
        return graph
    axes = _turned(graph)
    makers: dict[Node, Maker] = {}
    straight: dict[Node, Node] = {}
    for node in graph.nodes:
        if node in axes and _exchange(node) is None:
            makers[node] = _maker(node, axes, straight)
        elif node.op == "transpose" and node.inputs[0] in axes and _exchange(node.inputs[0]) is None:
            makers[node] = _view(node, axes[node.inputs[0]], straight)
        elif _writes_across(node, axes):
            makers[node] = functools.partial(_straight_of, node.inputs[1], straight)
    return rewrite(graph, lambda node: None, makers) if makers else graph


def _exchange(node: Node) -> Axes | None:
    """The order in which a node, or a view as the last of its steps but for slices, takes the axes of what it reads."""
    if not node.is_static:
        return None
    if node.op == "transpose":
        return tuple(node.attrs["axes"])
    if node.op == "load":
        for step in reversed(node.attrs["chain"]):
            if step[0] == "transpose":
                return tuple(step[1])
            if not _slices(step):
                break
    return None


def _slices(step: Any) -> bool:
    """Does a step of a view leave all axes, and some elements along each?"""
    return bool(step[0] == "index" and all(entry[0] == "s" for entry in step[1]))


def _unexchanged(node: Node) -> Node:
    """What the axes of a transpose or of such a view are exchanged of."""
    if node.op == "transpose":
        return node.inputs[0]
    chain = node.attrs["chain"]
    place = max(k for k, step in enumerate(chain) if step[0] == "transpose")
    axes = chain[place][1]
    kept = (*chain[:place], *(_turned_slices(step, axes) for step in chain[place + 1 :]))
    return apply("load", *node.inputs, **{**node.attrs, "chain": kept}) if kept else node.inputs[0]


def _turned_slices(step: Any, axes: Axes) -> Any:
    """Slices of a transposed array as slices of the array itself."""
    entries = (*step[1], *[("s", None, None, None)] * (len(axes) - len(step[1])))
    return ("index", tuple(entries[axis] for axis in undone(axes)))


def _writes_across(node: Node, axes: Mapping[Node, Axes]) -> bool:
    """Is what is written through all of a transposed view made of that view, as ``v = x.T; v -= m`` ends?"""
    if node.op != "store" or node.attrs["mode"] != "set" or len(node.inputs) != 2 or node.inputs[1].op == "transpose":
        return False
    value, steps = node.inputs[1], [step for step in node.attrs["chain"] if not takes_all(step)]
    if value not in axes or not node.is_static or value.size != node.size or value.dtype != node.dtype:
        return False
    return steps == [("transpose", axes[value])]


def _straight_of(value: Node, straight: Mapping[Node, Node], new: Mapping[Node, Node]) -> Node:
    """A value before its axes are exchanged."""
    return straight[value]


def as_they_lie(
    graph: Graph, orders: Mapping[int, Axes], outs: Mapping[int, Axes], steps: Mapping[int, Steps] = _NONE
) -> Graph:
    """The graph whose parameters of these numbers are arrays in C order: theirs are what comes of exchanging axes, or
    views of what lies from their first element to the last in memory.

    Of these outputs the axes are exchanged likewise.

    >>> import numpy as np
    >>> from futurex.tree import Aval, Graph, param
    >>> x = param(Aval((3, 2), np.dtype("float64")), "x")
    >>> print(as_they_lie(Graph([x], [x * 2]), {0: (1, 0)}, {}).params[0].aval)
    float64[2,3]
    """
    if not (orders or steps):
        return graph
    params, given = list(graph.params), list(graph.params)
    for k, axes in orders.items():
        own = graph.params[k]
        params[k] = param(Aval(tuple(own.shape[axis] for axis in axes), own.dtype), own.attrs["name"])
        given[k] = apply("transpose", params[k], axes=undone(axes))
    for k, lie in steps.items():
        own = graph.params[k]
        params[k] = param(Aval((lie.size,), own.dtype), own.attrs["name"])
        given[k] = lie.of(params[k])
    made = graph.inline(given)
    for k, axes in outs.items():
        made[k] = apply("transpose", made[k], axes=axes)
    return rewrite(Graph(params, made, graph.name), _straightened)


def _straightened(node: Node) -> Node | None:
    """An operation on what is transposed as one on the array itself, as NumPy does it: in the order of memory."""
    if not node.inputs or not isinstance(node.aval, Aval):
        return None
    base = node.inputs[0]
    if base.op == "transpose" and node.op == "store":
        axes = base.attrs["axes"]
        chain = (("transpose", axes), *node.attrs["chain"])
        stored = apply("store", base.inputs[0], *node.inputs[1:], **{**node.attrs, "chain": chain})
        return apply("transpose", stored, axes=axes)
    if base.op == "transpose" and node.op == "transpose":
        return _viewed(base, node)
    if base.op == "transpose" and node.op == "load":
        return _sliced(node, base.inputs[0], base.attrs["axes"])
    if base.op == "transpose" and node.op in _REDUCTIONS:
        return _reduced(node, base.inputs[0], base.attrs["axes"])
    full = [source for source in node.inputs if isinstance(source.aval, Aval) and source.shape == node.shape]
    own = {source: source.attrs["axes"] for source in full if source.op == "transpose"}
    axes = _axes_of(node, own)
    if axes is None:
        return None
    inputs = [source.inputs[0] if source in own else _turned_round(source, axes) for source in node.inputs]
    return apply("transpose", apply(node.op, *inputs, **node.attrs), axes=axes)


def _sliced(node: Node, whole: Node, axes: Axes) -> Node | None:
    """Slices of a transposed array."""
    chain = node.attrs["chain"]
    if len(chain) != 1 or not _slices(chain[0]):
        return None
    turned = (_turned_slices(chain[0], axes),)
    return apply("transpose", apply("load", whole, *node.inputs[1:], chain=turned), axes=axes)


_REDUCTIONS = frozenset(("sum", "prod", "max", "min", "any", "all"))


def _reduced(node: Node, whole: Node, axes: Axes) -> Node:
    """A reduction of a transposed array."""
    gone = axes_of(len(axes), node.attrs["axis"])
    attrs = {**node.attrs, "axis": None if node.attrs["axis"] is None else tuple(sorted(axes[k] for k in gone))}
    found = apply(node.op, whole, **attrs)
    if node.attrs["keepdims"]:
        return apply("transpose", found, axes=axes)
    left = [axis for k, axis in enumerate(axes) if k not in gone]
    return _exchanged(found, tuple(sorted(left).index(axis) for axis in left))


def _turned_round(source: Node, axes: Axes) -> Node:
    """A smaller operand as it is before the axes are exchanged."""
    shape = _before(source, axes)
    assert shape is not None
    return apply("reshape", source, shape=shape) if source.ndim else source


def turn_first(graph: Graph) -> Graph:
    """The graph with large results that are brought into C order turned before the operations that make them."""
    if not any(node.op == "contiguous" for node in graph.nodes):
        return graph
    users, outs = users_of(graph), set(graph.outs)

    def alone(node: Node) -> bool:
        return node not in outs and len(set(users[node])) == 1

    def before(node: Node, view: Node) -> Node | None:
        """A view of operations as operations on views."""
        if not (node.record.elementwise and node.is_static and alone(node)) or "dims" in node.attrs:
            return None
        if any(source.shape not in (node.shape, ()) for source in node.inputs):
            return None
        turned = []
        for source in node.inputs:
            made = before(source, view) if source.shape else source
            turned.append(_viewed(source, view) if made is None else made)
        return apply(node.op, *turned, **node.attrs)

    def rule(node: Node) -> Node | None:
        if node.op != "contiguous" or not node.is_static or node.size < LEAST_ELEMENTS:
            return None
        view = node.inputs[0]
        if view.op not in ("transpose", "flip") or not alone(view):
            return None
        made = before(view.inputs[0], view)
        return None if made is None else apply("contiguous", made)

    found = {node: made for node in graph.nodes if (made := rule(node)) is not None}
    makers = {node: (lambda new, made=made: made) for node, made in found.items()}
    return rewrite(graph, lambda node: None, makers) if makers else graph


def _viewed(source: Node, view: Node) -> Node:
    """The same view of another array, of which two exchanges of axes are one."""
    if view.op != "transpose" or source.op != "transpose":
        return apply(view.op, source, **view.attrs)
    return _exchanged(source.inputs[0], tuple(source.attrs["axes"][axis] for axis in view.attrs["axes"]))


def _exchanged(value: Node, axes: Axes) -> Node:
    """A value with its axes in this order."""
    return value if axes == tuple(range(len(axes))) else apply("transpose", value, axes=axes)


def _turned(graph: Graph) -> dict[Node, Axes]:
    """The transposes of a graph, and the operations that may be done before them, each with its axes."""
    users, outs = users_of(graph), set(graph.outs)
    axes: dict[Node, Axes] = {}
    for node in graph.nodes:
        found = _exchange(node) or _axes_of(node, axes)
        if found is not None:
            axes[node] = found
    while True:
        lost = [
            node for node in axes
            if _exchange(node) is None and not (
                all(user in axes or user.op == "transpose" or _writes_across(user, axes) for user in users[node])
                and all(source in axes for source in node.inputs if source.shape == node.shape)
                and (users[node] or node in outs)
            )
        ]  # fmt: skip
        if not lost:
            return axes
        for node in lost:
            del axes[node]


def _axes_of(node: Node, axes: Mapping[Node, Axes]) -> Axes | None:
    """Those by which all operands of the node's shape are transposed; None where others are among them."""
    if not isinstance(node.aval, Aval) or not node.is_static or not node.record.elementwise or not node.inputs:
        return None
    if node.ndim < 2 or node.size < LEAST_ELEMENTS or "dims" in node.attrs:
        return None
    if not all(isinstance(source.aval, Aval) and source.is_static for source in node.inputs):
        return None
    full = {axes.get(source) for source in node.inputs if source.shape == node.shape}
    found = next(iter(full)) if len(full) == 1 else None
    if found is None or any(_before(source, found) is None for source in node.inputs if source.shape != node.shape):
        return None
    return found


def _before(source: Node, axes: Axes) -> Axes | None:
    """The shape that a smaller operand has before the axes are exchanged; None where its elements would be, too."""
    if source.ndim > len(axes):
        return None
    padded = (1,) * (len(axes) - source.ndim) + source.shape
    moving = [axis for axis, extent in zip(axes, padded, strict=True) if extent != 1]
    shape = [1] * len(axes)
    for axis, extent in zip(axes, padded, strict=True):
        shape[axis] = extent
    return tuple(shape) if moving == sorted(moving) else None


def _maker(node: Node, axes: Mapping[Node, Axes], straight: dict[Node, Node]) -> Maker:
    own = axes[node]

    def make(new: Mapping[Node, Node]) -> Node:
        inputs = []
        for source in node.inputs:
            if source.shape != node.shape:
                inputs.append(_turned_round(new[source], own))
            elif source in straight:
                inputs.append(straight[source])
            else:
                inputs.append(_before_transpose(new[source], own))
        straight[node] = apply(node.op, *inputs, **node.attrs)
        return apply("transpose", straight[node], axes=own)

    return make


def _before_transpose(value: Node, axes: Axes) -> Node:
    """What the axes are exchanged of. Where that undid another exchange, the value is no transpose any more."""
    if _exchange(value) != axes:
        return apply("transpose", value, axes=undone(axes))
    return _unexchanged(value)


def _view(node: Node, before: Axes, straight: Mapping[Node, Node]) -> Maker:
    """A transpose of a transposed value."""

    def make(new: Mapping[Node, Node]) -> Node:
        return _exchanged(straight[node.inputs[0]], tuple(before[axis] for axis in node.attrs["axes"]))

    return make
