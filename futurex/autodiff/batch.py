"""``vmap``: a graph of one example as a graph of many, their axis in front.

An op goes over to many examples by the first way that serves: numbers align (elementwise ops); its own ``batch`` rule;
its factor rule shows that another axis passes through once ``axis`` is moved, or that the examples may be laid along an
axis that it tiles; else a ``scan`` runs it example by example, which the notes tell.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from futurex.autodiff.reverse import stand_ins
from futurex.ops.batching import NotBatchable, everywhere, spread, to_front, widened
from futurex.ops.random import COUNTER_OPS
from futurex.ops.tapes import Batched, Tape, element
from futurex.partition.factors import Recipe, recipe_of
from futurex.partition.mesh import PartitionError
from futurex.tree.aval import Aval
from futurex.tree.dims import Symbol, UnknownDimension, dims_in
from futurex.tree.graph import Graph, rebuilt
from futurex.tree.node import Node, apply, build, dimensions_of, item, param
from futurex.tree.record import plain_attrs, without_sizes
from futurex.tree.source import at

REFUSED = (TypeError, ValueError, IndexError, AttributeError, KeyError, PartitionError)
"""What inference raises for inputs that an op does not take."""


def vmap(
    graph: Graph, size: int, batched: Sequence[bool], force: Iterable[int] = (), notes: list[str] | None = None
) -> tuple[Graph, list[bool]]:
    """The graph of ``size`` examples, and which of its outputs have their axis (those numbered ``force`` do).

    Inputs with ``batched`` have the axis in front; others are the same for all examples. ``notes`` takes a line for
    every op that runs example by example.
    """
    params = [
        param(Aval((size, *node.shape), node.dtype), node.attrs["name"]) if has else node
        for node, has in zip(graph.params, batched, strict=True)
    ]
    starts = {old: Batched(new, has) for old, new, has in zip(graph.params, params, batched, strict=True)}
    walk = _Walk(size, starts, [] if notes is None else notes, _parts_read(graph))
    with dimensions_of(params):
        for node in graph.nodes:
            with at(node.src):
                walk.visit(node)
        forced = set(force)
        found = [walk.values[node] for node in graph.outs]
        outs = [spread(size, x.node) if k in forced and not x.batched else x.node for k, x in enumerate(found)]
    flags = [x.batched or k in forced for k, x in enumerate(found)]
    return Graph(params, outs, f"{graph.name}_vmap"), flags


def _parts_read(graph: Graph) -> dict[Node, set[int]]:
    """Which results of operations with several are asked for."""
    read: dict[Node, set[int]] = {}
    for node in graph.nodes:
        if node.op == "item":
            read.setdefault(node.inputs[0], set()).add(node.attrs["index"])
    return read


class _Walk:
    def __init__(
        self, size: int, starts: dict[Node, Any], notes: list[str], parts_read: dict[Node, set[int]]
    ) -> None:
        self.parts_read = parts_read
        self.size = size
        self.values: dict[Node, Any] = starts
        self.notes = notes
        self.shared: set[Symbol] = set()  # extents that are the same for all examples
        for start in starts.values():
            self._share(start.node)

    def _share(self, node: Node) -> None:
        avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
        self.shared |= {symbol for aval in avals for dim in dims_in(aval.extents) for symbol in dim.symbols}

    def _inner(self, graph: Graph, batched: Sequence[bool], force: Iterable[int] = ()) -> tuple[Graph, list[bool]]:
        return vmap(graph, self.size, batched, force, self.notes)

    def visit(self, node: Node) -> None:
        """Find the value of a node for all examples."""
        if node in self.values:
            return
        if node.op == "item":
            self.values[node] = self._item(node)
            return
        inputs: list[Batched] = [self.values[source] for source in node.inputs]
        if not any(x.batched for x in inputs):
            made = rebuilt(node, [x.node for x in inputs]) if node.inputs else node
            self.values[node] = Batched(made, False)
            self._share(made)
        elif node.record.batch is not None and (node.record.structured or isinstance(inputs[0].node.aval, Tape)):
            self.values[node] = node.record.batch(self.size, inputs, vmap=self._inner, **node.attrs)
        elif node.record.effect:
            self.values[node] = _effect(node, inputs)
        else:
            self.values[node] = self._pure(node, inputs)

    def _item(self, node: Node) -> Batched:
        whole, index = self.values[node.inputs[0]], node.attrs["index"]
        return whole[index] if isinstance(whole, list) else Batched(item(whole.node, index), whole.batched)

    def _pure(self, node: Node, inputs: list[Batched]) -> Any:
        nodes, batched = [x.node for x in inputs], [x.batched for x in inputs]
        avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
        symbols = {symbol for aval in avals for dim in dims_in(aval.extents) for symbol in dim.symbols}
        if not symbols <= self.shared or any(aval.dtype == object for aval in avals):
            wanted = sorted(self.parts_read.get(node, ()))
            if wanted and all(avals[k].static and avals[k].dtype != object for k in wanted):
                return self._example_by_example(node, nodes, batched, wanted)
            raise NotBatchable(f"the size of what {node.op} makes depends on the example{_place(node)}")
        if symbols or "dims" in node.attrs:
            return self._of_shared_size(node, nodes, batched)
        for way in (_elementwise, _by_rule, _by_axis, _by_tiling, self._by_decomposition):
            made = way(self.size, node, nodes, batched)
            if made is not NotImplemented and _fits(made, node, self.size):
                break
        else:
            if any(has and not x.aval.static for x, has in zip(nodes, batched, strict=True)):
                raise NotBatchable(f"{node.op} of a size that only the run knows{_place(node)}")
            return self._example_by_example(node, nodes, batched, range(len(avals)))
        if not isinstance(node.aval, tuple):
            return Batched(made, True)
        return [Batched(each, True) for each in made]

    def _example_by_example(self, node: Node, nodes: list[Node], batched: list[bool], wanted: Sequence[int]) -> Any:
        """The results that are wanted of a node; others may be of a size that depends on the example."""
        self.notes.append(f"vmap runs {node.attrs.get('call', node.op)} example by example")
        made = dict(zip(wanted, _one_by_one(self.size, node, nodes, batched, wanted), strict=True))
        found = {k: Batched(each, True) for k, each in made.items()}
        return [found.get(k) for k in range(len(node.aval))] if isinstance(node.aval, tuple) else found[0]

    def _of_shared_size(self, node: Node, nodes: list[Node], batched: list[bool]) -> Any:
        """A node of which an extent is known by the run alone, and the same for all examples."""
        inputs, has = list(without_sizes(nodes, node.attrs)), list(without_sizes(batched, node.attrs))
        with contextlib.suppress(UnknownDimension):
            for way in (_elementwise, _by_rule, _by_axis):
                made = way(self.size, node, inputs, has) if any(has) else NotImplemented
                if made is not NotImplemented and _fits(made, node, self.size):
                    several = isinstance(node.aval, tuple)
                    return [Batched(each, True) for each in made] if several else Batched(made, True)
        raise NotBatchable(f"{node.op} of a size that only the run knows{_place(node)}")

    def _by_decomposition(self, size: int, node: Node, nodes: list[Node], batched: list[bool]) -> Any:
        if node.record.decompose is None:
            return NotImplemented
        own, params, _ = stand_ins(node)
        result = node.record.decompose(*own, **node.attrs)
        outs = list(result) if isinstance(result, tuple) else [result]
        kept = [k for k, x in enumerate(own) if x.op == "param"]
        if any(batched[k] for k in range(len(own)) if k not in kept):
            return NotImplemented
        inner, _ = self._inner(Graph(params, outs, node.op), [batched[k] for k in kept], range(len(outs)))
        made = inner.inline([nodes[k] for k in kept])
        return made if isinstance(node.aval, tuple) else made[0]


def _fits(made: Any, node: Node, size: int) -> bool:
    outs, avals = (made, node.aval) if isinstance(node.aval, tuple) else ([made], [node.aval])
    return all(out.aval == Aval((size, *aval.shape), aval.dtype) for out, aval in zip(outs, avals, strict=True))


def _parts(made: Node) -> Any:
    return [item(made, k) for k in range(len(made.aval))] if isinstance(made.aval, tuple) else made


def _place(node: Node) -> str:
    return f" at {node.src}: {node.src.text()}" if node.src else ""


def _effect(node: Node, inputs: list[Batched]) -> Batched:
    """A check of all examples at once; what prints would print them together."""
    if node.op != "check":
        raise NotBatchable(f"{node.op} in a function that is mapped{_place(node)}")
    ok, *before = inputs
    passed = apply("all", ok.node, axis=None, keepdims=False) if ok.batched else ok.node
    return Batched(build(node.record, (passed, *(x.node for x in before)), node.attrs, node.aval, node.src), False)


_OF_SCALARS = {"scalar_power": "power", "scalar_multiply": "multiply", "scalar_divide": "divide"}
"""What these are for arrays."""


def _elementwise(size: int, node: Node, inputs: list[Node], batched: list[bool]) -> Any:
    if not (node.record.elementwise or node.record.factors == "elementwise" or node.op in _OF_SCALARS):
        return NotImplemented
    first = node.aval[0] if isinstance(node.aval, tuple) else node.aval
    common = _common_dtype(node)
    ready = []
    for x, has, source in zip(inputs, batched, node.inputs, strict=True):
        if has and source.aval.weak and common is not None and x.dtype != common:
            x = apply("cast", x, dtype=common)
        ready.append(widened(x, first.ndim) if has else x)
    try:
        made = apply(_OF_SCALARS.get(node.op, node.op), *ready, **node.attrs)
    except REFUSED:
        return NotImplemented
    if isinstance(made.aval, tuple):
        return _parts(made)
    return apply("cast", made, dtype=node.dtype) if made.aval.weak else made


def _common_dtype(node: Node) -> Any:
    """The dtype that NumPy gives Python numbers among the operands."""
    operands = node.inputs[1:] if node.op == "where" else node.inputs
    strong = [source.dtype for source in operands if not source.aval.weak]
    weak = [source.dtype.type(0).item() for source in operands if source.aval.weak]
    return np.result_type(*strong, *weak) if strong and weak else None


def _by_rule(size: int, node: Node, inputs: list[Node], batched: list[bool]) -> Any:
    if node.record.batch is None:
        return NotImplemented
    made = node.record.batch(size, batched, *inputs, **plain_attrs(node.attrs))
    return _parts(made) if isinstance(made, Node) else made


def _by_axis(size: int, node: Node, inputs: list[Node], batched: list[bool]) -> Any:
    """Move ``axis`` behind the examples, if the op's factor rule then lets them pass through."""
    if node.record.factors is None or "axis" not in node.attrs or not inputs:
        return NotImplemented
    axis = node.attrs["axis"]
    if axis is None:
        moved: Any = tuple(range(1, node.inputs[0].ndim + 1))
    elif isinstance(axis, tuple):
        moved = tuple(k + 1 if k >= 0 else k for k in axis)
    else:
        moved = axis + 1 if axis >= 0 else axis
    attrs = {**plain_attrs(node.attrs), "axis": moved}
    if node.record.shape_attr:
        attrs[node.record.shape_attr] = (size, *attrs[node.record.shape_attr])
    try:
        made = apply(node.op, *everywhere(size, batched, inputs), **attrs)
        recipe = recipe_of(made)
    except REFUSED:
        return NotImplemented
    terms = (*recipe.inputs, *recipe.outs) if recipe is not None else ((),)
    names = {term[0] if term else "1" for term in terms}
    if recipe is None or len(names) != 1 or not recipe.shardable(*names):
        return NotImplemented
    return _parts(made)


def _by_tiling(size: int, node: Node, inputs: list[Node], batched: list[bool]) -> Any:
    """Lay the examples along an axis that the op works through in tiles of any size."""
    if node.op in COUNTER_OPS or any(isinstance(value, Graph) for value in node.attrs.values()):
        return NotImplemented
    try:
        recipe = recipe_of(node)
        name = None if recipe is None else _tiled_name(recipe, batched)
        if recipe is None or name is None:
            return NotImplemented
        ready = [
            _laid(x if has else spread(size, x), term.index(name)) if name in term else x
            for x, has, term in zip(inputs, batched, recipe.inputs, strict=True)
        ]
        attrs = dict(node.attrs)
        if node.record.shape_attr:
            shape, place = list(attrs[node.record.shape_attr]), recipe.outs[0].index(name)
            attrs[node.record.shape_attr] = (*shape[:place], size * shape[place], *shape[place + 1 :])
        made = apply(node.op, *ready, **attrs)
    except REFUSED:
        return NotImplemented
    outs = _parts(made)
    if isinstance(outs, list):
        return [_taken_up(size, out, term.index(name)) for out, term in zip(outs, recipe.outs, strict=True)]
    return _taken_up(size, outs, recipe.outs[0].index(name))


def _tiled_name(recipe: Recipe, batched: Sequence[bool]) -> str | None:
    needed = [term for term, has in zip(recipe.inputs, batched, strict=True) if has] + list(recipe.outs)
    names = [name for name in needed[0] if recipe.shardable(name)]
    return next((name for name in names if all(term.count(name) == 1 for term in needed)), None)


def _laid(x: Node, place: int) -> Node:
    """The examples, in front, laid one after another along dimension ``place`` of one of them."""
    order = (*range(1, place + 1), 0, *range(place + 1, x.ndim))
    moved = apply("transpose", x, axes=order) if place else x
    shape = (*moved.shape[:place], moved.shape[place] * moved.shape[place + 1], *moved.shape[place + 2 :])
    return apply("reshape", moved, shape=shape)


def _taken_up(size: int, x: Node, place: int) -> Node:
    if size == 0:
        shape: tuple[int, ...] = (*x.shape[:place], 0, *x.shape[place:])
    else:
        shape = (*x.shape[:place], size, x.shape[place] // size, *x.shape[place + 1 :])
    return to_front(apply("reshape", x, shape=shape), place)


def _one_by_one(
    size: int, node: Node, inputs: list[Node], batched: list[bool], wanted: Sequence[int]
) -> list[Node]:
    """A scan over the examples, for some of the node's results."""
    own = [
        param(element(x.aval) if has else x.aval, "x") for x, has in zip(inputs, batched, strict=True)
    ]
    exact = [_weak_again(x, source) for x, source in zip(own, node.inputs, strict=True)]
    made = build(node.record, tuple(exact), node.attrs, node.aval, node.src)
    outs = _parts(made)
    outs = [outs[k] for k in wanted] if isinstance(outs, list) else [outs]
    plain = [apply("cast", out, dtype=out.dtype) if out.aval.weak else out for out in outs]
    order = [k for k, has in enumerate(batched) if has] + [k for k, has in enumerate(batched) if not has]
    body = Graph([own[k] for k in order], plain, node.op)
    result = apply(
        "scan", *(inputs[k] for k in order), body=body, n_carry=0, n_xs=sum(batched), length=size, reverse=False,
        tape=(),
    )  # fmt: skip
    return [item(result, k) for k in range(len(outs))]


def _weak_again(x: Node, source: Node) -> Node:
    return apply("python_scalar", x, kind=x.dtype.kind) if source.aval.weak and not x.aval.weak else x


