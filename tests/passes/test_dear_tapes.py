"""Loops have on tape what their way back would compute dearly: the same bits, and no product is made twice."""

import numpy as np
import pytest

import futurex as fx
from futurex.ops.tapes import Tape
from futurex.passes.dear_tapes import tape_dear_values
from futurex.passes.pipeline import PASSES, optimise
from futurex.tree.graph import Graph
from futurex.tree.verify import verify

RNG = np.random.default_rng(8)
X, W, U = RNG.normal(size=(30, 8)), 0.3 * RNG.normal(size=(8, 8)), RNG.normal(size=8)


def recurrent(x, w, u):
    h = np.zeros(8)
    for row in x:
        h = np.tanh(h @ w + row * u)
    return (h * h).sum()


def rectified(x, w, u):
    h = u
    for k in range(30):
        h = 0.9 * np.maximum(h @ w + x[k] @ w.T, 0.01)
    return h.sum()


def until(x, w, u):
    h, k = u, 0
    while k < 30 and np.abs(h).sum() > 0.1:
        h = np.exp(-((h @ w) ** 2)) * x[k]
        k += 1
    return h.sum()


def of_two(x, w, u):
    h, c, out = u, 0.1 * u, []
    for k in range(len(x)):
        gate = 1 / (1 + np.exp(-(w @ h)))
        c = gate * c + (1 - gate) * np.tanh(w.T @ h + x[k])
        h = np.tanh(c) * gate
        out.append(h)
    return (np.stack(out) ** 2).mean()


def scalars(x, w, u):
    a, b = u[0], u[1]
    for k in range(30):
        a, b = np.sin(a * b) + x[k, 0], np.sqrt(a * a + 1.0)
    return a * b


def in_a_branch(x, w, u):
    h = u
    for k in range(30):
        if h.sum() > x[k, 0]:
            h = np.tanh(h @ w)
        else:
            h = np.sin(h) + x[k]
    return h.sum()


def in_a_loop(x, w, u):
    h = u
    for k in range(30):
        for j in range(8):
            h = np.tanh(h * w[j]) + x[k] * 0.1
    return h.sum()


ALL = [recurrent, rectified, until, of_two, scalars, in_a_branch, in_a_loop]


def lowered(function, order=1):
    gradient = fx.grad(function, argnums=(0, 1, 2))
    if order == 2:
        gradient = fx.grad(lambda x, w, u: sum((g * g).sum() for g in fx.grad(function, (0, 1, 2))(x, w, u)), (0, 1, 2))
    return fx.lower(gradient, X, W, U).graph


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("function", ALL, ids=lambda function: function.__name__)
def test_the_pass_changes_no_bit(function, order):
    graph = lowered(function, order)
    before = optimise(graph, passes=[each for each in PASSES if each is not tape_dear_values])
    after = optimise(graph, check=True)
    verify(after)
    for one, other in zip(before(X, W, U), after(X, W, U), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("function", ALL, ids=lambda function: function.__name__)
def test_gradients_are_those_of_differences(function):
    moved = [RNG.normal(size=each.shape) for each in (X, W, U)]
    ends = [function(*(a + 1e-6 * sign * b for a, b in zip((X, W, U), moved, strict=True))) for sign in (1, -1)]
    slopes = fx.grad(function, argnums=(0, 1, 2))(X, W, U)
    along = sum((np.asarray(slope) * each).sum() for slope, each in zip(slopes, moved, strict=True))
    assert along == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5, abs=1e-7)


def within(graph):
    """All nodes, those of loops too."""
    for node in graph.nodes:
        yield node
        for value in node.attrs.values():
            if isinstance(value, Graph):
                yield from within(value)


def of_rounds(graph, op):
    """How many nodes of an op the bodies of loops and scans have."""
    bodies = [node.attrs["body"] for node in graph.nodes if node.op in ("loop", "scan")]
    return sum(node.op == op for body in bodies for node in within(body))


@pytest.mark.parametrize(
    ("function", "ops"), [(recurrent, ("matmul", "tanh")), (rectified, ("matmul",)), (until, ("matmul", "exp"))],
    ids=["recurrent", "rectified", "until"],
)
def test_rounds_of_the_way_back_make_none_again(function, ops):
    graph = fx.lower(fx.grad(function, argnums=(1, 2)), X, W, U).graph
    before = optimise(graph, passes=())
    after = optimise(graph, passes=(tape_dear_values,))
    for op in ops:
        assert of_rounds(before, op) > of_rounds(after, op)


def test_what_a_loop_carries_is_on_tape_once():
    graph = optimise(fx.lower(fx.grad(recurrent, argnums=(1, 2)), X, W, U).graph, passes=(tape_dear_values,))
    (loop,) = (node for node in graph.nodes if node.op == "loop" and node.attrs["tape"])
    kept = [aval.element for aval in loop.aval if isinstance(aval, Tape)]
    assert [each.shape for each in kept].count((8,)) == 1  # the state: the next one is its tanh


def test_large_arrays_do_not_fill_the_memory():
    def grows(x, w, u):
        h = u
        for _ in range(30):
            h = h + 1e-3 * np.exp(np.exp(x + h) @ w).sum(axis=0)
        return h.sum()

    many = RNG.normal(size=(600, 8))
    graph = fx.lower(fx.grad(grows, argnums=2), many, W, U).graph
    after = optimise(graph, passes=(tape_dear_values,))
    avals = [aval for node in after.nodes if node.op == "loop" for aval in node.aval]
    kept = [aval.element.size for aval in avals if isinstance(aval, Tape)]
    assert sum(kept) <= 600 * 8
