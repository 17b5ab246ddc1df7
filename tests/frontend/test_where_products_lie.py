"""Stacks of products lie as NumPy lays them: what is reshaped out of them may be written."""

import itertools

import numpy as np
import pytest
from compare import check

import futurex as fx


def matrices(a, b, axes, others):
    return a.transpose(axes) @ b.transpose(others)


def vectors(a, b, axes, others):
    return np.vecdot(a.transpose(axes), b.transpose(others))


def matrix_and_vector(a, b, axes, others):
    return np.matvec(a.transpose(axes), b[0].transpose([k - (k > others[0]) for k in others[1:]]))


@pytest.mark.parametrize("make", [matrices, vectors, matrix_and_vector])
def test_reshapes_share_memory_where_numpys_do(make):
    """Writing what was reshaped changes the product where it is a view, and not where it is a copy."""

    def written(a, b, axes, others):
        product = make(a, b, axes, others)
        product.swapaxes(0, 1).reshape(-1)[:3] = -1
        product.reshape(-1)[-1:] = -2
        return product

    x = np.arange(81.0).reshape(3, 3, 3, 3)
    for axes in itertools.permutations(range(4)):
        args = x, x[::-1], axes, (0, 1, 2, 3)
        expected = written(*args)
        assert np.array_equal(fx.futurize(written)(*args), expected)


def heads(x, lengths, w, n):
    """Attention over padded texts, several heads side by side."""
    batch, time, width = x.shape
    q, k, v = (part.reshape(batch, time, n, width // n).swapaxes(1, 2) for part in np.split(x @ w, 3, axis=-1))
    valid = np.arange(time)[None, :] < lengths[:, None]
    mask = np.tril(np.ones((time, time), dtype=bool))[None, None] & valid[:, None, None, :]
    scores = np.where(mask, q @ k.swapaxes(-1, -2), np.float32(-1e9))
    p = np.exp(scores - scores.max(-1, keepdims=True))
    out = (p / p.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(batch, time, width)
    out[~valid] = 0
    return out


def test_heads_that_stand_side_by_side_again_may_be_written():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(3, 6, 8)), rng.normal(size=(8, 24))
    check(heads, x, np.array([2, 6, 4]), w, 2)


@pytest.mark.parametrize("make", [np.tril, np.triu])
def test_triangles_lie_as_numpy_lays_them(make):
    def written(x):
        y = make(x)
        y.reshape(-1)[1:] = 5
        return y

    for x in (np.arange(12.0).reshape(3, 4), np.arange(24).reshape(2, 3, 4), np.ones(3)):
        check(written, x)
