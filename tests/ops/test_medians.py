"""Medians of a few numbers each are NumPy's, bit for bit, whichever way they are found."""

import itertools

import numpy as np
import pytest

from futurex.ops.medians import _network, median_by_exchanges


@pytest.mark.parametrize("count", range(2, 17))
def test_the_network_sorts(count):
    """By the principle of zeros and ones: what sorts those sorts everything."""
    if count <= 10:
        rows = np.array(list(itertools.product((0, 1), repeat=count))).T
    else:
        rows = np.random.default_rng(0).integers(0, 2, (count, 4000))
    rows = list(rows)
    for low, high in _network(count):
        rows[low], rows[high] = np.minimum(rows[low], rows[high]), np.maximum(rows[low], rows[high])
    assert all((one <= two).all() for one, two in itertools.pairwise(rows))


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i8", "u1"])
@pytest.mark.parametrize(
    ("shape", "axis"), [((300, 9), (1,)), ((3, 3, 700), (0, 1)), ((20, 4, 30, 2), (1, 3)), ((5000, 5), (1,))]
)
def test_means_the_same(dtype, shape, axis):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=shape) * 20).round().astype(dtype)
    if x.dtype.kind == "f":
        x = abs(x)
        x.ravel()[::37] = np.nan
        x.ravel()[::41] = -np.inf
    found = median_by_exchanges(x, axis)
    expected = np.median(x, axis=axis)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_leaves_zeros_of_both_signs_and_few_or_long_rows_to_numpy():
    x = np.zeros((300, 3))
    assert median_by_exchanges(x, (1,)) is not None
    x[7, 1] = -0.0
    assert median_by_exchanges(x, (1,)) is None
    assert median_by_exchanges(np.ones((200, 3)), (1,)) is None
    assert median_by_exchanges(np.ones((300, 17)), (1,)) is None
    assert median_by_exchanges(np.ones((300, 3), bool), (1,)) is None
