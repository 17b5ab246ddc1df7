"""``np.take`` along an axis without elements."""

import numpy as np
import pytest

import futurex as fx

NONE = np.zeros((0, 3))


@pytest.mark.parametrize("mode", ["raise", "wrap", "clip"])
@pytest.mark.parametrize("options", [{}, {"axis": 0}])
@pytest.mark.parametrize("places", [[0], [2, -5], 1])
def test_something_is_an_error(places, options, mode):
    with pytest.raises(IndexError, match="cannot do a non-empty take from an empty axes"):
        fx.futurize(lambda x: np.take(x, places, mode=mode, **options))(NONE)


NOTHING = [lambda x: x.take([], axis=0), lambda x: x.take([1, 2], axis=1), lambda x: x.take([[]])]


@pytest.mark.parametrize("function", NOTHING)
def test_nothing_is_nothing(function):
    found = fx.futurize(function)(NONE).result()
    assert found.shape == function(NONE).shape
    assert found.dtype == function(NONE).dtype
