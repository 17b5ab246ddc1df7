"""Ufuncs with two results, choices, extremes of what is a number and sums of sizes in compiled loops: NumPy's bits, no
call of Python."""

from __future__ import annotations

import numpy as np
import pytest
from compare import calls_of_loops

import futurex as fx

RNG = np.random.default_rng(6)
ROUNDS = 24


def divided(x):
    found = np.zeros((ROUNDS, 3, 9))
    for k in range(ROUNDS):
        q, r = np.divmod(x, x[k % 9, 0])
        found[k, 0], found[k, 1] = q[0] + r[1], np.divmod(7, x[:, ::2])[1][:, 1]
        found[k, 2] = divmod(x[k % 9], 3)[0] + np.divmod(x[:, k % 9], x)[1][2]
        x = x[:, ::-1] + x[k % 4]
    return found, x


def parted(x):
    found = np.zeros((ROUNDS, 3, 9))
    for k in range(ROUNDS):
        fraction, whole = np.modf(x * 3)
        found[k, 0], found[k, 1] = fraction[k % 9], whole[:, 2]
        mantissa, exponent = np.frexp(x[:, ::-1])
        found[k, 2] = mantissa[1] + exponent[k % 9]
        x = x[:, ::-1] + x[k % 4]
    return found, x


def extremes(x):
    found = np.zeros((ROUNDS, 9))
    for k in range(ROUNDS):
        found[k] = np.nanmax(x, axis=0) - np.nanmin(x[:, ::-1], axis=1) + np.nanmax(x) - np.fmin.reduce(x[k % 9])
        found[k] += np.nanmin(x[::2], axis=1, keepdims=True)[0] + np.linalg.norm(x[:, k % 9], 1)
        x = x[:, ::-1] + x[k % 4]
    return found


def drawn(dtype, low=-4):
    values = RNG.integers(low, 5, (9, 9)).astype(dtype)
    if np.dtype(dtype).kind == "f":
        values *= np.asarray(0.7, dtype)
        for special in (-0.0, np.nan, np.inf):
            values[RNG.random(values.shape) < 0.03] = special
    return values


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function, dtype", [
    (divided, "f8"), (divided, "f4"), (divided, "i8"), (divided, "u2"), (parted, "f8"), (parted, "f4"),
    (extremes, "f8"), (extremes, "f4"),
])  # fmt: skip
def test_bits(function, dtype, at_once):
    f, x = fx.futurize(function), drawn(dtype, 1 if dtype == "u2" else -4)
    assert calls_of_loops(f, [x]) == []
    for given in (x, drawn(dtype, 1 if dtype == "u2" else -4)):
        actual, expected = f(given), function(given)
        actual, expected = (each if isinstance(each, tuple) else (each,) for each in (actual, expected))
        for one, other in zip(actual, expected, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
            np.testing.assert_array_equal(np.signbit(one), np.signbit(other))


def chosen(number, x, y):
    total = np.zeros(x.shape)
    for k in range(ROUNDS):
        total = 0.5 * total + np.choose(number, [x, y, 3, x[0] * k, 2 * y])
        total[0] -= np.choose(number[k % 9] > 2, (x[1], 0.25)) * np.choose(number[:, 0], [1.5, 2, 0, 1, 7])
    return total


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i2"])
def test_choices(dtype, at_once):
    f, x, y = fx.futurize(chosen), drawn(dtype), drawn("f4")
    for kind in ("i8", "u1", "i4"):
        number = RNG.integers(0, 5, (9, 9)).astype(kind)
        assert calls_of_loops(f, [number, x, y]) == []
        np.testing.assert_array_equal(f(number, x, y), chosen(number, x, y))
        number[7, 2] = 5
        for function in (chosen, lambda *args, f=f: np.asarray(f(*args))):
            with pytest.raises(ValueError, match="invalid entry in choice array"):
                function(number, x, y)
