"""Results made where they are wanted: in the row of an array that a round stores, in their part of a concatenation.

Without it a round writes such a result twice: once when it is computed, once when it is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from futurex.kernels.loops import arrays, values
from futurex.kernels.loops.arrays import Array
from futurex.kernels.loops.support import Unsupported
from futurex.tree.graph import Graph
from futurex.tree.node import Node

if TYPE_CHECKING:
    from futurex.kernels.loops.emit import Emitter

_INT = np.dtype(np.int64)
VIEWS = frozenset(("load", "reshape", "transpose", "broadcast_to", "flip", "stop_gradient", "after", "contiguous"))
"""What may share memory with its first input."""
_PRODUCERS = frozenset(("fused", "matmul", "concatenate"))


@dataclass(frozen=True)
class Destination:
    """A ``store``, or the operand of a ``concatenate`` with this number."""

    node: Node
    operand: int = 0


Wanted = Mapping[tuple[Node, int], Destination]
"""For a node and the number of a result: where it goes."""


Users = Mapping[Node, Sequence[Node]]


def wanted(graph: Graph, users: Users, consumer: Mapping[Node, Node]) -> Wanted:
    """Where results may be made; ``consumer``: by whom an array is overwritten.

    A row goes into an array that nobody reads once it is made (:func:`before`), and only its store reads it where
    what is stored is overwritten itself.
    """
    found: dict[tuple[Node, int], Destination] = {}
    for node in graph.nodes:
        if node.op == "store" and node.attrs["mode"] == "set":
            base, value = node.inputs[:2]
            stays = node not in consumer or (len(users[value]) == 1 and value not in graph.outs)
            if consumer.get(base) is node and stays and node.inputs.count(base) == 1:
                _offer(found, value, Destination(node))
    for node in graph.nodes:
        if (node, 0) in found and node.op == "concatenate" and node not in consumer:
            for k, value in enumerate(node.inputs):
                if node.inputs.count(value) == 1 and value.dtype == node.dtype:
                    _offer(found, value, Destination(node, k))
    return found


def _offer(found: dict[tuple[Node, int], Destination], value: Node, destination: Destination) -> None:
    if is_made(value):
        producer, number = (value.inputs[0], value.attrs["index"]) if value.op == "item" else (value, 0)
        found.setdefault((producer, number), destination)


def is_made(value: Node) -> bool:
    """Is it a result that can be made in any place?"""
    producer = value.inputs[0] if value.op == "item" else value
    return producer.op in _PRODUCERS or (bool(producer.inputs) and producer.record.elementwise)


def destined(found: Wanted, producer: Node) -> dict[int, Node]:
    """The stores into whose arrays results of a producer go, by their numbers."""
    stores = {}
    for number in range(_count(producer)):
        where = found.get((producer, number))
        while where is not None and where.node.op != "store":
            where = found.get((where.node, 0))
        if where is not None:
            stores[number] = where.node
    return stores


def before(users: Users, store: Node, producer: Node) -> set[Node] | None:
    """What must have run before a producer writes where ``store`` would: what says where that is, and all that reads
    what stood in the array. None where the producer reads it itself, but for the very elements that it writes."""
    base = store.inputs[0]
    needed, shown = {base, *store.inputs[2:]}, [base]
    while shown:
        source = shown.pop()
        for user in users.get(source, ()):
            if user is producer:
                if not is_in_place(store, producer, source):
                    return None
            elif user is not store:
                needed.add(user)
                if user.op in VIEWS or user.op == "item":
                    shown.append(user)
    return needed


def is_in_place(store: Node, producer: Node, source: Node) -> bool:
    """Is what a producer reads the elements that ``store`` overwrites, each of them for its own place only?"""
    base, value, *where = store.inputs
    if value is not producer and (value.op != "item" or value.inputs[0] is not producer):
        return False
    if source.aval != value.aval or producer.op in ("matmul", "concatenate"):
        return False
    chain = store.attrs["chain"]
    if source is base:
        return is_whole_chain(chain)
    return source.op == "load" and list(source.inputs) == [base, *where] and source.attrs["chain"] == chain


def is_whole_chain(chain: Sequence[Any]) -> bool:
    """Is it all of an array?"""
    return len(chain) == 1 and chain[0][0] == "index" and all(
        entry[0] == "s" and entry[1:] == (None, None, None) for entry in chain[0][1]
    )  # fmt: skip


WHOLE = (("index", (("s", None, None, None),)),)
"""The chain that shows all of an array."""


class Delivery:
    """The destinations of one graph while its code is emitted."""

    def __init__(self, e: Emitter, env: Mapping[Node, Any], found: Wanted) -> None:
        self._e, self._env, self._found = e, env, found
        self._opened: dict[Node, Array | None] = {}
        self._targets: dict[int, Array] = {}
        self._arrived: set[Destination] = set()

    def target(self, number: int, shape: Sequence[Any], dtype: np.dtype[Any]) -> Array | None:
        """Memory for a result of the node that is being emitted, if such a one is wanted somewhere."""
        target = self._targets.get(number)
        return target if target is not None and target.shape == tuple(shape) and target.dtype == dtype else None

    def begin(self, node: Node) -> None:
        """The node is about to be emitted."""
        results = ((k, self._found.get((node, k))) for k in range(_count(node)))
        opened = {k: self._open(where) for k, where in results if where is not None}
        self._targets = {k: target for k, target in opened.items() if target is not None}

    def end(self, node: Node, value: Any) -> None:
        """It has been emitted, with this result."""
        results = value if isinstance(value, list) else [value]
        self._arrived |= {self._found[node, k] for k, target in self._targets.items() if results[k] is target}
        self._targets = {}

    def has(self, node: Node, operand: int = 0) -> bool:
        """Does what a node wants lie there already?"""
        return Destination(node, operand) in self._arrived

    def whole(self, node: Node) -> Array | None:
        """Where the parts of a concatenation are put that come before it."""
        return self._opened.get(node)

    def _open(self, where: Destination) -> Array | None:
        node = where.node
        if node not in self._opened:
            self._opened[node] = self._row(node) if node.op == "store" else self._open(self._found[node, 0])
        whole = self._opened[node]
        if whole is None or node.op == "store":
            return whole
        axis = node.attrs["axis"] % node.ndim
        extents = [source.shape[axis] for source in node.inputs]
        if len(whole.shape) != node.ndim or whole.shape[axis] != sum(extents) or whole.dtype != node.dtype:
            return None
        shape = (*whole.shape[:axis], extents[where.operand], *whole.shape[axis + 1 :])
        before = sum(extents[: where.operand]) * whole.strides[axis]
        return replace(whole, shape=shape, offset=arrays.plus(self._e.function, whole.offset, str(before)))

    def _row(self, node: Node) -> Array | None:
        base, places = self._env[node.inputs[0]], [self._env.get(source) for source in node.inputs[2:]]
        if not isinstance(base, Array) or not base.owned:
            return None
        known = [
            self._e.scalar(self._e.constant(source) if value is None else value)
            for source, value in zip(node.inputs[2:], places, strict=True)
        ]
        try:
            where = [values.converted(self._e.function, value, _INT) for value in known]
            return arrays.viewed(self._e.function, base, node.attrs["chain"], where)
        except Unsupported:
            return None


def _count(node: Node) -> int:
    return len(node.aval) if isinstance(node.aval, tuple) else 1
