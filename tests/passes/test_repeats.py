"""Repetitions, however they are written, are ``repeat_each``."""

import numpy as np
import pytest

import futurex as fx
from futurex.passes.pipeline import optimise


def ops_of(function, *args):
    return [node.op for node in optimise(fx.lower(function, *args).graph).nodes]


def by_ones(x):
    return np.kron(x, np.ones((2, 3), x.dtype))


def by_ones_first(x):
    return np.kron(np.ones((1, 3), x.dtype), x)


def by_wider_ones(x):
    return np.kron(x, np.ones((2, 2)))


def as_a_view(x):
    rows, columns = x.shape
    return np.broadcast_to(x[:, None, :, None], (rows, 2, columns, 2)).reshape(2 * rows, 2 * columns)


def rows_alone(x):
    rows, columns = x.shape
    return (x[:, None] * np.ones((1, 3, 1), x.dtype)).reshape(3 * rows, columns)


def twice(x):
    big = np.broadcast_to(x[:, None, :, None], (len(x), 2, x.shape[1], 2))
    return big.reshape(2 * len(x), -1), big.sum(axis=(1, 3))


REPEATED = (by_ones, by_wider_ones, as_a_view, rows_alone, twice)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1", "?"])
@pytest.mark.parametrize("function", [*REPEATED, by_ones_first])
def test_repeated_elements(function, dtype):
    rng = np.random.default_rng(0)
    for shape in ((250, 140), (300, 1), (1, 400), (3, 5)):
        x = (rng.normal(size=shape) * 9).astype(dtype)
        if x.dtype.kind == "f":
            x.flat[:3] = -0.0, np.nan, np.inf
        if x.size > 4096 and function in REPEATED and (dtype != "?" or function is not twice):
            assert "repeat_each" in ops_of(function, x)
        f, wanted = fx.futurize(function), function(x)
        for _ in range(3):
            for found, exact in zip(f(x) if function is twice else [f(x)], wanted if function is twice else [wanted],
                                    strict=True):  # fmt: skip
                found = np.asarray(found)
                assert (found.dtype, found.shape) == (exact.dtype, exact.shape)
                np.testing.assert_array_equal(found, exact)
                if x.dtype.kind == "f":
                    np.testing.assert_array_equal(np.signbit(found), np.signbit(exact))


def test_complex_products_with_ones_stay_products():
    """Infinity times one is NaN in the other part."""
    x = np.full((80, 80), complex(np.inf, 1.0))
    f = fx.futurize(by_ones)
    for _ in range(3):
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(f(x), by_ones(x))


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8"])
@pytest.mark.parametrize("cells", [[[1, 2], [3, 4]], [[5, 6, 7]], [[2], [3]]])
def test_elements_times_a_few(cells, dtype):
    x = np.arange(-9000, 9000).reshape(120, 150).astype(dtype)
    cells = np.array(cells, dtype)
    for function in (lambda x, y: np.kron(x, y), lambda x, y: np.kron(y, x)):
        f, wanted = fx.futurize(function), function(x, cells)
        for _ in range(3):
            found = np.asarray(f(x, cells))
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("cells", [[[1, 2], [3, 4]], [[1, 1], [1, 0]], [[1], [2]]])
def test_known_numbers_of_which_the_first_is_one(cells):
    x = np.arange(18000.0).reshape(120, 150)

    def function(x):
        return np.kron(x, np.array(cells, float))

    f = fx.futurize(function)
    for _ in range(3):
        np.testing.assert_array_equal(f(x), function(x))


def test_the_whole_behind_itself_is_copied():
    """One copy after the other, as fast as memory."""

    def function(x):
        return np.broadcast_to(x[None], (3, *x.shape)).reshape(-1)

    x = np.arange(18000.0).reshape(120, 150)
    assert "repeat_each" not in ops_of(function, x)
    np.testing.assert_array_equal(fx.futurize(function)(x), function(x))


def test_derivatives_of_repetitions():
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(64, 64)), rng.normal(size=(128, 192))
    for function, shape in ((by_ones, (2, 3)), (lambda x: np.kron(x, 2 * np.ones((2, 3))), (2, 3))):
        scale = function(np.ones((1, 1)))[0, 0]
        found = fx.grad(lambda x, function=function: (function(x) * w).sum())(x)
        blocks = w.reshape(64, shape[0], 64, shape[1])
        np.testing.assert_allclose(found, scale * blocks.sum(axis=(1, 3)), rtol=1e-12)
