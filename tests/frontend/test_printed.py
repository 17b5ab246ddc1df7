"""Calls that print and then fail, or must be made again as plain NumPy: what they print, write and raise."""

import copy

import numpy as np
import pytest
from compare import bits, is_staged, plain

import futurex as fx


def refuses(x, n):
    x += 1
    print("before", n, sep="-")
    if x[0] > 2:
        print("large", x)
        raise ValueError(f"no {n}")
    if x[1] < 0:
        print("small")
    return x.sum()


def refuses_in_a_loop(x, n):
    for k in range(n):
        x[k % 2] += k
        print(k, x[0], end=";")
        if x.sum() > 3:
            raise KeyError(k)
    return x * 2


def outgrows(x, n):
    print("n is", n)
    x *= 2
    total = 1
    for _ in range(n):
        total *= 7
    print("total", total)
    return total


def becomes_complex(x, n):
    x -= n
    print("x")
    root = float(x[0]) ** 0.5
    print("root", root)
    return root


@pytest.mark.parametrize("function", [refuses, refuses_in_a_loop, outgrows, becomes_complex])
def test_prints_come_once_and_what_was_written_stays(function, capsys):
    futurized = fx.futurize(function)

    def observed(called, args):
        args = copy.deepcopy(args)
        try:
            result = "value", repr(plain(called(*args)))
        except Exception as error:
            result = "error", repr(error)
        return result, bits(args), capsys.readouterr().out

    for n in (1, 2, 5, 40, 3):
        for start in (0.5, 4.0, -3.0):
            args = np.array([start, 1.0]), n
            expected = observed(function, args)
            for _ in range(2):
                assert observed(futurized, args) == expected, futurized.explain()
    assert is_staged(futurized, (np.ones(2), 2))
