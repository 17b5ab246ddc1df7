"""One trace over all localities: clocks aligned, exchanges beside instructions, arrows from rank to rank."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import futurex as fx

sys.path.insert(0, str(Path(__file__).parent.parent / "runtime"))
from test_timeline import check

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

LAYERS = 6
WORST = 0.6  # seconds: an answer that takes longer than one second is not measured, and half of that may be wrong


def loss(params, x, y):
    for w in params:
        x = np.tanh(x @ w)
    return ((x - y) ** 2).mean()


@pytest.mark.parametrize("transport", ["local", "tcp"])
def test_the_exported_trace_shows_exchanges_beside_the_backward_pass(transport, tmp_path):
    rng = np.random.default_rng(0)
    params = [rng.normal(size=(512, 512)).astype(np.float32) / 30 for _ in range(LAYERS)]
    data = tuple(rng.normal(size=(64, 512)).astype(np.float32) for _ in range(2))
    with fx.Cluster(2, transport=transport) as cluster:
        run = fx.fit(loss, params, data, epochs=8, batch_size=64, on=cluster, progress=False, trace_steps=3)
        run.result(60)
        path = tmp_path / "trace.json"
        run.timeline.save(path)
        with cluster.trace() as timeline:
            fx.futurize(loss).on(cluster)(params, cluster.tile(data[0]), cluster.tile(data[1])).result()
    _check_exported(json.loads(path.read_text()), transport)
    assert {event["pid"] for event in timeline.events} == {0, 1}
    check(timeline.document())
    assert 0.0 < timeline.clock_error < WORST


def _check_exported(document, transport):
    slices, arrows = check(document)
    names = {
        (r["pid"], r["tid"]): r["args"]["name"].split(" (")[0]
        for r in document["traceEvents"] if r["name"] == "thread_name"
    }  # fmt: skip
    assert {pid for pid, _ in names} == {1, 2}
    # All processes of a host have one clock: the measured one is as wrong as it says, or less.
    error = document["otherData"]["clock_error_seconds"] * 1e6
    assert 0 < error < WORST * 1e6
    together = 0.0
    for pid in (1, 2):
        compute = [each for each in slices if names[each["pid"], each["tid"]] == "compute" and each["pid"] == pid]
        flights = [each for each in slices if names[each["pid"], each["tid"]] == "communication" and each["pid"] == pid]
        assert len({each["args"]["exchange"] for each in flights}) == len(flights) >= 3 * 2
        assert all(each["args"]["bytes"] > 0 for each in flights)
        # The lines of the loss: what runs while its gradients are under way is the rest of the backward pass.
        lines = [each for each in compute if "test_traces.py" in each.get("args", {}).get("line", "")]
        together += sum(_common(flight, each) for flight in flights for each in lines)
    assert together > 0.0, "no gradient was under way while the backward pass went on"
    for start, end in arrows:
        assert start["pid"] != end["pid"]
        assert end["ts"] >= start["ts"] - 2 * error, "an effect comes before its cause"
    kinds = {start["name"] for start, _ in arrows}
    assert kinds == ({"exchange", "message"} if transport == "tcp" else kinds | {"exchange"})
    exchanges = {each["args"]["exchange"] for each in slices if "exchange" in each.get("args", {})}
    assert sum(start["name"] == "exchange" for start, _ in arrows) == len(exchanges)


def _common(a, b):
    return max(0.0, min(a["ts"] + a["dur"], b["ts"] + b["dur"]) - max(a["ts"], b["ts"]))


def test_a_trace_that_is_refused_leaves_the_one_that_is_recorded():
    with fx.Cluster(2) as cluster:
        bound, x = fx.futurize(np.sum).on(cluster), cluster.tile(np.ones(4))
        with cluster.trace() as timeline:
            with pytest.raises(RuntimeError, match="recorded already"), cluster.trace():
                pass
            bound(x).result(60)
        assert {event["pid"] for event in timeline.events} == {0, 1}


def test_who_traces_a_cluster_that_is_no_more_is_told_at_once():
    with fx.Cluster(2) as cluster:
        victim = cluster.addresses[1]
        os.kill(cluster.client.run(os.getpid)[victim], signal.SIGKILL)
        begun = time.monotonic()
        with pytest.raises(fx.LocalityLost), cluster.trace():
            pass
        assert time.monotonic() < begun + 15  # Dask dials a process that has ended for 30 s
    for act in (lambda: cluster.trace().__enter__(), lambda: cluster.scale(2)):
        with pytest.raises(fx.ClusterUnreachable, match="has been closed"):
            act()
