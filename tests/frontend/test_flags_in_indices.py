"""Booleans without dimensions in indices, beside all else that may stand there: NumPy's elements, and its messages."""

import numpy as np
import pytest

import futurex as fx

READS = [
    lambda x, f, g, i: x[f, 0], lambda x, f, g, i: x[0, f], lambda x, f, g, i: x[f, :, 0],
    lambda x, f, g, i: x[..., f, 0],
    lambda x, f, g, i: x[f, ..., 0], lambda x, f, g, i: x[f, g], lambda x, f, g, i: x[f, True],
    lambda x, f, g, i: x[False, f], lambda x, f, g, i: x[f, None], lambda x, f, g, i: x[None, f, 0],
    lambda x, f, g, i: x[f, 2], lambda x, f, g, i: x[9, f], lambda x, f, g, i: x[f, 0, 0, 0],
    lambda x, f, g, i: x[f, -2], lambda x, f, g, i: x[f, -3], lambda x, f, g, i: x[f, x[0] > 0],
    lambda x, f, g, i: x[f, x > 0], lambda x, f, g, i: x[f, x[:, 0] > 0], lambda x, f, g, i: x[f, [0, 1]],
    lambda x, f, g, i: x[[0, 1], f], lambda x, f, g, i: x[[0, 1], f, [0, 1]], lambda x, f, g, i: x[0, 0][f],
    lambda x, f, g, i: x[f, i], lambda x, f, g, i: x[i, f], lambda x, f, g, i: x[f, 0.5],
    lambda x, f, g, i: x[np.True_, 0, f], lambda x, f, g, i: x[:, :, f], lambda x, f, g, i: x[:, :, :, f],
    lambda x, f, g, i: x[f, 1:, f], lambda x, f, g, i: x.sum()[f], lambda x, f, g, i: x.sum()[f, None],
    lambda x, f, g, i: x.sum()[f, 0], lambda x, f, g, i: x[0, :, f], lambda x, f, g, i: x[[0], :, f],
    lambda x, f, g, i: float(x[0, 0])[f],
]  # fmt: skip


def outcome(function, *args):
    try:
        found = np.asarray(function(*args))
        return found.dtype, found.shape, found.tolist()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("place", range(len(READS)))
def test_elements_and_messages(place):
    read = READS[place]

    def of_data(x, i):
        return read(x, x.sum() > 0, x[0, 0] > 0, i)

    f = fx.futurize(of_data)
    for sign, start, i in ((1, 0, 1), (-1, 0, -1), (1, 1, 2), (-1, 3, 0)):
        x = sign * (np.arange(6.0).reshape(2, 3) + start)
        assert outcome(f, x, i) == outcome(of_data, x, i), f.explain()
