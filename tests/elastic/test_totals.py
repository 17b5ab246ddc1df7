"""What runs count over all their generations, and what their localities hold meanwhile."""

from __future__ import annotations

import time

import numpy as np
import pytest

import futurex as fx
from futurex.runtime.group import Locality, Once
from futurex.training.loop import _Epoch
from tests.elastic.campaign import EVERY, STEPS, exact, problem
from tests.elastic.faults import Fault, arm

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
WAIT = 240.0


@pytest.fixture(scope="module")
def cluster():
    with fx.Cluster(2) as started:
        yield started


def test_counters_are_totals_over_all_generations(cluster, tmp_path):
    at, (params, data, options) = 3 * EVERY + 2, problem()
    arm(cluster.client, tmp_path, [Fault("step", at, "exception", 1)])
    patience = {"stall_seconds": 120.0, "min_workers": 2}  # nobody is to be left out, however slow the machine
    run = fx.fit(exact, params, data, on=cluster, commit_every=EVERY, **patience, **options)
    run.result(WAIT)
    assert [each["step"] for each in run.generations if each["what"] == "started"] == [0, 3 * EVERY]
    first, second = run.counters
    assert second.steps == at + STEPS - 3 * EVERY
    assert first.steps in (second.steps, second.steps - 1)  # it may have been in its last step when the other failed
    assert all(len(steps) == STEPS - 3 * EVERY for steps in run.step_counters)
    for total, steps in zip(run.counters, run.step_counters, strict=True):
        assert total.exchanges > sum(step.exchanges for step in steps) > 0
    assert sum(record["comm_seconds"] for record in run.history) <= max(total.communication for total in run.counters)


def test_an_epoch_counts_what_was_exchanged_in_earlier_generations():
    alone = Locality(0, 1, 1, lambda event: None)
    before = {"samples": 8, "totals": [4.0], "seconds": 2.0, "communication": 0.5, "exposed": 0.125}
    record = _Epoch(3, alone, **before).record(9, [])
    assert (record["comm_seconds"], record["exposed_comm_seconds"]) == (0.5, 0.125)
    assert record["hidden_comm_share"] == 0.75
    assert record["seconds"] >= 2.0
    without = {name: before[name] for name in ("samples", "totals", "seconds")}  # as older checkpoints say it
    assert "comm_seconds" not in _Epoch(3, alone, **without).record(9, [])


def squares(params, x, y):
    return ((x @ params - y) ** 2).mean()


def _handed(dask_worker):
    return len(dask_worker.futurex_host.handed)


def test_workers_do_not_keep_what_a_run_began_with(cluster):
    run = fx.fit(
        squares, np.zeros((5, 2)), (np.ones((8, 5)), np.ones((8, 2))), epochs=10**6, batch_size=8, on=cluster,
        strategy=fx.strategy.zero(), progress=False,
    )  # fmt: skip
    end = time.monotonic() + WAIT
    while run.step < 1:
        assert not run.done(), run
        assert time.monotonic() < end, "the run did not start"
        time.sleep(0.01)
    assert set(cluster.client.run(_handed).values()) == {0}
    run.stop()
    run.result(WAIT)


def test_what_is_given_away_is_gone():
    first = Once([1.0])
    assert (first.take(), first.take()) == ([1.0], None)
