"""Graphs: closed sets of nodes with inputs and outputs, a deterministic order and a hash that is the same
everywhere."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from futurex.tree.aval import Aval, Literal
from futurex.tree.node import Node, build
from futurex.tree.record import record
from futurex.tree.source import Source


class Graph:
    """``outs`` as a function of ``params``.

    ``nodes`` lists every node once, inputs before users. ``hash`` depends on structure, attributes and abstract values
    alone: equal on every process and machine, so it keys caches and names uploads.
    """

    __slots__ = ("_hash", "_nodes", "name", "outs", "params")

    def __init__(self, params: Iterable[Node], outs: Iterable[Node], name: str = "graph") -> None:
        self.params = tuple(params)
        self.outs = tuple(outs)
        self.name = name
        self._nodes: tuple[Node, ...] | None = None
        self._hash: str | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        if self._nodes is None:
            self._nodes = topological(self.outs, self.params)
        return self._nodes

    @property
    def hash(self) -> str:
        """Hex digest of the structure."""
        if self._hash is None:
            self._hash = hashlib.sha256(_canonical(self)).hexdigest()[:32]
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self.hash == other.hash

    def __hash__(self) -> int:
        return hash(self.hash)

    def __lt__(self, other: Graph) -> bool:
        return self.hash < other.hash

    def __len__(self) -> int:
        return len(self.nodes)

    def __str__(self) -> str:
        from futurex.tree.printer import python

        return python(self)

    def __repr__(self) -> str:
        return f"Graph({self.name}: {len(self.params)} inputs, {len(self.nodes)} nodes, {len(self.outs)} outputs)"

    def __call__(self, *arrays: Any) -> list[Any]:
        """Run the graph with the NumPy reference kernels: the oracle for every other way to run it."""
        if len(arrays) != len(self.params):
            raise TypeError(f"{self.name} takes {len(self.params)} arrays, got {len(arrays)}")
        values: dict[Node, Any] = dict(zip(self.params, arrays, strict=True))
        for node in self.nodes:
            if node not in values:
                values[node] = evaluate(node, [values[source] for source in node.inputs])
        return [values[node] for node in self.outs]

    def inline(self, inputs: Sequence[Node]) -> list[Node]:
        """The outputs rebuilt on other inputs: a graph used as a macro."""
        return substitute(self, dict(zip(self.params, inputs, strict=True)))

    def dot(self) -> str:
        from futurex.tree.printer import dot

        return dot(self)

    def newick(self) -> str:
        from futurex.tree.printer import newick

        return newick(self)

    def csv(self) -> str:
        from futurex.tree.printer import csv

        return csv(self)

    def to_json(self) -> str:
        from futurex.tree.printer import to_json

        return to_json(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as a flat table, so that depth does not matter and the receiver merges equal nodes again."""
        position = {node: index for index, node in enumerate(self.nodes)}
        rows = [
            (node.op, tuple(position[source] for source in node.inputs), node.attrs, node.aval, node.src)
            for node in self.nodes
        ]
        ends = [position[node] for node in self.params], [position[node] for node in self.outs]
        return _unpickle, (rows, *ends, self.name)


def evaluate(node: Node, inputs: Sequence[Any]) -> Any:
    """One node by its reference kernel; a weak result becomes a Python scalar again."""
    result = node.record.kernel(*inputs, **node.attrs)
    if type(node.aval) is Aval and node.aval.weak and isinstance(result, np.ndarray | np.generic):
        return result.item()
    return result


def topological(outs: Sequence[Node], params: Sequence[Node] = ()) -> tuple[Node, ...]:
    """Every node reachable from ``outs``, inputs first; deterministic, and without recursion."""
    order: list[Node] = []
    seen: set[Node] = set()
    for node in params:
        if node not in seen:
            seen.add(node)
            order.append(node)
    stack: list[tuple[Node, bool]] = [(node, False) for node in reversed(outs)]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            order.append(node)
            continue
        if node in seen:
            continue
        seen.add(node)
        stack.append((node, True))
        stack.extend((source, False) for source in reversed(node.inputs) if source not in seen)
    return tuple(order)


def substitute(
    graph: Graph, known: dict[Node, Node], rebuild: Callable[[Node, list[Node]], Node] | None = None
) -> list[Node]:
    """Outputs of ``graph`` with ``known`` nodes replaced; ``rebuild(node, new_inputs)`` may make another node of each.

    Without ``rebuild`` the abstract values of replacements must equal those replaced.
    """
    rebuild = rebuild or rebuilt
    for node in graph.nodes:
        if node not in known:
            known[node] = rebuild(node, [known[source] for source in node.inputs])
    return [known[node] for node in graph.outs]


def rebuilt(node: Node, inputs: Sequence[Node]) -> Node:
    """The same operation on other inputs (the node itself where they are the same)."""
    inputs = tuple(inputs)
    if inputs == node.inputs:
        return node
    return build(record(node.op), inputs, node.attrs, node.aval, node.src)


def _unpickle(rows: list[Any], params: list[int], outs: list[int], name: str) -> Graph:
    nodes: list[Node] = []
    for op_name, inputs, attrs, aval, src in rows:
        sources = tuple(nodes[index] for index in inputs)
        nodes.append(build(record(op_name), sources, attrs, aval, src or Source("", 0, "")))
    return Graph([nodes[i] for i in params], [nodes[i] for i in outs], name)


def _canonical(graph: Graph) -> bytes:
    position: dict[Node, int] = {node: index for index, node in enumerate(graph.params)}
    lines = [f"params {[(str(node.aval), node.aval.weak) for node in graph.params]}".encode()]
    for node in graph.nodes:
        if node in position:
            continue
        position[node] = len(position)
        inputs = [position[source] for source in node.inputs]
        attrs = ",".join(f"{name}={stable(value)}" for name, value in sorted(node.attrs.items()))
        lines.append(f"{node.op} {inputs} {attrs} {node.aval!r}".encode())
    lines.append(f"outs {[position[node] for node in graph.outs]}".encode())
    return b"\n".join(lines)


def stable(value: Any) -> str:
    """A text of an attribute value that does not depend on process, machine or hash seed."""
    if isinstance(value, Graph):
        return f"graph:{value.hash}"
    if isinstance(value, Literal):
        return f"literal:{value.digest.hex()}"
    if isinstance(value, tuple):
        return f"({','.join(map(stable, value))})"
    if isinstance(value, np.dtype):
        return f"dtype:{value.str}"
    if isinstance(value, type):
        return f"type:{value.__module__}.{value.__qualname__}"
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return f"{type(value).__name__}:{value!r}"
    if hasattr(value, "__stable__"):
        return str(value.__stable__())
    raise TypeError(f"{value!r} of type {type(value).__name__} cannot be an attribute of a node: it has no stable text")
