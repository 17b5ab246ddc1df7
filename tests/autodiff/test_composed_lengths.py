"""Derivatives where an array is as long as a sum of numbers of which only the run knows one: n + 1, or n + m."""

import numpy as np
import pytest

import futurex as fx
from futurex.passes.pipeline import optimise

X, V = np.array([0.7, -0.4, 1.3, 0.2, -1.1, 0.9]), np.cos(np.arange(6.0))


def joined(x):
    return np.append(x[x > -0.5], x[0] * 2)


def rounds_over_it(x):
    total = 0.0
    for each in joined(x):
        total = np.sin(total + each * each)
    return total


def carried_by_a_loop_on_data(x):
    y, n = np.concatenate([x[x > 0], x[x < 0.8]]), 0
    while np.linalg.norm(y) > 0.5 and n < 9:
        y, n = y * 0.7 + 0.01 * np.cumsum(y), n + 1
    return np.median(y) + y.prod()


def rounds_that_write_it(x):
    y = joined(x)
    z = np.zeros_like(y)
    for i in range(1, len(y)):
        z[i] = y[i] ** 2 + np.tanh(z[i - 1])
    return (z * z).sum()


def in_branches(x):
    y = joined(x)
    if y.sum() > 1.5:  # both happen
        y = y / np.linalg.norm(y)
    else:
        y = y[::-1] ** 3
    return (y * np.arange(len(y))).sum()


def of_simpler_operations(x):
    y = joined(x)
    return y.std() + np.quantile(y, [0.2, 0.5]).prod() + (fx.nn.softmax(y) * y).sum() + np.polyval(y, x).sum()


def of_a_table(x):
    y = joined(x)
    return (np.interp(x * 3, np.arange(len(y)), y) ** 2).sum()


def of_matrices(x):
    y = joined(x)
    a = np.outer(y, y) + 2 * np.eye(len(y))
    return np.linalg.slogdet(a)[1] + (np.linalg.solve(a, y) ** 2).sum()


def part_of_a_longer_one(x):
    y, z = joined(x), np.zeros(9)
    z[: len(y)] = y
    z[len(y) - 1] *= 2
    return (z**3).sum()


@fx.checkpoint
def block(y):
    return np.tanh(y) * np.linalg.norm(y)


def computed_again(x):
    return block(block(joined(x))).sum()


@pytest.mark.parametrize(
    "function",
    [
        rounds_over_it, carried_by_a_loop_on_data, rounds_that_write_it, in_branches, of_simpler_operations,
        of_a_table, of_matrices, part_of_a_longer_one, computed_again,
    ],
)  # fmt: skip
def test_all_modes(function):
    def differences(f, x):
        return (np.asarray(f(x + 1e-6 * V)) - np.asarray(f(x - 1e-6 * V))) / 2e-6

    gradient = fx.grad(function)
    for x in (X, X - 0.15, X * 1.4 + 0.3):  # lengths differ
        slope = differences(function, x)
        np.testing.assert_allclose(np.asarray(gradient(x)) @ V, slope, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(float(fx.jvp(function, (x,), (V,))[1]), slope, rtol=1e-5, atol=1e-7)
        curved = np.asarray(fx.jvp(gradient, (x,), (V,))[1])
        np.testing.assert_allclose(curved, differences(gradient, x), rtol=1e-4, atol=1e-6)


def test_a_loop_on_data_whose_rounds_are_only_counted():
    def shrunk(x):
        y, n = x[x > 0], 0
        while y.sum() > 0.5 and n < 4:
            y, n = y * 0.7, n + 1
        return y.prod()

    for x in (X, X * 3):
        expected = [(shrunk(x + unit) - shrunk(x - unit)) / 2e-6 for unit in 1e-6 * np.eye(6)]
        np.testing.assert_allclose(np.asarray(fx.grad(shrunk)(x)), expected, rtol=1e-6, atol=1e-9)


def test_loops_and_their_derivatives_call_lengths_by_one_name():
    def picked(x):
        y, n = x[x > 0], 0
        while y.sum() > 0.5 and n < 9:
            y, n = y[y > 0.3 * y.max()] * 0.7, n + 1
        if n > 3:
            y = y[1:]
        return np.median(y) + y.prod() + (y * y).sum()

    def rounds(x):
        v = x[x > 0.1]
        s = v * 1
        for i in range(len(v)):
            s = s * v[i] + np.sin(v)
            s[i] = s[i] * v[0]
        return s.sum()

    for function in (picked, rounds, carried_by_a_loop_on_data):
        gradient = fx.grad(function)
        for derivative in (
            gradient,
            lambda x, gradient=gradient: fx.jvp(gradient, (x,), (V,))[1],
            fx.grad(lambda x, gradient=gradient: gradient(x).sum()),
        ):
            optimise(fx.futurize(derivative).graph(X), check=True)


def test_the_rest_of_a_selection_keeps_its_name_where_a_function_is_in_line():
    def differences(x):
        return ((x[x > 0][1:] - x[x > 0][:-1]) ** 2).sum() + (x[x > 0.2][:4] ** 3).sum()

    optimise(fx.futurize(fx.grad(differences)).graph(X), check=True)
