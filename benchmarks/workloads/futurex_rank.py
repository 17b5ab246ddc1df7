"""One rank of futurex's all-reduce."""

from __future__ import annotations

import secrets

import numpy as np

from benchmarks.workloads.group import WAIT_SECONDS, Gather
from futurex.runtime.collectives import Communicator, SharedCollectives
from futurex.runtime.transport import open_endpoint


class FuturexRank:
    """All-reduces one array over the transport ``kind``, in place; ``apart``: it does not lie in shared memory."""

    def __init__(self, rank: int, size: int, elements: int, gather: Gather, kind: str, apart: bool = False) -> None:
        secret = gather(secrets.token_bytes(32))[0]
        self._endpoint = open_endpoint(kind, rank, size, secret)
        self._communicator = Communicator(self._endpoint)
        self._endpoint.connect(gather(self._endpoint.address), WAIT_SECONDS)
        self._communicator.calibrate()
        self._step = 1
        memory = self._communicator.memory
        self.array = np.zeros(elements, np.float32)
        if memory is not None and not apart:
            self.array = memory.empty(elements, np.float32)

    def reduce(self) -> None:
        """Sum the array over all ranks."""
        self._step += 1
        engine, key = self._communicator.engine, (0, self._step, 0)
        if isinstance(engine, SharedCollectives):
            engine.sum_now(self.array, key, WAIT_SECONDS)
        else:
            engine.all_reduce([self.array], [self.array], "sum", key, WAIT_SECONDS).wait(WAIT_SECONDS)

    def close(self) -> None:
        """Leave the group once nobody needs this rank."""
        self._communicator.engine.barrier((0, self._step + 1, 0), WAIT_SECONDS).wait(WAIT_SECONDS)
        self._endpoint.close()
