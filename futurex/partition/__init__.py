"""Partitioning: the graph that each rank of a mesh runs, derived from the tiling rules in the op records."""

from futurex.ops.comm import COMMUNICATION, communications
from futurex.partition.data_parallel import Communication, explain, partition
from futurex.partition.mesh import (
    Mesh,
    Partial,
    PartitionError,
    Placement,
    Replicate,
    Shard,
    local_part,
    tile_sizes,
)

__all__ = [
    "COMMUNICATION", "Communication", "Mesh", "Partial", "PartitionError", "Placement", "Replicate", "Shard",
    "communications", "explain", "local_part", "partition", "tile_sizes",
]  # fmt: skip
