"""Lists that become arrays of another type: NumPy looks at each number where they become signed integers."""

import numpy as np
import pytest
from compare import outcome

import futurex as fx


def made(x, y):
    return np.array([y[0], y[1] + 1, 2], x.dtype), np.asarray([[y[1], 1]], dtype=x.dtype)


def of_arrays(x, y):
    return np.array([y[:2], y[1:3]], x.dtype), np.array([np.array(y[0]), 1], x.dtype)


def of_all(x, y):
    return np.array(list(y), dtype=x.dtype), np.array([v - 1 for v in y], dtype=x.dtype)


def written(x, y):
    x[:2] = y[1], y[0]
    return x


def behind_places(x, y):
    x[[0, 2]] = [y[0], 1]
    return x


def behind_a_mask(x, y):
    x[x > 1] = [y[0], y.max(), 3]
    return x


def in_rounds(x, y):
    for i in range(3):
        if y[i] > 1:
            x[i : i + 2] = y[i], y[i + 1]
    return x


def put(x, y):
    np.put(x, [0], [y[0]])
    np.fill_diagonal(x.reshape(2, 2), [y[1], 1])
    return x


def grown(x, y):
    found = [v for v in y if v != 2]
    return np.array(found, dtype=x.dtype)


def grown_by_pairs(x, y):
    found = []
    for v in y:
        if v != 2:
            found.append((v, v + 1))
    return np.array(found, dtype=x.dtype)


def grown_by_floats(x, y):
    found = []
    for v in y:
        if v != 2:
            found.append(float(v))
    return np.array(found, dtype=x.dtype)


def grown_and_written(x, y):
    found = [v for v in y if v != 2]
    if len(found) == 3:
        x[:3] = found
    return x


FUNCTIONS = [
    made, of_arrays, of_all, written, behind_places, behind_a_mask, in_rounds, put, grown, grown_by_pairs,
    grown_by_floats, grown_and_written,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("target", ["i1", "u1", "i4", "f4"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_numbers_of_lists_fit_where_numpy_says_so(function, target):
    futurized = fx.futurize(function)
    for source in ("i8", "f8", "i2"):
        for numbers in ([1, 2, 3, 4], [300, 2, 3, 4], [3, 300, -1, 2], [1, 2.5, 3, 2e4], [-1, 2, 3, 4]):
            args = np.array([1, 2, 3, 4], target), np.array(numbers).astype(source)
            assert outcome(futurized, args) == outcome(function, args), (source, numbers)


def test_a_nan_in_a_list_is_no_integer():
    for function in (made, grown):
        args = np.array([1, 2, 3, 4], "i4"), np.array([np.nan, 1.0, 2.0, 3.0])
        futurized = fx.futurize(function)
        for _ in range(3):
            assert outcome(futurized, args) == outcome(function, args)
            assert outcome(futurized, args)[0] == ("error", ValueError)
