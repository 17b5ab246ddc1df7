"""Calls of functions that have one name and one line, and differ in what they hold, are calls of each."""

import json

import numpy as np
from compare import bits

import futurex as fx


def _rounded_by(factor):
    def rounded(x, shift=0.0, scale=1.0):
        return json.loads(json.dumps(float(x.sum()))) * factor * scale + shift

    return rounded


@fx.futurize
def passed_on(function, x, options):
    return function(x, **options) + x[0]


def test_calls_of_functions_of_one_name_are_not_mixed_up():
    """Closures of one ``def`` are called from the same line, and their trees differ in nothing else."""
    x, functions = np.arange(5.0), [_rounded_by(factor) for factor in (1.0, 2.0, 3.0)]
    for _ in range(3):
        found = [float(passed_on(function, x, {})) for function in functions]
        assert found == [10.0, 20.0, 30.0]
    assert "fragment: " in passed_on.explain()


def test_calls_that_differ_in_names_of_arguments_are_not_mixed_up():
    x, function = np.arange(5.0), _rounded_by(2.0)
    for _ in range(3):
        assert float(passed_on(function, x, {"shift": 3.0})) == 23.0
        assert float(passed_on(function, x, {"scale": 3.0})) == 60.0


def in_loops_of(first, second, x, n):
    total = np.zeros(2)
    for k in range(n):
        total[0] += first(x * k)
    for k in range(n):
        total[1] += second(x * k)
    return total


def test_loops_over_functions_of_one_name_are_not_one_loop():
    x, one, ten = np.arange(5.0), _rounded_by(1.0), _rounded_by(10.0)
    function = fx.futurize(in_loops_of)
    for _ in range(3):
        assert function(one, ten, x, 40).tolist() == in_loops_of(one, ten, x, 40).tolist()
        assert function(ten, one, x, 40).tolist() == in_loops_of(ten, one, x, 40).tolist()


def _least_key(table):
    return json.loads(json.dumps(min(table))) + table[1] * 0


def in_branches_with_keys(x):
    a = _least_key({-1: x, 1: x}) if x[0] > 0 else x
    b = _least_key({-2: x, 1: x}) if x[0] > 0 else x
    return a, b


def test_branches_with_keys_of_one_hash_are_not_one_branch():
    """Python's hash of -1 is that of -2."""
    function, x = fx.futurize(in_branches_with_keys), np.ones(2)
    for _ in range(3):
        assert bits(list(map(np.asarray, function(x)))) == bits(list(in_branches_with_keys(x)))
    assert "fragment: " in function.explain()
