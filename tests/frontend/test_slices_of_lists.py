"""Slices of lists between bounds that only the run knows: read, reversed, and written."""

import numpy as np
import pytest
from compare import check, outcome

import futurex as fx

X = np.random.default_rng(1).integers(0, 20, 60)


def two_opt(d):
    tour = list(range(len(d)))
    improved, rounds = True, 0
    while improved and rounds < 30:
        improved = False
        rounds += 1
        for i in range(1, len(d) - 2):
            for j in range(i + 1, len(d) - 1):
                a, b, c, e = tour[i - 1], tour[i], tour[j], tour[j + 1]
                if d[a, c] + d[b, e] < d[a, b] + d[c, e] - 1e-12:
                    tour[i : j + 1] = reversed(tour[i : j + 1])
                    improved = True
    return tour, rounds


def reversed_parts(x):
    xs = [2 * i for i in range(20)]
    for k, v in enumerate(x):
        i, j = int(v), int(x[k - 1])
        xs[i : j + 1] = xs[i : j + 1][::-1]
        xs[i - 20 : -1] = xs[i:19]
    return xs, np.array(xs)


def turned_around(x):
    xs = list(range(20))
    for v in x:
        i = int(v)
        xs[:] = xs[i:] + xs[:i]
    return xs


def windows(x):
    xs = [float(i) for i in range(12)]
    s = 0.0
    for v in x:
        i = int(v) % 14
        s += sum(xs[i : i + 3]) + len(xs[i:]) - len(xs[:-i])
        xs[i : i + 1] = [s][: len(xs[i : i + 1])]
    return s, xs


def of_pairs(x):
    xs = [(i, 0.5 * i) for i in range(12)]
    for v in x:
        i = int(v) % 10
        xs[i : i + 2] = xs[i : i + 2][::-1]
        if v > 8:
            xs[i : i + 2] = [(int(v), 1.0), (3, 2.0)]
    return xs


def in_a_branch_and_behind_it(x):
    xs = [2 * i for i in range(12)]
    for v in x:
        i = int(v) % 10
        if v > 8:
            xs[i : i + 2] = (int(v), 3)
        else:
            xs[i : i + 2] = np.array([1, 2]).tolist()
        xs[0] += xs[i]
    return xs


def of_another_name(x):
    xs = [2 * i for i in range(12)]
    same = xs
    for v in x:
        xs[int(v) % 10 : int(v) % 10 + 2] = [7, int(v)]
    return xs, same[3], len(same)


def what_is_gone_over_backwards_has_changed(x):
    xs = [2 * i for i in range(12)]
    for v in x:
        i = int(v) % 6
        back = reversed(xs)
        xs[i] = 5 + xs[i + 1]
        xs[i : i + 12] = list(back)[i:12]
    return xs


@pytest.mark.parametrize(
    "function",
    [reversed_parts, turned_around, windows, of_pairs, in_a_branch_and_behind_it, of_another_name],
)
def test_entries_take_the_places_of_as_many(function):
    check(function, X)
    check(function, X[:3])


def test_tours_are_turned_around():
    p = np.random.default_rng(10).random((25, 2))
    check(two_opt, np.hypot(*(p[:, None] - p[None]).T))


def grows(x):
    xs = [2 * i for i in range(12)]
    for v in x:
        i = int(v) % 12
        xs[i : i + 2] = [int(v), 3, 4]
    return xs


def begins_behind_its_end(x):
    xs = [2 * i for i in range(12)]
    for v in x:
        xs[int(v) : 3] = [1]
    return xs


def gets_a_number(x):
    xs = [2 * i for i in range(12)]
    for v in x:
        xs[int(v) : 3] = 7
    return xs


def every_second(x):
    xs = [2 * i for i in range(12)]
    for v in x:
        xs[int(v) % 3 : int(v) % 3 + 6 : 2] = [1, 2, 3]
    return xs


@pytest.mark.parametrize(
    "function",
    [grows, begins_behind_its_end, gets_a_number, every_second, what_is_gone_over_backwards_has_changed],
)
def test_what_has_another_length_or_meaning_is_python_s(function):
    futurized = fx.futurize(function)
    for x in (X, X[:2], X[:0]):
        for _ in range(2):
            assert outcome(futurized, (x,)) == outcome(function, (x,))
