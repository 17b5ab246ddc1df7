"""Plans as graphs: the same values for other arguments, results that stay, and reasons where there is no graph."""

import numpy as np
import pytest

import futurex as fx
from futurex.kernels.cupy_ import capture
from futurex.runtime.device import DevicePlan


@pytest.fixture(autouse=True)
def _copies_cost_nothing(monkeypatch):
    monkeypatch.setattr(capture, "_COPY_RATE", 1e30)


def plan_of(function, *args):
    return DevicePlan(fx.futurize(function).trace(*args).graph, resident=False)


def many(plan, *calls):
    return [np.asarray(plan.run(list(args))[0]).copy() for args in calls]


def program(x, y, factor):
    h = np.tanh(x @ y) * factor
    h = np.where(h > 0.1, h, np.sort(h, axis=0))
    h[1] += 1.0
    return (h.astype(np.float32) @ np.ones((20, 3), np.float32)).max(axis=0) + np.arange(3)


def arguments(seed, factor=2.0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(30, 40)), rng.normal(size=(40, 20)), factor


def test_a_graph_gives_what_the_kernels_give():
    plan = plan_of(program, *arguments(0))
    calls = [arguments(seed) for seed in range(9)]
    results = many(plan, *calls)
    assert plan.replays.reason is None
    assert len(plan.replays._graphs) == 1
    for result, args in zip(results, calls, strict=True):
        np.testing.assert_allclose(result, program(*args), rtol=1e-5)


def test_results_outlive_the_next_run():
    plan = DevicePlan(fx.futurize(lambda x: x * 2 + 1).trace(np.ones(4)).graph)
    kept = [plan.run([np.full(4, float(k))])[0] for k in range(8)]
    assert [result.host().tolist() for result in kept] == [[2.0 * k + 1] * 4 for k in range(8)]


def test_scalars_are_part_of_a_graph():
    plan = plan_of(program, *arguments(0))
    calls = [arguments(seed, 1.0 + seed % 2) for seed in range(10)]
    for result, args in zip(many(plan, *calls), calls, strict=True):
        np.testing.assert_allclose(result, program(*args), rtol=1e-5)
    assert len(plan.replays._graphs) == 2
    many(plan, arguments(0, 3.5))
    assert plan.replays.reason == "its scalars differ from call to call"
    np.testing.assert_allclose(many(plan, arguments(3, 4.5))[0], program(*arguments(3, 4.5)), rtol=1e-5)


def test_what_waits_for_the_device_is_launched_as_before():
    plan = plan_of(lambda x, places: x[places] * 2, np.ones(5), np.array([1, 2]))
    for _ in range(8):
        assert many(plan, (np.arange(5.0), np.array([4, 0])))[0].tolist() == [8.0, 0.0]
    assert "StreamCaptureUnsupported" in plan.replays.reason
    with pytest.raises(IndexError):
        plan.run([np.arange(5.0), np.array([4, 7])])


def test_large_arguments_are_not_copied_for_it(monkeypatch):
    monkeypatch.setattr(capture, "_COPY_RATE", 1e12)
    x = np.ones((2000, 2000))
    plan = plan_of(lambda x: x + 1, x)
    many(plan, *[(x,)] * 6)
    assert plan.replays.reason.startswith("copying arguments")
