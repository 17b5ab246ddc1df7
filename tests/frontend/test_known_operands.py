"""Operands of `and` and `or` that are known beside others that only the run knows: in a test their truth counts."""

import heapq

import numpy as np
import pytest
from compare import check, outcome

import futurex as fx

X = np.random.default_rng(6).normal(size=40)


def lists_and_texts(x):
    some, none, nothing, total = [1, 2], [], (), 0.0
    for v in x:
        if v > 0 and some:
            total += v
        if v > 0 and none:
            total += 100.0
        if v < 1 or none:
            total += 0.5
        if v < 1 or ("text" and some):
            total += 0.25
        if (none or v > 0.3) and (v < 0.9 and {"a": 1}) and not (v > 0.5 and nothing):
            total -= 1
        while v > 0 and none and none[0] > v:
            total += none.pop()
    return total


def values_of_them(x):
    some, none = [1, 2], []
    a = x[0] > 0 and True
    b = bool(x[0] > 0) and False
    c = bool(x[1] > 0) or True
    d = x[0] > 0 and 0.0
    e = (x[0] > 5 and some) is some, (bool(x[0] < 5) and none) is none
    return a, b, c, d, type(b), type(c), e


def what_they_do(x):
    seen = []

    def look(value):
        seen.append(value)
        return False

    return bool(x[0] > 0) and look(1), bool(x[1] > 0) and look(2), bool(x[2] > 0) or not look(3), seen


def a_queue_that_is_empty_at_first(x):
    waiting, served = [], 0.0
    for k in range(len(x)):
        left = abs(x[k])
        while left > 0 and waiting and waiting[0][0] < x[k]:
            first, number = heapq.heappop(waiting)
            served += first * number
            left -= 0.5
        if left > 0:
            heapq.heappush(waiting, (x[k], k))
    return served, len(waiting)


@pytest.mark.parametrize("sign", [1, -1])
def test_operands_of_tests(sign):
    check(lists_and_texts, sign * X)
    check(a_queue_that_is_empty_at_first, sign * X)


@pytest.mark.parametrize("function", [values_of_them, what_they_do])
def test_values_and_effects(function):
    for x in (X, -X, np.abs(X), -np.abs(X)):
        futurized = fx.futurize(function)
        for _ in range(2):
            assert outcome(futurized, (x,)) == outcome(function, (x,)), futurized.explain()
