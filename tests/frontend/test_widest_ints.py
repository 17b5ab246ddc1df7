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


def shared(x, n):
    return int(x[0]) / 3, x[1].item() / x[2].item(), n / 7


def in_rounds(x, n):
    total, mean = 0, 0.0
    for k in range(50):
        total += int(x[k % 3]) >> 2
        mean = total / (k + 1)
    return mean, total / n


def of_either_kind(x, n):
    count = x[0] if x[1] > x[2] else n
    return count / 7


def of_either_kind_in_an_array(x, n):
    count = x[0] if x[1] > x[2] else n
    return np.array([count / 7])[0]


@pytest.mark.parametrize("program", [shared, in_rounds, of_either_kind, of_either_kind_in_an_array])
def test_quotients_of_ints_are_rounded_once(program):
    """NumPy makes floats of ints before it divides, and Python does not: of its own ints the quotient alone is rounded.
    """
    f, rng = fx.futurize(program), np.random.default_rng(0)
    for _ in range(60):
        x, n = rng.integers(2**54, 2**57, 3), int(rng.integers(2**54, 2**60))
        found, expected = f(x, n), program(x, n)
        if not isinstance(expected, tuple):
            found, expected = (found,), (expected,)
        assert [float(each) for each in found] == [float(each) for each in expected], f.explain()


def test_an_int_is_divided_by_zero_where_python_does_it():
    def guarded(x, n):
        if n:
            return int(x[0]) / int(x[1])
        return 0.0

    f = fx.futurize(guarded)
    for x, n in (([7, 2], 3), ([7, 0], 0), ([2**60 + 1, 3], 4)):
        assert float(f(np.array(x), n)) == guarded(np.array(x), n)
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        float(f(np.array([7, 0]), 5))
