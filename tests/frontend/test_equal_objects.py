"""Objects that their class calls equal: ``!=`` asks ``__eq__``, and branches do not take one for the other."""

import functools

import numpy as np
import pytest

import futurex as fx


class Named:
    """Equal by its name alone."""

    def __init__(self, name, weight):
        self.name, self.weight = name, weight

    def __eq__(self, other):
        return self.name == other.name if isinstance(other, Named) else NotImplemented

    def __hash__(self):
        return hash(self.name)


class Other(Named):
    def __eq__(self, other):
        return isinstance(other, Named) and self.weight == other.weight


class Contrary(Named):
    __hash__ = Named.__hash__

    def __ne__(self, other):
        return isinstance(other, Named) and self.name == other.name


@functools.total_ordering
class Ordered(Named):
    __hash__ = Named.__hash__

    def __lt__(self, other):
        return self.weight < other.weight


def unequal(x, a, b):
    return x if a != b else -x


def unequal_to_numbers(x, a, b):
    return x * (a != 3) + (b != "n") + (2 != a)  # noqa: SIM300 - the reflected one


def unequal_by_data(x, a, b):
    c = Named("made", x.sum())
    c.name = x.sum()
    d = Named(3.0, 1.0)
    return x if c != d else -x


KINDS = [(Named, Named), (Named, Other), (Other, Named), (Contrary, Named), (Ordered, Ordered)]


@pytest.mark.parametrize("function", [unequal, unequal_to_numbers, unequal_by_data])
@pytest.mark.parametrize("kinds", KINDS)
def test_unequal(function, kinds):
    f = fx.futurize(function)
    for first, second in ((("n", 1.0), ("n", 1.0)), (("n", 1.0), ("m", 1.0)), (("n", 1.0), ("n", 2.0))):
        for x in (np.arange(3.0), np.arange(1.0, 4.0), np.ones(3)):
            a, b = kinds[0](*first), kinds[1](*second)
            np.testing.assert_array_equal(np.asarray(f(x, a, b)), function(x, a, b))
    assert "plain NumPy" not in f.explain()


def of_an_expression(x, a, b):
    chosen = a if x[0] > 1 else b
    return x * chosen.weight


def of_a_branch(x, a, b):
    if x[0] > 1:
        chosen = Named("n", x[0])
    else:
        chosen = Named("n", 3.0)
    return x * chosen.weight


def of_a_loop(x, a, b):
    chosen = a
    while x[0] < 3:
        x = x + 1
        chosen = b
    return x * chosen.weight


def of_a_list(x, a, b):
    chosen = [a] if x[0] > 1 else [b]
    return x * chosen[0].weight


def of_a_function(x, a, b):
    def chosen():
        if x[0] > 1:
            return a
        return b

    return x * chosen().weight


def by_identity(x, a, b):
    return x * (2.0 if (a if x[0] > 1 else b) is a else 3.0)


def by_a_range(x, a, b):
    chosen = range(0) if x[0] > 1 else range(2, 2)
    return x * (chosen.start + 1)


CHOICES = [of_an_expression, of_a_branch, of_a_loop, of_a_list, of_a_function, by_identity, by_a_range]


@pytest.mark.parametrize("function", CHOICES)
def test_equal_ones_are_told_apart(function):
    f = fx.futurize(function)
    for shift in (0, 2, 0, 4, 1):
        x, a, b = np.arange(3.0) + shift, Named("n", 2.0), Named("n", 5.0)
        np.testing.assert_array_equal(np.asarray(f(x, a, b)), function(x, a, b))


def of_a_key(x, table):
    return x * sum(getattr(key, "weight", 1.0) for key in table)


def of_a_key_in_a_tuple(x, table):
    return next(iter(table))[0].weight * x


def signed_as_a_key(x, table):
    return np.copysign(x, next(iter(table)))


def test_keys_of_dicts_are_told_apart():
    f, g, h = map(fx.futurize, (of_a_key, of_a_key_in_a_tuple, signed_as_a_key))
    x = np.arange(3.0)
    for weight in (2.0, 2.0, 5.0, 7.0, 2.0, 5.0):
        table = {Named("n", weight): 1, "other": 2}
        np.testing.assert_array_equal(np.asarray(f(x, table)), of_a_key(x, table))
        table = {(Named("n", weight), 0): 1}
        np.testing.assert_array_equal(np.asarray(g(x, table)), of_a_key_in_a_tuple(x, table))
        table = {0.0 if weight > 2 else -0.0: 1}
        np.testing.assert_array_equal(np.signbit(np.asarray(h(x, table))), np.signbit(signed_as_a_key(x, table)))
