"""The blocks of an array that is put together of parts: for each a graph of what lies in it, and the views it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from futurex.ops.joined import Index, are_columns
from futurex.ops.strides import LEAST_ROW, is_scattered, step_of
from futurex.ops.views import Step, box
from futurex.passes.fold import constant
from futurex.passes.fuse import MOST_ARRAYS, MOST_NODES, is_number
from futurex.passes.simplify import scalar_of, simplified
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph, topological
from futurex.tree.node import Node, apply, const, param

MOST_COLUMNS = 8
"""Columns that are written together, side by side in registers."""
Bounds = tuple[tuple[int, int], ...]
"""For each axis the first element of a block, and the one behind the last."""
Place = tuple[tuple[int, int] | int, ...]
"""The same, or the one element of an axis that a block does not have."""


def slice_of(node: Node) -> Bounds | None:
    """Where a slice of neighbours lies in the array that it is one of; None for other nodes."""
    if node.op != "load" or len(node.inputs) != 1 or not node.is_static or not node.inputs[0].is_static:
        return None
    base = node.inputs[0]
    bounds = box(base.shape, node.attrs["chain"])
    return tuple(bounds) if bounds is not None and node.ndim == base.ndim else None


def parts_of(node: Node) -> list[tuple[Node, int]]:
    """The parts of a concatenation that are not empty, and where each begins."""
    axis, start, found = node.attrs["axis"], 0, []
    for part in node.inputs:
        if part.size:
            found.append((part, start))
        start += part.shape[axis]
    return found


def stored_slice(node: Node) -> Bounds | None:
    """Where a node writes, or adds, an array over neighbours of another one of its dtype; None for other nodes."""
    if node.op != "store" or len(node.inputs) != 2 or not node.is_static:
        return None
    base, value = node.inputs
    bounds = box(base.shape, node.attrs["chain"])
    if bounds is None or value.dtype != base.dtype or value.shape != tuple(last - first for first, last in bounds):
        return None
    return tuple(bounds)


def has_columns(join: Node) -> bool:
    """Is it a concatenation of parts of a few columns?"""
    return join.op == "concatenate" and join.attrs["axis"] == join.ndim - 1 and 1 < join.shape[-1] <= MOST_COLUMNS


def as_part(part: Node, join: Node) -> Node:
    """A part in the dtype of the join."""
    return part if part.dtype == join.dtype else apply("cast", part, dtype=join.dtype)


def fill_of(pad: Node) -> Node | None:
    """The number around what is padded, as the array holds it; None where it is not known, or NumPy would complain."""
    held = scalar_of(pad.inputs[1])
    if held is None:
        return None
    return constant(apply("full", const(held), shape=(), dtype=pad.dtype), [held])


class Blocks:
    """The graphs of an array's blocks, with the views that they read. ``absorbed``: is a node computed in them?"""

    def __init__(self, absorbed: Callable[[Node], bool]) -> None:
        self.absorbed = absorbed
        self.params: dict[tuple[Node, Place], Node] = {}
        self.outs: list[Node] = []
        self.indices: list[Index] = []
        self.made: dict[tuple[Node, Bounds], Node] = {}

    def add(self, root: Node, bounds: Bounds) -> bool:
        """One more block; False where none can be made."""
        index: list[tuple[int | str | None, ...]] = [("s", low, high, None) for low, high in bounds]
        node, inner = self._part_of(root, bounds) if root.op == "concatenate" else (root, bounds)
        dropped, last = dropped_axes(node), root.ndim - 1
        if has_columns(root):
            if dropped == [last]:
                node, inner = node.inputs[0], inner[:-1]
            if len(inner) == last or not self.absorbed(node):
                return self._add_columns(root, node, inner, bounds)
        elif last in dropped and root.shape[-1] > 1:
            return False  # its elements lie apart in the result
        if dropped and node.dtype == root.dtype and self.absorbed(node.inputs[0]):
            node, inner = node.inputs[0], tuple(each for k, each in enumerate(inner) if k not in dropped)
            index = [("i", each[1]) if k in dropped else each for k, each in enumerate(index)]
        value = self._value(node, inner) if node is not root else self._computed(root, bounds)
        return self._append(root, value, tuple(index))

    def _append(self, root: Node, value: Node, index: Index) -> bool:
        if value.dtype != root.dtype:
            value = apply("cast", value, dtype=root.dtype)
        self.outs.append(value)
        self.indices.append(index)
        inside = _inside_of(value)
        arrays = [each for each in inside if not each.inputs and not is_number(each)]
        return len(inside) <= MOST_NODES and len(arrays) <= MOST_ARRAYS

    def _add_columns(self, root: Node, node: Node, inner: Bounds, bounds: Bounds) -> bool:
        """The columns of a part that is one, without the axis, or is read."""
        rows = tuple(("s", low, high, None) for low, high in bounds[:-1])
        if len(inner) < root.ndim:
            return self._append(root, self._value(node, inner), (*rows, ("i", bounds[-1][0])))
        shift = inner[-1][0] - bounds[-1][0]
        return all(
            self._append(root, self._read(node, (*inner[:-1], place + shift)), (*rows, ("i", place)))
            for place in range(*bounds[-1])
        )

    def _value(self, node: Node, bounds: Bounds) -> Node:
        """A node's elements in these bounds, in which it is not cut."""
        if (node, bounds) not in self.made:
            inside = self.absorbed(node)
            self.made[node, bounds] = self._computed(node, bounds) if inside else self._read(node, bounds)
        return self.made[node, bounds]

    def _computed(self, node: Node, bounds: Bounds) -> Node:
        if node.op == "load":
            starts = slice_of(node)
            assert starts is not None
            return self._value(node.inputs[0], _shifted(bounds, [low for low, _ in starts]))
        if node.op == "concatenate":
            return as_part(self._value(*self._part_of(node, bounds)), node)
        if node.op == "store":
            base, value = node.inputs
            starts = stored_slice(node)
            assert starts is not None
            if not all(low <= first < high for (low, high), (first, _) in zip(starts, bounds, strict=True)):
                return self._value(base, bounds)
            written = self._value(value, _shifted(bounds, [-low for low, _ in starts]))
            return written if node.attrs["mode"] == "set" else self._value(base, bounds) + written
        if node.op == "pad":
            inner, low = node.inputs[0], [-low for low, _ in node.attrs["widths"]]
            moved = _shifted(bounds, low)
            if all(first >= 0 and last <= extent for (first, last), extent in zip(moved, inner.shape, strict=True)):
                return self._value(inner, moved)
            fill = fill_of(node)
            assert fill is not None
            return apply("broadcast_to", fill, shape=tuple(last - first for first, last in bounds))
        operands = [self._value(source, _of_operand(source, bounds)) for source in node.inputs]
        return apply(node.op, *operands, **node.attrs)

    def _part_of(self, node: Node, bounds: Bounds) -> tuple[Node, Bounds]:
        """The part of a concatenation in which a block lies, and where."""
        axis = node.attrs["axis"]
        part, start = next(each for each in reversed(parts_of(node)) if each[1] <= bounds[axis][0])
        return part, _shifted(bounds, [-start if k == axis else 0 for k in range(node.ndim)])

    def _read(self, node: Node, bounds: Place) -> Node:
        """A parameter of the graph, or a number."""
        shape = tuple(each[1] - each[0] for each in bounds if isinstance(each, tuple))
        if node.op == "const" and not node.shape:
            return node
        value = scalar_of(node) if node.op == "full" else None
        if value is not None:
            return apply("broadcast_to", const(value), shape=shape)
        if (node, bounds) not in self.params:
            self.params[node, bounds] = param(Aval(shape, node.dtype, node.aval.weak), f"a{len(self.params)}")
        return self.params[node, bounds]

    def pays(self, root: Node) -> bool:
        """Are rows long enough, on the whole, and is there anything to compute or to copy?"""
        if are_columns(root.shape, self.indices):
            return True
        sources = {inner: view_of(*key) for key, inner in self.params.items()}
        rows = 0
        for value, index in zip(self.outs, self.indices, strict=True):
            read = [sources[each] for each in _inside_of(value) if each in sources]
            copied = all(not each.inputs or each.op == "cast" for each in _inside_of(value))
            if copied and any(is_scattered(each, 1) and step_of(each) is None for each in read):
                return False  # NumPy copies those once
            gaps = any(step_of(each, 1) is not None for each in read)
            length = _neighbours(root.shape, value.shape, index)
            rows += value.size // (min(length, value.shape[-1]) if gaps else length)
        return rows * LEAST_ROW <= root.size

    def make(self, root: Node, new: Mapping[Node, Node]) -> Node:
        """The node that writes all blocks."""
        inputs = [view_of(new.get(node, node), bounds) for node, bounds in self.params]
        graph = Graph(list(self.params.values()), self.outs)
        names = dict.fromkeys(node.op for node in graph.nodes if node.inputs and node.op != "broadcast_to")
        graph.name = "_".join(("join", *names))
        return apply("fused_join", *inputs, graph=graph, blocks=tuple(self.indices), shape=root.shape)


def _inside_of(value: Node) -> list[Node]:
    return list(topological((value,)))


def _neighbours(shape: Sequence[int], block: Sequence[int], index: Index) -> int:
    """How many elements of a block follow each other in an array of this shape."""
    count = 1
    for extent, entry in zip(reversed(shape), reversed(index), strict=True):
        own = 1 if entry[0] == "i" else entry[2] - entry[1]
        count *= own
        if own < extent:
            break
    return count


def dropped_axes(node: Node) -> list[int]:
    """The axes of one element that a view puts between those of its operand; none for other nodes."""
    if node.op not in ("reshape", "load") or len(node.inputs) != 1:
        return []
    if not (node.is_static and node.inputs[0].is_static):
        return []
    if node.op == "load" and not all(_adds_axes(step) for step in node.attrs["chain"]):
        return []
    own, found = list(node.inputs[0].shape), []
    for axis, extent in enumerate(node.shape):
        if own and own[0] == extent:
            own.pop(0)
        elif extent == 1:
            found.append(axis)
        else:
            return []
    return [] if own else found


def _adds_axes(step: Step) -> bool:
    """Does a step of a view leave all elements where they are, beside new axes?"""
    return step[0] == "index" and all(entry in (("n",), ("s", None, None, None)) for entry in step[1])


def _shifted(bounds: Bounds, by: Sequence[int]) -> Bounds:
    return tuple((first + far, last + far) for (first, last), far in zip(bounds, by, strict=True))


def _of_operand(source: Node, bounds: Bounds) -> Bounds:
    """What a block of a result reads of an operand that is broadcast."""
    own = bounds[len(bounds) - source.ndim :]
    return tuple((0, 1) if extent == 1 else each for each, extent in zip(own, source.shape, strict=True))


def view_of(node: Node, bounds: Place) -> Node:
    """The block of a node as a view of it; itself where that is all of it."""
    if all((0, extent) == each for each, extent in zip(bounds, node.shape, strict=True)):
        return node
    index = tuple(("s", *each, None) if isinstance(each, tuple) else ("i", each) for each in bounds)
    made = apply("load", node, chain=(("index", index),))
    other = simplified(made)
    return made if other is None else other
