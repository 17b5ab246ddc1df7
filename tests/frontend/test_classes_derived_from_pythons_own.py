"""A class derived from ``property`` or ``functools.partial`` says itself how it is read, set and called, one
derived from a number of NumPy's what its operators do."""

import dataclasses
import functools

import numpy as np
import pytest

import futurex as fx


class Tenfold(property):
    def __get__(self, instance, kind=None):
        return self if instance is None else 10 * self.fget(instance)


class Kept(property):
    """Keeps what it computes under its own name, as Astropy's lazy properties do."""

    def __get__(self, instance, kind=None):
        kept = instance.__dict__.get(self.fget.__name__)
        if kept is None:
            kept = instance.__dict__[self.fget.__name__] = self.fget(instance)
        return kept


class OfClass(property):
    def __get__(self, instance, kind=None):
        return self.fget(kind)


class Later(property):
    def __set__(self, instance, value):
        self.fset(instance, value + 100)


class Again(functools.partial):
    def __call__(self, *args):
        return 10 * super().__call__(*args)


class Body:
    rate = 3.0

    def __init__(self, x):
        self.x, self.rate = x, 5.0

    @Tenfold
    def scaled(self):
        return self.x * 2

    @Kept
    def kept(self):
        return self.x * 2

    @OfClass
    def common(cls):
        return cls.rate

    def _place(self):
        return self.x

    def _put(self, value):
        self.x = value

    place = Later(_place, _put)


again = Again(np.add, 1.0)
again_of_mine = Again(lambda x, y: x + y, 1.0)


def scaled(body, y):
    return body.scaled + y


def kept(body, y):
    return body.kept + y


def common(body, y):
    return body.common * body.x + y


def put(body, y):
    body.place = body.x * y
    return body.x + 1


def called(body, y):
    return again(body.x) + y


def called_of_mine(body, y):
    return again_of_mine(body.x) + y


@pytest.mark.parametrize("function", [scaled, kept, common, put, called, called_of_mine])
def test_it_is_read_set_and_called_its_way(function):
    staged = fx.futurize(function)
    for k in range(4):
        plain, body = Body(np.arange(3.0) + k), Body(np.arange(3.0) + k)
        expected = function(plain, 2.0)
        np.testing.assert_array_equal(staged(body, 2.0), expected)
        assert vars(body).keys() == vars(plain).keys()
        for name, value in vars(plain).items():
            np.testing.assert_array_equal(vars(body)[name], value)


def test_properties_that_are_no_more_are_staged():
    class Named(property):
        """One that says nothing of its own."""

    class Named2(Body):
        named = Named(lambda self: self.x * 2)

    staged = fx.futurize(lambda body, y: body.named + y)
    np.testing.assert_array_equal(staged(Named2(np.arange(3.0)), 1.0), [1.0, 3.0, 5.0])
    assert "staged" in str(staged.explain())


@dataclasses.dataclass
class Shifted:
    x: object

    def __getattribute__(self, name):
        value = object.__getattribute__(self, name)
        return value + 1 if name == "x" else value


def test_what_a_dataclass_says_of_its_fields_is_asked_once():
    staged = fx.futurize(lambda body: body.x * 2)
    made = fx.futurize(lambda x: Shifted(x * 2))
    for k in range(3):
        np.testing.assert_array_equal(staged(Shifted(np.arange(3.0) + k)), 2 * (np.arange(3.0) + k + 1))
        np.testing.assert_array_equal(made(np.arange(3.0) + k).x, 2 * (np.arange(3.0) + k) + 1)


class Least(np.float64):
    def __add__(self, other):
        return 100.0 + other


@pytest.mark.parametrize(
    "function",
    [
        lambda x, number: number + x,
        lambda x, number: [each + x for each in [number, number]][1],
        lambda x, number: Least(2.0) + x,
        lambda x, number: Least(x[0]) + x,
    ],
)
def test_a_number_of_a_class_derived_from_numpys_has_its_operators(function):
    staged = fx.futurize(function)
    for k in range(3):
        x = np.arange(3.0) + k
        np.testing.assert_array_equal(staged(x, Least(k)), function(x, Least(k)))
