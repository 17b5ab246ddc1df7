"""Propagation: where every value of a graph lies, for given placements of its inputs. The same on every rank.

One pass forward in topological order decides how each node works (:mod:`futurex.partition.rules`); one pass backward
lets cheap replicated nodes (constants, masks, random numbers) make just the tiles that their readers want. Where a
reader needs another placement than its input has, values are exchanged; the exchanges are numbered in the order in
which they become possible, which is equal on all ranks and compatible with the data flow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from futurex.partition.indexing import by_rows
from futurex.partition.mesh import REPLICATE, SUM, Partial, PartitionError, Placement, Replicate, Shard, check_placement
from futurex.partition.rules import Demands, Made, must_decompose, scales, sliced, step, whole
from futurex.tree.graph import Graph, rebuilt, substitute
from futurex.tree.node import Node
from futurex.tree.source import at


@dataclass(frozen=True)
class Tiling:
    """A graph with the placement of every value.

    ``made`` says how a node's own result lies; ``versions`` maps a node to the placements it is computed in and, for
    each, the placements that its inputs must have; ``tags`` numbers the values that ranks exchange. Of those in
    ``scattered``, which are partial, every rank needs its shard alone.
    """

    graph: Graph
    outs: tuple[Placement, ...]
    made: dict[Node, Made]
    versions: dict[Node, dict[Made, Demands]]
    tags: dict[Node, int]
    scattered: dict[Node, Shard]


def tile(graph: Graph, placements: Sequence[Placement], outs: Sequence[Placement] | None = None) -> Tiling:
    """Propagate the placements of the inputs; outputs are replicated unless ``outs`` says otherwise.

    Ops that need a sharded dimension whole are replaced by their decomposition where they have one. Raises
    PartitionError for placements that do not fit and for tiling rules that contradict their op.
    """
    _check_ends(graph, placements, outs)
    graph = by_rows(graph)
    wanted_outs = tuple(outs) if outs is not None else (REPLICATE,) * len(graph.outs)
    flow = _flow(graph, placements, wanted_outs)
    while flow.decompose:
        graph = _decomposed(graph, flow.decompose)
        flow = _flow(graph, placements, wanted_outs)
    versions, wanted = _versions(graph, flow, wanted_outs)
    tags = _number(graph, flow, versions, wanted)
    return Tiling(graph, wanted_outs, flow.made, versions, tags, _scattered(flow, versions, wanted, tags))


def _check_ends(graph: Graph, placements: Sequence[Placement], outs: Sequence[Placement] | None) -> None:
    if len(placements) != len(graph.params):
        raise PartitionError(f"{graph.name} has {len(graph.params)} inputs; got {len(placements)} placements of them")
    if outs is not None and len(outs) != len(graph.outs):
        raise PartitionError(f"{graph.name} has {len(graph.outs)} outputs; got {len(outs)} placements of them")
    for node, placement in zip(graph.params, placements, strict=True):
        check_placement(placement, node.shape, f"input {node.attrs['name']!r} of {graph.name}")
    for k, placement in enumerate(outs or ()):
        if isinstance(placement, Partial) and placement.reduce != "sum":
            raise PartitionError(
                f"output {k} of {graph.name} can stay a partial sum, not {placement}: ask for Partial('sum'), "
                "Replicate() or Shard(dim)"
            )
        check_placement(placement, graph.outs[k].shape, f"output {k} of {graph.name}")


@dataclass
class _Flow:
    """What the forward pass finds."""

    made: dict[Node, Made] = field(default_factory=dict)
    demands: dict[Node, Demands] = field(default_factory=dict)
    decompose: set[Node] = field(default_factory=set)
    uses: Counter[Node] = field(default_factory=Counter)

    def seen(self, node: Node) -> Placement:
        """How readers see a value. A partial one with several readers is combined once, for all of them."""
        made = self.made[node]
        assert not isinstance(made, tuple)  # results of several are read through ``item``
        return REPLICATE if isinstance(made, Partial) and self.uses[node] > 1 else made


def _flow(graph: Graph, placements: Sequence[Placement], outs: Sequence[Placement]) -> _Flow:
    flow = _Flow()
    flow.uses.update(source for node in graph.nodes for source in node.inputs)
    flow.uses.update(graph.outs)
    terms = _terms(graph, outs, flow.uses)
    flow.made.update(zip(graph.params, placements, strict=True))
    flow.demands.update((node, ()) for node in graph.params)
    for node in graph.nodes:
        if node in flow.made:
            continue
        if node.op == "item":
            parts = flow.made[node.inputs[0]]
            assert isinstance(parts, tuple)
            flow.demands[node], flow.made[node] = (), parts[node.attrs["index"]]
            continue
        ins = [flow.seen(source) for source in node.inputs]
        if must_decompose(node, ins):
            flow.decompose.add(node)
        if all(isinstance(placement, Replicate) for placement in ins):
            flow.demands[node], flow.made[node] = whole(node)
        elif node in terms and all(placement in (SUM, REPLICATE) for placement in ins):
            flow.demands[node], flow.made[node] = (SUM,) * len(ins), SUM
        else:
            flow.demands[node], flow.made[node] = step(node, ins)
    return flow


def _terms(graph: Graph, outs: Sequence[Placement], uses: Counter[Node]) -> set[Node]:
    """The additions whose results only ever become terms of outputs that stay partial sums.

    They need no exchange where one operand is replicated: that one counts on one rank alone.
    """
    found: set[Node] = set()
    pending = [node for node, placement in zip(graph.outs, outs, strict=True) if placement == SUM]
    while pending:
        node = pending.pop()
        if uses[node] > 1 or node.dtype.kind not in "iufc" or node.aval.weak:
            continue
        if node.op == "add" and all(source.aval == node.aval for source in node.inputs):
            found.add(node)
            pending += node.inputs
        else:
            pending += [source for source in node.inputs if scales(node, [source])]
    return found


def _decomposed(graph: Graph, nodes: set[Node]) -> Graph:
    parts: dict[Node, tuple[Node, ...]] = {}

    def rebuild(node: Node, inputs: list[Node]) -> Node:
        if node in nodes:
            with at(node.src):
                result = node.record.decompose(*inputs, **node.attrs)  # type: ignore[misc]
            parts[node] = result if isinstance(result, tuple) else (result,)
            return parts[node][0]
        if node.op == "item" and node.inputs[0] in nodes:
            return parts[node.inputs[0]][node.attrs["index"]]
        return rebuilt(node, inputs)

    return Graph(graph.params, substitute(graph, {node: node for node in graph.params}, rebuild), graph.name)


def _versions(
    graph: Graph, flow: _Flow, outs: Sequence[Placement]
) -> tuple[dict[Node, dict[Made, Demands]], dict[Node, dict[Placement, None]]]:
    """Backward: which placements of each value are wanted, and in which of them it is computed."""
    wanted: dict[Node, dict[Placement, None]] = {node: {} for node in graph.nodes}
    versions: dict[Node, dict[Made, Demands]] = {}
    for node, placement in zip(graph.outs, outs, strict=True):
        wanted[node][placement] = None
    for node in reversed(graph.nodes):
        versions[node] = _tiles_wanted(node, flow, wanted[node]) or {flow.made[node]: flow.demands[node]}
        if node.op == "item":
            continue
        for demands in versions[node].values():
            for source, placement in zip(node.inputs, demands, strict=True):
                wanted[source][placement] = None
    return versions, wanted


def _tiles_wanted(node: Node, flow: _Flow, wanted: dict[Placement, None]) -> dict[Made, Demands] | None:
    """The wanted tiles of a replicated node that can make them at less cost than the whole."""
    if not isinstance(flow.made[node], Replicate) or not wanted:
        return None
    tiles: dict[Made, Demands] = {}
    for placement in wanted:
        demands = sliced(node, placement)
        if demands is None:
            return None
        tiles[placement] = demands
    return tiles


def _number(
    graph: Graph, flow: _Flow, versions: dict[Node, dict[Made, Demands]], wanted: dict[Node, dict[Placement, None]]
) -> dict[Node, int]:
    """Tags of the exchanged values, by how many steps must be done before each can be exchanged."""
    level: dict[tuple[Node, Made], int] = {}
    exchanged: list[tuple[int, Node]] = []
    for node in graph.nodes:
        for made, demands in versions[node].items():
            pairs = (
                [(node.inputs[0], flow.made[node.inputs[0]])]
                if node.op == "item"
                else zip(node.inputs, demands, strict=True)
            )
            level[node, made] = 1 + max((level[pair] for pair in pairs), default=0)
        ready = max(level[node, made] for made in versions[node])
        others = [placement for placement in wanted[node] if placement not in versions[node]]
        if others and moves(flow.made[node]):
            exchanged.append((ready, node))
        for placement in others:
            level[node, placement] = ready + 2  # exchanged, then cut
    exchanged.sort(key=lambda pair: pair[0])
    return {node: tag for tag, (_, node) in enumerate(exchanged)}


def _scattered(
    flow: _Flow, versions: dict[Node, dict[Made, Demands]], wanted: dict[Node, dict[Placement, None]],
    exchanged: Iterable[Node],
) -> dict[Node, Shard]:  # fmt: skip
    found = {}
    for node in exchanged:
        others = [placement for placement in wanted[node] if placement not in versions[node]]
        if isinstance(flow.made[node], Partial) and len(others) == 1 and isinstance(others[0], Shard):
            found[node] = others[0]
    return found


def moves(made: Made) -> bool:
    """True where another placement than ``made`` needs what other ranks hold."""
    return isinstance(made, Shard | Partial)
