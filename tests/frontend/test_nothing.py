"""What Python refuses of None, and of what has no items, is its own error: in a branch, and in a ``try``."""

import numpy as np
import pytest

import futurex as fx


def found(x):
    """Something, or nothing where the data has none."""
    if x.sum() > 0:
        return x, x.sum()
    return None, None


def an_item(x):
    return found(x)[0][1:3].sum()


def a_product(x):
    a, total = found(x)
    return (x * total).sum() + (a - x).sum()


def a_number(x):
    return 2.0 / found(x)[1]


def a_sign(x):
    return -found(x)[1] + x[0]


def an_order(x):
    return x.sum() if found(x)[1] > 3 else 2 * x.sum()


def a_product_of_matrices(x):
    return found(x)[0] @ x


def a_loop(x):
    total = 0.0
    for each in found(x)[0]:
        total += each * x[1]
    return total


def a_length(x):
    return len(found(x)[0]) * x.sum()


def names(x):
    first, second, _, _ = found(x)[0]
    return first + 3 * second


def in_place(x):
    total = found(x)[1]
    total += 1
    return total * x.sum()


OPERATIONS = [
    an_item, a_product, a_number, a_sign, an_order, a_product_of_matrices, a_loop, a_length, names, in_place
]  # fmt: skip


def outcome(f, x):
    try:
        return float(f(x))
    except (TypeError, ValueError) as error:
        return str(error)


@pytest.mark.parametrize("function", OPERATIONS)
def test_of_nothing_that_a_branch_left(function):
    f, x = fx.futurize(function), np.arange(4.0)
    for factor in (1, -1, 2, 3, -2, 0):
        expected = outcome(function, factor * x)
        assert outcome(f, factor * x) == expected
        assert isinstance(expected, str) == (factor <= 0)
    assert "plain NumPy" not in f.explain()
    slope = np.asarray(fx.grad(function)(x))
    differences = [(function(x + 1e-6 * e) - function(x - 1e-6 * e)) / 2e-6 for e in np.eye(4)]
    np.testing.assert_allclose(slope, differences, atol=1e-6)


def test_an_empty_array_and_nothing_are_an_empty_array():
    def f(x):
        other = None if x.sum() > 5 else 1.0
        return x.sum() + (x[x > 9] * other).size

    futurized = fx.futurize(f)
    for x in (np.arange(3.0), np.arange(5.0), np.arange(6.0)):
        assert float(futurized(x)) == f(x)


def axes(x, axis):
    try:
        chosen = tuple(axis)
    except TypeError:
        chosen = (axis,)
    return x.sum(axis=chosen)


def length(x, k):
    try:
        return x * len(k)
    except TypeError:
        return x


def pair(x, k):
    try:
        a, b = k
    except TypeError:
        return x
    return a * x + b


def entry(x, k):
    try:
        return x * k[0]
    except TypeError:
        return -x


def sum_(x, k):
    try:
        return x + k
    except TypeError:
        return -x


@pytest.mark.parametrize("function", [axes, length, pair, entry, sum_])
@pytest.mark.parametrize("given", [0, None, (0, 1)])
def test_a_handler_sees_it(function, given):
    if (function, given) in ((axes, None), (sum_, (0, 1))):
        pytest.skip("no such axis, or no sum with a tuple")
    f = fx.futurize(function)
    for x in (np.eye(2), np.ones((2, 2)), np.arange(4.0).reshape(2, 2)):
        np.testing.assert_array_equal(np.asarray(f(x, given)), function(x, given))
    assert "plain NumPy" not in f.explain()


WEIGHTS = {"a": 2.0}


def test_a_key_among_the_keys_of_a_dict():
    def window(x, name):
        windows = {"flat": np.ones(3), "linear": np.arange(3.0)}
        y = x * windows[name] if name in windows.keys() else x  # noqa: SIM118 - what this test is about
        place = int(x[0])
        if place in {0: 1, 2: 3}.keys():  # noqa: SIM118
            y = y + 1
        return y * WEIGHTS[name] if name in WEIGHTS.keys() else y  # noqa: SIM118

    f = fx.futurize(window)
    for name in ("flat", "linear", "a"):
        for shift in range(3):
            x = np.arange(3.0) + shift
            np.testing.assert_array_equal(np.asarray(f(x, name)), window(x, name))
    assert "plain NumPy" not in f.explain()


T = np.array([1.0, 2.0, 0.5])


def counted(x):
    text = f"{x.sum():.1f} in all"
    return len(text) + x if x[0] > 0 else x


def cut(x):
    text = f"{x.sum():.1f} in all"
    return x * 2 if x[0] > 0 and text[0] == "3" else x


def spelled(x):
    return x + sum(letter == "3" for letter in f"{x.sum():.1f}") if x[0] > 0 else x


@pytest.mark.parametrize("function", [counted, cut, spelled])
def test_texts_with_values_in_them_are_no_values_that_python_refuses(function):
    staged = fx.futurize(function)
    for x in (T, -T, T):
        np.testing.assert_array_equal(staged(x), function(x))
