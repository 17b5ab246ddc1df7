"""Values computed again: the peak is within the limit and as predicted, and every result has the same bits."""

import tracemalloc

import numpy as np
import pytest

import futurex as fx
from futurex.passes.pipeline import optimise
from futurex.runtime.plan import compile_plan
from futurex.runtime.remat import Schedule, lowest, search, within
from futurex.runtime.units import size_of

RNG = np.random.default_rng(0)


def dense(weights, x):
    for w in weights:
        x = np.tanh(x @ w)
    return (x * x).sum()


def residual(weights, x):
    for w in weights:
        h = x @ w
        x = x + np.tanh(h) * np.exp(-h * h)
    return (x * x).sum()


def convolutions(weights, x):
    for w in weights:
        x = np.maximum(fx.nn.conv(x, w, padding=1), 0)
    return (x * x).mean()


def views(weights, x):
    for w in weights:
        y = np.tanh(x @ w)
        x = np.concatenate([y[:, 16:], y[:, :16] * 0.5], axis=1).T.copy().T
    return (x * x).sum()


def dropped(weights, x):
    for k, w in enumerate(weights):
        x = fx.nn.dropout(np.maximum(x @ w, 0), 0.1, fx.random.fold(fx.random.key(3), k))
    return (x * x).sum()


def written(weights, x):
    out = x.copy()
    for w in weights:
        out[:, :32] = np.sin(out @ w)[:, 32:]
    return (out * out).sum()


def matrices(count, width):
    return [RNG.normal(size=(width, width)).astype(np.float32) * 0.2 for _ in range(count)]


ROWS = RNG.normal(size=(256, 64)).astype(np.float32)
MANY_ROWS = np.tile(ROWS, (4, 1))
"""Of whose products none is small enough for code that is one function, which has memory of its own."""
FILTERS = [RNG.normal(size=(3, 3, 3 if k == 0 else 8, 8)).astype(np.float32) for k in range(6)]
CASES = {
    "dense": (fx.value_and_grad(dense), (matrices(12, 64), ROWS)),
    "residual": (fx.value_and_grad(residual), (matrices(12, 64), ROWS)),
    "convolutions": (fx.value_and_grad(convolutions), (FILTERS, RNG.normal(size=(4, 16, 16, 3)).astype(np.float32))),
    "views": (fx.value_and_grad(views), (matrices(8, 64), ROWS)),
    "dropped": (fx.value_and_grad(dropped), (matrices(8, 64), ROWS)),
    "written": (fx.value_and_grad(written), (matrices(8, 64), ROWS)),
    "double precision": (fx.grad(residual), ([w.astype(float) for w in matrices(9, 64)], ROWS.astype(float))),
}


def lowered(case):
    function, args = CASES[case]
    program = fx.lower(function, *args)
    return program.graph, program.flatten(*args)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("share", [0.85, 0.72])
def test_the_peak_is_within_the_limit_and_the_bits_are_the_same(case, share):
    graph, inputs = lowered(case)
    plan = compile_plan(graph, threads=2)
    limit = int(plan.memory.peak * share)
    small = within(graph, limit, threads=2, donate={}, background=False)
    assert small.memory.peak <= limit < plan.memory.peak
    assert len(small.instructions) > len(plan.instructions)
    expected = plan.run(inputs)
    for _ in range(40):  # more than it takes to become straight code
        found = small.run(inputs)
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, other, strict=True)
    assert abs(measured(small, inputs) - small.memory.peak) < 0.05 * small.memory.peak + BUFFERS


def test_operands_that_wait_for_others_are_counted_as_no_copies():
    graph, _ = lowered("dense")
    plan = compile_plan(graph)
    small = within(graph, int(plan.memory.peak * 0.72), threads=1, donate={}, background=False)
    assert small.memory.unplanned == plan.memory.unplanned


BUFFERS = 110_000  # bytes that NumPy's own functions take for operands that do not lie in order


def measured(plan, inputs):
    inputs = [np.array(value) if isinstance(value, np.ndarray) else value for value in inputs]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    plan.run(inputs)
    found = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return found + sum(each.arena.nbytes for each in plan._instances if each.arena is not None) + plan.memory.constants


def test_deep_chains_keep_checkpoints():
    """With sixteen times the layers a chain needs far less than sixteen times the memory."""
    peaks = {}
    for count in (6, 96):
        (weights,) = matrices(1, 64)
        program = fx.lower(lambda x, w, count=count: fx.grad(lambda x: dense([w] * count, x))(x), ROWS, weights)
        schedule = Schedule(compile_plan(optimise(program.graph), optimised=True))
        peaks[count] = min(schedule.walk(cuts).peak for cuts in lowest(schedule))
        plain = schedule.walk({}).peak
    assert peaks[96] < 6 * peaks[6]
    assert peaks[96] < plain / 4


def test_less_memory_takes_more_computing_and_no_more_than_needed():
    graph, _ = lowered("residual")
    schedule = Schedule(compile_plan(graph))
    base = schedule.walk({})
    assert base.again == 0.0
    again = []
    for share in (0.9, 0.7, 0.5):
        walk = schedule.walk(search(schedule, int(base.peak * share)))
        assert walk.peak <= base.peak * share
        again.append(walk.again)
    assert 0.0 < again[0] <= again[1] <= again[2]
    assert search(schedule, base.peak) == {}


def test_a_limit_that_cannot_be_kept_says_what_can():
    graph, _ = lowered("dense")
    with pytest.raises(MemoryError, match=r"memory_limit=1000: .* bytes, and [0-9]+ where") as found:
        within(graph, 1000, threads=1, donate={}, background=False)
    least = int(str(found.value).split("bytes, and ")[1].split()[0])
    plan = within(graph, least, threads=1, donate={}, background=False)
    assert plan.memory.peak <= least


def test_what_the_error_says_would_do_does_where_parameters_are_given_away():
    def step(weights, moments, x):
        slopes = fx.grad(residual)(weights, x)
        moments = [np.float32(0.9) * m + g for m, g in zip(moments, slopes, strict=True)]
        return [w - np.float32(1e-3) * m for w, m in zip(weights, moments, strict=True)], moments

    step = fx.futurize(step, donate=("weights", "moments"))
    args = matrices(8, 64), matrices(8, 64), MANY_ROWS
    peak = step.memory(*args).peak
    told = set()
    for share in (0.3, 0.2, 0.1):
        with pytest.raises(MemoryError) as found:
            fx.futurize(step, memory_limit=int(peak * share)).memory(*args)
        told.add(int(str(found.value).split("bytes, and ")[1].split()[0]))
    assert len(told) == 1, "the same, whatever the limit"
    (least,) = told
    assert least < peak
    assert fx.futurize(step, memory_limit=least).memory(*args).peak <= least


def test_branches_that_only_choose_take_the_time_of_a_call():
    """Nothing is computed in them, but what may be made again is compared by bytes for a second."""

    def turned(x, y):
        a, b = np.sin(x), np.cos(y)
        if a[0] > 0:
            a, b = b, a
        return np.sort(np.concatenate([a, b, a, b]))[7] * np.sort(a) + b

    graph = fx.lower(turned, *RNG.normal(size=(2, 2000))).graph
    with pytest.raises(MemoryError, match="takes 176064 bytes, and 176064 where values are computed again"):
        within(graph, 150_000, threads=1, donate={}, background=False)


def test_effects_stay_in_order(capsys):
    def loss(weights, x):
        for k, w in enumerate(weights):
            x = np.tanh(x @ w)
            print(k, x.shape)
        return (x * x).sum()

    weights = matrices(6, 64)
    slope = fx.futurize(lambda weights, x: fx.grad(loss)(weights, x))
    expected = slope(weights, ROWS)
    first = capsys.readouterr().out
    limit = int(slope.memory(weights, ROWS).peak * 0.8)
    small = fx.futurize(slope, memory_limit=limit)
    found = small(weights, ROWS)
    assert capsys.readouterr().out == first == "".join(f"{k} (256, 64)\n" for k in range(6))
    assert small.memory(weights, ROWS).peak <= limit
    assert all(np.array_equal(one, two) for one, two in zip(found, expected, strict=True))


def test_donated_parameters_are_written_in_place_with_a_limit():
    def step(weights, x):
        loss, slopes = fx.value_and_grad(residual)(weights, x)
        return [w - np.float32(1e-3) * g for w, g in zip(weights, slopes, strict=True)], loss

    plain, weights = fx.futurize(step, donate="weights"), matrices(8, 64)
    limit = int(plain.memory(weights, MANY_ROWS).peak * 0.75)
    small = fx.futurize(step, donate="weights", memory_limit=limit)
    one = two = weights
    for _ in range(3):
        one, loss = plain(one, MANY_ROWS)
        two, other = small(two, MANY_ROWS)
        assert float(loss) == float(other)
    assert small.memory(two, MANY_ROWS).peak <= limit
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize(
    ("text", "size"), [("512 MB", 512_000_000), ("1.5GiB", 3 << 29), (4096, 4096), (" 7 kb ", 7000), ("100", 100)]
)
def test_sizes(text, size):
    assert size_of(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-3 MB", "5 parsecs", "0", 0, "1e3", "1.2.3 MB"])
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match="number of bytes"):
        fx.futurize(dense, memory_limit=text)


@pytest.mark.parametrize("value", [True, 2.5, b"1 MB"])
def test_what_cannot_be_a_size(value):
    with pytest.raises(TypeError, match="number of bytes"):
        fx.futurize(dense, memory_limit=value)
