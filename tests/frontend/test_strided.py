"""``as_strided``: what is a window, a part or a repetition of an array is staged; the rest runs as plain NumPy."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import futurex as fx

RNG = np.random.default_rng(0)
LINE, IMAGE, STACK = RNG.normal(size=24), RNG.normal(size=(6, 8)), RNG.normal(size=(2, 5, 7))


def frames(x):
    length, hop, (step,) = 6, 4, x.strides
    count = 1 + (len(x) - length) // hop
    return as_strided(x, (count, length), (hop * step, step), writeable=False) * np.hanning(length)


def patches(x):
    (h, w), (down, right) = x.shape, x.strides
    return as_strided(x, (h - 2, w - 1, 3, 2), (down, right, down, right)).mean(axis=(2, 3))


def pools(x):
    (h, w), (down, right) = x.shape, x.strides
    return as_strided(x, (h // 2, w // 4, 2, 4), (2 * down, 4 * right, down, right)).max(axis=(2, 3))


def dilated(x):
    return as_strided(x, (5, 3), (2 * x.itemsize, 5 * x.itemsize)) @ np.arange(3.0)


def frames_of_each_row(x):
    return np.tanh(as_strided(x, (*x.shape[:-1], x.shape[-1] - 2, 3), (*x.strides, x.strides[-1])))


def a_diagonal(x):
    return as_strided(x, (6,), (x.strides[0] + x.strides[1],)) * 2


def repeated(x):
    return as_strided(x, (3, 1, 24), (0, 0, 8)).sum(axis=1) + np.arange(3)[:, None]


def of_the_transpose(x):
    t = x.T
    return as_strided(t, (7, 6, 2), (t.strides[0], t.strides[1], t.strides[0])).sum(axis=2)


def backwards(x):
    y = x[::-2]
    return as_strided(y, (10, 3), (y.strides[0], y.strides[0])) * np.arange(3)


def hankel(x):
    return as_strided(x[3:], (4, 5), (x.itemsize, x.itemsize)) @ x[:5]


def one_element(x):
    return as_strided(x[2:], (1, 1), (99, 0)) + 1


def a_written_diagonal(x):
    y = x * 1.0
    along = as_strided(y, (6,), (72,))
    along[2:4] = 0
    along *= 2
    return y


def seen_through_the_view(x):
    y = x + 1
    windows = as_strided(y, (20, 5), (8, 8))
    y[3] = 0
    return windows.sum(axis=1)


CASES = [
    (frames, LINE), (patches, IMAGE), (pools, IMAGE), (dilated, LINE), (frames_of_each_row, STACK), (a_diagonal, IMAGE),
    (repeated, LINE), (of_the_transpose, IMAGE), (backwards, LINE), (hankel, LINE), (one_element, LINE),
    (a_written_diagonal, IMAGE), (seen_through_the_view, LINE),
]  # fmt: skip


@pytest.mark.parametrize(("function", "x"), CASES)
def test_as_numpy_in_values_and_derivatives(function, x):
    f = fx.futurize(function)
    for shift in range(4):
        found, expected = np.asarray(f(x + shift)), function(x + shift)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert "plain NumPy" not in f.explain()
    assert "fragment" not in f.explain()
    weights = RNG.normal(size=expected.shape)
    slope = np.asarray(fx.grad(lambda x: (function(x) * weights).sum())(x))
    way = RNG.normal(size=x.shape)
    difference = ((function(x + 1e-6 * way) - function(x - 1e-6 * way)) * weights).sum() / 2e-6
    np.testing.assert_allclose((slope * way).sum(), difference, rtol=1e-5)


def test_arguments_that_lie_elsewhere():
    f = fx.futurize(patches)
    for x in (IMAGE, np.asfortranarray(IMAGE), np.repeat(IMAGE, 2, axis=1)[:, ::2], IMAGE[::-1], IMAGE.T, IMAGE):
        np.testing.assert_allclose(np.asarray(f(x)), patches(x), rtol=1e-12)


def beyond_the_view(x):
    return as_strided(x[:4], (6,), x.strides).sum()


def a_circulant(x):
    return as_strided(np.concatenate([x, x])[24:], (24, 24), (-8, 8)) @ x


def three_along_one_axis(x):
    return as_strided(x, (3, 3, 3), (8, 8, 8)).sum(axis=0)


def written_windows(x):
    y = x * 1.0
    as_strided(y, (20, 5), (8, 8))[3] = 0
    return y


def written_blocks(x):
    y = x * 1.0
    blocks = as_strided(y, (3, 2, 2, 2), (64, 16, 32, 8))
    blocks[1, 1] = 0
    return y


OTHERS = [beyond_the_view, a_circulant, three_along_one_axis, written_windows, written_blocks]


@pytest.mark.parametrize("function", OTHERS)
def test_other_uses_are_numpys(function):
    f = fx.futurize(function)
    for shift in range(3):
        np.testing.assert_allclose(np.asarray(f(LINE + shift)), function(LINE + shift), rtol=1e-12)


def test_windows_of_an_argument_are_returned():
    def f(x):
        return as_strided(x, (20, 5), (8, 8), writeable=False)

    g = fx.futurize(f)
    for shift in range(3):
        np.testing.assert_array_equal(np.asarray(g(LINE + shift)), f(LINE + shift))
