"""Clusters that somebody else has started, that do not start, or are none: what is said of them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

import futurex as fx
from futurex.runtime.cluster.membership import workers_of

sys.path.insert(0, str(Path(__file__).parent.parent))
import cluster_programs as programs

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def test_attaching_to_a_cluster_that_stands():
    from distributed import Client, LocalCluster

    folder = str(Path(__file__).parent.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
    with LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0") as standing:
        for target in (standing.scheduler_address, standing):
            with fx.Cluster(target) as cluster:
                assert cluster.spmd(programs.rank_and_size).result(90) == [(0, 2), (1, 2)]
        with Client(standing) as client:
            with fx.Cluster(client) as cluster:
                assert cluster.size == 2
            assert client.status == "running"  # it is the user's


def test_a_second_driver_of_a_cluster_replaces_nothing(recwarn):
    from distributed import LocalCluster

    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with LocalCluster(**options) as standing, fx.Cluster(standing):
        plugins = dict(standing.scheduler.plugins)
        with fx.Cluster(standing):
            assert {name: standing.scheduler.plugins[name] for name in plugins} == plugins
    assert not [each for each in recwarn if "plugin" in str(each.message)]


@pytest.mark.parametrize(("given", "wanted"), [("", None), ("3", 3)])
def test_workers_of_somebody_elses_cluster_share_the_processors(given, wanted):
    from distributed import LocalCluster

    folder = str(Path(__file__).parent.parent)
    environment = {"FUTUREX_THREADS": given, "PYTHONPATH": os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])}
    options = {"n_workers": 2, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None}
    with LocalCluster(env=environment, **options) as standing, fx.Cluster(standing) as cluster:
        share = max(1, os.cpu_count() // 2)
        each = wanted or min(len(os.sched_getaffinity(0)), share)
        assert cluster.spmd(programs.threads_of).result(90) == [each, each]
        assert cluster.client.run(programs.threads_of_training) == dict.fromkeys(cluster.addresses, each)


def _name_machine(name):
    os.environ["FUTUREX_MACHINE"] = name


def _machines(dask_worker):
    [communicator] = dask_worker.futurex_host.sessions.values()
    endpoint = communicator.endpoint
    return endpoint.machines, sorted(endpoint.peer_memory)


def test_workers_are_all_there_however_often_dask_asks_for_none_of_them():
    import dask
    from distributed import LocalCluster

    with (
        dask.config.set({"distributed.client.scheduler-info-interval": "1ms"}),
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as standing,
        fx.Cluster(standing) as cluster,
    ):
        assert {tuple(sorted(workers_of(cluster.client))) for _ in range(300)} == {tuple(sorted(cluster.addresses))}


def test_localities_of_two_machines_train_as_one():
    from distributed import LocalCluster

    folder = str(Path(__file__).parent.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
    x = np.random.default_rng(0).normal(size=(9, 3))
    program = fx.lower(programs.descent, np.ones((3, 2)), x)
    w = np.ones((3, 2))
    for _ in range(5):
        loss, w = program.graph(w, x)
    with LocalCluster(n_workers=3, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0") as standing:
        with fx.Cluster(standing) as one:
            assert set(map(str, one.client.run(_machines).values())) == {
                str(((0, 0, 0), [peer for peer in range(3) if peer != rank])) for rank in range(3)
            }
            addresses = one.addresses
            for address, name in zip(addresses, ("left", "left", "right"), strict=True):
                one.client.run(_name_machine, name, workers=[address])
        with fx.Cluster(standing) as two:
            found = two.client.run(_machines)
            assert [found[address] for address in addresses] == [((0, 0, 1), [1]), ((0, 0, 1), [0]), ((0, 0, 1), [])]
            results = two.spmd(programs.descend, program.graph, 5, two.tile(x)).result(90)
    for got_loss, got_w, _ in results:
        np.testing.assert_allclose(got_loss, loss, rtol=1e-12)
        np.testing.assert_allclose(got_w, w, rtol=1e-12)
        np.testing.assert_array_equal(got_w, results[0][1])


def test_a_cluster_without_futurex_says_what_to_install(monkeypatch):
    from distributed import Client, LocalCluster

    def refuse(*_):
        raise Exception("ModuleNotFoundError(\"No module named 'futurex'\")")  # what Dask makes of it

    monkeypatch.setattr(Client, "register_plugin", refuse)
    with LocalCluster(n_workers=1, processes=False, dashboard_address=None) as standing:
        with pytest.raises(fx.ClusterUnreachable, match=r"install futurex there, .* doctor --scheduler inproc:"):
            fx.Cluster(standing)


STANDING = """
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None, protocol="tcp") as it:
        print(it.scheduler_address, flush=True)
        input()
"""


@contextlib.contextmanager
def _standing(folder):
    """The address of a cluster of another process, which finds modules in a folder, too, and is killed at the end."""
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, "-c", STANDING], env={**os.environ, "PYTHONPATH": path}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def test_a_cluster_with_another_version_says_both(tmp_path):
    other = tmp_path / "futurex-0.0.9.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: futurex\nVersion: 0.0.9\n")
    here = re.escape(version("futurex"))
    with _standing(tmp_path) as address, pytest.raises(fx.ClusterUnreachable) as caught:
        fx.Cluster(address)
    assert re.search(
        rf"{address} has futurex 0\.0\.9 on the scheduler, tcp://\S+, and this process has futurex {here}: run "
        rf"`python -m pip install futurex=={here}` there",
        str(caught.value),
    )


def test_a_lost_scheduler_is_named_and_no_worker():
    with _standing(Path(__file__).parent.parent) as address:
        cluster = fx.Cluster(address)
        run = cluster.spmd(programs.wait_for_stop)
    try:
        with pytest.raises(fx.ClusterUnreachable, match=rf"scheduler of run .* \(at {address}\).*new fx\.Cluster"):
            run.result(90)
        with pytest.raises(fx.ClusterUnreachable, match=rf"scheduler at {address} does not answer"):
            cluster.spmd(programs.rank_and_size)
    finally:
        cluster.close()
    with pytest.raises(fx.ClusterUnreachable, match="has been closed; make a new one"):
        cluster.spmd(programs.rank_and_size)


def test_a_scheduler_that_hangs_is_said_and_ends_the_run(monkeypatch, caplog):
    with _standing(Path(__file__).parent.parent) as address, fx.Cluster(address) as cluster:
        monkeypatch.setenv("FUTUREX_DEADLINE", "3")
        monkeypatch.setenv("FUTUREX_STALL", "1")
        pid = cluster.client.run_on_scheduler(os.getpid)
        run = cluster.spmd(programs.wait_for_stop)
        time.sleep(2)  # in which it answers
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(fx.ClusterUnreachable, match=rf"no answer from {address} within 3 s.*new fx\.Cluster"):
            run.result(90)
        assert f"the scheduler at {address} has not answered for" in caplog.text
        os.kill(pid, signal.SIGKILL)  # closing would wait for it


def test_a_cluster_that_does_not_start_says_what_to_do(tmp_path):
    script = tmp_path / "without_a_guard.py"
    script.write_text("import futurex as fx\nfx.Cluster(1)\n")
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=270)
    last = ran.stderr.splitlines()[-1]
    assert ran.returncode == 1
    assert "ClusterUnreachable: the embedded cluster did not start: " in last
    assert 'below `if __name__ == "__main__":`' in last
    assert "`futurex doctor`" in last


def test_a_port_where_nobody_speaks_is_no_scheduler():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        found = []

        def attach():
            try:
                fx.Cluster(address, timeout=1.0)
            except Exception as error:
                found.append(error)

        thread = threading.Thread(target=attach, daemon=True)  # Dask alone would wait for ever
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
    assert isinstance(found[0], fx.ClusterUnreachable)
    assert f"no Dask scheduler answers at {address} within 1 s" in str(found[0])


def test_a_port_with_another_protocol_is_no_scheduler():
    """The bytes of a web server's answer are a length to Dask, of exabytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            for _ in range(2):  # Dask tries again at once
                with contextlib.suppress(OSError):
                    server.accept()[0].sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(fx.ClusterUnreachable, match="another protocol; is it the dashboard's port"):
            fx.Cluster(f"tcp://127.0.0.1:{server.getsockname()[1]}", timeout=30)


def test_bad_targets_and_options():
    with pytest.raises(fx.ClusterUnreachable, match=r"127\.0\.0\.1:9.*dask scheduler"):
        fx.Cluster("tcp://127.0.0.1:9", timeout=1)
    for target in ("localhost", "carrier://pigeon:1"):
        with pytest.raises(fx.ClusterUnreachable, match=rf"'{target}' is not the address .* tcp://HOST:8786"):
            fx.Cluster(target)
    with pytest.raises(TypeError, match="no option 'transprt'"):
        fx.Cluster(2, transprt="tcp")
    with pytest.raises(ValueError, match="'infiniband' is not one of 'auto', 'local', 'tcp', 'ucx'"):
        fx.Cluster(2, transport="infiniband")
    with pytest.raises(ValueError, match="must be at least 1, not -1"):
        fx.Cluster(-1)
    with pytest.raises(TypeError, match=r"not 1\.5"):
        fx.Cluster(1.5)
