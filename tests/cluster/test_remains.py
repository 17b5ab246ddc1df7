"""What calls, runs and interrupted questions leave behind: nothing that grows, and no complaints."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
from distributed import LocalCluster

import futurex as fx
from futurex.runtime.cluster.asking import within

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
WAIT = 120.0


def total(x):
    return (x * 2.0).sum()


@pytest.fixture(scope="module")
def cluster():
    with fx.Cluster(2) as started:
        yield started


def _topics(dask_scheduler):
    return len(dask_scheduler._broker._topics)


def loss(w, x):
    return ((x - w) ** 2).mean()


def test_neither_scheduler_nor_client_keep_anything_of_calls_and_runs(cluster):
    call, x = fx.futurize(total).on(cluster), cluster.tile(np.ones(8))

    def work(n):
        for number in range(n):
            assert float(call(x)) == 16.0
            options = {"on": cluster, "progress": False, "name": f"kept-{n}-{number}"}
            fx.fit(loss, np.zeros(3), np.ones((8, 3)), **options).result(WAIT)
            fx.fit(loss, np.zeros(3), np.ones((8, 3)), commit_every=1, **options).result(WAIT)

    work(1)
    before = cluster.client.run_on_scheduler(_topics), len(cluster.client._event_handlers)
    work(3)
    assert (cluster.client.run_on_scheduler(_topics), len(cluster.client._event_handlers)) == before


def test_results_of_runs_that_have_ended_stay_where_they_are_few(cluster, monkeypatch):
    monkeypatch.setattr("futurex.runtime.cluster.supervisor.KEPT_BYTES", 3000)  # the scheduler is in this process

    def trained(name, size):
        options = {"on": cluster, "progress": False, "commit_every": 1, "optimizer": fx.optim.sgd(0.5)}
        fx.fit(loss, np.zeros(size), np.ones((4, size)), name=name, **options).result(WAIT)

    def there(name):
        try:
            return fx.attach(name, cluster).result(WAIT).size
        except LookupError:
            return 0

    for name, size in (("large", 1000), ("small", 3), ("other", 3)):
        trained(name, size)
    assert [there(name) for name in ("large", "small", "other")] == [0, 3, 3]
    trained("huge", 5000)
    assert there("huge") == 5000


CLOSED = """
import numpy as np
import futurex as fx

def total(x):
    return (x * 2.0).sum()

if __name__ == "__main__":
    with fx.Cluster(2) as many:
        call, x = fx.futurize(total).on(many), many.tile(np.ones(8))
        float(call(x))
        under_way = [call(x) for _ in range(200)]
    try:
        under_way[-1].result(60)
    except fx.ClusterUnreachable as error:
        print(error)
"""


def test_a_cluster_that_is_closed_while_many_calls_are_under_way_says_nothing(tmp_path):
    (script := tmp_path / "closed.py").write_text(CLOSED)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=WAIT)
    assert "closed while run" in done.stdout
    assert not done.stderr


@pytest.fixture
def silent_loop(cluster, caplog):
    """The client's loop does nothing for a while."""
    caplog.set_level(logging.ERROR)
    loop, go = cluster.client.loop.asyncio_loop, threading.Event()
    loop.call_soon_threadsafe(go.wait, WAIT)
    yield go
    go.set()


def test_a_question_that_is_interrupted_before_it_is_asked_leaves_no_coroutine(cluster, silent_loop, caplog):
    asked = []

    async def question():
        asked.append(1)

    timer = threading.Timer(0.3, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        timer.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                within(cluster.client, question, WAIT)
        finally:
            signal.signal(signal.SIGINT, handler)
        silent_loop.set()
        assert within(cluster.client, lambda: asyncio.sleep(0, 3), WAIT) == 3
        gc.collect()
    assert not warned
    assert not asked
    assert not caplog.records


def test_what_is_asked_of_a_client_that_is_closed_ends():
    other = fx.Cluster(1)
    client = other.client
    threading.Timer(0.5, other.close).start()
    begun = time.monotonic()
    with pytest.raises((OSError, RuntimeError)):
        within(client, lambda: asyncio.sleep(WAIT), WAIT)
    assert time.monotonic() - begun < 30


HIDDEN = """
def where(locality):
    return locality.rank
"""


def test_workers_say_which_module_they_lack(tmp_path, monkeypatch):
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as standing:
        with fx.Cluster(standing) as other:
            (tmp_path / "fx_hidden_module.py").write_text(HIDDEN)
            monkeypatch.syspath_prepend(str(tmp_path))
            import fx_hidden_module

            with pytest.raises(ModuleNotFoundError, match="fx_hidden_module") as caught:
                other.spmd(fx_hidden_module.where).result(WAIT)
            assert "upload_file(path)" in "\n".join(caught.value.__notes__)
            other.client.upload_file(str(tmp_path / "fx_hidden_module.py"))
            assert other.spmd(fx_hidden_module.where).result(WAIT) == [0]


def ends(locality):
    if locality.rank == 1:
        sys.exit(3)
    return os.getpid()


def test_a_function_that_asks_its_process_to_end_fails_its_run_alone(cluster):
    with pytest.raises(RuntimeError, match=r"asked its process to end: SystemExit\(3\)"):
        cluster.spmd(ends).result(WAIT)
    assert cluster.spmd(lambda locality: locality.rank).result(WAIT) == [0, 1]


def test_results_that_cannot_be_sent_are_spoken_of(cluster):
    with pytest.raises(TypeError) as caught:
        cluster.spmd(lambda locality: threading.Lock()).result(WAIT)
    assert "could not be fetched" in "\n".join(caught.value.__notes__)


@pytest.fixture
def slow_to_begin(cluster, monkeypatch):
    """A scheduler that takes some time until it has taken in a run's data, and a driver that is used to quick ones."""
    monkeypatch.setattr("futurex.runtime.cluster.elastic_run._UNREACHABLE", 0.2)
    monkeypatch.setattr("futurex.runtime.cluster.elastic_run._PATIENCE", 0.2)
    handlers = cluster.client.cluster.scheduler.handlers
    before = handlers["futurex_elastic"]

    async def slowly(do, **details):
        if do == "begin":
            await asyncio.sleep(1.0)
        return await before(do, **details)

    monkeypatch.setitem(handlers, "futurex_elastic", slowly)


def test_data_that_are_long_on_their_way_to_the_scheduler_are_waited_for(cluster, slow_to_begin, monkeypatch):
    options = {"on": cluster, "progress": False, "commit_every": 1, "epochs": 2}
    assert fx.fit(loss, np.zeros(3), np.ones((8, 3)), **options).result(WAIT).shape == (3,)
    monkeypatch.setenv("FUTUREX_DEADLINE", "0.9")
    with pytest.raises(fx.ClusterUnreachable, match="a higher FUTUREX_DEADLINE"):
        fx.fit(loss, np.zeros(3), np.ones((8, 3)), **options)
