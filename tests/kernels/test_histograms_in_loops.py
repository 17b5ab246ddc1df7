"""Histograms and orders by several keys in compiled loops: NumPy's results, bit for bit, and no call of Python."""

from __future__ import annotations

import numpy as np
import pytest
from compare import calls_of_loops

import futurex as fx

RNG = np.random.default_rng(7)
ROUNDS = 24


def of_its_own_range(x, y, edges):
    found = np.zeros((ROUNDS, 3, 7))
    for k in range(ROUNDS):
        counts, limits = np.histogram(x, bins=6)
        found[k, 0, :6], found[k, 1] = counts, limits
        rows, ends = np.histogram(x[:, k % 9], 3, weights=y[k % 9])
        found[k, 2, :3], found[k, 2, 3:] = rows, ends
        found[k, 0] += np.histogram(x[x[:, 0] >= x[k % 9, 0], 1], bins=7, density=True)[0]
        x = x[:, ::-1] + x[k % 4]
    return found


def of_a_given_range(x, y, edges):
    found, low = np.zeros((ROUNDS, 3, 7)), 0.0
    for k in range(ROUNDS):
        found[k, 0], found[k, 1, :4] = np.histogram(x, 7, range=(-4, 5))[0], np.histogram(x, 3, (0.5, 8.0))[1]
        counts, limits = np.histogram(x[k % 9], bins=6, range=(low - 3.0, low + 2), density=True)
        found[k, 2, :6], found[k, 1, 4:] = counts, limits[1:4]
        found[k, 2] += np.histogram(x, bins=7, range=(-2, 2), weights=y)[0]
        low += 0.1
    return found


def between_edges(x, y, edges):
    found = np.zeros((ROUNDS, 2, 4))
    for k in range(ROUNDS):
        found[k, 0] = np.histogram(x, edges)[0]
        found[k, 1] = np.histogram(x[k % 9, ::2], bins=edges + k, density=True)[0] if k < 2 else 0
        x = x[:, ::-1] + x[k % 4]
    return found


def of_pairs(x, y, edges):
    found = np.zeros((ROUNDS, 4, 5))
    for k in range(ROUNDS):
        counts, one, two = np.histogram2d(x[k % 9], y[:, k % 9], bins=4)
        found[k, :, :4], found[k, 0, 4], found[k, 1, 4] = counts, one[1], two[3]
        found[k] += np.histogram2d(y[:, 2], y[k % 9], bins=(4, 5), range=[[-2, 3], (-0.5, 2.5)], density=True)[0]
        found[k, 1:] -= np.histogram2d(x[x[:, 0] >= x[k % 9, 0], 1], x[x[:, 0] >= x[k % 9, 0], 2], [3, 5])[0]
        x = x[:, ::-1] + x[k % 4]
    return found


def orders(x, y, edges):
    found = np.zeros((ROUNDS, 2, 9), int)
    for k in range(ROUNDS):
        found[k, 0], found[k, 1] = np.lexsort((x[k % 9], y[:, k % 9] > 0)), np.lexsort((y[1], x[:, 2] > 1, x[k % 9]))
        x = x[:, ::-1] + x[k % 4]
    return found


def drawn(dtype, zeros=0.0):
    return (RNG.integers(-4, 5, (9, 9)) * (1.0 if dtype == "i8" else 0.37) + zeros).astype(dtype)


@pytest.mark.parametrize("dtype", ["f8", "i8", "i4", "u1"])
@pytest.mark.parametrize("function", [of_its_own_range, of_a_given_range, between_edges, of_pairs, orders])
def test_bits(function, dtype, at_once):
    f, edges = fx.futurize(function), np.array([-2.0, -1.0, 0.0, 0.0, 2.5])
    if function is between_edges:
        edges = np.array([-2.0, -1.0, 0.0, 1.0, 2.5])
    assert calls_of_loops(f, [np.abs(drawn(dtype)), drawn("f8"), edges]) == []
    for _ in range(12):
        operands = drawn(dtype) if dtype != "u1" else np.abs(drawn("i8")).astype("u1"), drawn("f8"), edges
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(np.asarray(f(*operands)), function(*operands))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("value", [np.nan, np.inf, -0.0, 1e308, -1e308, 5e-324, 2.0**60])
@pytest.mark.parametrize("function", [of_its_own_range, of_a_given_range, between_edges, of_pairs, orders])
def test_what_is_no_range(function, value, at_once):
    f, y, edges = fx.futurize(function), drawn("f8"), np.array([-2.0, -1.0, 0.0, 1.0, 2.5])
    for x in (np.full((9, 9), value), np.where(y > 1, value, y), np.where(y == 0, value, np.abs(y))):
        outcomes = []
        for each in (f, function):
            try:
                outcomes.append(repr(np.asarray(each(x, y, edges)).tolist()))
            except ValueError as error:
                outcomes.append(repr(error))
        assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("edges", [[0.0, 2.0, 1.0, 3.0, 4.0], [0.0, 1.0, np.nan, 3.0, 4.0], [1.0, 1.0, 1.0, 1.0, 1.0]])
def test_edges(edges, at_once):
    def counts(x, edges):
        total = np.zeros(4, int)
        for k in range(ROUNDS):
            total = total + np.histogram(x + k % 3, edges)[0]
        return total

    f, x, edges = fx.futurize(counts), drawn("f8"), np.array(edges)
    outcomes = []
    for each in (f, counts):
        try:
            outcomes.append(np.asarray(each(x, edges)).tolist())
        except ValueError as error:
            outcomes.append(repr(error))
    assert outcomes[0] == outcomes[1]
