"""What localities exchange is counted, by step and by locality."""

from __future__ import annotations

import numpy as np
import pytest

import futurex as fx

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def squares(w, x, y):
    return ((x @ w - y) ** 2).mean()


@pytest.mark.parametrize("transport", ["local", "tcp"])
def test_counters_by_locality_and_by_step(transport):
    rng = np.random.default_rng(0)
    w, x = np.zeros((30, 20)), rng.normal(size=(64, 30))
    data = (x, rng.normal(size=(64, 20)))
    with fx.Cluster(2, transport=transport) as cluster:
        run = fx.fit(squares, w, data, epochs=3, batch_size=16, on=cluster, progress=False)
        run.result(60)
    first, second = run.counters
    assert first.steps == second.steps == 12
    for total, steps in zip(run.counters, run.step_counters, strict=True):
        assert len(steps) == 12
        assert sum(step.exchanged_bytes for step in steps) == total.exchanged_bytes
        assert sum(step.exchanges for step in steps) == total.exchanges
        assert sum(step.waits for step in steps) == total.waits
        assert sum(step.communication for step in steps) == pytest.approx(total.communication)
        assert sum(step.exposed for step in steps) == pytest.approx(total.exposed)
        # The gradient, the loss and the votes; nothing else is exchanged in a step.
        assert all(w.nbytes < step.exchanged_bytes <= w.nbytes + 32 for step in steps)
        assert all(0 < step.communication <= step.seconds for step in steps)
        assert all(0 <= step.hidden <= step.communication for step in steps)
    assert first.exchanges == second.exchanges >= 12
    assert (first.messages_sent, first.bytes_sent) == (second.messages_received, second.bytes_received)
    assert (second.messages_sent, second.bytes_sent) == (first.messages_received, first.bytes_received)
    if transport == "tcp":
        assert first.bytes_sent >= first.exchanged_bytes
        assert first.messages_sent >= first.exchanges
    recorded = sum(record["comm_seconds"] for record in run.history)
    assert first.communication == pytest.approx(recorded, rel=0.05)
    assert "hidden" in str(first)


def test_one_locality_counts_its_steps():
    rng = np.random.default_rng(0)
    data = (rng.normal(size=(10, 3)), rng.normal(size=(10, 2)))
    run = fx.fit(squares, np.zeros((3, 2)), data, epochs=2, batch_size=5, progress=False)
    run.result(60)
    [total] = run.counters
    assert (total.steps, total.exchanges, total.bytes_sent, total.communication) == (4, 0, 0, 0.0)
    assert total.seconds == pytest.approx(sum(step.seconds for step in run.step_counters[0]))
