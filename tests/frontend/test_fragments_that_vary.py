"""Calls that return now this and now that, by what no key of a call tells: they are no fragments."""

import cmath
import sys
import time

import numpy as np

import futurex as fx


def in_order(v):
    """Opaque; gives back an array in C order, and copies others."""
    return eval("np.ascontiguousarray(v)")


def column(x):
    u = in_order(x[:, 0])
    return u + x.sum(), u


def test_what_a_call_gives_back_as_its_argument_lies_is_learned_once():
    """Looking on, the column has gaps and is copied; in a run it has none."""
    futurized = fx.futurize(column)
    for k in range(6):
        x = np.arange(12.0).reshape(4, 3) + k
        for got, expected in zip(futurized(x), column(x), strict=True):
            np.testing.assert_array_equal(got, expected)
    assert "runs as plain NumPy" in futurized.explain()  # no trace is made and given up at each call


def factorised(m):
    try:
        np.linalg.cholesky(m)
    except np.linalg.LinAlgError as error:
        return "definite" not in str(error)
    return True


def test_a_compiled_function_hands_first_rows_to_its_fragments():
    f = fx.futurize(lambda a: np.array([factorised(m) for m in a]))
    a, until = np.stack([np.eye(3), -np.eye(3), np.eye(3)]), time.monotonic() + 20
    while "one compiled function" not in f.explain() and "which is faster" not in f.explain():
        for _ in range(100):
            assert np.asarray(f(a)).tolist() == [True, False, True]
        assert time.monotonic() < until, f.explain()


def phases(x):
    total, found = 0j, []
    for v in x:
        total = total + cmath.log(2.0 + 1j * v, 3.0)  # to a base: a call
        found.append(cmath.isclose(total, 2.0))
    return total, np.array(found)


def calls_of_pythons(function, x):
    """How many functions of Python's are called in a call."""
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        for each in function(x):
            np.asarray(each)
    finally:
        sys.setprofile(None)
    return calls


def test_calls_of_numbers_among_fragments_are_made_and_looked_at_in_a_few_steps():
    """Copies of the arguments and a look at what the result shares with them took a hundred times as long as a call."""
    few, many = np.linspace(0.0, 3.0, 100), np.linspace(0.0, 3.0, 400)
    _, *looked_on = [calls_of_pythons(fx.futurize(phases), x) for x in (few, few, many)]  # source is read once
    assert looked_on[1] - looked_on[0] < 600 * 24, looked_on
    f = fx.futurize(phases)
    for _ in range(4):
        for got, expected in zip((*f(few), *f(many)), (*phases(few), *phases(many)), strict=True):
            np.testing.assert_array_equal(got, expected)
    assert "fragment: cmath.isclose" in f.explain()
    made = [calls_of_pythons(f, x) for x in (few, many)]
    assert made[1] - made[0] < 600 * 24, made


def small_or_large(n):
    """Opaque: an int, which may outgrow 64 bits, or a float."""
    return eval("n * 2**40 if n < 2**30 else n / 3")


def summed(x):
    total = 0
    for v in x:
        total = total + small_or_large(int(v))
    return total


def test_numbers_that_a_call_gives_are_of_one_type_or_it_is_no_fragment():
    f = fx.futurize(summed)
    for values in ([1, 2, 3], [4, 5, 6], [2**29], [2**29, 2**29, 3], [2**31, 2], [1, 2], [2**31], [2**31 + 1]):
        for _ in range(2):
            found, expected = f(np.array(values)), summed(np.array(values))
            assert found == expected
            assert type(found.result() if isinstance(found, fx.Array) else found) is type(expected)
