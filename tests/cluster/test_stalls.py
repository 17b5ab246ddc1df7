"""A worker that is stopped: the others say whom they wait for, for which array, at which line."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import futurex as fx
from futurex.runtime.cluster.stacks import Ear, whereabouts

sys.path.insert(0, str(Path(__file__).parent.parent))
import cluster_programs as programs

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def loss(w, x):
    return ((x @ w) ** 2).mean()


def descent(w, x):
    value, gradient = fx.value_and_grad(loss)(w, x)
    return value, w - 0.1 * gradient


@contextlib.contextmanager
def _stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(("transport", "victim"), [("local", 1), ("tcp", 0)])
def test_a_stopped_worker_is_reported_and_named_by_the_deadline(transport, victim, monkeypatch, caplog):
    folder = str(Path(__file__).parent.parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("FUTUREX_STALL", "0.5")
    monkeypatch.setenv("FUTUREX_DEADLINE", "6")
    monkeypatch.setattr("futurex.runtime.cluster.run.SETTLE_SECONDS", 1.0)  # no more will be heard of a stopped worker
    x = np.ones((8, 3))
    program = fx.lower(descent, np.ones((3, 2)), x)
    with fx.Cluster(2, transport=transport) as cluster:
        pids = cluster.client.run(programs.process_id)
        run = cluster.spmd(programs.descend, program.graph, 10**9, cluster.tile(x))
        events = []
        run.subscribe(lambda rank, event: events.append((rank, event)))
        _wait(lambda: {rank for rank, _ in events} == {0, 1}, "the run did not start")
        with _stopped(pids[cluster.addresses[victim]]):
            _wait(lambda: any(_complains(event, 1 - victim) for _, event in events), "nobody complains")
            with pytest.raises(Exception, match=r"waited|deadline") as caught:
                run.result(60)
    waiting, report = [(rank, event) for rank, event in events if _complains(event, 1 - victim)][-1]
    assert waiting == 1 - victim
    assert list(report["missing"]) == [victim]
    [described] = report["exchanges"][:1]
    for part in ("all_reduce of", "float64[", "test_stalls.py:", "(x @ w) ** 2"):
        assert part in described
    text = "\n".join([str(caught.value), *caught.value.__notes__])
    assert f"for rank {victim}:" in text
    assert "test_stalls.py" in text
    assert f"not waiting, or unable to say so: rank {victim}" in text
    assert isinstance(caught.value, TimeoutError)
    assert any(f"for rank {victim}:" in record.getMessage() for record in caplog.records)


def test_a_worker_whose_threads_are_all_held_up_is_asked_where_it_is(monkeypatch, caplog, tmp_path):
    folder = str(Path(__file__).parent.parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("FUTUREX_STALL", "1")
    x = np.ones((8, 3))
    program = fx.lower(descent, np.ones((3, 2)), x)
    os.mkfifo(pipe := tmp_path / "pipe")

    def told():
        said = [text for each in caplog.records if "rank 0 is here: process" in (text := each.getMessage())]
        return any("cluster_programs.py" in text and "in keeps_the_lock" in text for text in said)

    with fx.Cluster(2) as cluster:
        run = cluster.spmd(programs.descend_late, program.graph, cluster.tile(x), str(pipe))
        _wait(told, "rank 0 is not asked, or does not say where it is")
        with pipe.open("r+b", buffering=0) as end:
            end.write(b"on")
        first, second = run.result(60)
    assert first == second


def test_what_is_asked_of_a_stopped_process_and_of_one_that_has_ended():
    begin = "import sys; from futurex.runtime.cluster.stacks import listen; print(*listen(), flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", begin], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        ear = Ear(*map(int, process.stdout.readline().split()))
        _wait(lambda: 'File "<string>", line 1 in <module>' in whereabouts(ear), "it does not say where it is")
        with _stopped(process.pid):
            assert "stopped\nit does not answer a signal" in whereabouts(ear)
        process.kill()
        process.wait(60)
    assert "cannot be asked" in whereabouts(ear)


def test_a_stall_of_an_elastic_run_is_in_the_log_and_over_when_the_worker_goes_on(monkeypatch, caplog):
    monkeypatch.setenv("FUTUREX_STALL", "0.5")
    caplog.set_level(logging.INFO)
    x = np.ones((8, 3))
    with fx.Cluster(2) as cluster:
        pids = cluster.client.run(os.getpid)
        run = fx.fit(loss, np.ones((3, 2)), x, on=cluster, epochs=10**9, commit_every=1000, progress=False, name="late")
        _wait(lambda: run.step > 0, "the run did not start")
        [begun] = [each["workers"] for each in run.generations if each["what"] == "started"]
        with _stopped(pids[begun[1]]):
            _wait(lambda: any(_names(record, 1) for record in caplog.records), "nobody complains")
        step = run.step
        _wait(lambda: run.step > step, "the run does not go on")
        run.stop()
        run.result(60)
    [record, *_] = [record for record in caplog.records if _names(record, 1)]
    assert "run 'late': rank 0 has waited" in record.getMessage()
    assert "test_stalls.py:" in record.getMessage()
    assert "not waiting, or unable to say so: rank 1" in record.getMessage()
    assert any("run 'late': forming, generation 1 of 2 workers" in each.getMessage() for each in caplog.records)
    assert any("for rank 1:" in stall for stall in run.stalls)


def _names(record, rank):
    return f"for rank {rank}:" in record.getMessage() and "run 'late'" in record.getMessage()


def _complains(event, rank):
    """On a machine that is busy, both may have waited for each other before one of them is stopped."""
    return event.get("kind") == "stall" and event["rank"] == rank and event["seconds"] >= 2.0


def _wait(seen, otherwise):
    end = time.monotonic() + 60
    while not seen():
        assert time.monotonic() < end, otherwise
        time.sleep(0.01)
