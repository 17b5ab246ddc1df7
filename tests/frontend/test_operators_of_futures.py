"""Operators outside of futurized functions: futures of Python's numbers are Python's numbers there, too."""

import operator

import numpy as np
import pytest

import futurex as fx

MAKE = {
    "float": lambda x: float(x) * 2.0, "int": lambda x: int(x) * 3, "bool": lambda x: bool(x > 0),
    "complex": lambda x: complex(x, 1.0),
}  # fmt: skip
OPERATORS = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.and_, operator.lshift, operator.lt, operator.eq, operator.ne, divmod,
]  # fmt: skip
OTHERS = [0, 3, -2, 0.5, True, 2 + 1j, np.float32(1.5), np.arange(3)]


def found(function, *args):
    """The types and values of what a function returns, or its error."""
    with np.errstate(all="ignore"):
        try:
            result = function(*args)
            parts = result if isinstance(result, tuple) else (result,)
            parts = [part.result() if isinstance(part, fx.Array) else part for part in parts]
        except Exception as error:
            return type(error)
    return [(type(part), repr(np.asarray(part).tolist())) for part in parts]


@pytest.mark.parametrize("number", MAKE)
@pytest.mark.parametrize("function", OPERATORS)
def test_operators_are_pythons_between_its_numbers(number, function):
    make = fx.futurize(MAKE[number])
    for x in (2.5, -4.0):
        for other in OTHERS:
            assert found(function, make(x), other) == found(function, make.plain(x), other)
            assert found(function, other, make(x)) == found(function, other, make.plain(x))
        assert found(function, make(x), make(2.0)) == found(function, make.plain(x), make.plain(2.0))


@pytest.mark.parametrize("function", [operator.neg, operator.pos, operator.abs, operator.invert, round])
@pytest.mark.parametrize("number", MAKE)
def test_operators_of_one_number(number, function):
    make = fx.futurize(MAKE[number])
    assert found(function, make(-4.0)) == found(function, make.plain(-4.0))


def test_ints_are_as_wide_as_they_must_be():
    count = fx.futurize(lambda x: int(x.sum()) * 10**15)
    assert count(np.ones(9)) * 10**15 == 9 * 10**30


def test_what_takes_no_ufuncs_answers_itself():
    mean = fx.futurize(lambda x: x.mean())
    assert mean(np.ones(3)) == pytest.approx(1.0)
    assert mean(np.ones(3)) != pytest.approx(2.0)
    assert fx.futurize(lambda x: x + 1)(np.ones(3)) == pytest.approx([2.0, 2.0, 2.0])
