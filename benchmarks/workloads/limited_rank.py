"""One rank of exchanges over a link of limited rate between machines, which the kernel imposes on each connection."""

from __future__ import annotations

import secrets
import socket
from typing import Any

import numpy as np

from benchmarks.workloads.group import WAIT_SECONDS, Gather
from benchmarks.workloads.team import timed
from futurex.runtime.collectives import Communicator
from futurex.runtime.transport import open_endpoint

SO_MAX_PACING_RATE = 47  # Linux; the socket module has no name for it
FUSED, SMALL = 100, 16 << 10  # vectors, elements of one
LAYERS, LAYER = 10, 1 << 20
LARGE = 4 << 20


class LimitedRank:
    """Does the exchange ``work`` with a technique or, unless ``on``, without; ``layout`` names each rank's machine."""

    def __init__(
        self, rank: int, size: int, _: int, gather: Gather, work: str, on: str, rate: float, layout: str
    ) -> None:
        secret = gather(secrets.token_bytes(32))[0]
        self._endpoint: Any = open_endpoint("auto", rank, size, secret, machine=layout[rank])
        self._communicator = Communicator(self._endpoint)
        self._endpoint.connect(gather(self._endpoint.address), WAIT_SECONDS)
        for peer, channel in self._endpoint._peers.items():
            if layout[peer] != layout[rank]:  # a machine's connections to another share the link
                share = rate / 8 / self._connections(layout, work, on)
                channel.wire.sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, int(share))
        self._communicator.calibrate()
        self._on = on
        self._step = getattr(self, f"_{work}")
        self._arrays = {
            "fusion": [np.zeros(SMALL, np.float32) for _ in range(FUSED)],
            "priority": [np.zeros(LAYER, np.float32) for _ in range(LAYERS)],
        }.get(work, [np.zeros((LARGE // 1024, 1024), np.float32)])

    def time(self, repetitions: int) -> list[float]:
        """Return the seconds of each repetition; all ranks begin together."""
        seconds = []
        for _ in range(repetitions):
            self._communicator.barrier(WAIT_SECONDS)
            self._communicator.begin_step()
            seconds += timed(self._step, 1)
            self._rest()
        return seconds

    def close(self) -> None:
        """Leave the group."""
        self._communicator.barrier(WAIT_SECONDS)
        self._endpoint.close()

    @staticmethod
    def _connections(layout: str, work: str, on: str) -> int:
        """How many connections between two machines are used at once in one direction."""
        return layout.count(layout[0]) if work == "hierarchy" and on else 1

    def _sum(self, arrays: list[np.ndarray], tag: int, codec: str = "", urgency: float = 0.0) -> Any:
        attrs = {"reduce": "sum", "tag": tag, "codec": f"{codec}#link" if codec else ""}
        return self._communicator.start("all_reduce", attrs, arrays, arrays, urgency)

    def _fusion(self) -> None:
        groups = [self._arrays] if self._on else [[array] for array in self._arrays]
        for each in [self._sum(arrays, tag) for tag, arrays in enumerate(groups)]:
            each.result()

    def _priority(self) -> None:
        """Until what the next forward pass needs first is there: the last gradient that the backward pass gives."""
        self._flights = [
            self._sum([array], tag, urgency=float(tag) if self._on else 0.0) for tag, array in enumerate(self._arrays)
        ]
        self._flights[-1].result()

    def _hierarchy(self) -> None:
        [array] = self._arrays
        if self._on:
            self._sum([array], 0).result()
        else:
            vector = array.reshape(-1)
            key = 0, 10**9 + self._communicator.begin_step(), 0
            flat = self._communicator.engine.messages  # type: ignore[union-attr]
            flat.all_reduce([vector], [vector], "sum", key, WAIT_SECONDS, "ring").wait(WAIT_SECONDS)

    def _compression(self) -> None:
        self._sum(self._arrays, 0, self._on).result()

    def _rest(self) -> None:
        for each in getattr(self, "_flights", []):
            each.result()
