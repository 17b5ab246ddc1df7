"""From a graph with global shapes to the graph of one rank, and what the ranks then exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from futurex.ops.comm import communications
from futurex.partition.buckets import BUCKET, FIRST_BUCKET, bucket
from futurex.partition.lower import lower
from futurex.partition.mesh import Mesh, PartitionError, Placement
from futurex.partition.propagate import tile
from futurex.tree.graph import Graph


def partition(
    graph: Graph,
    placements: Sequence[Placement],
    mesh: Mesh,
    rank: int,
    out_placements: Sequence[Placement] | None = None,
    *,
    first_bucket: int = FIRST_BUCKET,
    bucket_bytes: int = BUCKET,
) -> Graph:
    """The part of a program that one rank of a mesh runs: local shapes, and communication nodes.

    ``graph`` has global shapes and is already differentiated; ``placements`` says how each of its inputs lies.
    Outputs are replicated unless ``out_placements`` asks for shards. Results equal those of ``graph`` up to the order
    of summation. Raises PartitionError for placements that do not fit.

    >>> import numpy as np
    >>> from futurex.partition import Mesh, Shard, communications
    >>> from futurex.tree import Aval, Graph, apply, param
    >>> x = param(Aval((8, 3), np.dtype(float)), "x")
    >>> total = Graph([x], [apply("sum", x, axis=None, keepdims=False, dtype=None)])
    >>> part = partition(total, [Shard(0)], Mesh((("data", 4),)), rank=0)
    >>> part.params[0].shape, [node.op for node in communications(part)]
    ((2, 3), ['all_reduce'])
    """
    if len(mesh.axes) != 1:
        names = ", ".join(name for name, _ in mesh.axes)
        raise PartitionError(f"a program is partitioned along one mesh axis, this mesh has {names}; use one of them")
    if not 0 <= rank < mesh.size:
        raise ValueError(f"rank must lie in 0 to {mesh.size - 1} on a mesh of {mesh.size} localities, not {rank}")
    tiling = tile(graph, placements, out_placements)
    if mesh.size == 1:
        return graph
    return bucket(lower(tiling, mesh.size, rank), first_bucket, bucket_bytes)


@dataclass(frozen=True)
class Communication:
    """One exchange of a rank's graph: how much every rank ends up with, and for which lines of the user's."""

    tag: int
    op: str
    arrays: int
    nbytes: int
    lines: tuple[str, ...]

    def __str__(self) -> str:
        arrays = f"{self.arrays} array{'s' if self.arrays != 1 else ''}"
        return f"{self.tag}: {self.op} of {arrays}, {self.nbytes} bytes, for {', '.join(self.lines) or 'unknown lines'}"


def explain(graph: Graph) -> list[Communication]:
    """What a rank's graph exchanges, in the order in which it starts."""
    found = []
    for node in communications(graph):
        results = node.aval if isinstance(node.aval, tuple) else (node.aval,)
        sources = (source.src for source in node.inputs)
        lines = dict.fromkeys(str(src) for src in sources if src is not None and src.line)
        nbytes = sum(aval.nbytes for aval in results)
        found.append(Communication(node.attrs["tag"], node.op, len(results), nbytes, tuple(lines)))
    return found
