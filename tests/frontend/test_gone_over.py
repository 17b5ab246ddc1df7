"""What Python's own code goes over when a list, deque or dict takes it in: methods of the program's classes, iterators,
and what dicts show of themselves."""

import collections

import numpy as np
import pytest

import futurex as fx
from tests.compare import bits, plain


class Multiples:
    def __init__(self, step):
        self.step = step

    def __iter__(self):
        print("gone over")
        for i in range(3):
            yield self.step * i


class Named:
    def __init__(self, step):
        self.step = step

    def keys(self):
        print("keys")
        return ["a", "b"]

    def __getitem__(self, key):
        return self.step * len(key)


def extending(taken, x):
    values = [x]
    values.extend(taken)
    return values


def a_deque_extended(taken, x):
    values = collections.deque([x], 5)
    values.extend(taken)
    values.extendleft(taken)
    return list(values)


def added_in_place(taken, x):
    values = [x]
    values += taken
    return values


def in_place_of_a_slice(taken, x):
    values = [x, x + 1, x + 2]
    values[1:2] = taken
    return values


def entries_of_a_dict(taken, x):
    return {"x": x, **taken}


def merged_into_a_dict(taken, x):
    made = {"x": x}
    made |= taken
    return made


def keys_in_place(x):
    values, seen = [1], {1, 2}
    values += {2: x, 3: x}.keys()
    seen |= {2: x, 5: x}.keys()
    return values, sorted(seen), x + 1


def iterators_in_place(x):
    values = [len(x)]
    values += (v * 2 for v in x)
    values += zip(x, range(3), strict=False)
    values += map(abs, [x[0], x[1]])
    values += enumerate(x[:2])
    values += collections.deque([x[0]])
    values += {0: x[1]}.values()
    values += (len(values) for _ in range(3))  # each finds the list longer than the one before
    return values


def keys_in_a_branch(x):
    values = []
    for i in range(len(x)):
        if x[i] > 0:
            values += {i: x[i]}.keys()
    return values


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        *((f, Multiples) for f in (extending, a_deque_extended, added_in_place, in_place_of_a_slice)),
        *((f, Named) for f in (entries_of_a_dict, merged_into_a_dict)),
    ],
)
def test_methods_of_the_programs_classes_are_part_of_the_call(function, kind, capsys):
    taken, futurized = kind(1.5), fx.futurize(function)
    for step in (1.5, 1.5, -2.0, 7.0):
        taken.step = step
        expected, said = bits(function(taken, np.float64(step))), capsys.readouterr().out
        assert bits(plain(futurized(taken, np.float64(step)))) == expected
        assert capsys.readouterr().out == said


@pytest.mark.parametrize("function", [keys_in_place, iterators_in_place, keys_in_a_branch])
def test_lists_and_sets_take_in_iterators_and_views_in_place(function):
    futurized = fx.futurize(function, escape="error")
    for x in (np.array([1.0, -2.0, 3.0]), np.array([-1.0, 2.5, 0.5]), np.array([4.0, 5.0, 6.0])):
        assert bits(plain(futurized(x))) == bits(function(x))
