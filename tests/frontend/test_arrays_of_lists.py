"""Arrays of several lists that grew as the data said: rows side by side, where all are of one length."""

import numpy as np
import pytest
from compare import check, outcome

import futurex as fx

X = np.random.default_rng(0).normal(size=50)


def of_one_length(x, c):
    xs = [[], [], []]
    for v in x:
        if v > c:
            for i in range(3):
                xs[i].append(v * i)
    return np.array(xs)


def above_and_below(x, c):
    above, below = [], []
    for v in x:
        if v > c:
            above.append(v)
        if v < c:
            below.append(v)
    return np.array([above, below])


def of_every_kind(x, c):
    a, b, n = [], [], [0.5]
    for v in x:
        if v > c:
            a.append(int(v * 10))
            b.append(int(v))
            n.append(float(v))
    return (
        np.array([a, b], dtype=float), np.array([a, b], dtype=np.int32), np.array([a, n[1:]]), np.array((n, n)),
        np.sum([a, b], axis=1), np.asarray((a, b)), np.vstack((a, b)), np.mean([a, n[1:]]),
    )  # fmt: skip


@pytest.mark.parametrize("function", [of_one_length, above_and_below, of_every_kind])
@pytest.mark.parametrize("c", [0.3, 0.0, 9.0])
def test_arrays_of_lists_whose_length_depends_on_data(function, c):
    expected, futurized = outcome(function, (X, c)), fx.futurize(function)
    for _ in range(3):
        assert outcome(futurized, (X, c)) == expected
    if c == 0.3 and function is not above_and_below:
        check(function, X, c)


def test_lengths_that_happen_to_be_alike_and_others():
    """Where they differ, NumPy says so in its own words."""
    check(above_and_below, np.array([1.0, -1.0, 2.0, -2.0]), 0.0)
    check(above_and_below, np.array([1.0, 1.0, 2.0, -2.0]), 0.0)
