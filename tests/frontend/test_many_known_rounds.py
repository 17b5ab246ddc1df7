"""Rounds and calls on known values are not traced one by one without end: Python is a hundred times faster."""

import numpy as np
import pytest

import futurex as fx


def digits(n):
    """Loops inside each other, of which none has many rounds at once."""
    found = []
    for number in range(n):
        total, rest, count = 0, number, len(str(number))
        while rest > 0:
            total += (rest % 10) ** count
            rest //= 10
        if total == number:
            found.append(number)
    return found


def moves(n):
    done = []

    def go(k, a, b, c):
        if k:
            go(k - 1, a, c, b)
            done.append((a, c))
            go(k - 1, b, a, c)

    go(n, 0, 1, 2)
    return done


@pytest.mark.parametrize(("function", "n", "few"), [(digits, 4000, 200), (moves, 13, 4)], ids=["loops", "recursion"])
def test_long_work_on_known_values_is_plain(function, n, few):
    staged = fx.futurize(function)
    assert staged(n) == function(n)
    assert "one by one" in staged.explain()
    short = fx.futurize(function)
    assert short(few) == function(few)
    assert "runs as plain" not in short.explain()


def test_where_nothing_but_a_trace_will_do_it_goes_on():
    def scaled(x):
        return (x * digits(3000)[-1]).sum()

    assert fx.grad(scaled)(np.ones(2)).tolist() == [1634.0, 1634.0]
