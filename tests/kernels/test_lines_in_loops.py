"""``np.interp``, ``np.convolve`` and ``np.correlate`` in compiled loops: NumPy's bits, and no call of Python."""

from __future__ import annotations

import numpy as np
import pytest
from compare import calls_of_loops

import futurex as fx

RNG = np.random.default_rng(5)


def lines(x, xs, fs):
    out = np.zeros((12, 2, *x.shape))
    for k in range(12):
        out[k, 0] = np.interp(x + 0.1 * k, xs, fs)
        out[k, 1] = np.interp(x - 0.1 * k, xs, fs, left=k * 2, right=-1.5)
    return out


def one_after_the_other(x, xs, fs):
    total = 0.0
    for k in range(len(x)):
        total = 0.5 * total + np.interp(x[k] + total, xs, fs)
    return total


def table(kind, length):
    xs, fs = RNG.normal(size=(2, length))
    if kind == "in order":
        xs = np.sort(xs)
    if kind == "ties":
        xs, fs = np.sort(np.round(xs)), np.round(fs)
    if kind == "odd":
        for values in (xs, fs):
            values[RNG.random(length) < 0.3] = RNG.choice([np.nan, np.inf, -np.inf, -0.0])
    return xs, fs


@pytest.mark.parametrize("kind", ["in order", "ties", "in no order", "odd"])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 12, 40, 200])
def test_lines(kind, length, at_once):
    f, g = fx.futurize(lines), fx.futurize(one_after_the_other)
    with np.errstate(all="ignore"):
        for _ in range(4):
            xs, fs = table(kind, length)
            holes = np.where(RNG.random(30) < 0.2, np.nan, RNG.normal(size=30))
            for x in (RNG.normal(size=50) * 1.5, np.round(RNG.normal(size=(5, 7)) * 3), holes, RNG.integers(-3, 3, 9)):
                assert np.asarray(f(x, xs, fs)).tobytes() == lines(x, xs, fs).tobytes()
            assert np.array_equal(g(holes, xs, fs), one_after_the_other(holes, xs, fs), equal_nan=True)
            assert np.array_equal(g(xs, xs, fs[::-1]), one_after_the_other(xs, xs, fs[::-1]), equal_nan=True)
    assert calls_of_loops(f, (RNG.normal(size=50), xs, fs)) == []
    assert calls_of_loops(g, (RNG.normal(size=50), xs, fs)) == []


def test_lines_by_a_table_of_a_length_that_the_run_knows(at_once):
    def f(x, xs, fs):
        out = np.zeros((9, len(x)))
        for k in range(9):
            few = xs[xs > x[k]]
            if len(few) > 0:
                out[k] = np.interp(x, few, fs[: len(few)])
        return out

    for size in (9, 30, 60):
        args = np.sort(RNG.normal(size=size)), np.sort(RNG.normal(size=size)), RNG.normal(size=size)
        np.testing.assert_array_equal(fx.futurize(f)(*args), f(*args))


def slides(x, v):
    same, valid = x, np.zeros(1 + abs(len(x) - len(v)), x.dtype)
    full = np.zeros((8, len(x) + len(v) - 1), x.dtype)
    for k in range(8):
        same = np.convolve(same[::-1], v, "same")[: len(x)] + np.correlate(v, same[:3], "same")[-1]
        valid = valid + np.convolve(x[::-1] + valid[0], v, "valid") - np.correlate(x, v) * np.correlate(v, x)
        full[k] = np.convolve(v, x * k) + np.correlate(v[::-1], x, "full")
    return same, valid, full


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i4", "u8", "i2", "u1"])
@pytest.mark.parametrize("taps", [1, 2, 3, 5, 11, 12, 16, 30])
def test_slides(taps, dtype, at_once):
    for size in (5, 37):
        f, args = fx.futurize(slides), [(RNG.normal(size=n) * 4).astype(dtype) for n in (size, taps)]
        with np.errstate(all="ignore"):
            assert calls_of_loops(f, args) == []
            for actual, expected in zip(f(*args), slides(*args), strict=True):
                assert np.asarray(actual).tobytes() == expected.tobytes()
