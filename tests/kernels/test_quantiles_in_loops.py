"""Quantiles and percentiles in compiled loops: NumPy's bits, signs of zeros, warnings and errors, no call of Python."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from compare import calls_of_loops

import futurex as fx

RNG = np.random.default_rng(4)
ROUNDS = 24


def of_all(x):
    found = np.zeros((ROUNDS, 6))
    for k in range(ROUNDS):
        found[k, 0], found[k, 1] = np.percentile(x, 30), np.quantile(x, 0.5)
        found[k, 2:4] = np.percentile(x[k % 9], [25, 75])
        found[k, 4] = np.quantile(x[:, k % 9], 1.0) - np.quantile(x[::-1, ::2], 0.0)
        found[k, 5] = np.quantile(x[: k % 5 + 1], (0.1, 0.5, 0.9)).sum()
        x = x[:, ::-1] + x[k % 4]
    return found


def along_axes(x):
    found = np.zeros((ROUNDS, 9))
    for k in range(ROUNDS):
        found[k] = np.quantile(x, 0.3, axis=0) + np.percentile(x, (20, 90.5), axis=1)[1]
        found[k] -= np.percentile(x, 60, axis=-1, keepdims=True)[:, 0] * np.quantile(x[:4, ::-1], 0.25, axis=0)
        x = x[:, ::-1] + x[k % 4]
    return found


def at_what_the_run_tells(x, q, points):
    found = np.zeros((ROUNDS, 4))
    for k in range(ROUNDS):
        found[k, 0], found[k, 1] = np.quantile(x[k % 9], q / (k + 1)), np.percentile(x, 10 * q)
        found[k, 2:] = np.quantile(x[x[:, 0] >= x[k % 9, 0]], points)
        x = x[:, ::-1] + x[k % 4]
    return found


def of_numbers(x):
    found = np.zeros((ROUNDS, 4))
    for k in range(ROUNDS):
        row = x[k % 9]
        found[k, 0], found[k, 1] = np.nanmedian(row), np.nanquantile(row, 0.3)
        found[k, 2:] = np.nanpercentile(row, [10, 80.0])
        x = x[:, ::-1] + x[k % 4]
    return found


def drawn(dtype, specials=(-0.0, 0.0, np.nan)):
    values = RNG.integers(-4, 5, (9, 9)).astype(dtype)
    if np.dtype(dtype).kind == "f":
        values *= np.asarray(0.7, dtype)
        for special in specials:
            values[RNG.random(values.shape) < 0.05] = special
    return values


def outcome(function, *args):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = np.asarray(function(*args))
            found = [each.tobytes() if each == each else "nan" for each in found.reshape(-1)]
        except Exception as error:
            found = repr(error)
    return found, sorted({str(each.message) for each in caught})


def agree(function, *cases):
    f = fx.futurize(function)
    assert calls_of_loops(f, list(cases[0])) == []
    for args in cases:
        assert outcome(f, *args) == outcome(function, *args)


@pytest.mark.parametrize("dtype", ["f8", "i8", "i4"])
@pytest.mark.parametrize("function", [of_all, along_axes])
def test_of_all_and_along_axes(function, dtype, at_once):
    agree(function, *((drawn(dtype),) for _ in range(20)))


def test_what_has_no_difference(at_once):
    agree(of_all, *((drawn("f8", (np.inf, -np.inf)),) for _ in range(6)), (np.full((9, 9), 1e308),))


@pytest.mark.parametrize("dtype", ["f8", "i8"])
def test_at_what_the_run_tells(dtype, at_once):
    points = np.array([0.25, 0.75])
    cases = [(drawn(dtype, (-0.0, 0.0)), q, points) for q in (0.5, 0.99, 0.0)]
    agree(at_what_the_run_tells, *cases, (cases[0][0], 1.5, points), (cases[0][0], -0.5, points))


def test_of_what_is_a_number(at_once):
    agree(of_numbers, *((drawn("f8"),) for _ in range(20)))


def test_zeros_of_both_signs(at_once):
    agree(of_all, *((RNG.choice([-0.0, 0.0, 1.0], (9, 9)),) for _ in range(20)))
