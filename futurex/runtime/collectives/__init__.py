"""Collective operations between localities, driven by active messages."""

from futurex.runtime.collectives.communicator import Communicator
from futurex.runtime.collectives.exchange import CollectiveError, CollectiveTimeout, Pending
from futurex.runtime.collectives.ring import RingAllReduce
from futurex.runtime.collectives.small import Gather, SmallCollectives

__all__ = [
    "CollectiveError",
    "CollectiveTimeout",
    "Communicator",
    "Gather",
    "Pending",
    "RingAllReduce",
    "SmallCollectives",
]
