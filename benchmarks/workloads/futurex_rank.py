"""One rank of futurex's ring all-reduce."""

from __future__ import annotations

import secrets

import numpy as np

from benchmarks.workloads.group import WAIT_SECONDS, Gather
from futurex.runtime.collectives import RingAllReduce, SmallCollectives
from futurex.runtime.transport import open_endpoint


class FuturexRank:
    """All-reduces one array over the transport ``kind`` ("tcp" or "ucx"), in place."""

    def __init__(self, rank: int, size: int, elements: int, gather: Gather, kind: str) -> None:
        secret = gather(secrets.token_bytes(32))[0]
        self._endpoint = open_endpoint(kind, rank, size, secret)
        self._ring = RingAllReduce(self._endpoint)
        self._small = SmallCollectives(self._endpoint)
        self._endpoint.connect(gather(self._endpoint.address), WAIT_SECONDS)
        self._step = 0
        self.array = np.zeros(elements, np.float32)

    def reduce(self) -> None:
        """Sum the array over all ranks."""
        self._step += 1
        self._ring.start(self.array, generation=0, step=self._step).wait(WAIT_SECONDS)

    def close(self) -> None:
        """Leave the group once nobody needs this rank."""
        self._small.barrier(generation=0, step=self._step + 1).wait(WAIT_SECONDS)
        self._endpoint.close()
