"""A virtual mesh: all ranks of a mesh in one process and one thread, in lock step, with the reference kernels.

Every rank is a generator that runs to its next communication and yields what it sends. Results are deterministic, so
partitioned programs are tested here first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.ops.comm import COMMUNICATION, REDUCTIONS, communications
from futurex.partition.data_parallel import partition
from futurex.partition.mesh import Mesh, PartitionError, Placement, local_part
from futurex.tree.graph import Graph, evaluate, topological
from futurex.tree.node import Node


@dataclass(frozen=True, slots=True)
class Sent:
    """What a rank brings to a communication."""

    node: Node
    arrays: tuple[Any, ...]


_OWN = ("rank", "codec")  # attributes in which ranks differ
Rank = Generator[Sent, Any, list[Any]]


def run(
    graph: Graph, placements: Sequence[Placement], mesh: Mesh, args: Sequence[Any],
    out_placements: Sequence[Placement] | None = None,
) -> list[list[Any]]:  # fmt: skip
    """Partition a graph for all ranks of a mesh, share out whole ``args``, and return the outputs of every rank.

    Raises PartitionError where the graph cannot be partitioned so.
    """
    graphs = [partition(graph, placements, mesh, rank, out_placements) for rank in range(mesh.size)]
    shares = [
        [local_part(array, placement, mesh.size, rank) for array, placement in zip(args, placements, strict=True)]
        for rank in range(mesh.size)
    ]
    return run_ranks(graphs, shares)


def run_ranks(graphs: Sequence[Graph], args: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Run the graphs of all ranks on their local arrays and return the outputs of every rank.

    Raises PartitionError where ranks disagree on what to exchange next.
    """
    ranks = [_steps(graph, arrays) for graph, arrays in zip(graphs, args, strict=True)]
    results: list[list[Any]] = [[] for _ in ranks]
    replies: list[Any] = [None] * len(ranks)
    while True:
        sent: list[Sent] = []
        for rank, steps in enumerate(ranks):
            try:
                sent.append(steps.send(replies[rank]))
            except StopIteration as end:
                results[rank] = end.value
        if not sent:
            return results
        if len(sent) != len(ranks):
            raise PartitionError(
                f"{len(ranks) - len(sent)} of {len(ranks)} ranks ended while others wait at {sent[0].node!r}"
            )
        replies = exchange(sent)


def _steps(graph: Graph, args: Sequence[Any]) -> Rank:
    if len(args) != len(graph.params):
        raise TypeError(f"{graph.name} takes {len(graph.params)} arrays, got {len(args)}")
    values: dict[Node, Any] = dict(zip(graph.params, args, strict=True))
    for node in topological((*communications(graph), *graph.outs), graph.params):
        if node in values:
            continue
        inputs = [values[source] for source in node.inputs]
        values[node] = (yield Sent(node, tuple(inputs))) if node.op in COMMUNICATION else evaluate(node, inputs)
    return [values[node] for node in graph.outs]


def exchange(sent: Sequence[Sent]) -> list[Any]:
    """The results of one communication for all ranks; reductions go in rank order."""
    calls = {
        (each.node.op, tuple(sorted((name, value) for name, value in each.node.attrs.items() if name not in _OWN)))
        for each in sent
    }
    if len(calls) != 1:
        raise PartitionError(f"ranks disagree on the next communication: {[each.node for each in sent]}")
    node = sent[0].node
    if node.op == "all_gather":
        columns = zip(*(each.arrays for each in sent), strict=True)
        joined = [np.concatenate(parts, axis) for parts, axis in zip(columns, node.attrs["axes"], strict=True)]
        return [tuple(joined)] * len(sent)
    if node.op in _MOVES:
        return _MOVES[node.op](node, [each.arrays[0] for each in sent])
    combine = REDUCTIONS[node.attrs["reduce"]]
    total = tuple(functools.reduce(combine, parts) for parts in zip(*(each.arrays for each in sent), strict=True))
    if node.op == "reduce_scatter":
        each_axis = zip(total, node.attrs["axes"], node.attrs["sizes"], strict=True)
        return list(zip(*(np.split(x, np.cumsum(sizes)[:-1], axis) for x, axis, sizes in each_axis), strict=True))
    return [total] * len(sent)


def _permuted(node: Node, arrays: Sequence[Any]) -> list[Any]:
    sources = {target: source for source, target in node.attrs["pairs"]}
    return [arrays[sources[rank]] if rank in sources else np.zeros_like(arrays[rank]) for rank in range(len(arrays))]


def _exchanged(node: Node, arrays: Sequence[Any]) -> list[Any]:
    blocks = [np.split(array, len(arrays)) for array in arrays]
    return [np.concatenate([theirs[rank] for theirs in blocks]) for rank in range(len(arrays))]


_MOVES: dict[str, Callable[[Node, Sequence[Any]], list[Any]]] = {
    "broadcast": lambda node, arrays: [arrays[node.attrs["root"]]] * len(arrays),
    "permute": _permuted,
    "all_to_all": _exchanged,
}
