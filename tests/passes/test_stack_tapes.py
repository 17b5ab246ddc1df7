"""Loops whose rounds are known keep what derivatives read in arrays: the same bits, and loops that are compiled."""

import numpy as np
import pytest

import futurex as fx
from futurex.passes.pipeline import PASSES, optimise
from futurex.passes.stack_tapes import stack_tapes
from futurex.runtime.plan import compile_plan
from futurex.tree.verify import verify

RNG = np.random.default_rng(3)
X, W = RNG.normal(size=6), RNG.normal(size=(6, 6))


def recurrent(x, w):
    for _ in range(30):
        x = np.tanh(x @ w)
    return (x * x).sum()


def counted(x, w):
    total = 0.0
    for k in range(30):
        total = total + np.sin(x[k % 6] * w[k % 6, k % 3]) * k + 0.1 * total * x[0]
    return total


def numbers(x, w):
    a, b = x[0], x[1]
    for k in range(40):
        a, b = a + 0.1 * b * k, b - 0.1 * np.sin(a)
    return a * b


def backwards(x, w):
    for k in range(39, -1, -2):
        x = x * 0.9 + w[k % 6] / (k + 1)
    return (x**3).sum()


def written(x, w):
    out = np.zeros((30, 6))
    out[0] = x
    for k in range(1, 30):
        out[k] = np.tanh(out[k - 1] * w[k % 6])
    return (out * out).sum()


def nested(x, w):
    for _ in range(20):
        for j in range(18):
            x = x + 0.01 * np.sin(x * j) @ w
    return x.sum()


def branching(x, w):
    for k in range(30):
        if x.sum() > 0:
            x = np.sin(x) @ w
        else:
            x = np.cos(x) - w[k % 6]
    return x.sum()


def single(x, w):
    x = x.astype(np.float32)
    for k in range(25):
        x = x * np.float32(0.5) + np.float32(k)
    return (x * x).sum()


def two(x, w):
    y = x
    for _ in range(20):
        x, y = np.sin(y), np.cos(x)
    for _ in range(20):
        y = y * x
    return (x + y).sum()


def delayed(x, w):
    """Names that only wait for their turn: their own values are read on the way back alone, the first ones too."""
    a, b, c, u, v = x[0], x[1] * x[0], np.cos(x[2]), x * x, np.sin(x)
    total = 0.0
    for k in range(40):
        total = total + (a + b) * a * w[k % 6, 0] + (u * v).sum()
        a, b, c = b, c, np.sin(x[k % 6]) * w[k % 6, 1]
        u, v = v, np.cos(x * w[k % 6, 2])
    return total


def waiting(x, w):
    """The same of one that another round has made: nobody but the way back reads what it begins with."""
    a, b, total = 0.0, x[0] * x[0], 0.0
    for k in range(1, 40):
        total = total + (a + b) * a
        a, b = b, x[k % 6] * x[k % 6]
    return total


KNOWN = [recurrent, counted, numbers, backwards, written, nested, branching, single, two, delayed, waiting]


def second(function):
    return lambda x, w: fx.grad(lambda x: (fx.grad(function)(x, w) ** 2).sum())(x)


def graphs(function):
    graph = fx.lower(function, X, W).graph
    without = optimise(graph, passes=[each for each in PASSES if each is not stack_tapes])
    return without, optimise(graph, check=True)


def tapes(graph):
    return [node for node in graph.nodes if node.op == "scan" or (node.op == "loop" and node.attrs["tape"])]


@pytest.mark.parametrize("function", KNOWN)
@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_have_the_same_bits_without_tapes(function, order):
    before, after = graphs(fx.grad(function, argnums=(0, 1)) if order == 1 else second(function))
    assert tapes(before)
    assert not tapes(after)
    verify(after)
    expected = compile_plan(before, optimised=True).run([X, W])
    plan = compile_plan(after, optimised=True)
    for found in (plan.run([X, W]), after(X, W)):
        for mine, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine, other, strict=True)
    loops = [each for each in plan.instructions if each.node.op == "loop"]
    assert loops
    assert all(each.kernel.backend == "loops" for each in loops)


@pytest.mark.parametrize("function", KNOWN)
def test_gradients_are_those_of_differences(function):
    slope = np.asarray(fx.grad(function)(X, W))
    step = 1e-3 if function is single else 1e-6
    for k in range(3):
        moved = np.zeros(6)
        moved[k] = step
        difference = (function(X + moved, W) - function(X - moved, W)) / (2 * step)
        np.testing.assert_allclose(slope[k], difference, rtol=2e-2 if function is single else 1e-4, atol=1e-5)


def by_threes(x, w):
    total = 0.0
    for k in range(5, 40, 3):
        x = np.sin(x * w[k % 6]) + k
        total = total + x[k % 6] * k
    return total


def counts_itself(x, w):
    k, y = 40, x[0]
    while k > 1:
        y = y + 0.01 * np.sin(x[k % 6]) * k
        k -= 2
    return y * k


@pytest.mark.parametrize("function", [counted, backwards, by_threes, counts_itself])
def test_numbers_that_count_are_not_on_tape(function):
    before, after = graphs(fx.grad(function, argnums=(0, 1)))
    assert not tapes(after)
    kept = [node.aval for loop in after.nodes if loop.op == "loop" for node in loop.attrs["body"].params]
    assert not any(aval.dtype == np.int64 and aval.shape for aval in kept)
    expected = compile_plan(before, optimised=True).run([X, W])
    for mine, other in zip(compile_plan(after, optimised=True).run([X, W]), expected, strict=True):
        np.testing.assert_array_equal(mine, other, strict=True)
    moved = RNG.normal(size=6)
    ends = [function(X + sign * 1e-6 * moved, W) for sign in (1, -1)]
    slope = np.asarray(fx.grad(function)(X, W))
    assert (slope * moved).sum() == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(("first", "last"), [(0, 24), (3, 20)])
def test_rows_that_are_given_are_factors_where_they_are(first, last):
    rows, start = RNG.normal(size=(24, 4, 20)), np.zeros((4, 20))

    def layer(w, u, rows):
        h = start
        for k in range(first, last):
            h = np.tanh(h @ w + rows[k] @ u)
        return (h * h).sum()

    w, u = 0.2 * RNG.normal(size=(20, 20)), RNG.normal(size=(20, 20))
    graph = optimise(fx.lower(fx.grad(layer, argnums=(0, 1)), w, u, rows).graph)
    back = [node for node in graph.nodes if node.op == "loop"][-1]
    assert [each.op for each in back.attrs["body"].nodes].count("store") == 1  # the other factor
    moved = RNG.normal(size=u.shape)
    ends = [layer(w, u + sign * 1e-6 * moved, rows) for sign in (1, -1)]
    slope = np.asarray(fx.grad(layer, argnums=1)(w, u, rows))
    assert (slope * moved).sum() == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5, abs=1e-7)


def until(x, w):
    n = 0
    while np.abs(x).sum() > 1e-3 and n < 50:
        x, n = np.tanh(x @ w) * 0.5, n + 1
    return (x * x).sum()


def large(x, w):
    y = np.zeros((8000, 1)) + x
    for _ in range(20):
        y = np.sin(y)
    return y.sum()


def several(x, w):
    return fx.checkpoint(recurrent, every=5)(x, w)


def test_segments_of_known_length_are_stacked():
    before, after = graphs(fx.grad(several))
    assert not tapes(after)
    expected = compile_plan(before, optimised=True).run([X, W])
    for mine, other in zip(compile_plan(after, optimised=True).run([X, W]), expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12)


@pytest.mark.parametrize("function", [until, large])
def test_other_loops_stay_as_they_are(function):
    """What stops by values, or is large."""
    before, after = graphs(fx.grad(function))
    assert tapes(after)
    expected = compile_plan(before, optimised=True).run([X, W])
    for mine, other in zip(compile_plan(after, optimised=True).run([X, W]), expected, strict=True):
        np.testing.assert_array_equal(mine, other, strict=True)


def test_longer_values_that_rounds_make_for_the_way_back_are_stacked():
    def gated(h, w):
        for _ in range(20):
            gates = np.exp(-(h @ w))
            h = h * gates[:, :64] + gates[:, 64:128] * gates[:, 128:]
        return h.sum()

    graph = optimise(fx.lower(fx.grad(gated, argnums=1), RNG.normal(size=(32, 64)), RNG.normal(size=(64, 192))).graph)
    assert not tapes(graph)
    kept = [node.shape for loop in graph.nodes if loop.op == "loop" for node in loop.inputs]
    assert (21, 32, 192) in kept


def test_an_error_inside_is_told_at_its_line():
    def outside(x, w):
        for k in range(20):
            x = x + w[k]
        return x.sum()

    with pytest.raises(IndexError):
        fx.grad(outside)(X, W).result()


def test_memory_is_predicted_for_both_forms():
    before, after = graphs(fx.grad(recurrent))
    old, new = (compile_plan(each, optimised=True).memory for each in (before, after))
    assert not new.unknown
    assert new.peak < old.peak + 3 * 30 * 6 * 8 + 4096
