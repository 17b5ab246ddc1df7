"""Python ints that begin near the widest of 64 bits, as the largest one does that stands for infinity."""

import sys

import numpy as np
import pytest
from compare import outcome, plain

import futurex as fx

LARGEST, LEAST = sys.maxsize, -sys.maxsize - 1


def fewest(a):
    best = LARGEST
    for v in a:
        found = best + 1 if v > 0 else best
        if found < best:
            best = found
    return best


def counted_up(a):
    k = LARGEST - 3
    for v in a:
        if v > 0:
            k += 1
            k += 1
    return k


def counted_down(a):
    k = LEAST
    while a.sum() > 0:
        a = a - 1
        k -= 1
    return k


def behind_a_loop(a):
    best = LARGEST
    for v in a:
        if v > 6:
            best = int(v)
    return best + 1, -best - 2


def behind_a_branch(a):
    best = LARGEST
    if a.sum() > 20:
        best = int(a[0])
    return best + 1


def chosen(a):
    best = LARGEST if a.sum() < 20 else 0
    return best + 1


def in_two_loops(a):
    low = LARGEST
    for i in range(len(a)):
        current = low
        for j in range(len(a)):
            if a[i] > a[j]:
                current = current + 1 if current < 5 else int(a[j])
        low = current
    return low + 1


def by_a_helper(a):
    def next_of(x, m):
        if x > 4:
            return m
        return m + 1

    m = LARGEST
    for v in a:
        m = next_of(v, m)
    return m


@pytest.mark.parametrize(
    "function",
    [fewest, counted_up, counted_down, behind_a_loop, behind_a_branch, chosen, in_two_loops, by_a_helper],
)
def test_what_outgrows_64_bits_is_pythons(function):
    futurized = fx.futurize(function)
    for a in (np.arange(6), np.zeros(3, int), np.full(3, 9)):
        for _ in range(2):
            assert plain(futurized(a)) == function(a)


OF_ONE = [lambda n: n + 1, lambda n: n - 1, lambda n: -n, abs, lambda n: n // -1, lambda n: 5 - n, lambda n: n + 1 + 1]


@pytest.mark.parametrize("function", OF_ONE)
def test_widest_arguments_have_traces_of_their_own(function):
    futurized = fx.futurize(lambda n, x: (function(n), x + n))
    for n in (1, 2, 3, 4, 2**61, LARGEST, LARGEST - 1, LEAST, LEAST + 1, 5):
        assert futurized(n, 0.5) == (function(n), 0.5 + n)


def ints_of_unsigned(x):
    return int(x[0]) % 1000, x[1].item() % 7, round(x[2]) % 9


def opposites(x):
    return -int(x[0]) // 2 % 1000, float(~int(x[1])), float(-int(x[2]))


def ints_summed(x):
    total = 0
    for v in x:
        total += int(v) % 1000
    return total


def ints_in_a_list(x):
    found = []
    for v in x:
        if v % 2 == 1:
            found.append(int(v))
    return found


def ints_of_all(x):
    return np.array([int(v) for v in x], float)


@pytest.mark.parametrize(
    "function",
    [ints_of_unsigned, opposites, ints_summed, ints_in_a_list, ints_of_all],
    ids=lambda function: function.__name__,
)
def test_unsigned_numbers_beyond_63_bits_become_pythons_ints(function):
    futurized = fx.futurize(function)
    for numbers in ([1, 2, 3], [5, 6, 7], [3, 2**63 + 1, 2**64 - 1], [2**64 - 1, 2, 1], [2**64 - 1] * 3):
        args = (np.array(numbers, np.uint64),)
        assert outcome(futurized, args) == outcome(function, args), numbers


@pytest.mark.parametrize("number", [3.0, 1e19, -1e19])
def test_the_opposite_of_a_float_beyond_63_bits_is_pythons(number):
    futurized = fx.futurize(lambda x: -int(x[0]) // 2)
    for _ in range(3):
        assert futurized(np.array([number])) == -int(number) // 2


def test_ints_of_unsigned_examples_do_not_wrap():
    halves = fx.vmap(lambda v: int(v) / 2)(np.array([3, 2**64 - 1], np.uint64))
    assert np.asarray(halves).tolist() == [1.5, 2.0**63]
