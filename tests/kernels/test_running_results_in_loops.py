"""Running products and extremes, and sorts along an axis, in compiled loops: NumPy's bits, and no call of Python."""

from __future__ import annotations

import numpy as np
import pytest
from compare import calls_of_loops

import futurex as fx

RNG = np.random.default_rng(8)


def running(x):
    first, found = x, np.zeros((24, 4), x.dtype)
    for k in range(24):
        x = np.maximum.accumulate(x[::-1], axis=0) + np.minimum.accumulate(x, axis=1) - x
        found[k] = np.cumprod(first[k % 5])[:4] + np.multiply.accumulate(first[:, k % 7])[:4] - x[:4, 0]
        found[k] += np.fmax.accumulate(first[1:, ::-1], axis=1)[0, :4] + np.subtract.accumulate(first[::2])[:, 1][:4]
    return x, found


def sorts(x):
    found = np.zeros((24, *x.shape), x.dtype)
    for k in range(24):
        found[k] = np.sort(x, axis=1) + np.sort(x[::-1], axis=0) - np.sort(x[:, ::-1], axis=-1, kind="stable")
        x = x + found[k, 0, 0]
        found[k, 1:] += np.sort(x.T[: x.shape[1] - k % 3][:1], axis=1)[0, 1:, None]
    return found, x


def middles(x):
    found = np.zeros((24, 2, len(x)))
    for k in range(24):
        found[k, 0], found[k, 1] = np.median(x, axis=0), np.median(x[:8, ::-1], axis=0)
        stack = np.stack([x, x[::-1], x * 2])
        found[k, 1] -= np.median(stack, axis=1, keepdims=True)[1, 0] * np.median(x[:, :4], axis=1)
        x = x[:, ::-1] + x[k % 4]
    return found, x, np.median(np.negative(np.abs(x * 0)), axis=1)


def decimals(x):
    total = x * 0
    for k in range(24):
        total = np.round(x * (0.3 * k) + total, 2) - np.round(x * 30, -1) + np.around(x[3] * x[0, k % 9], 3)
        total[0] += np.round(total.sum(), 1) + np.round(x[k % 9] * 7)
    return total, x


def orders(x):
    found = np.zeros((24, *x.shape), int)
    for k in range(24):
        found[k] = np.argsort(x, axis=1, kind="stable") - 2 * np.argsort(x[::-1] + x[0], axis=0, kind="stable")
        found[k, 0] += np.argsort(np.stack([x, x[::-1]]), axis=1, kind="stable")[1, 2] + np.argsort(x[k % 9])
        x = x[:, ::-1] + x[k % 4]
    return found, x


def some(x):
    """Of rows of which the run knows how many, and how long they are."""
    total = 0.0
    for k in range(24):
        few = x[x[:, 0] > np.sin(k)]
        total = total + np.sort(few, axis=1).sum() + np.sort(x[:, : k % 6 + 1], axis=0)[0].sum()
        total = total + np.cumprod(few[:, 0]).sum() + (np.sort(few, axis=0)[:1] * 2.0).sum()
    return total


def drawn(dtype):
    values = RNG.integers(-4, 5, (9, 9)).astype(dtype)
    if np.dtype(dtype).kind == "f":
        values *= np.asarray(0.7, dtype)
        for special in (-0.0, np.inf, np.nan):
            values[RNG.random(values.shape) < 0.05] = special
    return values


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_decimals(dtype, at_once):
    f, x = fx.futurize(decimals), RNG.normal(size=(9, 9)).astype(dtype)
    x[4, 2:5] = np.nan, np.inf, -0.0
    x[5, :2] = 3e37, -3e-39
    with np.errstate(all="ignore"):
        assert calls_of_loops(f, (x,)) == []
        assert f(x)[0].result().tobytes() == decimals(x)[0].tobytes()


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i4", "u2"])
@pytest.mark.parametrize("function", [running, sorts, orders, middles])
def test_along_axes(function, dtype, at_once):
    f, x = fx.futurize(function), drawn(dtype)
    with np.errstate(all="ignore"):
        assert calls_of_loops(f, (x,)) == []
        for actual, expected in zip(f(x), function(x), strict=True):
            assert actual.dtype == expected.dtype
            np.testing.assert_array_equal(actual, expected)
            np.testing.assert_array_equal(np.signbit(actual), np.signbit(expected))


def test_of_what_only_the_run_knows(at_once):
    f, x = fx.futurize(some), RNG.normal(size=(12, 6))
    calls_of_loops(f, (x,))
    np.testing.assert_allclose(f(x), some(x), rtol=1e-12)


def test_derivatives_of_running_extremes_in_loops(at_once):
    def falls(x):
        worst = 0.0
        for k in range(24):
            path = np.cumprod(1 + 0.01 * k * x)
            worst = worst + (path / np.maximum.accumulate(path)).min() + np.sort(x.reshape(4, 5), axis=0)[k % 4, 0]
        return worst

    x, step = 0.1 * RNG.normal(size=20), 1e-6
    slopes = [(falls(x + step * each) - falls(x - step * each)) / (2 * step) for each in np.eye(20)]
    np.testing.assert_allclose(fx.futurize(fx.grad(falls))(x), slopes, atol=1e-6)


def test_functions_of_a_counter(at_once):
    """Of a Python int NumPy makes a number in double precision."""

    def waves(x):
        total, found = x[0] * 0, np.zeros((24, 3))
        for k in range(24):
            total = total + x * np.sin(k) * np.exp(-k) + np.sqrt(k) * x[0]
            found[k] = np.arctan2(k, 3), np.hypot(k, k + 1) + np.log1p(k), np.float64(k) / 7 + np.true_divide(k, 3)
        return total, found

    for dtype in ("f8", "f4"):
        f, x = fx.futurize(waves), RNG.normal(size=(9, 9)).astype(dtype)
        assert calls_of_loops(f, (x,)) == []
        for actual, expected in zip(f(x), waves(x), strict=True):
            assert actual.dtype == expected.dtype
            np.testing.assert_array_equal(actual, expected)
