"""Compiled loops over slices whose bounds change, masks and positions: NumPy's bits, or NumPy's error."""

from __future__ import annotations

import numpy as np
import pytest
from compare import calls_of_loops, outcome
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx

N = 9
BOUND = st.integers(-N - 3, N + 3)


def read(x, starts, stops):
    out = np.zeros((len(starts), 3))
    for i in range(len(starts)):
        part = x[starts[i] : stops[i]]
        out[i, 0] = part.sum()
        out[i, 1] = x[starts[i] : stops[i] : -2].sum() + len(part)
        out[i, 2] = (x[stops[i] :] * 2.0).sum() + x[: starts[i]].sum()
    return out


def written(x, starts, stops):
    x = x.copy()
    for i in range(len(starts)):
        x[starts[i] : stops[i]] += 0.5 * i
        x[stops[i] :: 2] = x[0] + i
    return x


def shifted(x, starts, stops):
    x = x.copy()
    for i in range(len(starts)):
        a, b = starts[i], stops[i]
        x[: len(x) - abs(a)] = x[abs(a) :] + x[b]
    return x


def rows(x, starts, stops):
    table = np.outer(x, x[:5])
    for i in range(len(starts)):
        k, n = starts[i] % N, abs(stops[i]) % 5
        table[k, :n] = table[n, n:][: min(n, 5 - n)].sum() + table[:k, n] @ table[:k, 0]
        table[k:, n] /= 1.0 + np.abs(table[k:, n]).max()
        table[:n, : n + 1] = np.sqrt(np.abs(table[:n, : n + 1]))[::-1]
    return table


def swapped(x, starts, stops):
    table = np.outer(x, x)
    order = np.arange(N)
    for i in range(len(starts)):
        a, b = starts[i] % N, stops[i] % N
        table[[a, b]] = table[[b, a]]
        table[a], table[b] = table[b] + i, table[a].copy()
        order[a], order[b] = order[b], order[a]
    return table, order


def masked(x, starts, stops):
    x = x.copy()
    total = 0.0
    for i in range(len(starts)):
        part = x > starts[i] / 4
        x[part] = x[part] - 1.5
        x[~part & (x < 0)] = i
        found = np.flatnonzero(x > 0.5)
        total += x[found].sum() * len(found)
        x[found] *= 0.75
    return x, total


def extremes(x, starts, stops):
    best = np.zeros((len(starts), 4))
    for i in range(len(starts)):
        a = abs(starts[i]) % N
        part = x[a:]
        best[i, 0] = np.argmax(part)
        best[i, 1] = part.max()
        best[i, 2] = np.argmin(np.abs(part)) + np.any(part > 1) + np.all(part > -1)
        best[i, 3] = np.cumsum(part)[-1] + np.linalg.norm(part)
    return best


def stepped(x, starts, stops):
    x, total = x.copy(), np.zeros((len(starts), 2))
    for i in range(len(starts)):
        step = abs(stops[i]) % 5 + (stops[i] > -10)
        part = x[starts[i] :: step]
        total[i] = part.sum() + x[: stops[i] : step].sum(), len(part)
        x[starts[i] : stops[i] : step] = i
        x[stops[i] :: step] -= x[stops[i] :: step] * 0.5
        x[::step] = x[starts[i] % N : starts[i] % N + 1]
    return x, total


def added(x, starts, stops):
    """``ufunc.at`` with numbers and slices alone: no index is an array."""
    table = np.outer(x, x)
    for i in range(len(starts)):
        a, b = int(starts[i]), int(stops[i]) % N
        np.add.at(table, (slice(None), a), table[b, ::-1] + i)
        np.add.at(table, (b, slice(3, None)), 0.5)
        np.add.at(table, (a, b), x[a])
        np.add.at(table, b, x)
        np.add.at(table, (slice(None), 2), x)
        np.add.at(table, 3, x[b])
    return table


def test_a_sieve_calls_nothing(at_once):
    def sieve(n):
        prime, totient = np.ones(n + 1, bool), np.arange(n + 1)
        for k in range(2, n):
            if prime[k]:
                prime[k * k :: k] = False
                totient[k::k] -= totient[k::k] // k
        return prime, totient

    futurized = fx.futurize(sieve)
    assert calls_of_loops(futurized, [300]) == [], futurized.explain()
    for _ in range(2):
        assert outcome(futurized, [300]) == outcome(sieve, [300])


FUNCTIONS = (read, written, shifted, rows, swapped, masked, extremes, stepped, added)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_slices_with_changing_bounds_give_numpys_bits(function):
    """The function is staged once: bounds are data."""
    staged = fx.futurize(function, escape="error")
    rng = np.random.default_rng(2)

    def outcome(call, arguments):
        try:
            return [np.asarray(each) for each in _leaves(call(*(each.copy() for each in arguments)))]
        except (ValueError, IndexError) as error:
            return type(error)

    @settings(max_examples=60, deadline=None)
    @given(st.lists(BOUND, min_size=20, max_size=20), st.lists(BOUND, min_size=20, max_size=20), st.booleans())
    def check(starts, stops, special):
        x = rng.normal(size=N)
        if special:
            x[rng.integers(0, N, 2)] = rng.choice([np.nan, -0.0, np.inf, 0.0], 2)
        arguments = x, np.array(starts), np.array(stops)
        expected, found = outcome(function, arguments), outcome(staged, arguments)
        if isinstance(expected, type) or isinstance(found, type):
            assert expected is found
            return
        for one, two in zip(expected, found, strict=True):
            np.testing.assert_array_equal(two, one)
            assert two.dtype == one.dtype

    check()
    assert {row.backend for row in staged.profile() if row.op == "loop"} == {"loops"}


def _leaves(value):
    return [leaf for each in value for leaf in _leaves(each)] if isinstance(value, tuple | list) else [value]


def medians(x, size):
    found = np.zeros((len(x), 2), x.dtype)
    for k in range(len(x) - size):
        found[k, 0] = np.median(x[k : k + size])
        found[k, 1] = np.median(x[max(k - 2, 0) : k + 2])
    return found


def of_windows(image):
    found = np.zeros_like(image)
    for i in range(image.shape[0]):
        for j in range(image.shape[1]):
            found[i, j] = np.median(image[max(i - 1, 0) : i + 2, max(j - 1, 0) : j + 2])
    return found


SPECIAL = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -0.0, -0.0, -0.0, 5e-324, 1.7e308, 1.7e308] * 4)


@pytest.mark.parametrize("dtype", [float, np.float32])
@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_medians(dtype, size, at_once):
    for values in (np.random.default_rng(0).normal(size=48), SPECIAL):
        args = [np.tile(values[:48], 2).clip(np.finfo(dtype).min, np.finfo(dtype).max).astype(dtype), size]
        futurized = fx.futurize(medians)
        assert calls_of_loops(futurized, args) == [], futurized.explain()
        for _ in range(2):
            assert outcome(futurized, args) == outcome(medians, args)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int16, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_medians_of_integers(dtype, size, at_once):
    """Sums of two of them neither wrap around nor keep more digits than NumPy's, which adds floats."""

    def medians_as_floats(x, size):
        found = np.zeros((len(x), 2))
        for k in range(len(x) - size):
            found[k, 0] = np.median(x[k : k + size])
            found[k, 1] = np.median(x[max(k - 2, 0) : k + 2])
        return found

    rng = np.random.default_rng(0)
    low, high = (0, 2) if dtype is bool else (np.iinfo(dtype).min, int(np.iinfo(dtype).max) + 1)
    any_, large = (rng.integers(low, high, 64, dtype), rng.integers(high - 2, high, 64, dtype))
    futurized = fx.futurize(medians_as_floats)
    for x in (any_, large):
        assert calls_of_loops(futurized, [x, size]) == [], futurized.explain()
        for _ in range(2):
            assert outcome(futurized, [x, size]) == outcome(medians_as_floats, [x, size])


@pytest.mark.parametrize("dtype", [float, np.uint8])
def test_medians_of_windows(dtype, at_once):
    args = [(np.random.default_rng(0).random((40, 41)) * 255).astype(dtype)]
    futurized = fx.futurize(of_windows)
    assert calls_of_loops(futurized, args) == [], futurized.explain()
    for _ in range(2):
        assert outcome(futurized, args) == outcome(of_windows, args)


def written(values, found):
    """Scalars become elements of another dtype: NumPy looks whether they fit."""
    for k in range(len(values)):
        found[k] = values[k]
        found[k] = found[k] // 2 + values[k] / 2
    return found


@pytest.mark.parametrize("target", [np.int8, np.uint8, np.int32, np.uint32, np.int64])
@pytest.mark.parametrize("source", [np.float64, np.float32, np.int64, np.int16, np.uint16])
def test_numbers_become_elements(source, target, at_once):
    values = np.arange(30).astype(source) * source(3.9)
    futurized = fx.futurize(written)
    assert calls_of_loops(futurized, [values, np.zeros(30, target)]) == [], futurized.explain()
    odd = [-0.5, 0.99, -1, -128, -129, 127, 255, 256, 40000, 2**31, 2**32 - 1]
    if np.dtype(source).kind == "f":
        odd += [127.999, 255.5, -128.5, np.nan, np.inf, 1e30]
    for value in odd:
        if np.dtype(source).kind == "f" or np.iinfo(source).min <= value <= np.iinfo(source).max:
            values = np.arange(30).astype(source)
            values[7] = source(value)
            expected = outcome(written, [values, np.zeros(30, target)])
            assert outcome(futurized, [values, np.zeros(30, target)]) == expected, value
