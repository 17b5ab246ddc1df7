# ruff: noqa: B028
"""Filters of warnings in staged code: what plain Python does not tell is not told, and nothing else is changed."""

import warnings

import numpy as np
import pytest

import futurex as fx

X = np.array([1.0, 0.0, 2.0])


def ignoring_all(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = 1 / x
        warnings.warn("not told")
    return y + 1


def ignoring_a_category(x):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=RuntimeWarning)
        y = np.log(x - 1)
        warnings.warn("told")
    return y


def ignoring_a_text(x):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "divide by zero")
        warnings.filterwarnings("ignore", "not .*", UserWarning)
        warnings.warn("not told")
        return np.log(x - 1)


def ignoring_others(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return 1 / x


def of_complex_numbers(x):
    z, y = x + 1j * x, np.zeros((4, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        y[0] = z.astype(np.float32)
        y[1], y[2, 0], y[[3, 3], [0, 2]] = z, z[0], z[:2]
        y[:2, x > 0] = 2 * z[x > 0]
        last = np.array(z, dtype=np.float32)
    return y, last + z.astype(bool)


def of_complex_numbers_in_part(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = (x * 1j).astype(float)
    return y + (x + 2j).astype(float)


def opaque(x):
    warnings.warn(f"of {eval('x[0]')}")
    return x * 2


def around_a_fragment(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = opaque(x)
    return y + 1


def errors(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            y = 1 / x
        except RuntimeWarning:
            y = 5 * x
    return y


def errors_in_a_helper(x):
    return errors(x) + 1


def for_good(x):
    with warnings.catch_warnings():
        y = x + 1
    warnings.simplefilter("ignore")
    return 1 / y


def in_a_helper(x):
    return for_good(x - 1) * 2


def resets(x):
    warnings.resetwarnings()
    return x + 1


PROGRAMS = (
    ignoring_all, ignoring_a_category, ignoring_a_text, ignoring_others, around_a_fragment, of_complex_numbers_in_part,
    of_complex_numbers, errors, errors_in_a_helper, for_good, in_a_helper, resets,
)  # fmt: skip


def told(function, modes):
    with warnings.catch_warnings(record=True) as caught, np.errstate(**modes):
        warnings.simplefilter("always")
        try:
            result = [np.asarray(each).tolist() for each in function(X)]
        except FloatingPointError as error:
            result = str(error)
        return str(result), sorted((each.category.__name__, str(each.message)) for each in caught), warnings.filters[:]


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("modes", [{}, {"divide": "raise"}], ids=["warns", "raises"])
def test_what_filters_ignore_is_not_told(function, modes):
    futurized = fx.futurize(function)
    for _ in range(4):
        assert told(futurized, modes) == told(function, modes)


@pytest.mark.parametrize("function", PROGRAMS[:6], ids=lambda f: f.__name__)
def test_what_ignores_is_staged(function):
    futurized = fx.futurize(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            futurized(X)
    assert "runs as plain" not in futurized.explain()
