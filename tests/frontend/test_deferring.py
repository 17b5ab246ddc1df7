"""Operators of an array and an object: NumPy leaves them to the object's reflected method only where the object says
so; else it makes an array of objects, or asks ``__array_ufunc__`` or ``__array__``."""

import operator

import numpy as np
import pytest

import futurex as fx


class Reflected:
    def __init__(self, k):
        self.k = k

    def __radd__(self, other):
        return other * self.k

    def __rmul__(self, other):
        return other + self.k

    def __rsub__(self, other):
        return other - self.k

    def __gt__(self, other):
        return self.k > 1

    def __eq__(self, other):
        return self.k > 1

    __hash__ = None


class NoUfuncs(Reflected):
    __array_ufunc__ = None


class Prior(Reflected):
    __array_priority__ = 1000


class OwnUfuncs(Reflected):
    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return ufunc(*(each.k if isinstance(each, OwnUfuncs) else each for each in inputs))


class Array(Reflected):
    def __array__(self, dtype=None, copy=None):
        return np.full(3, float(self.k))


OPERATORS = [operator.add, operator.mul, operator.sub, operator.iadd, operator.lt, operator.eq, operator.ne]
KINDS = [Reflected, NoUfuncs, Prior, OwnUfuncs, Array]


def whole(operate, x, other):
    return operate(x + 0, other)


def of_an_element(operate, x, other):
    return operate(x[1], other)


def of_a_number(operate, x, other):
    return operate(float(x[1]), other)


def outcome(f, *args):
    try:
        result = np.asarray(f(*args))
    except (TypeError, ValueError) as error:
        return type(error), str(error)
    return result.dtype, result.tolist()


@pytest.mark.parametrize("operate", OPERATORS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_who_is_asked(operate, kind, dtype):
    for function in (whole, of_an_element, of_a_number):
        f = fx.futurize(function)
        for k in (1, 1, 2, 3):
            x = np.arange(3, dtype=dtype) + k
            assert outcome(f, operate, x, kind(k)) == outcome(function, operate, x, kind(k))


@pytest.mark.parametrize("kind", [NoUfuncs, Prior])
def test_what_is_left_to_the_object_is_staged(kind):
    f = fx.futurize(lambda x, other: (x * other - other) * 2)
    assert np.asarray(f(np.arange(3.0), kind(2.0))).tolist() == [0.0, 2.0, 4.0]
    assert np.asarray(f(np.arange(3.0), kind(3.0))).tolist() == [0.0, 2.0, 4.0]
    assert "plain NumPy" not in f.explain()
