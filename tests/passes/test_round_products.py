"""Products that rounds of a way back add up are one product behind the loop."""

import numpy as np
import pytest

import futurex as fx
from futurex.passes import round_products
from futurex.passes.pipeline import optimise
from futurex.tree.graph import Graph

RNG = np.random.default_rng(9)
N, ROUNDS, EXAMPLES = 24, 41, 4
W, V, X, H = 0.2 * RNG.normal(size=(N, N)), RNG.normal(size=(5, N)), RNG.normal(size=(ROUNDS, N)), RNG.normal(size=N)
BATCH = RNG.normal(size=(EXAMPLES, N))


def one(w, v, x, h):
    for row in x:
        h = np.tanh(w @ h + row)
    return (h * h).sum()


def rows(w, v, x, h):
    h = h * np.ones((EXAMPLES, 1))
    for k in range(ROUNDS):
        h = np.tanh(h @ w + x[k])
    return (h * h).sum()


def twice(w, v, x, h):
    for k in range(ROUNDS):
        h = np.tanh(w @ np.sin(w @ h) + x[k])
    return h.sum()


def shared(w, v, x, h):
    for k in range(ROUNDS):
        h = np.tanh(w @ h + x[k]) + 0.01 * (w * w).sum()
    return h.sum()


def joined(w, v, x, h):
    wide = np.concatenate([w, v])
    for k in range(ROUNDS):
        h = np.tanh(np.concatenate([h, x[k, :5]]) @ wide)
    return h.sum()


def backwards(w, v, x, h):
    for k in range(ROUNDS - 1, -1, -2):
        h = np.tanh(w.T @ h + x[k])
    return h.sum()


def read_out(w, v, x, h):
    total = 0.0
    for k in range(ROUNDS):
        h = np.tanh(w @ h + x[k])
        total = total + ((w.T @ h) ** 2).sum()
    return total


def columns(w, v, x, h):
    h = h[:, None] * np.ones(EXAMPLES)
    for k in range(ROUNDS):
        h = np.tanh(w @ h + x[k][:, None])
    return (h * h).sum()


def turned(w, v, x, h):
    mean = 1.0
    for k in range(ROUNDS):
        mean = np.tanh((v[:4].T * mean).T @ w + x[k]).mean()
    return mean


def of_three_axes(w, v, x, h):
    """A factor that is made of a transpose of more axes is none itself."""
    z = h * np.ones((4, 1))
    for k in range(ROUNDS):
        z = np.tanh(z.reshape(4, 6, 4).transpose(1, 0, 2).reshape(N, 4).T @ w + x[k])
    return (z * z).sum()


ALL = [read_out, one, rows, twice, shared, joined, backwards, columns, turned, of_three_axes]


def of_rounds(graph):
    """How many products of two matrices with a result of that size the loops of a graph make."""
    found = 0
    for node in graph.nodes:
        if node.op in ("loop", "scan"):
            found += sum(each.op == "matmul" and each.shape == W.shape for each in node.attrs["body"].nodes)
    return found


@pytest.mark.parametrize("function", ALL, ids=lambda function: function.__name__)
def test_sums_are_those_of_the_rounds(function, monkeypatch):
    graph = fx.lower(fx.grad(function, argnums=(0, 1)), W, V, X, H).graph
    after = optimise(graph, check=True)
    monkeypatch.setattr(round_products, "LEAST", 1 << 40)
    before = optimise(graph)
    assert len(after.nodes) > len(before.nodes)
    assert of_rounds(after) == 0
    for mine, other in zip(after(W, V, X, H), before(W, V, X, H), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("function", ALL, ids=lambda function: function.__name__)
def test_gradients_are_those_of_differences(function):
    gradient = fx.futurize(fx.grad(function))
    moved = RNG.normal(size=W.shape)
    for scale in (1.0, 0.5, 1.5):
        slope = np.asarray(gradient(scale * W, V, X, H))
        ends = [function(scale * W + sign * 1e-6 * moved, V, X, H) for sign in (1, -1)]
        assert (slope * moved).sum() == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5, abs=1e-7)


def test_a_sum_that_rounds_read_stays():
    def powers(w, v, x, h):
        for k in range(ROUNDS):
            h = np.tanh(w @ h + x[k])
            w = w * 0.9
        return h.sum()

    moved = RNG.normal(size=W.shape)
    ends = [powers(W + sign * 1e-6 * moved, V, X, H) for sign in (1, -1)]
    slope = np.asarray(fx.grad(powers)(W, V, X, H))
    assert (slope * moved).sum() == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5, abs=1e-7)


def test_large_factors_are_multiplied_where_they_are():
    def many(w, batch):
        h = batch
        for _ in range(ROUNDS):
            h = np.tanh(h @ w)
        return h.sum()

    few, wide = RNG.normal(size=(4, N)), RNG.normal(size=(64, N))
    for batch, expected in ((few, 0), (wide, 1)):
        graph = optimise(fx.lower(fx.grad(many), W, batch).graph)
        assert of_rounds(graph) == expected
    assert isinstance(graph, Graph)
