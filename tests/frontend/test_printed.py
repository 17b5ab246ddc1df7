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


def the_same_twice(x):
    if x[0] > 0:
        print("positive")
    print("between")
    if x[0] > 0:
        print("positive")
    for _ in range(3):
        if x.sum() > 1:
            print("large")
        else:
            print("small")
    return x


def loops_twice(x):
    for v in x:
        while v < 2:
            v = v + 1
            print("up")
    for v in x:
        while v < 2:
            v = v + 1
            print("up")
    return x.sum()


def among_much(x):
    print("begin")
    y = np.exp(x) + np.sort(x)
    if y.sum() > 0:
        print("sum")
    for k in range(40):
        y = y * 0.5
        if y[0] < 0.1:
            print("round", k)
    if x[0] > 0:
        print("sum")
    print("middle")
    while y[0] < 1:
        y *= 3
        if y[1] > 0.5:
            print("grown")
    while x[0] < 1:
        x = x + 1
        print("counted")
    if x[0] > 0:
        print("sum")
    return y


@pytest.mark.parametrize("function", [the_same_twice, loops_twice, among_much])
def test_prints_in_branches_and_loops_are_as_many_and_in_the_order_of_the_program(function, capsys):
    futurized = fx.futurize(function)
    for x in (np.array([0.25, 1.0, 2.0]), np.array([0.25, -1.0, 1.5]), np.ones(3), np.array([-0.5, 0.5, 0.5])):
        function(x)
        expected = capsys.readouterr().out
        for _ in range(2):
            futurized(x)
            assert capsys.readouterr().out == expected, futurized.explain()
    assert is_staged(futurized, (np.ones(3),))


def told_row_by_row(x):
    for number, row in enumerate(x):
        print(number, " ".join(f"{value:5.1f}" for value in row), "|".join(["first", f"{row[0]}"]))
    return x * 2


def told_in_a_branch(x):
    if x.sum() == 0:
        print(", ".join(map(str, x[0])), ", ".join([f"{x[0, 0]}"]), "-".join([]))
    return x * 2


def refused_with_all_values(x):
    if x.sum() == 0:
        raise ValueError("no sum: " + ", ".join(f"({value:.1f})" for row in x for value in row))
    return x * 2


def refused_with_a_text_as_separator(x):
    assert x.sum() != 0, f"{x[0, 0]}".join("ab")
    return x * 2


def refused_with_numbers_that_are_no_texts(x):
    if x.sum() == 0:
        raise ValueError("".join(value for value in x[0]))
    return x * 2


def told_once_each(x):
    if x.sum() == 0:
        print(", ".join(dict.fromkeys(f"{value}" for value in x[0])))
    return x * 2


def told_with_values_between(x):
    for row in x:
        print("a", row[1], sep=f" {row[0]} ", end=f" {x.sum()}\n")
    return x * 2


def told_with_what_is_no_text_between(x):
    if x.sum() == 0:
        print("a", "b", sep=3)
    return x * 2


PLAIN = [
    refused_with_a_text_as_separator, refused_with_numbers_that_are_no_texts, told_once_each,
    told_with_values_between, told_with_what_is_no_text_between,
]  # fmt: skip


@pytest.mark.parametrize("function", [told_row_by_row, told_in_a_branch, refused_with_all_values, *PLAIN])
def test_texts_with_values_are_joined(function, capsys):
    futurized = fx.futurize(function)
    for x in (np.arange(4.0).reshape(2, 2), np.zeros((2, 2)), np.array([[1.5, -1.5], [-0.25, 0.25]])):
        found = []
        for each in (function, futurized, futurized):
            try:
                end = bits(plain(each(x)))
            except Exception as error:
                end = type(error), str(error)
            found.append((end, capsys.readouterr().out))
        assert found[0] == found[1] == found[2], futurized.explain()
    assert is_staged(futurized, (np.ones((2, 2)),)) is (function not in PLAIN)
