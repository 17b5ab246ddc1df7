"""``futurex doctor --scheduler``: what is wrong with a cluster is found before anything is trained on it."""

from __future__ import annotations

import asyncio
import re
import socket
from types import SimpleNamespace

import pytest
from distributed import LocalCluster

from futurex.cli.main import main
from futurex.runtime.cluster import checkup

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def test_a_sound_cluster(capsys):
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as standing:
        assert main(["doctor", "--scheduler", standing.scheduler_address]) == 0
    said = capsys.readouterr().out
    for name, finding in (
        ("workers", "2 on 1 hosts"), ("versions", "equal here and on all workers: python"),
        ("connections", "every worker reaches every other one"), ("clock", r"tcp://\S+ is [+-]"),
        ("transports", "auto, local, tcp"), ("shared memory", "anonymous"),
        ("loopback", r"connections to 127\.0\.0\.1 work"),
        ("ports", "localities listen at ports"),
    ):  # fmt: skip
        assert re.search(rf"^{name} +{finding}", said, re.MULTILINE), name
    assert "problem" not in said


def test_a_cluster_without_workers(capsys):
    with LocalCluster(n_workers=0, dashboard_address=None) as standing:
        assert main(["doctor", "--scheduler", standing.scheduler_address]) == 1
    assert "problem: none; start some with `dask worker ADDRESS`" in capsys.readouterr().out


def _deaf():
    """A port that nobody listens at, and that nobody else can take."""
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    return taken


def test_nobody_answers(capsys, monkeypatch):
    monkeypatch.setattr(checkup.checkup, "__defaults__", (0.5,))  # the seconds for which it is tried
    with _deaf() as taken:
        port = taken.getsockname()[1]
        assert main(["doctor", "--scheduler", f"tcp://127.0.0.1:{port}"]) == 1
    assert f"no Dask scheduler answers at tcp://127.0.0.1:{port}" in capsys.readouterr().err


def test_versions_that_differ():
    mine = checkup.versions()
    findings = dict([
        *checkup._versions({"a": {"versions": mine}, "b": {"versions": {**mine, "numpy": "1.0"}}}),
    ])  # fmt: skip
    assert findings == {"versions": f"problem: numpy is {mine['numpy']} here and 1.0 on b"}
    without = {name: version for name, version in mine.items() if name != "futurex"}
    [(_, finding)] = checkup._versions({"a": {"versions": without}})
    assert finding == f"problem: futurex is {mine['futurex']} here and none on a"


def test_ports_that_cannot_be_reached():
    async def tried():
        with socket.create_server(("127.0.0.1", 0)) as server:
            good = server.getsockname()[:2]
            with _deaf() as taken:
                bad = taken.getsockname()[:2]
                places = {"me": bad, "good": good, "bad": bad}
                return await checkup._unreachable(places, 10.0, SimpleNamespace(address="me")), bad[1]

    found, port = asyncio.run(tried())
    assert found == [f"bad at port {port}"]


def test_what_transports_there_are():
    def about(**changes):
        return {"host": "h", "user": 1, "ucx": True, "address": "tcp://h:1", **changes}

    def said(*workers):
        [(_, finding)] = checkup._transports(dict(enumerate(workers)))
        return finding.partition(";")[0]

    assert said(about(), about()) == "auto, local, tcp, ucx"
    assert said(about(), about(host="other")) == "auto, tcp, ucx"
    assert said(about(), about(user=2, ucx=False)) == "auto, tcp"
    assert said(about(address="tls://h:1"), about(address="tls://h:2")) == "auto, local, tcp"
