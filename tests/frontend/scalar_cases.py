"""Functions in which Python numbers meet NumPy scalars and arrays."""

import math

import numpy as np
from compare import Cases
from view_cases import V

cases = Cases()


@cases(np.arange(5.0).astype(np.float32))
def python_scalars_as_arrays(x):
    return (
        np.dot(0.1, x),
        np.outer(0.1, x),
        np.inner(0.1, x),
        np.where(x > 1, 0.1, x),
        np.full(2, 0.1),
        np.multiply(0.1, x),
    )


@cases(0.3, np.arange(5.0).astype(np.float32))
def python_floats_stay_weak(a, x):
    return (
        a * x,
        (a * 2 + 1) * x,
        np.exp(a) * x,
        np.float64(a) * x,
        np.sqrt(a),
        abs(a) * x,
        np.dot(a, x),
        max(a, 0.1) * x,
    )


@cases(2.5)
def python_comparisons_add_up(a):
    return (a > 1) + (a > 2), -(a > 1), (a > 1) * 2, (a > 1) & (a > 3), not a, ~(a > 1)


@cases(V)
def numpy_comparisons_do_not_add_up(v):
    return (v > 0) + (v > 1), (v[0] > 0) + (v[1] > -5), (v > 0).sum()


@cases(V)
def powers(v):
    y = np.abs(v) + 0.1
    return y**2, y**0.5, y**-1, y**3, y**1.7, y[1] ** 2, y[2] ** 0.5, y[3] ** 3, 2**y, y.sum() ** 2, [u**2 for u in y]


@cases(2.5, 3.0)
def python_powers(a, b):
    return a**2, a**b, a**0.5, b**-1


@cases(V)
def parts_of_complex_scalars(v):
    total = (v * 1j).sum()
    v += 1
    return total.real, np.real(total), np.imag(total), np.imag(0.5), np.real(2), np.imag(v)


@cases(V)
def a_python_complex_number_and_a_float(v):
    return (1j * v[0]) * np.float32([1, 2]), 2j - v[1], v[1] * 1j


@cases(V + 0.1)
@cases(V * 0)
def a_python_complex_number_by_a_float(v):
    return (1.5 - 0.3j) / v[1] * np.float32([1, 2]), v[0] / 1j


@cases(2.5, [1, 2, 3], staged=False)
@cases(2.5, (1.0, 2.0), staged=False)
@cases([1, 2, 3], 2j, staged=False)
@cases(2.5, np.arange(3.0))
def a_number_plus_a_list(a, values):
    return a + values


@cases(2.5, [1, 2, 3], staged=False)
def a_number_counts_up_a_list(a, values):
    a += values
    return a


@cases(2.5, [2.5, 2.5], staged=False)
def a_number_equals_no_list(a, values):
    return a == values, float(a) != values


@cases(np.array([0, 2, 1]), staged=False)
@cases(np.array([0.5, 2.0]), staged=False)
def a_list_is_repeated_as_often_as_the_data_say(x):
    n = x.max()
    return [0.0] * n, n * (1, 2)


@cases(np.array([0, 2, 1]))
def a_scalar_over_a_list(x):
    return x.max() / [1, 2], x[1] - (1.5, 2.5), np.array(3) * [1, 2], np.array(2.0) == None, x == "a"  # noqa: E711


@cases(np.array([0.5, 2.0]), 2.5)
def a_scalar_without_dimensions_stays_one(x, a):
    """NumPy reshapes its scalars to arrays of other shapes only; Python's numbers become arrays."""
    values = (x[0].reshape(()), np.reshape(x.sum(), ()), x[0].reshape(1), np.reshape(a, ()), np.array(a).reshape(()))
    return values, [isinstance(value, np.generic) for value in values]


@cases(np.array([0.5, 2.0]))
def views_of_a_scalar_whose_value_is_known_are_scalars(x):
    known = np.sin(2.0)
    values = np.real(known), np.imag(known), np.transpose(known), np.squeeze(known), np.moveaxis(known, [], [])
    return x, values, [isinstance(value, np.generic) for value in values]


@cases(np.array([0.5, 2.0]))
def what_is_written_through_a_scalars_flat_iterator_does_not_change_it(x):
    total = x.sum()
    elements = total.flat
    elements[0] = 9.0
    total.flat[::2] = 7.0
    return total, elements[0], np.asarray(total).flat[0]


@cases(np.array([0.5, 2.0]))
@cases(np.array([1 + 2j, 3]))
def a_scalar_has_nothing_that_can_be_set(x):
    told = []
    for name in ("flat", "real", "shape"):
        try:
            setattr(x[0], name, 3)
        except AttributeError as error:
            told.append(str(error))
    return told


@cases(np.array([0.5, 2.0]))
@cases(np.array([3, 1], "i4"))
def what_only_arrays_have(x):
    try:
        return x[0].dot(x)
    except AttributeError:
        return hasattr(x.max(), "partition")


def roundings(x):
    """NumPy's integers are floats to ``math.floor``, and only floats of 64 bits have a whole part."""
    return math.floor(x[0]), math.ceil(x.max()), round(x[0]), math.floor(int(x[0]))


def whole_part(x):
    return math.trunc(x[0]), math.trunc(x[0] / 2)


for _numbers in (np.array([2**53 + 1]), np.array([2**60 + 1, 7], "u8"), np.array([-7], "i1"), np.array([2.5], "f4")):
    cases(_numbers)(roundings)
    cases(_numbers)(whole_part)


LIMITS = np.iinfo(np.int16)


@cases(np.array([-3.0, 0.5, 2.0]))
def limits_of_types(x):
    return (
        np.full(2, np.iinfo(np.int64).max),
        np.clip(x * 1e9, np.iinfo(np.int32).min, np.iinfo(np.int32).max).astype(np.int32),
        np.where(x > 0, np.iinfo(np.uint8).max, 0).astype(np.uint8),
        x * LIMITS.max + LIMITS.bits,
        x * np.finfo(x.dtype).tiny,
    )
