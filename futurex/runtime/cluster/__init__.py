"""The cluster runtime: Dask owns workers, placement and failure detection; localities run their plans themselves."""

from futurex.runtime.cluster.cluster import Cluster
from futurex.runtime.cluster.errors import ClusterUnreachable, LocalityLost, TooFewWorkers
from futurex.runtime.cluster.tiles import Tiled

__all__ = ["Cluster", "ClusterUnreachable", "LocalityLost", "Tiled", "TooFewWorkers"]
