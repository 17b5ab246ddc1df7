"""Calls that return one thing or another, as the data tells: NumPy's results and their types."""

import numpy as np
import pytest
from compare import check

import futurex as fx

X = np.random.default_rng(0).normal(size=30)


def first_above(x, c):
    for i in range(len(x)):
        if x[i] > c:
            return i, x[i]
    return None


def first_by_enumerate(x, c):  # noqa: RET503 - and None without a word
    for i, v in enumerate(x):
        if v > c:
            return i, v


def numbers_or_others(x, c):
    s = 0.0
    for i in range(len(x)):
        s += x[i]
        if s > c:
            return True, s
    return False, None


def pair_of_places(x, c):
    for i in range(len(x)):
        for j in range(i + 1, len(x)):
            if x[i] + x[j] > 2 * c and x[i] < x[j]:
                return i, j
    return None


def array_or_none(x, c):
    if x[0] > c:
        return np.sqrt(np.abs(x))
    return None


def tuples_of_three_shapes(x, c):
    if x.max() > c:
        return x[:3] * 2, len(x)
    if x.min() < -c:
        return (x * 3,)
    return "neither", x[0]


def one_array_twice(x, c):
    y = x * 2
    if x[0] > c:
        return y, y
    return y, None


def nested(x, c):
    if x[1] > c:
        return (x[1], (x[2], 1)), "a"
    return (x[1], None), "b"


CASES = first_above, first_by_enumerate, numbers_or_others, pair_of_places, array_or_none, tuples_of_three_shapes, \
    one_array_twice, nested  # fmt: skip


@pytest.mark.parametrize("mode", ["background", "wait"])
@pytest.mark.parametrize("c", [0.5, 1.9, 100.0, -100.0])
@pytest.mark.parametrize("case", CASES)
def test_results(case, c, mode, monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", mode)
    check(case, X, c, calls=4)


def test_a_caller_takes_either():
    def caller(x, c):
        found = first_above(x, c)
        if found is None:
            return -1.0
        i, value = found
        return i + value

    for c in (0.5, 100.0):
        check(caller, X, c)


def test_derivatives_go_through_what_was_returned():
    def loss(x, c):
        found = first_above(x, c)
        return x.sum() if found is None else found[1] ** 2

    step = fx.futurize(fx.grad(loss))
    for c in (0.5, 100.0):
        place = np.argmax(c < X)
        expected = np.ones(30) if c > 50 else np.where(np.arange(30) == place, 2 * X, 0)
        np.testing.assert_allclose(step(X, c), expected)
