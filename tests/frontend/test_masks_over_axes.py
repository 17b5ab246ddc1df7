"""A mask over several axes picks by one list of places, and means what NumPy's indexing means."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex as fx

RNG = np.random.default_rng(4)
X = RNG.standard_normal((6, 7, 5))


def same(result, expected):
    result = np.asarray(result)
    assert (result.dtype, result.shape, result.strides) == (expected.dtype, expected.shape, expected.strides)
    assert result.tobytes() == expected.tobytes()


def agree(f, x, mask):
    """The futurized function gives what the function gives, or raises what it raises."""
    try:
        expected, message = f(x, mask), None
    except IndexError as error:
        message = str(error)
    if message is None:
        same(fx.futurize(f)(x, mask), expected)
    else:
        with pytest.raises(IndexError, match=re.escape(message)):
            np.asarray(fx.futurize(f)(x, mask))


def test_there_is_one_list_of_places():
    graph = fx.futurize(lambda x: x[x > 0]).trace(X).graph
    (gather,) = (node for node in graph.nodes if node.op == "gather")
    assert [each.ndim for each in gather.inputs] == [1, 1]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_it_picks_what_numpy_picks(data):
    shape = tuple(data.draw(st.lists(st.integers(0, 6), min_size=2, max_size=4)))
    over = data.draw(st.integers(2, len(shape)))
    dtype = data.draw(st.sampled_from(["f8", "f4", "u1", "i8", "c16", "?"]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = (rng.standard_normal(shape) * 9).astype(dtype)
    mask = rng.random(shape[:over]) < data.draw(st.sampled_from([0.0, 0.3, 1.0]))
    turn = data.draw(st.sampled_from([lambda x, over: x, lambda x, over: x.T, lambda x, over: x[::-1, ::2]]))

    def f(x, mask):
        return turn(x, over)[turn(mask, over)]

    agree(f, x, mask)


@pytest.mark.parametrize(
    ("shape", "over"),
    [((3,), (0,)), ((3, 4), (0, 4)), ((3, 4), (3, 0)), ((0, 4), (0, 3)), ((3, 4), (1, 0)), ((1, 1, 0), (0, 1)),
     ((0, 1), (1, 0)), ((3, 4, 5), (2, 0))],
)  # fmt: skip
def test_masks_of_nothing_fit_where_numpy_says_so(shape, over):
    agree(lambda x, mask: x[mask], np.zeros(shape), np.zeros(over, bool))


def test_two_arrays_under_one_mask_have_one_length():
    def f(x, y):
        mask = x > 0
        return x[mask] * y[mask] + 1

    same(fx.futurize(f)(X, X[::-1] * 2), f(X, X[::-1] * 2))


def test_its_derivative_is_where_it_picks():
    grown = fx.grad(lambda x: (x[x > 0] ** 2).sum())(X)
    np.testing.assert_allclose(grown, np.where(X > 0, 2 * X, 0))
    rows = fx.grad(lambda x, mask: (x[mask] ** 2).sum())(X, X[..., 0] > 0)
    np.testing.assert_allclose(rows, np.where(X[..., :1] > 0, 2 * X, 0))


def test_what_is_picked_and_written_again():
    def f(x):
        y = x.copy()
        y[y > 0] *= 2
        y[y[..., 0] > 1] += y[y[..., 0] > 1] * 3
        return y

    same(fx.futurize(f)(X), f(X))


def test_maps_over_masks():
    found = fx.vmap(lambda x: x[x > 0].sum())(X)
    np.testing.assert_allclose(found, [each[each > 0].sum() for each in X])
