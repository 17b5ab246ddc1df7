"""What says it is a function (``__class__``), equals it and forwards its attributes, as what wrapt's decorators make,
does something of its own around each call: it is called as it is."""

import functools
import math
import operator

import numpy as np
import pytest

import futurex as fx

CALLS = []


class Proxy:
    def __init__(self, wrapped):
        self.__dict__["wrapped"] = wrapped

    __class__ = property(lambda self: type(self.wrapped))

    def __getattr__(self, name):
        return getattr(self.wrapped, name)

    def __eq__(self, other):
        return self.wrapped == other

    def __hash__(self):
        return hash(self.wrapped)

    def __get__(self, instance, kind=None):
        return Proxy(self.wrapped.__get__(instance, kind))

    def __call__(self, *args, **kwargs):
        CALLS.append(1)
        return self.wrapped(*args, **kwargs) * 10


@Proxy
def increased(x):
    return x + 1


class Weights:
    def __init__(self, x):
        self.x = x

    @Proxy
    def method(self, y):
        return self.x + y

    @Proxy
    def __add__(self, other):
        return self.x + other

    @Proxy
    def __getitem__(self, index):
        return self.x[index]

    @Proxy
    def __call__(self, y):
        return self.x * y

    @property
    @Proxy
    def twice(self):
        return self.x * 2


sine, norm, root, absolute = Proxy(np.sin), Proxy(np.linalg.norm), Proxy(math.sqrt), Proxy(abs)
futurized, partial = Proxy(fx.futurize(lambda x: x * 2)), Proxy(functools.partial(np.add, 1.0))
method = Proxy(np.ones(4).sum)


def of_ones_own(x):
    return increased(x)


def of_numpy(x):
    return sine(x), norm(x)


def of_python(x):
    return root(4.0) * x, absolute(x)


def of_a_futurized_one(x):
    return futurized(x) + 1


def of_a_partial_one(x):
    return partial(x)


def of_a_method_of_an_array(x):
    return method() * x


def in_an_object(x):
    weights = Weights(x)
    return weights.method(x), weights + x, weights[0], weights(x), weights.twice


def in_a_loop(x):
    while x.sum() < 50:
        x = absolute(x) + futurized(x) + 1
    return x


def given_to_a_function(x):
    return list(map(increased, [x, x])), functools.reduce(lambda a, b: a + increased(b), [x, x]), max([1, 2], key=root)


FUNCTIONS = [
    of_ones_own, of_numpy, of_python, of_a_futurized_one, of_a_partial_one, of_a_method_of_an_array, in_an_object,
    in_a_loop, given_to_a_function,
]  # fmt: skip


def as_numpy(value):
    return [as_numpy(entry) for entry in value] if isinstance(value, list | tuple) else np.asarray(value)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_they_are_called(function):
    staged = fx.futurize(function)
    for k in range(4):
        x = np.arange(4.0) + k
        CALLS.clear()
        expected = as_numpy(function(x))
        calls = len(CALLS)
        CALLS.clear()
        np.testing.assert_equal(as_numpy(staged(x)), expected)
        assert len(CALLS) == calls


def test_one_that_is_futurized_is_called():
    staged = fx.futurize(increased)
    again = fx.futurize(Proxy(fx.futurize(lambda x: x + 1)))
    for k in range(3):
        np.testing.assert_array_equal(staged(np.zeros(2) + k), [10.0 * (k + 1)] * 2)
        np.testing.assert_array_equal(again(np.zeros(2) + k), [10.0 * (k + 1)] * 2)


class Silent(Proxy):
    def __call__(self, *args):
        return self.wrapped(*args) * 10


def test_a_derivative_is_that_of_all():
    @Silent
    def squared(x):
        return (x * x).sum()

    @Silent
    @fx.futurize
    def squared_too(x):
        return (x * x).sum()

    for function in (squared, squared_too):
        np.testing.assert_array_equal(fx.grad(function)(np.arange(3.0)), [0.0, 20.0, 40.0])


class Counted:
    """Says that it is of its function's module (``functools.update_wrapper``)."""

    def __init__(self, function):
        self.function = function
        functools.update_wrapper(self, function)

    def __call__(self, *args):
        return self.function(*args) * 10


def tenfold_of(function):
    named = functools.partial(lambda *args: function(*args) * 10)
    functools.update_wrapper(named, function)
    return named


NAMED = [operator.mul, np.multiply, np.dot, np.polynomial.chebyshev.chebval]


@pytest.mark.parametrize("made", [Counted, tenfold_of])
@pytest.mark.parametrize("function", NAMED, ids=lambda function: function.__name__)
def test_what_has_taken_a_functions_name_is_called(function, made):
    named = made(function)

    def program(x):
        return named(x, x), named(2.0, 3.0)

    staged = fx.futurize(program)
    for k in range(3):
        x = np.arange(3.0) + k
        for found, expected in zip(staged(x), program(x), strict=True):
            np.testing.assert_array_equal(found, expected)


class Forwarded:
    """Has what its function has: also what that is bound to."""

    def __init__(self, function):
        self.function = function

    def __getattr__(self, name):
        if name == "function":
            raise AttributeError(name)
        return getattr(self.function, name)

    def __call__(self, *args):
        return self.function(*args) * 10


@pytest.mark.parametrize(
    ("method", "args"),
    [
        (np.arange(3.0).sum, ()),
        (np.arange(3.0).dot, (np.ones(3),)),
        (np.add.reduce, (np.ones(3),)),
        (np.multiply.outer, (np.ones(2), np.ones(3))),
        ([1.0, 2.0].index, (2.0,)),
        ({"a": 2.0}.get, ("a",)),
    ],
)
def test_what_forwards_the_attributes_of_a_method_is_called(method, args):
    forwarded = Forwarded(method)

    def program(x, *args):
        return forwarded(*args) + x

    staged = fx.futurize(program)
    for k in range(3):
        np.testing.assert_array_equal(staged(k * 1.0, *args), program(k * 1.0, *args))


@pytest.mark.parametrize("kind", [np.random.default_rng, np.random.RandomState])
def test_what_forwards_a_generators_method_is_called(kind):
    ours, plain = kind(3), kind(3)

    def program(x, normal):
        return x + normal(0.0, 1.0)

    staged = fx.futurize(program)
    for k in range(4):
        expected = program(k * 1.0, Forwarded(plain.normal))
        np.testing.assert_array_equal(staged(k * 1.0, Forwarded(ours.normal)), expected)
