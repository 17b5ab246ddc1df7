"""The memory of a run is known before it: within five per cent of what NumPy allocates, tapes of loops included."""

import gc
import time
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

import futurex as fx
from futurex.kernels.steps import Workspace
from futurex.passes.rounds import rounds_of
from futurex.runtime.arenas import HUGE_PAGE
from futurex.runtime.counters import HOT
from futurex.runtime.plan import compile_plan
from futurex.tree import Aval, Graph, apply, param

RNG = np.random.default_rng(0)


def elementwise(x, w):
    return np.sqrt(np.abs(np.sin(x) * x + 1)) - x


def products(x, w):
    for _ in range(3):
        x = np.tanh(x @ w)
    return (x * x).sum()


def range_loop(x, w):
    for _ in range(60):
        x = np.tanh(x @ w * 0.01)
    return (x * x).sum()


def while_loop(x, w):
    n = 0
    while n < 20:
        x = np.tanh(x @ w * 0.01)
        n += 1
    return (x * x).sum()


def branch(x, w):
    y = np.sin(x @ w) if x.sum() < 1e9 else x @ w
    return y + 1.0


def scanned(x, w):
    out = np.zeros((50, 100))
    for k in range(50):
        x = x * 0.5 + w[0]
        out[k] = x.sum(axis=0)[:100]
    return out


def sorted_rows(x, w):
    return np.sort(x @ w, axis=0)[::-1] + 1.0


def stencil(x, w):
    """The body reads four views with gaps, of which its kernel gets dense copies."""
    for _ in range(60):
        y = x.copy()
        y[1:-1, 1:-1] += 0.1 * (x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2])
        x = y
    return x


def recurrence(x, w):
    """A loop that is compiled whole: its arrays lie in memory of its own."""
    y = x[:150, :200].copy()
    for k in range(60):
        y = y * 0.5 + w[k, :150, None]
    return y


def adam_step(x, w):
    optimizer = fx.optim.adam(1e-3)
    loss, gradient = fx.value_and_grad(lambda w: ((x @ w) ** 2).sum())(w)
    return optimizer.update(w, gradient, {"lr": 1e-3, "step": 3.0, "m": w * 0.1, "v": w * w}), loss


def turned(x, w):
    """The second reshape has to copy, into planned memory."""
    return np.tanh((x @ w).reshape(300, 10, 20).transpose(1, 0, 2).reshape(3000, 20) @ w[:20, :20]).sum(axis=0)


def argument_turned(x, w):
    """As this one, of an argument, into memory of its own."""
    return np.tanh(x.reshape(300, 10, 20).transpose(1, 0, 2).reshape(3000, 20) @ w[:20, :20]).sum(axis=0)


def spread(x, w):
    """Results that are copies: what is broadcast, and one array twice."""
    y = np.tanh(x) + 1.0
    return np.broadcast_to(w.sum(), (500, 100)), y, y.T, np.sort(y, axis=0)[::2]


def medians(x, w):
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3))
    return np.median(windows, axis=(2, 3)), np.median(x, axis=0), np.median(x.reshape(15000, 4), axis=1)


def quantiles(x, w):
    return np.percentile(x, [10, 50], axis=1), np.quantile(x, 0.3)


def transforms(x, w):
    return np.abs(np.fft.fft(x, axis=1)).sum(), np.fft.rfft(w).real.sum()


def mapped(plan):
    """Arenas of this plan and those inside that NumPy has not allocated: they are kept for the next run."""
    arenas = [each.arena.nbytes for each in plan._instances if each.arena is not None]
    inner = sum(mapped(inner) for each in plan.instructions for inner in each.kernel.plans)
    return sum(size for size in arenas if size >= HUGE_PAGE // 2) + inner


def in_arrays():
    """Bytes of the arrays that live."""
    arrays = tracemalloc.DomainFilter(inclusive=True, domain=np.lib.tracemalloc_domain)
    return sum(each.size for each in tracemalloc.take_snapshot().filter_traces([arrays]).traces)


def taken_by_a_run(plan, inputs):
    """Bytes that a run takes at its peak, with arenas and what kernels keep, while allocations are traced."""
    kept, before = in_arrays(), tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    results = plan.run(inputs)
    assert results
    return kept + tracemalloc.get_traced_memory()[1] - before


CASES = [
    elementwise, products, fx.grad(products, argnums=(0, 1)), range_loop, fx.grad(range_loop), while_loop,
    fx.grad(while_loop, argnums=(0, 1)), branch, scanned, sorted_rows, adam_step,
    stencil, recurrence, turned, argument_turned, spread, medians, quantiles, transforms,
]  # fmt: skip


@pytest.mark.parametrize("function", CASES)
def test_the_peak_is_predicted_within_five_per_cent(function):
    arguments = RNG.normal(size=(300, 200)), RNG.normal(size=(200, 200))
    program = fx.lower(function, *arguments)
    plan = compile_plan(program.graph)
    inputs = program.flatten(*arguments)
    gc.collect()
    tracemalloc.start()
    try:
        plan.run(inputs)
        plan.run(inputs)  # the second one still makes what later ones have
        taken = taken_by_a_run(plan, inputs)
    finally:
        tracemalloc.stop()
    measured = taken + mapped(plan) + plan.memory.constants
    assert plan.memory.unknown == 0
    assert plan.memory.peak == pytest.approx(measured, rel=0.05, abs=16_000)


def test_room_for_sums_of_pieces_is_counted():
    def descent(w, x, y):
        return w - np.float32(1e-3) * (x.T @ (x @ w - y))

    x, w = np.ones((4000, 1000), np.float32), np.ones(1000, np.float32)
    plan = compile_plan(fx.lower(descent, w, x, x[:, 0].copy()).graph)
    kept = [each.kernel.call.room.nbytes for each in plan.instructions if each.node.op == "row_products"]
    assert kept
    assert plan.memory.kernels >= sum(kept) > 0


def test_room_for_sums_of_blocks_is_counted():
    x, scale = np.ones((2000, 32), np.float32), np.ones(32, np.float32)
    plan = compile_plan(fx.lower(lambda x, scale, shift: fx.nn.batch_norm(x, scale, shift), x, scale, scale).graph)
    kept = [each.kernel.call.room.nbytes for each in plan.instructions if each.node.op == "moments"]
    assert kept
    assert plan.memory.kernels >= sum(kept) > 0


def test_sums_over_rows_use_the_same_room_in_turn():
    """A plan that has become one function has room for the kernel that needs most, and no more."""

    def loss(w, x):
        hidden = fx.nn.relu(fx.nn.batch_norm(x, w["scale"], w["shift"])[0])
        return fx.nn.batch_norm(hidden @ w["matrix"], w["scale"], w["shift"])[0].sum()

    w = {name: np.ones(size, np.float32) for name, size in (("scale", 256), ("shift", 256), ("matrix", (256, 256)))}
    x = RNG.normal(size=(2000, 256)).astype(np.float32)
    program = fx.lower(fx.grad(loss), w, x)
    plan = compile_plan(program.graph)
    inputs = program.flatten(w, x)
    rows = [each.kernel for each in plan.instructions if each.node.op == "fused_reduction"]
    needed = max(each.scratch for each in rows)
    assert len(rows) > 1
    assert min(each.scratch for each in rows) > 10_000
    assert plan.memory.kernels < 2 * needed + sum(each.kernel.own for each in plan.instructions)
    gc.collect()
    tracemalloc.start()
    try:
        shared = Workspace()
        bound = [each.bind(shared) for each in rows]
        kept = in_arrays()
    finally:
        tracemalloc.stop()
    assert bound
    assert needed <= kept < 2 * needed
    plan.prepare(wait=True)
    expected = plan.run(inputs)
    for _ in range(HOT + 2):
        results = plan.run(inputs)
    for result, first in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, first)


def lives(world):
    alive = [world.sum()]
    for _ in range(6):
        n = sum(np.roll(np.roll(world, i, 0), j, 1) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0))
        world = ((n == 3) | ((world == 1) & (n == 2))).astype(np.uint8)
        alive.append(world.sum())
    return world, np.array(alive)


def chosen(x):
    """A list as long as the data say has room for the longest."""
    found = []
    for value in x:
        if value > 0:
            found.append(value * 2)
    return np.array(found)


@pytest.mark.parametrize(
    ("function", "argument"), [(lives, (RNG.random((64, 64)) < 0.3).astype(np.uint8)), (chosen, RNG.normal(size=200))]
)
def test_what_a_plan_is_compiled_to_is_counted(function, argument):
    f = fx.futurize(function)
    fx.precompile(f, argument)  # so that nothing of its own is compiled meanwhile
    predicted, graph, inputs = f.memory(argument), f.trace(argument).plan.graph, [argument]
    tracemalloc.start()
    try:
        plan = compile_plan(graph, optimised=True)
        plan.complete()
        assert plan.memory == replace(predicted, copies=0)  # a call's of its arguments, if it returns before the run
        end = time.monotonic() + 60
        while not plan.whole.settled:
            assert time.monotonic() < end, "it is not compiled whole"
            plan.run(inputs)
        taken = taken_by_a_run(plan, inputs)
    finally:
        tracemalloc.stop()
    assert plan.memory.peak == pytest.approx(taken, rel=0.05, abs=16_000)


def either(x):
    return np.linalg.eigvalsh(x @ x.T) + x.sum() if x.sum() > 0 else np.cumsum(x[0]) * 2 + x.max()


@pytest.mark.parametrize("frugal", [False, True])
def test_within_a_limit_plans_inside_run_one_by_one_too(frugal):
    plan = compile_plan(fx.lower(either, np.ones((9, 9))).graph, frugal=frugal)
    inner = [inner for each in plan.instructions for inner in each.kernel.plans]
    assert len(inner) == 2
    assert all((each.whole is None) == frugal for each in inner)


def test_plans_inside_one_that_is_compiled_whole_are_left_as_they_are():
    plan = compile_plan(fx.lower(either, np.ones((9, 9))).graph)
    plan.complete()
    assert plan.compiled == plan.whole.own > 0
    assert not any(inner.compiled for each in plan.instructions for inner in each.kernel.plans)


def test_views_at_places_that_only_the_run_knows_have_their_shape():
    """They are taken to leave gaps, and what is reshaped of them is looked at."""

    x, k = param(Aval((3, 20), np.dtype(float)), "x"), param(Aval((), np.dtype(np.int64)), "k")
    picked = apply("reshape", apply("load", x, k, chain=(("index", (("d", 0),)),)), shape=(2, 10))
    product = apply("matmul", apply("transpose", picked, axes=(1, 0)), picked)
    assert compile_plan(Graph([x, k], [product])).memory.outputs == 10 * 10 * 8


def until(x, w):
    while x.sum() > 1.0:
        x = x * 0.9
    return x


@pytest.mark.parametrize(("function", "rounds"), [(range_loop, 60), (until, None)])
def test_rounds_are_counted_where_constants_decide(function, rounds):
    x = np.ones((3, 3))
    (loop,) = (node for node in fx.lower(function, x, x).graph.nodes if node.op == "loop")
    assert rounds_of(loop) == rounds


def test_a_tape_whose_length_the_data_decide_is_unknown():
    f = fx.futurize(fx.grad(lambda x: (until(x, x) ** 2).sum()))
    assert f.memory(np.ones(50)).unknown > 0
