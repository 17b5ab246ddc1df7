"""One rank of torch.distributed's gloo back end over the loopback interface."""

from __future__ import annotations

import datetime
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import distributed

from benchmarks.workloads.group import WAIT_SECONDS, Gather


class GlooRank:
    """All-reduces one array with gloo, in place."""

    def __init__(self, rank: int, size: int, elements: int, gather: Gather) -> None:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        self._meeting = Path(tempfile.mkdtemp(prefix="gloo-")) / "store"
        store = gather(str(self._meeting).encode())[0].decode()
        distributed.init_process_group(
            "gloo",
            init_method=f"file://{store}",
            rank=rank,
            world_size=size,
            timeout=datetime.timedelta(seconds=WAIT_SECONDS),
        )
        self.array = np.zeros(elements, np.float32)
        self._tensor = torch.from_numpy(self.array)

    def reduce(self) -> None:
        """Sum the array over all ranks."""
        distributed.all_reduce(self._tensor)

    def close(self) -> None:
        """Leave the group and remove its meeting place."""
        distributed.barrier()
        distributed.destroy_process_group()
        self._meeting.unlink(missing_ok=True)
        self._meeting.parent.rmdir()
