"""Runs that want the same workers at once take turns, whoever starts them and however many threads Dask has there."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import numpy as np
import pytest
from distributed import Client, LocalCluster

import futurex as fx

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
WAIT = 120.0


def total(x):
    return (x * 2.0).sum()


def test_two_drivers_do_not_wait_for_each_other(monkeypatch):
    """Each has a worker that the other one asks last, and both are slow between two messages to the scheduler."""
    monkeypatch.setenv("FUTUREX_DEADLINE", "20")
    found = fx.Cluster._found_workers
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as started:
        with fx.Cluster(started) as one:
            monkeypatch.setattr(fx.Cluster, "_found_workers", lambda self: found(self)[::-1])
            with fx.Cluster(started) as other:
                assert one.addresses == other.addresses[::-1]
                calls = [(fx.futurize(total).on(each), each.tile(np.ones(8))) for each in (one, other)]
                assert [float(call(x)) for call, x in calls] == [16.0, 16.0]
                send, barrier, results = Client._send_to_scheduler, threading.Barrier(2), []

                def slow(client, message):
                    send(client, message)
                    if message.get("op") == "update-graph":
                        barrier.wait(WAIT)

                monkeypatch.setattr(Client, "_send_to_scheduler", slow)

                def act(call, x):
                    results.append(float(call(x)))

                threads = [threading.Thread(target=act, args=each, daemon=True) for each in calls]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(WAIT)
                assert results == [16.0, 16.0]


def test_runs_of_one_driver_follow_each_other_where_workers_have_several_threads():
    def loss(w, x):
        return ((x - w) ** 2).mean()

    options = {"epochs": 50, "batch_size": 4, "progress": False}
    with LocalCluster(n_workers=2, threads_per_worker=4, dashboard_address=None) as started, fx.Cluster(started) as one:
        x = np.random.default_rng(0).normal(size=(32, 3))
        runs = [fx.fit(loss, np.zeros(3), x, on=one, **options) for _ in range(3)]
        call, shards = fx.futurize(total).on(one), one.tile(np.ones(8))
        calls = [call(shards) for _ in range(10)]
        want = fx.fit(loss, np.zeros(3), x, **options).result(WAIT)
        for run in runs:
            np.testing.assert_allclose(run.result(WAIT), want, rtol=1e-9)
        assert [float(each) for each in calls] == [16.0] * 10


def test_a_run_that_is_over_leaves_nothing_on_the_cluster():
    bound = fx.futurize(total)
    with fx.Cluster(2) as cluster:
        x = cluster.tile(np.ones(8), axis=0)
        runs = [weakref.ref(cluster.spmd(size_of)) for _ in range(3)]
        assert [float(bound.on(cluster)(x)) for _ in range(5)] == [16.0] * 5
        end = time.monotonic() + WAIT
        while True:  # the scheduler hears of it a moment later
            gc.collect()
            kept = [key for key in cluster.client.run_on_scheduler(_tasks) if key.startswith("futurex-")]
            if not kept and not any(run() for run in runs):
                break
            assert time.monotonic() < end, (kept, runs)
            time.sleep(0.1)


def size_of(locality):
    return locality.size


def _tasks(dask_scheduler):
    return [str(key) for key in dask_scheduler.tasks]
