"""Arrays that are put together of parts, as the gradients of slices are: what would be added to zeros is written in
their place, and zeros of which none is left are never written.

Columns that are written one by one, each the last time for good, as ``np.cross`` does, are put side by side.

Sums with zero are those of the program to the bit: what is written is the value and zero, which turns -0.0 into 0.0,
as one more operation of the region that makes it. Products in single precision, whose last bits are their own, and
which are no -0.0 unless they are below the smallest number, are written as they are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from futurex.ops.views import Chain, box
from futurex.passes.blocks import MOST_COLUMNS
from futurex.passes.fuse import LARGE_ELEMENTS
from futurex.passes.joins import LEAST_COLUMNS
from futurex.passes.rewrite import rewrite, users_of
from futurex.passes.simplify import scalar_of
from futurex.tree.aval import Aval
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, const

Bounds = list[tuple[int, int]]


def assemble(graph: Graph) -> Graph:
    """The graph with such arrays written part by part."""
    graph = _forwarded(graph)
    users = users_of(graph)
    makers: dict[Node, Callable[[Mapping[Node, Node]], Node]] = {}
    for zeros in graph.nodes:
        if zeros.op != "full" or not zeros.is_static or zeros.size < LEAST_COLUMNS or not _is_zero(zeros):
            continue
        for first in dict.fromkeys(users[zeros]):
            every = list(_stores(zeros, first, users, graph, again=True))
            columns = {_bounds(store): store for store in every}
            if 1 < zeros.shape[-1] <= MOST_COLUMNS and set(columns) == _all_columns(zeros.shape):
                parts = [columns[each] for each in sorted(columns)]
                makers[every[-1]] = functools.partial(_side_by_side, parts)
            if zeros.size < LARGE_ELEMENTS or every[-1:] == list(makers)[-1:]:
                continue
            stores = list(_stores(zeros, first, users, graph))
            covered = sum(map(_count, stores)) == zeros.size
            if covered or any(store.inputs[1].size >= LARGE_ELEMENTS for store in stores):
                base = functools.partial(_room, len(makers)) if covered else _full
                makers |= {store: functools.partial(_written, store, None) for store in stores}
                makers[stores[0]] = functools.partial(_written, stores[0], base)
                makers[stores[-1]] = functools.partial(_reshaped, makers[stores[-1]], zeros)
    return rewrite(graph, lambda node: None, makers) if makers else graph


def _forwarded(graph: Graph) -> Graph:
    """The graph in which elementwise operations read what was written to a view of an array, or filled it before that
    was written to elsewhere, in its place. Others may add up what lies apart in another order."""
    users, outs = users_of(graph), set(graph.outs)
    makers: dict[Node, Callable[[Mapping[Node, Node]], Node]] = {}
    for node in graph.nodes:
        if node.op == "load" and node not in outs and all(user.record.elementwise for user in users[node]):
            found = _written_there(node)
            if found is not None:
                makers[node] = functools.partial(_instead, node, found)
    return rewrite(graph, lambda node: None, makers) if makers else graph


def _written_there(node: Node) -> Node | None:
    """What was written to a view that is read, or the filled array that has only been written to elsewhere."""
    base, chain = node.inputs[0], node.attrs["chain"]
    own = box(base.shape, chain) if node.is_static and base.is_static and len(node.inputs) == 1 else None
    while own is not None and base.op == "store" and len(base.inputs) == 2:
        (before, value), written = base.inputs, base.attrs["chain"]
        if written == chain and base.attrs["mode"] == "set":
            return value if value.aval == node.aval else None
        others = box(base.shape, written)
        if others is None or _meet(own, others):
            return None
        base = before
    return base if own is not None and base.op == "full" and not base.inputs[0].shape else None


def _instead(node: Node, found: Node, new: Mapping[Node, Node]) -> Node:
    if found.op == "full":
        return apply("full", new[found.inputs[0]], shape=node.shape, dtype=node.dtype)
    return new[found]


def product_of(value: Node) -> Node | None:
    """The product in single precision whose axes come in another order, or which it is."""
    while value.op == "transpose":
        value = value.inputs[0]
    return value if value.op == "matmul" and value.dtype == np.float32 and value.ndim > 1 else None


def _is_zero(node: Node) -> bool:
    value = scalar_of(node)
    return value is not None and not value and not np.signbit(np.real(value)) and not np.signbit(np.imag(value))


def _stores(
    zeros: Node, node: Node, users: Mapping[Node, list[Node]], graph: Graph, *, again: bool = False
) -> Iterator[Node]:
    """The stores into zeros one after the other, from this one on, as long as none meets what is written already and
    nobody else reads the array between them, or what is computed for them. ``again``: others may read that, and the
    same part may be written again."""
    base, before, space = zeros, list[Bounds](), None
    while node.op == "store" and node.inputs[0] is base and len(node.inputs) == 2:
        value, (shape, chain) = node.inputs[1], _apart(node)
        bounds = box(shape, chain)
        if bounds is None or space not in (None, shape) or not isinstance(value.aval, Aval) or not value.is_static:
            return
        wide = node.attrs["mode"] == "set" or value.size == _count(node)  # what is set may be broadcast
        whole = wide and value.dtype == base.dtype
        alone = not value.inputs or (users[value] == [node] and value not in graph.outs)
        others = [each for each in before if not again or each != bounds or node.attrs["mode"] != "set"]
        if not (whole and (alone or again)) or any(_meet(bounds, each) for each in others):
            return
        yield node
        before.append(bounds)
        space = shape
        if len(users[node]) != 1 or node in graph.outs:
            return
        base, node = node, users[node][0]


def _bounds(store: Node) -> tuple[tuple[int, int], ...]:
    """What one of these stores writes."""
    bounds = box(*_apart(store))
    assert bounds is not None
    return tuple(bounds)


def _count(store: Node) -> int:
    """Elements that one of these stores writes."""
    return math.prod(high - low for low, high in _bounds(store))


def _all_columns(shape: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
    """The bounds of every column of an array."""
    whole = tuple((0, extent) for extent in shape[:-1])
    return {(*whole, (k, k + 1)) for k in range(shape[-1])}


def _side_by_side(stores: Sequence[Node], new: Mapping[Node, Node]) -> Node:
    """The array whose columns these stores write."""
    rows = (*stores[0].shape[:-1], 1)
    values = [_value(store, new) for store in stores]
    parts = [
        apply("reshape", each, shape=rows) if each.size == math.prod(rows) else
        apply("broadcast_to", each if each.ndim == 0 else apply("reshape", each, shape=(*each.shape, 1)), shape=rows)
        for each in values
    ]  # fmt: skip
    return apply("concatenate", *parts, axis=len(rows) - 1)


def _apart(store: Node) -> tuple[tuple[int, ...], Chain]:
    """The shape that the array is given first, and the rest of the chain."""
    chain = store.attrs["chain"]
    return (chain[0][1], chain[1:]) if chain and chain[0][0] == "reshape" else (store.shape, chain)


def _meet(one: Bounds, other: Bounds) -> bool:
    return all(max(a[0], b[0]) < min(a[1], b[1]) for a, b in zip(one, other, strict=True))


def _room(number: int, zeros: Node, shape: tuple[int, ...]) -> Node:
    return apply("room", shape=shape, dtype=zeros.dtype, number=number)


def _full(zeros: Node, shape: tuple[int, ...]) -> Node:
    return apply("full", zeros.inputs[0], shape=shape, dtype=zeros.dtype)


Base = Callable[[Node, tuple[int, ...]], Node]


def _written(store: Node, base: Base | None, new: Mapping[Node, Node]) -> Node:
    """``base``: makes what the first one writes to."""
    before, (shape, chain) = new[store.inputs[0]], _apart(store)
    if base is not None:
        before = base(before, shape)
    return apply("store", before, _value(store, new), chain=chain, mode="set")


def _value(store: Node, new: Mapping[Node, Node]) -> Node:
    """What is written."""
    value = new[store.inputs[1]]
    if store.attrs["mode"] == "add" and value.dtype.kind in "fc" and product_of(value) is None:
        value = apply("add", value, const(np.zeros((), value.dtype)[()]))
    return value


def _reshaped(make: Callable[[Mapping[Node, Node]], Node], zeros: Node, new: Mapping[Node, Node]) -> Node:
    made = make(new)
    return made if made.shape == zeros.shape else apply("reshape", made, shape=zeros.shape)
