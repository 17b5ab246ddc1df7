"""Clusters that are closed at awkward moments."""

import asyncio
import contextlib
import os
import signal
import threading
import time

import pytest
from distributed import Client, LocalCluster
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


def test_a_cluster_that_is_interrupted_while_it_closes_is_closed(monkeypatch):
    """What Dask's client and cluster leave when they are interrupted would keep the process from ending."""
    before = Client.unsubscribe_topic

    def interrupted(*args, **options):
        signal.raise_signal(signal.SIGINT)
        return before(*args, **options)

    monkeypatch.setattr(Client, "unsubscribe_topic", interrupted)
    cluster = fx.Cluster(2)
    numbers = list(cluster.client.run(os.getpid).values())
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            cluster.close()
    finally:
        signal.signal(signal.SIGINT, handler)
    assert cluster.client.status == "closed"
    assert not any(alive(number) for number in numbers)


@pytest.mark.parametrize("standing", [False, True])
def test_a_client_is_never_left_in_its_middle(standing, monkeypatch):
    """Its thread would stay: nobody knows it yet."""
    made, before = [], Client.__init__

    def interrupted(self, *args, **options):
        made.append(self)
        signal.raise_signal(signal.SIGINT)
        before(self, *args, **options)

    with LocalCluster(n_workers=1, dashboard_address=None) if standing else contextlib.nullcontext(1) as target:
        monkeypatch.setattr(Client, "__init__", interrupted)
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                fx.Cluster(target)
        finally:
            signal.signal(signal.SIGINT, handler)
        assert [client.status for client in made] == ["closed"]


def alive(number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(number, 0)
        return True
    return False
