"""``hasattr`` and ``getattr`` with a default, of Python's numbers, NumPy's and arrays: each has its own attributes."""

import numpy as np
import pytest

import futurex as fx

NAMES = ["shape", "ndim", "dtype", "size", "astype", "T", "__len__", "__getitem__", "real", "conjugate", "is_integer",
         "numerator", "bit_length", "hex", "__array__", "item", "__add__", "nothing"]  # fmt: skip
VALUES = [1.5, 3, 2.0 + 1j, np.float64(1.5), np.int64(3), np.ones(3), np.float32(2)]


def has(x, name):
    return x * 2 if hasattr(x, name) else x * 3


def has_after_a_calculation(x, name):
    y = x + 1
    return y if hasattr(y, name) else y * 3


def gets(x, name):
    return x * 2 if getattr(x, name, None) is None else x


def as_array(x):
    """How libraries let callers pass plain numbers."""
    x = x if hasattr(x, "shape") else np.array(x) if hasattr(x, "__len__") else np.float64(x)
    return x.astype(complex)


def shaped(x, name):
    match x:
        case float(shape=shape):
            return x * len(shape)
        case float(real=real):
            return real + 5
    return x


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("function", [has, has_after_a_calculation, gets, shaped])
def test_what_has_an_attribute(function, name):
    check(function, VALUES, name)


def test_what_is_no_array_becomes_one():
    check(as_array, [value for value in VALUES if not isinstance(value, complex)])


def check(function, values, *names):
    staged = fx.futurize(function)
    for value in values:
        for k in range(3):
            expected, found = function(value + k, *names), staged(value + k, *names)
            found = found.result() if isinstance(found, fx.Array) else found
            assert type(found) is type(expected)
            assert np.array_equal(found, expected), (value, k)
