"""Lists that loops of thousands of rounds append to are arrays of rows: what integrators and simulations keep."""

import math

import numpy as np
import pytest
from compare import settled

import futurex as fx


def series(x, times):
    path, speeds = [], []
    for t in times:
        path.append(x[0])
        speeds.append(x[1] + t)
        x = 0.999 * x
    return np.array(path), np.array(speeds)


def in_place(x, times):
    x, path = x.copy(), []
    for _ in times:
        path.append(x.sum())
        x *= 0.999
    return np.array(path).mean(), len(path), path[-1], path[3]


def states(x, times):
    path = [x]
    for _ in times:
        x = 0.999 * x
        path.append(x)
    return np.array(path)


def asked_for(x, times):
    path = [float(x[0])]
    for t in times:
        path.append(path[-1] * 0.999 + math.sin(t) * path[0])
    return path[-1], max(path), sum(path) - path[5]


def returned(x, times):
    path = []
    for k in range(len(times)):
        path.append(x[k % 2] * k)
    return path


def pairs(x, times):
    path = []
    for t in times:
        path.append((t, x[0] * t))
    return np.array([b - a for a, b in path])


def one_inside(x, times):
    path = []
    for k in range(len(times) // 10):
        for j in range(10):
            path.append(x[0] * j + k)
    return np.array(path)


@pytest.mark.parametrize("function", [series, in_place, states, asked_for, returned, pairs, one_inside])
@pytest.mark.parametrize("length", [8193, 12000])
def test_they_mean_what_they_mean_in_python(function, length):
    staged, times = fx.futurize(function), np.arange(float(length))
    for k in range(3):
        x = np.array([1.0 + k, 2.0])
        wanted, found = function(x, times), staged(x, times)
        for one, other in zip(wanted, found, strict=True) if isinstance(wanted, tuple) else [(wanted, found)]:
            if isinstance(one, list):
                assert len(one) == len(other)
                other = list(map(float, other))
            np.testing.assert_allclose(np.asarray(other), one, rtol=1e-12)
    if function in (series, in_place, states, returned):
        assert "plain NumPy" not in staged.explain()


def test_large_states_are_kept_as_in_plain_python():
    staged, x = fx.futurize(lambda x, n: [x := x * 0.5 for _ in range(n)][-1]), np.ones(500)
    assert np.array_equal(staged(x, 3), x / 8)
    staged, times = fx.futurize(states), np.arange(9000.0)
    for _ in range(2):
        assert np.array_equal(staged(np.ones(200), times), states(np.ones(200), times))


def test_derivatives():
    def loss(x, times):
        return (series(x, times)[0] ** 2).sum()

    x, times = np.array([1.0, 2.0]), np.arange(9000.0)
    step = np.array([1e-6, 0.0])
    slope = (loss(x + step, times) - loss(x - step, times)) / 2e-6
    np.testing.assert_allclose(np.asarray(fx.grad(loss)(x, times)), [slope, 0.0], rtol=1e-6, atol=1e-9)


def decays(rates):
    ends = []
    for rate in rates:
        n, path, speeds = np.array([1000.0, 0.0, rate]), [], []
        for _ in range(300):
            path.append(n[0])
            speeds.append(n[1])
            n = n + 0.01 * np.array([-n[0] / n[2], n[0] / n[2] - n[1], 0.0])
        ends.append(path[-1] + speeds[-1])
    return np.array(ends)


def test_a_loop_around_carries_them_as_arrays():
    staged, rates = fx.futurize(decays), np.linspace(0.5, 10, 40)
    for _ in range(2):
        np.testing.assert_allclose(np.asarray(staged(rates)), decays(rates), rtol=1e-12)
    assert len(staged.graph(rates).nodes) < 100


def used_as_lists(x):
    path, other = [], []
    for k in range(400):
        path.append(x[0] * k)
        other.append(x[1] if k % 3 else 0.0)
        x = x * 0.99
    path[3], best = 5.0, max(path)
    path.insert(0, 1.0)
    return path.index(best), path[10], path[-3:], sorted(other)[5], [v * 2 for v in path if v > 30], path, len(other)


def shown(x):
    path = []
    for k in range(400):
        path.append(float(x[0]) * k)
    return str(path)


@pytest.mark.parametrize("function", [used_as_lists, shown])
def test_whatever_is_done_with_them(function):
    staged = fx.futurize(function)
    for k in range(3):
        x = np.array([1.0 + k, 2.0])
        wanted, found = function(x), staged(x)
        assert settled(found) == settled(wanted)
