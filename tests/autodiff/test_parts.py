"""What an array has as its derivative because parts of it were read: added part by part, in its own memory order."""

import numpy as np
import pytest

import futurex as fx
from futurex.passes.pipeline import optimise

rng = np.random.default_rng(0)
X = rng.standard_normal((4, 6, 3, 5))


def three_parts(x):
    a, b, c = (x[:, :, part] for part in range(3))
    return (a @ b.transpose(0, 2, 1) @ c * a).sum()


def overlapping(x):
    return (x[1:] * x[:-1]).sum() + (x[:, 2] ** 3).sum() + x[0, 0, 0, 0] * 7.0


def turned(x):
    y = x.transpose(2, 0, 3, 1).reshape(12, 30)
    return (np.sin(y) * y[::-1, ::-1]).sum() + (y.T @ y[:, :4]).sum()


def whole_and_part(x):
    return (x * x).sum() + np.exp(x[2:3]).sum() + (x.reshape(24, 15)[5:9] ** 2).sum()


def in_rounds(x):
    total = np.zeros((6, 3, 5))
    for k in range(40):
        total = total * 0.5 + x[k % 4] * x[(k + 1) % 4]
    return total.sum()


def in_place(x):
    y = x * 2.0
    y[1:] += x[:-1] * x[1:]
    y[:, 2] *= y[:, 1]
    y[0, 1:3] = y[0, 1:3]
    y[2] += np.sin(y[2, :1])
    y[1:] += y[:-1]
    return (y * y).sum()


def in_place_in_rounds(x):
    y = x.copy()
    for k in range(40):
        y[k % 4] += 0.1 * y[(k + 1) % 4] * x[0]
        y[k % 4, 1:] *= 0.9
    return (y * y).sum()


@pytest.mark.parametrize(
    "function", [three_parts, overlapping, turned, whole_and_part, in_rounds, in_place, in_place_in_rounds]
)
def test_derivatives_of_parts(function):
    found = np.asarray(fx.grad(function)(X))
    direction = rng.standard_normal(X.shape)
    step = 1e-6
    slope = (function(X + step * direction) - function(X - step * direction)) / (2 * step)
    np.testing.assert_allclose((found * direction).sum(), slope, rtol=1e-6)
    places = [tuple(rng.integers(0, X.shape)) for _ in range(6)]
    for place in places:
        moved = np.zeros_like(X)
        moved[place] = step
        slope = (function(X + moved) - function(X - moved)) / (2 * step)
        np.testing.assert_allclose(found[place], slope, rtol=1e-5, atol=1e-7)


def test_the_second_derivative_of_parts():
    direction = rng.standard_normal(X.shape)
    slope = fx.grad(lambda t, x, d: three_parts(x + t * d))
    second = float(fx.grad(lambda t, x, d: slope(t, x, d))(0.0, X, direction))
    step = 1e-4
    numbers = [three_parts(X + k * step * direction) for k in (-1, 0, 1)]
    np.testing.assert_allclose(second, (numbers[0] - 2 * numbers[1] + numbers[2]) / step**2, rtol=1e-4)


def test_three_parts_are_added_to_one_array_of_zeros():
    graph = optimise(fx.lower(fx.grad(three_parts), X).graph)
    assert sum(node.op == "full" and node.shape == X.shape for node in graph.nodes) == 1
    assert sum(node.op == "store" for node in graph.nodes) == 3


def test_parts_that_are_written_with_what_they_held_are_not_set_to_zero_before():
    def loss(x, w):
        y = x * 1.0
        y[1:] += w
        y[:3] *= w
        return (y * y).sum()

    graph = fx.lower(fx.grad(loss, argnums=(0, 1)), X, X[1:]).graph
    assert not any(node.op == "store" and node.inputs[1].op == "const" for node in graph.nodes)


def test_views_that_only_turn_an_array_are_turned_back():
    def loss(x):
        return np.sin(x.transpose(2, 0, 3, 1).reshape(12, 30)).sum()

    graph = optimise(fx.lower(fx.grad(loss), X).graph)
    assert not any(node.op in ("store", "full") for node in graph.nodes)


def test_the_gradient_of_a_shared_matrix_is_one_product():
    x, w = rng.standard_normal((8, 16, 32)), rng.standard_normal((32, 24))
    graph = optimise(fx.lower(fx.grad(lambda w, x: np.tanh(x @ w).sum()), w, x).graph)
    products = [node for node in graph.nodes if node.op.startswith("matmul")]
    assert sorted(node.shape for node in products) == [(8, 16, 24), (32, 24)]
    found = np.asarray(fx.grad(lambda w, x: np.tanh(x @ w).sum())(w, x))
    expected = x.reshape(-1, 32).T @ (1 - np.tanh(x @ w) ** 2).reshape(-1, 24)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("exponent", [2, 3, 4, 5, 6, 3.0, np.float32(4)])
def test_slopes_of_small_powers_are_products(exponent):
    x = np.array([-1.5, -0.0, 0.0, 0.3, 2.0, np.inf])
    first = fx.grad(lambda x: (x**exponent).sum())
    np.testing.assert_allclose(first(x), exponent * x ** (exponent - 1), rtol=1e-14)
    second = fx.grad(lambda x: first(x).sum())
    np.testing.assert_allclose(second(x), exponent * (exponent - 1) * x ** (exponent - 2), rtol=1e-14)
    ops = {node.op for node in fx.lower(first, x).graph.nodes}
    assert ("power" in ops) == (exponent > 5)
