"""Writes where a mask is true are choices between elements that are computed everywhere."""

import warnings

import numpy as np
import pytest

import futurex as fx
from futurex.passes.pipeline import DEVICE_PASSES, optimise

RNG = np.random.default_rng(6)
X, Y = RNG.normal(size=(60, 100)).round(2), RNG.normal(size=(60, 100)).round(2)
ROWS, OTHERS = RNG.normal(size=(3000, 3)), RNG.normal(size=(3000, 3))


def squares(x, y):
    m = np.abs(x) <= 1
    x[m] = x[m] ** 2 + y[m]
    return x


def scaled(x, y):
    x[x < 0] *= 0.1
    return x


def reciprocals(x, y):
    m = y != 0
    x[m] = 1 / y[m]
    return x


def by_places(x, y):
    i, j = np.nonzero(x > y)
    x[i, j] = y[i, j] * 2
    return x


def another_type(x, y):
    counts = np.zeros(x.shape, int)
    counts[x > 0] += 3
    x = x.astype(np.float32)
    x[counts > 0] = y[counts > 0] * np.float64(0.3)
    return x, counts


def numbers(x, y):
    k = np.abs(x * 10).astype(np.uint8)
    m = k > 3
    k[m] = 100 // k[m]
    k[~m] = 7
    return k


def one_after_the_other(x, y):
    for bound in (2.0, 1.0, 0.5):
        m = np.abs(x) > bound
        x[m] -= y[m] * bound
    return x


def in_a_row(x, y):
    flat = x.ravel()
    m = flat > 0
    flat[m] = np.sqrt(flat[m])
    return flat


ELEMENTS = [squares, scaled, reciprocals, by_places, another_type, numbers, one_after_the_other, in_a_row]


def rows(x, y):
    m = x[:, 0] > 0
    x[m] = y[m] * np.array([1.0, 2.0, 3.0]) - x[m]
    return x


def rows_scaled(x, y):
    size = np.abs(x).sum(1)
    m = size > 2
    x[m] /= size[m][:, None]
    return x


def one_column(x, y):
    m = x[:, 1] > 0
    x[m, 0] *= -1
    x[m, -1] = y[m, 0] + 1
    return x


def some_columns(x, y):
    m = y[:, 0] > 0
    x[m, 1:] = y[m][:, ::-1][:, :2] + x[m, 0][:, None]
    return x


def rows_by_places(x, y):
    found = np.where(x[:, 0] > y[:, 0])[0]
    x[found] = 0.5 * (x[found] + y[found])
    x[found, 2] = 0
    return x


def two_axes(x, y):
    x, y = x.reshape(50, 60, 3), y.reshape(50, 60, 3)
    m = x[..., 0] > 0
    x[m] = x[m] * 2 - y[m][:, ::-1]
    return x


OF_ROWS = [rows, rows_scaled, one_column, some_columns, rows_by_places, two_axes]


def ops(function, *arguments):
    def copied(x, y):
        return function(x.copy(), y)

    return [node.op for node in optimise(fx.lower(copied, *arguments).graph).nodes]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("function", [*ELEMENTS, *OF_ROWS])
def test_values_are_numpys_and_nothing_is_warned_of(function, compiled):
    arguments = (ROWS, OTHERS) if function in OF_ROWS else (X, Y)
    f = fx.futurize(lambda x, y: function(x.copy(), y))
    expected = function(arguments[0].copy(), arguments[1])
    if compiled:
        fx.precompile(f, *arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            found = f(*arguments)
            pairs = [each if isinstance(each, tuple) else (each,) for each in (found, expected)]
            for one, other in zip(*pairs, strict=True):
                assert (one.dtype, one.shape) == (other.dtype, other.shape)
                np.testing.assert_allclose(one, other, rtol=1e-14, atol=0)


@pytest.mark.parametrize("function", [*ELEMENTS, *OF_ROWS])
def test_nothing_is_picked(function):
    arguments = (ROWS, OTHERS) if function in OF_ROWS else (X, Y)
    assert not {"nonzero", "gather", "masked_store", "scatter"} & set(ops(function, *arguments))


def read_again(x, y):
    m = x > 0
    values = np.sqrt(x[m])
    x[m] = values
    return x, values


def with_a_sum(x, y):
    m = x > 0
    x[m] -= x[m].mean()
    return x


def in_another_order(x, y):
    m = x > 0
    x[m] = x[m][::-1]
    return x


def by_another_mask(x, y):
    x[x > 0] = y[y > 0][: (x > 0).sum()]
    return x


def many_functions(x, y):
    m = x > 0
    x[m] = np.sin(np.cos(np.exp(np.tanh(x[m]))))
    return x


def places_of_a_list(x, y):
    x[[0, 0, 1]] = y[[3, 4, 5]]
    return x


@pytest.mark.parametrize("function", [read_again, with_a_sum, in_another_order, many_functions, places_of_a_list])
def test_others_stay_as_they_are(function):
    assert {"masked_store", "scatter"} & set(ops(function, X, Y))
    found, expected = fx.futurize(lambda x, y: function(x.copy(), y))(X, Y), function(X.copy(), Y)
    pairs = [each if isinstance(each, tuple) else (each,) for each in (found, expected)]
    for one, other in zip(*pairs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)


def test_small_arrays_stay_as_they_are():
    assert "masked_store" in ops(squares, X[:5], Y[:5])


def test_as_many_elements_as_are_picked_are_needed():
    with pytest.raises(ValueError, match="NumPy boolean array indexing assignment cannot assign"):
        by_another_mask(X.copy(), Y[:1].repeat(60, 0) - 9)
    with pytest.raises(ValueError, match="NumPy boolean array indexing assignment cannot assign"):
        np.asarray(fx.futurize(lambda x, y: by_another_mask(x.copy(), y))(X, Y[:1].repeat(60, 0) - 9))


def test_in_loops():
    def stepped(x, y):
        x = x.copy()
        for _ in range(40):
            x += 0.1 * y
            m = np.abs(x) > 1
            x[m] = np.sign(x[m]) * (2 - np.abs(x[m]))
        return x

    f = fx.futurize(stepped)
    for _ in range(3):
        np.testing.assert_allclose(f(X, Y), stepped(X, Y), rtol=1e-12, atol=1e-12)


def test_slopes():
    def loss(x, y):
        x = x.copy()
        m = x > y
        x[m] = x[m] * y[m]
        return (x**2).sum()

    dx, dy = fx.grad(loss, argnums=(0, 1))(X, Y)
    m = X > Y
    np.testing.assert_allclose(dx, np.where(m, 2 * X * Y**2, 2 * X), rtol=1e-13)
    np.testing.assert_allclose(dy, np.where(m, 2 * X**2 * Y, 0), rtol=1e-13)


def test_errors_that_are_to_raise_are_those_of_picked_elements():
    y = Y.copy()
    y[0, :3] = 0
    f = fx.futurize(lambda x, y: reciprocals(x.copy(), y))
    with np.errstate(all="raise"):
        for _ in range(3):
            np.testing.assert_array_equal(f(X, y), reciprocals(X.copy(), y))
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        np.asarray(fx.futurize(lambda x, y: 1 / y)(X, y))


@pytest.mark.parametrize("function", [*ELEMENTS, *OF_ROWS])
def test_on_a_device_nothing_is_picked(function):
    """Where how many there are would have to be waited for."""
    x, y = (ROWS, OTHERS) if function in OF_ROWS else (X, Y)
    graph = fx.lower(lambda x, y: function(x.copy(), y), x, y).graph
    found = optimise(graph, passes=DEVICE_PASSES)
    assert not {"nonzero", "gather", "masked_store", "scatter"} & {node.op for node in found.nodes}


def where_numbers_are_not_zero(x, y):
    found = np.nonzero(y[:, 0])
    x[found] = x[found] * 2 + y[found]
    return x


def masks_of_one_column(x, y):
    x, y = x.reshape(3000, 1, 3), y.reshape(3000, 1, 3)
    m = x[..., 0] > 0
    x[m] = x[m] * y[m]
    return x


@pytest.mark.parametrize("function", [where_numbers_are_not_zero, masks_of_one_column])
def test_odd_masks(function):
    y = np.where(np.abs(OTHERS) < 0.3, 0, OTHERS)
    y[5, 0] = np.nan
    f = fx.futurize(lambda x, y: function(x.copy(), y))
    for _ in range(3):
        np.testing.assert_array_equal(f(ROWS, y), function(ROWS.copy(), y))


def added_at_places(x, y):
    np.add.at(x, np.nonzero(y > 0), y[y > 0] * 2)
    return x


def test_what_is_added_at_places_of_a_mask_is_a_choice():
    assert not {"nonzero", "gather", "scatter"} & set(ops(added_at_places, X, Y))
    f = fx.futurize(lambda x, y: added_at_places(x.copy(), y))
    for _ in range(3):
        np.testing.assert_array_equal(f(X, Y), added_at_places(X.copy(), Y))
