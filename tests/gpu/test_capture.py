"""Plans as graphs: the same values for other arguments, results that stay, and reasons where there is no graph."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import futurex as fx
from futurex.frontend import lower
from futurex.kernels.cupy_ import capture
from futurex.kernels.cupy_.devices import EMULATED
from futurex.kernels.cupy_.regions import Region
from futurex.runtime.device import DevicePlan


@pytest.fixture(autouse=True)
def _copies_cost_nothing(monkeypatch):
    monkeypatch.setattr(capture, "_COPY_RATE", 1e30)


def plan_of(function, *args):
    return DevicePlan(fx.futurize(function).trace(*args).graph, resident=False)


def replays(plan):
    [found] = plan.replays.values()
    return found


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
    assert replays(plan).reason is None
    assert len(replays(plan)._graphs) == 1
    for result, args in zip(results, calls, strict=True):
        np.testing.assert_allclose(result, program(*args), rtol=1e-5)


def test_results_outlive_the_next_run():
    plan = DevicePlan(fx.futurize(lambda x: x * 2 + 1).trace(np.ones(4)).graph)
    kept = [plan.run([np.full(4, float(k))])[0] for k in range(8)]
    assert [result.host().tolist() for result in kept] == [[2.0 * k + 1] * 4 for k in range(8)]


@pytest.mark.parametrize("number", [float, np.float32, np.float64, np.int16])
def test_one_graph_serves_all_numbers_that_generated_kernels_read(number):
    """They come from the device's memory, in the dtype that they have by value."""

    def scaled(x, y, factor):
        rate = factor / (factor * factor + factor)
        return np.tanh(x @ y) * factor - x[:, :20] * rate

    def numbers(k):
        x, y, _ = arguments(k)
        return x.astype(np.float32), y.astype(np.float32), number(k + 1.75)

    plan = plan_of(scaled, *numbers(0))
    calls = [numbers(k) for k in range(10)]
    for result, args in zip(many(plan, *calls), calls, strict=True):
        assert result.dtype == scaled(*args).dtype
        np.testing.assert_allclose(result, scaled(*args), rtol=1e-5, atol=1e-4)  # of products of singles, times ten
    assert (replays(plan).reason, len(replays(plan)._graphs)) == (None, 1)


def test_other_scalars_are_part_of_a_graph():
    def rolled(x, times):
        return np.gcd(np.cumsum(x, axis=0), times)  # CuPy's kernel, which takes numbers by value

    plan = plan_of(rolled, np.arange(9), np.int64(3))
    calls = [(np.arange(9) + k, np.int64(1 + k % 2)) for k in range(10)]
    for result, args in zip(many(plan, *calls), calls, strict=True):
        assert result.tolist() == rolled(*args).tolist()
    assert len(replays(plan)._graphs) == 2
    many(plan, (np.arange(9), np.int64(7)))
    assert replays(plan).reason == "its scalars differ from call to call"
    assert many(plan, (np.arange(9), np.int64(-5)))[0].tolist() == rolled(np.arange(9), -5).tolist()


def test_zeros_of_both_signs_are_two_scalars():
    plan = plan_of(lambda x, y: np.copysign(x, y), np.ones(5), 1.0)
    assert [each[0] for each in many(plan, *[(np.ones(5), sign) for sign in (0.0, -0.0) * 5])] == [1.0, -1.0] * 5


def network(params, x, labels):
    h = np.maximum(x @ params["w"] + params["b"], 0)
    return fx.nn.softmax_cross_entropy(h @ params["v"], labels).mean()


def batches(count):
    rng = np.random.default_rng(0)
    shapes = {"w": (20, 30), "b": (30,), "v": (30, 5)}
    params = {name: 0.3 * rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    drawn = [(rng.normal(size=(64, 20)).astype(np.float32), rng.integers(0, 5, 64)) for _ in range(count)]
    return params, drawn


OPTIMIZERS = {
    "adam": fx.optim.adam(1e-2), "adamw": fx.optim.adamw(1e-2), "sgd": fx.optim.sgd(0.1),
    "momentum": fx.optim.sgd(0.1, momentum=0.9, nesterov=True),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_step_is_one_graph_that_writes_in_place(name):
    """Adam's step and rates change from run to run; parameters and moments keep their addresses."""
    optimizer, (params, drawn) = OPTIMIZERS[name], batches(12)
    slope = fx.value_and_grad(network)

    def step(params, state, x, labels):
        loss, grads = slope(params, x, labels)
        return *optimizer.update(params, grads, state), loss

    there, here = (fx.futurize(step, device=device, donate=("params", "state")) for device in ("gpu", "cpu"))
    mine, theirs = [(params, optimizer.init(params))] * 2
    addresses = set()
    for x, labels in drawn:
        *mine, loss = there(*mine, x, labels)
        *theirs, expected = here(*theirs, x, labels)
        np.testing.assert_allclose(float(loss), float(expected), rtol=1e-4)
        assert mine[0]["w"].exception() is None  # it waits
        addresses.add(mine[0]["w"]._pending().array.data.ptr)
    for (key, value), reference in zip(mine[0].items(), theirs[0].values(), strict=True):
        np.testing.assert_allclose(np.asarray(value), np.asarray(reference), rtol=1e-3, atol=1e-4, err_msg=key)
    assert len(addresses) == 1
    [found] = there.trace(*mine, *drawn[0]).plan.replays.values()
    assert (found.reason, len(found._graphs)) == (None, 1)
    [(_, graph)] = found._graphs.values()
    assert graph.replays >= 6


def test_pooling_and_its_derivative_are_one_graph():
    x = np.random.default_rng(0).normal(size=(2, 9, 9, 3))
    slope = fx.grad(lambda x: (fx.nn.max_pool(x, 3, 2) ** 2).sum())
    plan = plan_of(slope, x)
    for result in many(plan, *[(x,)] * 6):
        np.testing.assert_allclose(result, slope(x), rtol=1e-12)
    assert (replays(plan).reason, len(replays(plan)._graphs)) == (None, 1)


def test_dropout_is_in_the_graph_with_the_key_of_each_step():
    def step(w, x, key):
        def loss(w):
            h = fx.nn.dropout(x @ w, 0.3, key)
            return (h * h).mean() + fx.random.normal(fx.random.fold(key, 1), (3,)).sum() * 1e-3

        value, slope = fx.value_and_grad(loss)(w)
        return w - 0.1 * slope, value

    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(20, 30)).astype(np.float32), rng.normal(size=(64, 20)).astype(np.float32)
    there, here = (fx.futurize(step, device=device, donate="w") for device in ("gpu", "cpu"))
    mine = theirs = w
    for k in range(10):
        mine, loss = there(mine, x, np.uint64(k + 2**40))
        theirs, expected = here(theirs, x, np.uint64(k + 2**40))
        np.testing.assert_allclose(float(loss), float(expected), rtol=1e-4)
    np.testing.assert_allclose(np.asarray(mine), np.asarray(theirs), rtol=1e-4, atol=1e-5)
    [found] = there.trace(mine, x, np.uint64(3)).plan.replays.values()
    assert (found.reason, len(found._graphs)) == (None, 1)


def test_others_arrays_do_not_take_a_graph_away_at_every_call():
    plan = DevicePlan(fx.futurize(lambda w, x: w - 0.5 * x).trace(np.ones(4), np.ones(4)).graph, donate={0: 0})
    mine, theirs = [np.zeros(4)], [np.ones(4)]
    for k in range(30):
        mine, theirs = plan.run([*mine, np.full(4, float(k))]), plan.run([*theirs, np.full(4, float(k))])
    assert mine[0].host().tolist() == [-0.5 * sum(range(30))] * 4
    assert theirs[0].host().tolist() == [1 - 0.5 * sum(range(30))] * 4
    assert replays(plan).reason is None


EXCHANGES = {
    "in place": (lambda a, b: (a + 0.5 * b, b * 2 - 1), True),
    "swapped": (lambda a, b: (b, a), None),
    "the old one is kept": (lambda a, b: (a + 2.0 * b, a), False),
    "read later": (lambda a, b: (a * 0.5 - 1, b + np.cumsum(a) * 0.5), None),
    "a view of the other": (lambda a, b: (b[::-1], b + 0.5 * a), False),
    "the same twice": (lambda a, b: (a - 0.5 * b, a - 0.5 * b), None),
    "as it was": (lambda a, b: (a, b - a * 0.5), True),
    "sorted": (lambda a, b: (a * b + 1, np.sort(b)), None),
}  # fmt: skip


@pytest.mark.parametrize("name", EXCHANGES)
def test_what_is_given_away_holds_the_result_that_replaces_it(name):
    function, direct = EXCHANGES[name]
    start = np.arange(9.0) + 1, np.linspace(-1, 1, 9)
    plan = DevicePlan(lower(function, *start).graph, donate={0: 0, 1: 1})
    mine, theirs = plan.run([*map(np.copy, start)]), function(*start)
    places = [result.array.data.ptr for result in mine]
    for _ in range(9):
        for result, expected in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(result.host(), expected)
        mine, theirs = plan.run(mine), function(*theirs)
    assert [result.array.data.ptr for result in mine] == places
    if direct is not None:
        assert direct == all(step.over for step in plan.instructions if step.node.op == "fused")


def test_results_are_nobody_elses_memory():
    plan = DevicePlan(fx.futurize(lambda x: (x.T, x, x[0])).trace(np.ones((3, 3))).graph)
    [argument] = DevicePlan(fx.futurize(lambda x: x * 2 + 1).trace(np.ones((3, 3))).graph).run([np.ones((3, 3))])
    results = plan.run([argument])
    for result in results:
        result.array.fill(0)
    assert argument.host().tolist() == [[3.0] * 3] * 3


def test_what_waits_for_the_device_is_launched_as_before():
    plan = plan_of(lambda x, places: x[places] * 2, np.ones(5), np.array([1, 2]))
    for _ in range(8):
        assert many(plan, (np.arange(5.0), np.array([4, 0])))[0].tolist() == [8.0, 0.0]
    assert "captur" in replays(plan).reason.lower()  # CuPy's own refusal, or CUDA's
    with pytest.raises(IndexError):
        plan.run([np.arange(5.0), np.array([4, 7])])


def test_others_may_look_at_results_while_a_graph_is_captured(monkeypatch):
    """They record events on the stream of the run, and have it wait for theirs: neither may be part of the graph."""
    start = np.linspace(-1, 1, 72).reshape(8, 9)
    plan = DevicePlan(fx.futurize(lambda x: (np.tanh(x * 2), x + 1)).trace(start).graph)
    made, seen = plan.run([start]), []
    launched = capture.Captured._captured

    def meanwhile(self, launch, inputs):
        def watched(held):
            results = launch(held)
            if self.device.capturing:
                with ThreadPoolExecutor(1) as pool:
                    seen.append(pool.submit(lambda: (made[1].host(), plan.home.copy(made[1]).host())).result(60))
            return results

        return launched(self, watched, inputs)

    monkeypatch.setattr(capture.Captured, "_captured", meanwhile)
    expected = np.tanh(start * 2), start + 1
    for _ in range(8):
        made[:], expected = plan.run(made[:1]), (np.tanh(expected[0] * 2), expected[0] + 1)
    np.testing.assert_allclose(made[0].host(), expected[0], rtol=1e-12)
    assert replays(plan).reason is None
    assert len(seen) == 1


def test_what_fails_in_a_capture_only_stays_as_it_was(monkeypatch):
    """The reason is the kernel's own error, and the kernel goes on serving runs."""
    plan = plan_of(lambda x: np.tanh(x) * 2, np.ones(5))
    plain = Region.__call__

    def fails(self, *inputs, **options):
        if self.device.capturing:
            raise ValueError("not while a graph is captured")
        return plain(self, *inputs, **options)

    monkeypatch.setattr(Region, "__call__", fails)
    results = many(plan, *[(np.full(5, k / 8),) for k in range(8)])
    np.testing.assert_allclose([each[0] for each in results], [2 * np.tanh(k / 8) for k in range(8)], rtol=1e-12)
    assert replays(plan).reason == "ValueError: not while a graph is captured"
    assert [row.backend for row in plan.profile()] == ["cuda"]


def test_large_arguments_are_not_copied_for_it(monkeypatch):
    monkeypatch.setattr(capture, "_COPY_RATE", 1e12)
    x = np.ones((2000, 2000))
    plan = plan_of(lambda x: x + 1, x)
    many(plan, *[(x,)] * 6)
    assert replays(plan).reason.startswith("copying arguments")


def test_transforms_take_turns_and_are_no_graph():
    """A plan of cuFFT is one for a thread and a shape, with the memory that it works in."""
    plan = plan_of(lambda x: np.fft.fft(x).real * 2, np.ones(8))
    for result, x in zip(many(plan, *[(np.arange(8.0) + k,) for k in range(8)]), range(8), strict=True):
        np.testing.assert_allclose(result, np.fft.fft(np.arange(8.0) + x).real * 2)
    assert "cuFFT" in replays(plan).reason
    device = plan.device
    first, second = (device.xp.cuda.Stream(non_blocking=True) for _ in range(2))
    for stream in (first, first, second):
        with stream, device.transforms():
            pass
    if device.kind == EMULATED:
        assert [what for what, _ in first.log] == ["wait", "record", "record"]  # for those of the runs
        assert [what for what, _ in second.log] == ["wait", "record"]
