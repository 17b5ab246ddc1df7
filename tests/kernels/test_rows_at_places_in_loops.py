"""Rows that places pick, write and add to in compiled loops: few elements are written out, many a loop of their own."""

from __future__ import annotations

import numpy as np
import pytest
from compare import calls_of_loops

import futurex as fx

RNG = np.random.default_rng(11)
COUNT = 30


def picked(x, i, v):
    total = np.zeros_like(v)
    for _ in range(20):
        total = total + x[i]
        x = x + total[: len(x)]
    return x, total


def written(x, i, v):
    """Of places that come twice the last one stays."""
    x = x.copy()
    for k in range(20):
        x[i] = v
        v = v + x[(i + k) % len(x)]
    return x, v


def added(x, i, v):
    x = x.copy()
    for _ in range(20):
        np.add.at(x, i, v)
        np.subtract.at(x, i[::-1], v)
        np.add.at(x, i, 1)
        v = v + x[0]
    return x, v


def kept(x, i, v):
    x = x.copy()
    for _ in range(20):
        np.maximum.at(x, i, v)
        np.minimum.at(x, i[::2], v[::2])
        v = v[::-1] * 2 - x[0]
    return x, v


def parts(x, i, v):
    """Parts of rows, backwards and with gaps, one row for all places and one number for each."""
    x = x.copy()
    for _ in range(20):
        x[i, ::-1] = v
        np.add.at(x, (i, slice(1, None)), v[:, 1:])
        np.add.at(x, (slice(None), 0), x[:, 1] * 0.5)
        x[i, ::2] = v[:, :1]
        x[i[:4]] = v[0]
        v = v + x[i, ::-1] * 0.25
    return x, v


def in_the_middle(x, i, v):
    t = np.zeros((3, *x.shape)) + x
    for _ in range(20):
        np.add.at(t, (slice(None), i), v)
        t[1:, i[:5]] = v[:5]
        t[0, i, 0] = v[:, 1]
        v = v * 0.5 + t[2][i]
    return t, v


def at_two_axes(x, i, v):
    t = np.zeros((5, 4, x.shape[1]))
    for k in range(20):
        np.add.at(t, (i % 5, (i + k) % 4), v)
        v = v * 0.5 + t[i % 5, i % 4]
    return t, v


def turned(x, i, v):
    x = x.T.copy().T
    for _ in range(20):
        np.add.at(x, i, v)
        v = v * 0.5 + x[i]
    return x, v


PROGRAMS = (picked, written, added, kept, parts, in_the_middle, at_two_axes, turned)


@pytest.mark.parametrize("length", [2, 3, 4, 7, 8, 9, 20])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_rows_are_numpys(program, length, at_once):
    x, v = RNG.normal(size=(12, length)), RNG.normal(size=(COUNT, length))
    i = RNG.integers(-12, 12, COUNT)
    f = fx.futurize(program)
    for _ in range(2):
        for actual, expected in zip(f(x, i, v), program(x, i, v), strict=True):
            np.testing.assert_array_equal(actual, expected, strict=True)


@pytest.mark.parametrize("dtype", ["f4", "i8", "i4", "i2", "u1", "?", "c16"])
@pytest.mark.parametrize("program", [picked, written], ids=lambda each: each.__name__)
def test_rows_of_other_types_are_numpys(program, dtype, at_once):
    x, v = ((RNG.normal(size=shape) * 3).astype(dtype) for shape in ((12, 3), (COUNT, 3)))
    i = RNG.integers(-12, 12, COUNT)
    f = fx.futurize(program)
    for actual, expected in zip(f(x, i, v), program(x, i, v), strict=True):
        np.testing.assert_array_equal(actual, expected, strict=True)


@pytest.mark.parametrize("program", [picked, written, added, kept, turned], ids=lambda each: each.__name__)
def test_a_place_outside_raises_what_numpy_raises(program, at_once):
    x, v = RNG.normal(size=(12, 3)), RNG.normal(size=(COUNT, 3))
    i = RNG.integers(-12, 12, COUNT)
    i[17] = 12
    f = fx.futurize(program)
    with pytest.raises(IndexError, match="out of bounds"):
        np.asarray(f(x, i, v)[0])


def test_springs_need_no_call(at_once):
    def swing(x, v, i, j):
        for _ in range(20):
            force = (x[j] - x[i]) * 0.5
            total = np.zeros_like(x)
            np.add.at(total, i, force)
            np.subtract.at(total, j, force)
            v = v * 0.99 + total * 0.01
            x = x + v
        return x

    args = RNG.normal(size=(12, 3)), RNG.normal(size=(12, 3)), RNG.integers(0, 12, COUNT), RNG.integers(0, 12, COUNT)
    f = fx.futurize(swing)
    np.testing.assert_array_equal(f(*args), swing(*args), strict=True)
    assert not calls_of_loops(f, args)
