"""A worker process that is stopped answers nothing, and closes no connection: whoever waits for it does so with an
end, and is told for whom."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from distributed import LocalCluster
from distributed.comm import CommClosedError

import futurex as fx
from futurex.runtime.cluster.asking import ask_workers
from futurex.runtime.cluster.checkup import checkup

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
WAIT = 120.0


def loss(w, x, y):
    return ((x @ w - y) ** 2).mean()


def training(cluster, **options):
    x = np.random.default_rng(0).normal(size=(64, 3))
    return fx.fit(loss, np.zeros(3), (x, x.sum(1)), on=cluster, progress=False, **options)


def within(seconds, function, *args, **options):
    """What a call returns or raises, in a thread that may hang."""
    outcome = []

    def body():
        try:
            outcome.append(function(*args, **options))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(seconds)
    assert outcome, f"{function} hangs"
    return outcome[0]


@pytest.fixture
def standing():
    """Two workers, of which one can be stopped."""
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as started:
        pids = []
        try:
            with started.get_client() as client:
                pids += client.run(os.getpid).items()
            yield started, pids
        finally:
            for _, pid in pids:
                os.kill(pid, signal.SIGCONT)


def test_what_asks_a_stopped_worker_ends_and_names_it(standing, monkeypatch, caplog):
    started, [_, (address, pid)] = standing
    with fx.Cluster(started) as cluster:
        os.kill(pid, signal.SIGSTOP)
        monkeypatch.setenv("FUTUREX_DEADLINE", "6")
        monkeypatch.setenv("FUTUREX_STALL", "4")
        for act in (
            lambda: fx.Cluster(started.scheduler_address, timeout=6), lambda: training(cluster),
            lambda: cluster.tile(np.ones(4)),
        ):  # fmt: skip
            error = within(WAIT, act)
            assert isinstance(error, fx.ClusterUnreachable), error
            assert f"the worker {address}: it may be stopped" in str(error)
        assert f"waits for the worker {address}" in caplog.text
        findings = within(WAIT, lambda: list(checkup(started.scheduler_address, 6)))
        assert ("worker", f"problem: {address} does not answer within 6 s: is it stopped?") in findings
        assert within(WAIT, cluster.close) is None


class _Closed:
    """A client whose channel is closed when it asks."""

    def __init__(self):
        self.loop = SimpleNamespace(asyncio_loop=asyncio.new_event_loop())
        threading.Thread(target=self.loop.asyncio_loop.run_forever, daemon=True).start()

    async def _run(self, *_, **__):
        raise CommClosedError("stream is closed")


def test_a_channel_that_closes_while_workers_are_asked_is_named():
    with pytest.raises(fx.ClusterUnreachable, match=r"tcp://a:1, is gone \(stream is closed\); make a new fx\.Cluster"):
        ask_workers(_Closed(), os.getpid, workers=["tcp://a:1"], seconds=9.0)


def test_a_stop_comes_to_a_stopped_worker_when_it_goes_on(standing, caplog):
    started, [_, (address, pid)] = standing
    with fx.Cluster(started) as cluster:
        run = training(cluster, epochs=10**6)
        end = time.monotonic() + WAIT
        while run.step < 3:
            assert time.monotonic() < end
            time.sleep(0.01)
        os.kill(pid, signal.SIGSTOP)
        assert within(WAIT, run.stop) is None
        assert f"no answer within 5 s from the worker {address}" in caplog.text
        os.kill(pid, signal.SIGCONT)
        run.result(WAIT)
        assert run.status == "stopped"
