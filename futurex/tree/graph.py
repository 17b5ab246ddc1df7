"""Graphs: closed sets of nodes with inputs and outputs, a deterministic order and a hash that is the same
everywhere."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from futurex.tree.aval import Aval, Literal
from futurex.tree.dims import Dim, Symbol, dims_in, limited, new_symbol, renamed, replaced, same
from futurex.tree.node import Node, build, dim_of, symbols_of
from futurex.tree.record import record
from futurex.tree.source import Source


class Graph:
    """``outs`` as a function of ``params``.

    ``nodes`` lists every node once, inputs before users. ``hash`` depends on structure, attributes and abstract values
    alone: equal on every process and machine, so it keys caches and names uploads. Calls of the user's Python, which
    run in their own process alone, are told apart by the functions that they call there.
    """

    __slots__ = ("_acts", "_gone", "_hash", "_nodes", "name", "outs", "params")

    def __init__(self, params: Iterable[Node], outs: Iterable[Node], name: str = "graph") -> None:
        self.params = tuple(params)
        self.outs = tuple(outs)
        self.name = name
        self._nodes: tuple[Node, ...] | None = None
        self._acts: bool | None = None
        self._gone: dict[Node, tuple[Node | None, list[Node]]] | None = None
        self._hash: str | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        if self._nodes is None:
            self._nodes = topological(self.outs, self.params)
        return self._nodes

    @property
    def acts(self) -> bool:
        """Does it do what others see: print, or call Python?"""
        if self._acts is None:
            self._acts = any(node.acts for node in self.nodes)
        return self._acts

    @property
    def hash(self) -> str:
        """Hex digest of the structure."""
        if self._hash is None:
            self._hash = hashlib.sha256(_canonical(self)).hexdigest()[:32]
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Graph) and self.hash == other.hash)

    def __hash__(self) -> int:
        """Of what equal graphs have in common whatever nodes they hold twice: most are never compared with any."""
        return hash((len(self.params), len(self.outs), frozenset([node.op for node in self.nodes])))

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
        results = self.run_until(_never, arrays)
        assert results is not None
        return results

    def run_until(self, over: Callable[[], bool], arrays: Sequence[Any]) -> list[Any] | None:
        """What a call returns; None if it was ``over()`` before the last of its operations.

        Values are let go when nothing reads them any more, and ufuncs write over them: memory that was never used
        before costs more than NumPy.
        """
        values: dict[Node, Any] = dict(zip(self.params, arrays, strict=True))
        gone = self._last_read()
        for node in self.nodes:
            if node in values:
                continue
            if over():
                return None
            inputs, (room, last) = [values[source] for source in node.inputs], gone.get(node, _NOTHING)
            if room is not None and type(values[room]) is np.ndarray:
                values[node] = node.record.kernel(*inputs, out=values[room])
            else:
                values[node] = evaluate(node, inputs)
            del inputs
            for source in last:
                del values[source]
        return [values[node] for node in self.outs]

    def room(self) -> int:
        """The most bytes at once in arrays that a call makes, results among them."""
        gone, most, alive = self._last_read(), 0, 0
        for node in self.nodes:
            room, last = gone.get(node, _NOTHING)
            alive += _made(node) if room is None else _made(room)
            most = max(most, alive if room is None else alive - _made(room))
            alive -= sum(map(_made, last))
        return most

    def _last_read(self) -> dict[Node, tuple[Node | None, list[Node]]]:
        """What each node is the last one to read, and of that what it may write over."""
        if self._gone is None:
            last = {source: node for node in self.nodes for source in node.inputs}
            held = {source for node in self.nodes if not _is_ufunc(node) for source in node.inputs}
            held.update(self.outs)  # and what may return a view of an operand
            dying: dict[Node, list[Node]] = {}
            for source in last.keys() - set(self.outs):
                dying.setdefault(last[source], []).append(source)
            self._gone = {}
            for node, sources in dying.items():
                fits = (each for each in sources if each.aval == node.aval and _is_ufunc(each) and each not in held)
                self._gone[node] = next(fits, None) if _is_ufunc(node) else None, sources
        return self._gone

    def inline(self, inputs: Sequence[Node]) -> list[Node]:
        """The outputs rebuilt on other inputs: a graph used as a macro."""
        known = dict(zip(self.params, inputs, strict=True))
        if not symbol_names(self):
            return substitute(self, known)
        return substitute(self, known, _Renaming(self, inputs))

    def dot(self) -> str:
        """Graphviz source, one box per node, the user's line as tooltip."""
        from futurex.tree.printer import dot

        return dot(self)

    def newick(self) -> str:
        """Newick text of the tree; a node used twice is written at its first use and named again afterwards."""
        from futurex.tree.printer import newick

        return newick(self)

    def csv(self, counters: Mapping[Node, tuple[int, int]] | None = None) -> str:
        """One row per node, in the columns that Traveler reads; ``counters`` maps nodes to calls and nanoseconds."""
        from futurex.tree.printer import csv

        return csv(self, counters or {})

    def to_json(self) -> str:
        """Nodes and edges as JSON."""
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


_NOTHING: tuple[None, tuple[Node, ...]] = (None, ())


def _never() -> bool:
    return False


def _made(node: Node) -> int:
    """Bytes of the arrays that a node makes, as far as they are known."""
    if node.op in ("param", "const", "item") or node.record.view is not None:
        return 0
    avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
    return sum(each.nbytes for each in avals if isinstance(each, Aval) and each.static)


def _is_ufunc(node: Node) -> bool:
    """Is it always a new array, which NumPy can write elsewhere, too?"""
    return isinstance(node.record.kernel, np.ufunc) and isinstance(node.aval, Aval) and not node.attrs


def same_lines(one: Graph, other: Graph) -> bool:
    """Are two graphs equal, and their nodes from the same lines? Their plans then raise the same errors, too.

    Attributes with one text may name two classes or functions, of which one was bound anew: they are compared
    themselves. A view that cannot fail has no line of its own: it is made where it is written, or where its elements
    are read.
    """
    lines = [[node.src for node in graph.nodes if not _is_silent(node)] for graph in (one, other)]
    if one != other or lines[0] != lines[1]:
        return False
    inner = [[value for node in graph.nodes for value in node.attrs.values()] for graph in (one, other)]
    return all(
        same_lines(a, b) if isinstance(a, Graph) else not hasattr(a, "__stable__") or a == b
        for a, b in zip(*inner, strict=True)
    )


def _is_silent(node: Node) -> bool:
    known = node.record.view is not None and len(node.inputs) == 1 and node.is_static
    return node.op == "param" or (known and not node.record.may_fail(node))


def evaluate(node: Node, inputs: Sequence[Any]) -> Any:
    """One node by its reference kernel; a weak result becomes a Python scalar again."""
    result = node.record.run(inputs, node.attrs)
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


class _Renaming:
    """Rebuilds nodes with dimensions of their own: a graph that is used twice has other extents each time."""

    def __init__(self, graph: Graph, inputs: Sequence[Node]) -> None:
        self.known: dict[Symbol, Any] = {}
        for node, given in zip(graph.params, inputs, strict=True):
            for mine, theirs in zip(node.shape, given.shape, strict=True):
                if isinstance(mine, Dim) and mine.symbol is not None:
                    self.known.setdefault(mine.symbol, theirs)
                elif isinstance(mine, Dim) and same(mine, theirs):
                    self.known.update((symbol, Dim.of(symbol)) for symbol in mine.symbols)
        scalars = dict(zip(graph.params, inputs, strict=True))
        for node in graph.nodes:
            for symbol, (source, axis) in symbols_of(node):
                if axis is None and source in scalars:
                    self.known.setdefault(symbol, dim_of(scalars[source]))
        names = symbol_names(graph)
        self._shown = names.keys() | self.known
        for symbol in names:
            self._settle(symbol)

    def _settle(self, symbol: Symbol) -> None:
        """The smaller or larger one of two is so of those with their new names: operations infer it so."""
        if symbol in self.known:
            return
        if symbol.bound is None or not symbol.bound[1].symbols <= self._shown:
            self.known[symbol] = Dim.of(new_symbol(symbol.low))
            return
        name, extent, limit = symbol.bound
        for each in extent.symbols:
            self._settle(each)
        self.known[symbol] = limited(name, renamed(extent, self.known), limit)

    def __call__(self, node: Node, inputs: list[Node]) -> Node:
        def of(dim: Dim) -> Any:
            return renamed(dim, self.known)

        def extent_of(extent: Any) -> Any:
            return of(extent) if isinstance(extent, Dim) else extent

        avals = [each.with_extents(extent_of) for each in (node.aval if isinstance(node.aval, tuple) else (node.aval,))]
        attrs = {name: replaced(value, of) for name, value in node.attrs.items()}
        sizes = attrs.get("dims")
        if sizes is not None:  # those that are known now are no longer inputs
            count = len(inputs) - len(sizes)
            open_ = {dim: source for dim, source in zip(sizes, inputs[count:], strict=True) if isinstance(dim, Dim)}
            inputs = [*inputs[:count], *open_.values()]
            attrs = {**attrs, "dims": tuple(open_)} if open_ else {k: v for k, v in attrs.items() if k != "dims"}
        aval = tuple(avals) if isinstance(node.aval, tuple) else avals[0]
        return build(record(node.op), tuple(inputs), attrs, aval, node.src)


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
    names = symbol_names(graph)
    lines = [f"params {[(node.aval.text(names), node.aval.weak) for node in graph.params]}".encode()]
    found: dict[bytes, int] = {}  # equal nodes may stand in a graph twice; where it is unpickled they are one
    for node in graph.nodes:
        if node in position:
            continue
        inputs = [position[source] for source in node.inputs]
        attrs = ",".join(f"{name}={stable(value, names)}" for name, value in sorted(node.attrs.items()))
        avals = node.aval if isinstance(node.aval, tuple) else (node.aval,)
        aval = f"{isinstance(node.aval, tuple)}({', '.join(each.text(names) for each in avals)})"
        line = f"{node.op} {inputs} {attrs} {aval}".encode()
        position[node] = len(graph.params) + len(lines) - 1
        if not (node.record.effect or node.acts):
            position[node] = found.setdefault(line, position[node])
        if position[node] == len(graph.params) + len(lines) - 1:
            lines.append(line)
    lines.append(f"outs {[position[node] for node in graph.outs]}".encode())
    return b"\n".join(lines)


def symbol_names(graph: Graph) -> dict[Symbol, str]:
    """Names for the symbols of a graph, numbered as they appear: the same in every process."""
    names: dict[Symbol, str] = {}
    for node in graph.nodes:
        for aval in node.aval if isinstance(node.aval, tuple) else (node.aval,):
            for dim in dims_in(aval.extents):
                for key, _ in dim.terms:
                    for symbol in key:
                        names.setdefault(symbol, f"n{len(names)}")
    return names


def stable(value: Any, names: dict[Symbol, str] | None = None) -> str:
    """A text of an attribute value that does not depend on process, machine or hash seed."""
    if isinstance(value, Graph):
        return f"graph:{value.hash}"
    if isinstance(value, Literal):
        return f"literal:{value.digest.hex()}"
    if isinstance(value, tuple):
        return f"({','.join(stable(entry, names) for entry in value)})"
    if isinstance(value, Dim):
        return f"dim:{value.text(names or {})}"
    if isinstance(value, np.dtype):
        return f"dtype:{value.str}"
    if isinstance(value, type):
        return f"type:{value.__module__}.{value.__qualname__}"
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return f"{type(value).__name__}:{value!r}"
    if hasattr(value, "__stable__"):
        return str(value.__stable__())
    raise TypeError(f"{value!r} of type {type(value).__name__} cannot be an attribute of a node: it has no stable text")
