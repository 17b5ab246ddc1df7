"""Equal nodes become one, whichever trace they were made in."""

import numpy as np
import pytest

import futurex as fx
from futurex.ops.control import failure
from futurex.passes.common import share
from futurex.passes.pipeline import optimise
from futurex.tree import Aval, Graph, apply, const, param

F8 = np.dtype(float)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (1.0, 1.0, True),
        (0.0, -0.0, False),
        (1, True, False),
        (1, 1.0, False),
        (1.0, np.float64(1.0), False),
        (float("nan"), float("nan"), True),
        (np.arange(3.0), np.arange(3.0), True),
        (np.arange(3.0), np.arange(3), False),
        (np.zeros((2, 3)), np.zeros((3, 2)), False),
        (np.arange(6.0).reshape(2, 3).T, np.arange(6.0).reshape(2, 3).T.copy(), True),
    ],
)
def test_constants_of_the_same_bits_become_one(a, b, same):
    x = param(Aval((), F8), "x")
    graph = Graph([x], [x * np.float64(2), const(a), const(b)])
    _, first, second = share(graph).outs
    assert (first is second) is same
    for node, value in ((first, a), (second, b)):
        assert type(node.value) is type(value)
        np.testing.assert_array_equal(node.value, value)


def test_a_function_with_a_derivative_of_its_own_runs_its_loop_once():
    params = fx.models.lstm.init(np.random.default_rng(0), channels=3, classes=4, widths=(5, 6))
    x = np.ones((2, 40, 3), np.float32)

    def loss(params, x):
        return (fx.models.lstm.apply(params, x) ** 2).sum()

    graph = optimise(fx.lower(fx.value_and_grad(loss), params, x).graph)
    assert sum(node.op == "loop" for node in graph.nodes) == 4  # forwards and backwards through two layers


def test_effects_stay_as_many_as_they_are():
    x = param(Aval((), F8), "x")
    too_large = failure("builtins", "ValueError", ("too large",))
    checks = [apply("check", apply("less", x, 1.0), failure=too_large) for _ in range(2)]
    graph = Graph([x], [*checks])
    assert sum(node.op == "check" for node in share(graph).nodes) == 2
