"""``argmax`` and ``argmin`` along axes whose columns lie side by side, in compiled loops: NumPy's places."""

from __future__ import annotations

import numpy as np
import pytest
from compare import calls_of_loops

import futurex as fx

RNG = np.random.default_rng(3)


def drawn(shape, dtype):
    """Numbers of which many are equal, zeros of both signs, infinities and a few that are none."""
    values = RNG.integers(-4, 5, shape).astype(dtype)
    if np.dtype(dtype).kind == "f":
        for special in (-0.0, np.inf, -np.inf, np.nan):
            values[RNG.random(shape) < 0.06] = special
    return values


def places(stack):
    total = np.zeros(stack.shape[2:], int)
    found = np.zeros((len(stack), 2, *stack.shape[2:]), int)
    for k in range(len(stack)):
        found[k, 0], found[k, 1] = stack[k].argmax(axis=0), stack[k].argmin(0)
        total += found[k, 0] + (k + 1) * found[k, 1]
    return total, found


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "i4", "u2", "i1", "?", "f2"])
def test_places_along_columns(dtype, at_once):
    for *shape, columns in ((7, 1), (7, 2), (6, 5), (30, 16), (4, 31), (5, 3, 6), (1, 40), (9, 67)):
        f, stack = fx.futurize(places), drawn((40, *shape, columns), dtype)
        for actual, expected in zip(f(stack), places(stack), strict=True):
            np.testing.assert_array_equal(actual, expected)


def test_places_in_views_and_in_the_middle(at_once):
    def f(x):
        found = np.zeros((40, x.shape[1], x.shape[3] // 2), int)
        last = np.zeros((40, x.shape[3]), int)
        for k in range(40):
            found[k] = x[k, ::-1].argmax(1)[:, 1::2]
            last[k] = x[k, 1:, 2].argmin(0, keepdims=True)[0] + x[k].T[1:, 0].argmax(0)[0]
        return found, last, x[0].argmax(1)

    x = drawn((40, 4, 5, 20), "f8")
    for actual, expected in zip(fx.futurize(f)(x), f(x), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_the_likeliest_path_is_found_without_a_call(at_once):
    def viterbi(start, step, seen):
        score, before = start, np.zeros(seen.shape, int)
        for t in range(len(seen)):
            each = score[:, None] + step
            before[t], score = each.argmax(0), each.max(0) + seen[t]
        path = np.zeros(len(seen), int)
        path[-1] = score.argmax()
        for t in range(len(seen) - 1, 0, -1):
            path[t - 1] = before[t, path[t]]
        return path, score

    f, args = fx.futurize(viterbi), [RNG.normal(size=shape) for shape in ((12,), (12, 12), (60, 12))]
    assert calls_of_loops(f, args) == []
    for actual, expected in zip(f(*args), viterbi(*args), strict=True):
        np.testing.assert_array_equal(actual, expected)
