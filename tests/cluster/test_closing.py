"""Clusters that are closed at awkward moments."""

import asyncio
import contextlib
import os
import signal
import threading
import time

import pytest
from distributed.process import AsyncProcess

import futurex as fx

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def test_a_cluster_is_closed_while_a_lost_worker_is_spawned_again(monkeypatch):
    """Dask would wait for it, and this one never answers."""
    spawned, started = threading.Event(), AsyncProcess.start

    async def late(self):
        spawned.set()
        await asyncio.sleep(2.0)  # no number yet, by which it could be killed
        await started(self)

    def stop():
        while (number := nannies[0].pid) is None:
            time.sleep(0.002)
        with contextlib.suppress(ProcessLookupError):  # it has been killed
            os.kill(number, signal.SIGSTOP)

    with fx.Cluster(2) as cluster:
        nannies = list(cluster.client.cluster.workers.values())
        numbers = cluster.client.run(os.getpid)
        monkeypatch.setattr(AsyncProcess, "start", late)
        os.kill(numbers[cluster.addresses[0]], signal.SIGKILL)
        assert spawned.wait(60)
        threading.Thread(target=stop, daemon=True).start()
    assert [nanny.pid for nanny in nannies] == [None, None]
