"""Calls that return one thing or another, as the data tells: NumPy's results and their types."""

import math

import numpy as np
import pytest
from compare import bits, check, plain

import futurex as fx

X = np.random.default_rng(0).normal(size=30)


def first_above(x, c):
    for i in range(len(x)):
        if x[i] > c:
            return i, x[i]
    return None


def first_by_enumerate(x, c):  # noqa: RET503 - and None without a word
    for i, v in enumerate(x):
        if v > c:
            return i, v


def numbers_or_others(x, c):
    s = 0.0
    for i in range(len(x)):
        s += x[i]
        if s > c:
            return True, s
    return False, None


def pair_of_places(x, c):
    for i in range(len(x)):
        for j in range(i + 1, len(x)):
            if x[i] + x[j] > 2 * c and x[i] < x[j]:
                return i, j
    return None


def array_or_none(x, c):
    if x[0] > c:
        return np.sqrt(np.abs(x))
    return None


def tuples_of_three_shapes(x, c):
    if x.max() > c:
        return x[:3] * 2, len(x)
    if x.min() < -c:
        return (x * 3,)
    return "neither", x[0]


def one_array_twice(x, c):
    y = x * 2
    if x[0] > c:
        return y, y
    return y, None


def nested(x, c):
    if x[1] > c:
        return (x[1], (x[2], 1)), "a"
    return (x[1], None), "b"


def number_of_either_kind(x, c):
    s = c if x[1] < 0 else x[1]
    if x[0] > c:
        return x
    return s


def pair_with_a_number_of_either_kind(x, c):
    if x[0] > 5:
        return c, x
    if x[0] > -c:
        return x, 0.25
    return x, x[1]


def tuple_or_nothing_or_a_number(x, c):
    best = None
    if x[0] > c:
        best = np.float32(x[0])
    if x[1] > c:
        return x[:2], 1
    return best


CASES = first_above, first_by_enumerate, numbers_or_others, pair_of_places, array_or_none, tuples_of_three_shapes, \
    one_array_twice, nested, number_of_either_kind, pair_with_a_number_of_either_kind, \
    tuple_or_nothing_or_a_number  # fmt: skip


@pytest.mark.parametrize("mode", ["background", "wait"])
@pytest.mark.parametrize("c", [0.5, 1.9, 100.0, -100.0])
@pytest.mark.parametrize("case", CASES)
def test_results(case, c, mode, monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", mode)
    check(case, X, c, calls=4)


def test_a_caller_takes_either():
    def caller(x, c):
        found = first_above(x, c)
        if found is None:
            return -1.0
        i, value = found
        return i + value

    for c in (0.5, 100.0):
        check(caller, X, c)


def test_derivatives_go_through_what_was_returned():
    def loss(x, c):
        found = first_above(x, c)
        return x.sum() if found is None else found[1] ** 2

    step = fx.futurize(fx.grad(loss))
    for c in (0.5, 100.0):
        place = np.argmax(c < X)
        expected = np.ones(30) if c > 50 else np.where(np.arange(30) == place, 2 * X, 0)
        np.testing.assert_allclose(step(X, c), expected)


def number_of_either_kind(x, c):
    if x[0] < -5:
        return None, 2
    return math.sqrt(x[1] * x[1]) if x[2] < c else abs(x[2])


def number_of_either_kind_in_a_tuple(x, c):
    if x[0] < -5:
        return None, None
    length = math.sqrt(x[1] * x[1]) if x[2] < c else abs(x[2])
    return x / length, length


def one_of_three_in_a_tuple(x, c):
    if x[0] < -5:
        return (x[1],)
    best = None
    if x[2] > c:
        best = x[2] if x[1] > c else 1.5
    return x * 2, (best, x[1])


def caller_of_it(x, c):
    found, length = number_of_either_kind_in_a_tuple(x, c)
    if found is None:
        return -1.0
    return 1 / length, found


@pytest.mark.parametrize("mode", ["background", "wait"])
@pytest.mark.parametrize(
    "case", [number_of_either_kind, number_of_either_kind_in_a_tuple, one_of_three_in_a_tuple, caller_of_it]
)
def test_parts_that_are_several_things_keep_their_types(case, mode, monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", mode)
    f = fx.futurize(case)
    kinds = [np.array(each) for each in ([1.0, 2.0, 3.0], [1.0, 2.0, 0.0], [-9.0, 1.0, 1.0], [2.0, 0.1, 2.0])]
    for k in range(120):
        x = kinds[k * k % 7 % 4]
        found, expected = plain(f(x, 0.5)), case(x, 0.5)
        assert repr(found) == repr(expected)
        assert types(found) == types(expected)


def types(value):
    return tuple(map(types, value)) if isinstance(value, tuple) else type(value)


@pytest.mark.parametrize("case", CASES[-3:])
def test_numbers_of_either_kind_beside_others_are_staged(case):
    f = fx.futurize(case)
    for x in (X, -X, 9 * X):
        for c in (0.5, -0.5):
            found, expected = plain(f(x, c)), case(x, c)
            assert bits(found) == bits(expected)
            assert types(found) == types(expected), f.explain()
    assert "runs as plain NumPy" not in f.explain(), f.explain()


def kinds_in_a_list(x, c):
    found = []
    for k in range(3):
        found.append(0.0 if x[k] < c else x[k] * 2)
    return np.array(found), np.mean(x) if x[2] > c else np.nan


def test_numbers_of_either_kind_in_a_list_are_one_array():
    f = fx.futurize(kinds_in_a_list)
    for x in (X, -X, 9 * X):
        found, expected = plain(f(x, 0.5)), kinds_in_a_list(x, 0.5)
        assert bits(found) == bits(expected)
        assert types(found) == types(expected)
    assert "runs as plain NumPy" not in f.explain(), f.explain()
