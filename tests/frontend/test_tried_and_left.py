"""What code tries that is written for other libraries and releases, too: attributes of arrays, and imports."""

import numpy as np
import pytest

import futurex as fx


def labelled(x, y):
    projection = x * y
    try:
        projection.name = "projection"
    except AttributeError:
        projection += 1
    return projection


def says(x):
    try:
        x.units = "K"
    except AttributeError as error:
        return x * 2, str(error)


def says_of_a_sum(x):
    total = x.sum()
    try:
        return total.units, ""
    except AttributeError as error:
        return total, str(error)


def asks(x):
    return x * (2 if hasattr(x, "index") else 3), x[0] * (2 if hasattr(x[0], "is_integer") else 3)


def imports(x):
    try:
        from numpy import product_of_old as prod
    except (ModuleNotFoundError, ImportError):
        from numpy import prod
    return prod(x)


def not_caught(x):
    x.name = "x"
    return x


X = np.arange(1.0, 4)


@pytest.mark.parametrize(
    "function, args", [(labelled, (X, X)), (says, (X,)), (says_of_a_sum, (X,)), (asks, (X,)), (imports, (X,))]
)
def test_handlers_see_what_they_see_in_plain_numpy(function, args):
    futurized = fx.futurize(function)
    for _ in range(3):
        found, expected = futurized(*args), function(*args)
        found, expected = (each if isinstance(each, tuple) else (each,) for each in (found, expected))
        for mine, numpys in zip(found, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(mine), numpys)
    assert function is asks or "plain NumPy" not in futurized.explain()


def test_derivatives_go_through_them():
    np.testing.assert_array_equal(np.asarray(fx.grad(lambda x: labelled(x, x).sum())(X)), 2 * X)


def test_an_error_that_nobody_catches_is_numpy_s():
    with pytest.raises(AttributeError) as expected:
        not_caught(X)
    with pytest.raises(AttributeError) as found:
        fx.futurize(not_caught)(X)
    assert str(found.value) == str(expected.value)
