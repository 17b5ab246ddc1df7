"""What runs count over all their generations, and what their localities hold meanwhile."""

from __future__ import annotations

import gc
import time
import tracemalloc

import numpy as np
import pytest

import futurex as fx
from futurex.runtime.group import Locality
from futurex.training.loop import _Epoch
from tests.elastic.campaign import EVERY, STEPS, trial
from tests.elastic.faults import Fault

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
WAIT = 240.0


@pytest.fixture(scope="module")
def cluster():
    with fx.Cluster(2) as started:
        yield started


def test_counters_are_totals_over_all_generations(cluster):
    at = 3 * EVERY + 2
    run, hit, _ = trial(cluster, [Fault("step", at, "exception", 1)], WAIT, least=2)
    assert hit == [0]
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


def _begin_to_count():
    tracemalloc.start()


def _held():
    gc.collect()
    shapes = tracemalloc.Filter(False, "*/runtime/lower.py")  # arrays that stand for layouts: nothing is written there
    found = tracemalloc.take_snapshot().filter_traces([shapes])
    return sum(each.size for each in found.statistics("filename"))


@pytest.mark.parametrize("extra", [{}, {"commit_every": 10**9}], ids=["fixed", "elastic"])
def test_localities_do_not_keep_what_a_run_began_with(cluster, extra):
    """Beside its parameters and its shard of the state a locality has the working memory of a step."""
    params, rows = np.zeros((500, 2000)), np.ones((8, 500))
    options = {"epochs": 10**6, "batch_size": 8, "on": cluster, "strategy": fx.strategy.zero(), "progress": False}
    cluster.client.run(_begin_to_count)
    held = []
    for size in (4, 2000):  # the first run brings in what any needs
        run = fx.fit(squares, params[:, :size], (rows, np.ones((8, size))), **options, **extra)
        end = time.monotonic() + WAIT
        while run.step < 5:
            assert time.monotonic() < end, "the run did not start"
            time.sleep(0.01)
        held.append(cluster.client.run(_held))
        run.stop()
        run.result(WAIT)
    [least, most] = held
    for locality in least:
        needed = sum(run.memory[0].values())
        assert needed < 4 * params.nbytes
        assert most[locality] - least[locality] < needed + params.nbytes  # what it began with is three times this
