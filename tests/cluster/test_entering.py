"""Workers that die or stop while a cluster is entered, and clusters that share a client."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time

import numpy as np
import pytest
from distributed import Client, LocalCluster

import futurex as fx
from futurex.runtime.cluster.membership import workers_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
WAIT = 60.0


def loss(w, x, y):
    return ((x @ w - y) ** 2).mean()


def training(cluster):
    x = np.random.default_rng(0).normal(size=(64, 3))
    run = fx.fit(loss, np.zeros(3), (x, x.sum(1)), on=cluster, epochs=10**6, progress=False)
    end = time.monotonic() + WAIT
    while run.step < 3:
        assert time.monotonic() < end, run
        time.sleep(0.01)
    return run


@pytest.fixture
def standing():
    """Workers that nobody starts again, their numbers by address, and a client."""
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as started:
        for nanny in started.workers.values():
            nanny.auto_restart = False
        with Client(started.scheduler_address, set_as_default=False) as client:
            numbers = client.run(os.getpid)
            try:
                yield started.scheduler_address, numbers, client
            finally:
                for number in numbers.values():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(number, signal.SIGCONT)


def test_a_worker_that_dies_while_a_cluster_is_entered_is_named(standing, monkeypatch):
    """The scheduler has heard of it before this driver listens, and tells nobody who does so later."""
    address, numbers, client = standing
    first, before = min(numbers), fx.Cluster._register

    def register(self, *plugins):
        before(self, *plugins)
        os.kill(numbers[first], signal.SIGKILL)
        end = time.monotonic() + WAIT
        while first in workers_of(client):
            assert time.monotonic() < end
            time.sleep(0.01)

    monkeypatch.setattr(fx.Cluster, "_register", register)
    begun = time.monotonic()
    with pytest.raises(fx.LocalityLost, match=f"{first}.* was lost during the time before a run"):
        fx.Cluster(address, timeout=30)
    assert time.monotonic() - begun < 20
    monkeypatch.undo()
    with fx.Cluster(address) as left:
        assert left.size == 1


def test_a_worker_that_stops_while_a_cluster_is_entered_is_named(standing, monkeypatch):
    address, numbers, _ = standing
    first, before = min(numbers), Client.register_plugin

    def register(self, plugin, *args, **options):
        os.kill(numbers[first], signal.SIGSTOP)
        return before(self, plugin, *args, **options)

    monkeypatch.setattr(Client, "register_plugin", register)
    with pytest.raises(fx.ClusterUnreachable, match=f"no answer within 4 s from the worker {first}"):
        fx.Cluster(address, timeout=4)


def test_a_scheduler_whose_channel_closes_while_a_cluster_is_entered_is_named(standing, monkeypatch):
    address, numbers, _ = standing

    def register(self, plugin, *args, **options):
        for number in numbers.values():
            os.kill(number, signal.SIGKILL)
        return before(self, plugin, *args, **options)

    before = Client.register_plugin
    monkeypatch.setattr(Client, "register_plugin", register)
    with pytest.raises(ConnectionError, match=r"make a new fx\.Cluster") as caught:
        fx.Cluster(address, timeout=10)
    assert isinstance(caught.value, fx.ClusterUnreachable | fx.LocalityLost)


def test_clusters_of_one_client_all_hear_of_a_worker_that_leaves(standing):
    """Dask keeps one handler for each topic of a client."""
    _, numbers, client = standing
    first, second = fx.Cluster(client), fx.Cluster(client)
    third = fx.Cluster(client)
    third.close()
    run = training(first)
    os.kill(numbers[first.addresses[0]], signal.SIGKILL)
    with pytest.raises(fx.LocalityLost, match=f"locality 0 .*{first.addresses[0]}"):
        run.result(WAIT)
    with pytest.raises(fx.LocalityLost):
        second.tile(np.ones(4))
    first.close()
    second.close()
    assert client.status == "running"


def test_an_asynchronous_client_is_refused(standing):
    address, *_ = standing

    async def enter():
        async with Client(address, asynchronous=True) as client:
            fx.Cluster(client)

    with pytest.raises(TypeError, match="asynchronous one cannot be waited for: give the scheduler's address"):
        asyncio.run(enter())


def test_a_scheduler_that_says_nothing_is_waited_for_with_an_end(standing, monkeypatch):
    _, _, client = standing

    async def never(**_):
        await asyncio.Event().wait()

    with fx.Cluster(client) as cluster:
        monkeypatch.setenv("FUTUREX_DEADLINE", "1")
        monkeypatch.setattr(client.scheduler, "identity", never, raising=False)
        with pytest.raises(fx.ClusterUnreachable, match="no answer within 1 s from the scheduler"):
            workers_of(cluster.client)
