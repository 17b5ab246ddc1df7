"""``np.bincount`` and ``reduceat`` inside compiled functions have NumPy's bits and errors."""

from __future__ import annotations

import numpy as np
import pytest
from compare import calls_of_loops, compiled

import futurex as fx

RNG = np.random.default_rng(11)
PLACES, WEIGHTS = RNG.integers(0, 50, 300), RNG.normal(size=300)
RISING, ANY = np.sort(RNG.integers(0, 300, 40)), RNG.integers(0, 300, 40)


@pytest.fixture
def nothing_called(at_once, monkeypatch):
    """Plans are compiled whole at once, and nothing in them is left to Python."""

    def refuse(e, node, inputs):
        pytest.fail(f"{node.op} has no machine code")

    monkeypatch.setattr("futurex.kernels.loops.emit.called", refuse)


@pytest.mark.parametrize("weights", [None, WEIGHTS, WEIGHTS.astype("f4"), PLACES], ids=str)
@pytest.mark.parametrize("dtype", ["i8", "i4", "u1"])
def test_counts_and_sums_at_places(weights, dtype, nothing_called):
    def counted(x, w):
        few = np.bincount(x[::3] % 7, minlength=9) if w is None else np.bincount(x[::3] % 7, w[::3], 9)
        return np.concatenate([few + 1, np.bincount(x, weights=w) * 2, np.bincount(x[:4], minlength=3)])

    x = PLACES.astype(dtype)
    if weights is None:
        compiled(lambda x: counted(x, None), x)
    else:
        compiled(counted, x, weights)


def test_counts_of_nothing_and_more_groups_than_there_is_room(at_once):
    def nothing(x, w):
        return np.bincount(x[x > 60], weights=w[x > 60], minlength=3) + 1

    def many(x, w):
        return np.bincount(x[:5] * 1000, weights=w[:5]) + 1

    for function in (nothing, many):
        futurized, expected = fx.futurize(function), function(PLACES, WEIGHTS)
        for _ in range(4):
            found = np.asarray(futurized(PLACES, WEIGHTS))
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum"])
@pytest.mark.parametrize("places", [RISING, ANY, RISING[:1], RISING.astype("i4")], ids=["rising", "any", "one", "i4"])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8"])
def test_reductions_of_neighbours(dtype, places, name, nothing_called):
    x, ufunc = (4 * WEIGHTS).astype(dtype), getattr(np, name)
    compiled(lambda x, places: ufunc.reduceat(x, places) + 2 * ufunc.reduceat(x[::-1] * x, places), x, places)


def test_errors_are_numpys():
    def total(x, places, rounds):
        found = 0.0
        for k in range(rounds):
            found += np.add.reduceat(x, places + k)[0]
        return found

    def counted(x, rounds):
        found = 0
        for k in range(rounds):
            found += np.bincount(x - k)[0]
        return found

    with pytest.raises(IndexError, match="index 300 out-of-bounds"):
        fx.futurize(total, escape="error")(WEIGHTS, np.array([290, 2]), 20).result()
    with pytest.raises(ValueError, match="negative"):
        fx.futurize(counted, escape="error")(np.arange(5) + 10, 20).result()


def test_sums_by_rows_of_a_sparse_matrix_do_not_keep_a_loop_from_being_compiled(at_once):
    """That only the run finds how long the sums are made it a loop that picks, which is compiled for half as many
    elements."""
    rng, n = np.random.default_rng(0), 4000
    rows, columns = rng.integers(0, n, 40_000), rng.integers(0, n, 40_000)
    rows[-1] = n - 1

    def powers(values, x):
        for _ in range(20):
            x = np.bincount(rows, weights=values * x[columns], minlength=n) * 0.1 + x
        return x

    f, args = fx.futurize(powers), (rng.normal(size=40_000), rng.normal(size=n))
    for _ in range(3):
        np.testing.assert_array_equal(f(*args), powers(*args))
    assert "is compiled whole" in f.explain()


def test_as_many_groups_as_the_run_says(at_once):
    def ranks(places, weights, x):
        others = places + 3
        for k in range(24):
            x = 0.2 / len(x) + 0.5 * np.bincount(places, weights=weights * x[k], minlength=len(x))
            x = x + np.bincount(places[k:], None, len(x)) * np.bincount(places[: 2 * k + 1], minlength=len(x))
            x = x + np.bincount(places[::2], minlength=len(x) - k)[0] / len(np.bincount(others))
            others[k] += k
        return x, np.bincount(places, np.broadcast_to(x[0], places.shape), len(x))

    f = fx.futurize(ranks)
    for size in (40, 50, 70):
        args = PLACES, WEIGHTS, np.ones(size)
        for actual, expected in zip(f(*args), ranks(*args), strict=True):
            np.testing.assert_array_equal(actual, expected)
    assert calls_of_loops(f, args) == []


def test_numbers_of_groups_that_numpy_refuses_or_that_are_more_than_there_is_room_for(at_once):
    def counts(places, sizes):
        found = np.zeros(len(sizes), int)
        for k in range(len(sizes)):
            found[k] = len(np.bincount(places, minlength=sizes[k]))
        return found

    f, sizes = fx.futurize(counts), np.arange(24) * 5
    for many in (sizes, sizes * 1000):
        np.testing.assert_array_equal(f(PLACES, many), counts(PLACES, many))
    with pytest.raises(ValueError, match="must not be negative"):
        np.asarray(f(PLACES, 50 - sizes))
    with pytest.raises(ValueError, match="negative"):
        np.asarray(f(PLACES - 1, sizes))
