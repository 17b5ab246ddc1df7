"""Views that NumPy lets nobody write through stay so behind branches and loops that bind names to them."""

import numpy as np
import pytest

import futurex as fx

X = np.linspace(-1.0, 2.0, 16).reshape(4, 4)


def spread_in_rounds(x, n):
    v = x + 0.0
    for _ in range(n):
        v = np.broadcast_to(v[0] * 1.01, (4, 4))
    v += 1
    return v


def diagonals(x, n):
    v = np.diag(x)
    for _ in range(n):
        v = np.diagonal(np.outer(v, v) / 4)
    v[0] = 1
    return v


def bound_in_rounds(x, n):
    for k in range(n):
        v = np.diag(x) if n else None
        x = x + k
    np.add(v, 1, out=v)
    return v


def in_some_rounds(x, n):
    v = x + 0.0
    for _ in range(n):
        v[0] = 1
        v = np.broadcast_to(v[0] + 1, (4, 4)) if v.sum() < n else v + 2
    return v


def until_it_is_large(x, n):
    v = x + 0.0
    while v.sum() < n:
        v = np.broadcast_to(v[0] + 1, (4, 4))
    v[0] = 1
    return v


def returned(x, n):
    v = x + 0.0
    for _ in range(n):
        v = np.broadcast_to(v[0] * 1.01, (4, 4))
    return v


PROGRAMS = [spread_in_rounds, diagonals, bound_in_rounds, in_some_rounds, until_it_is_large, returned]


def _outcome(function, n):
    try:
        found = np.asarray(function(X.copy(), n))
    except Exception as error:
        return type(error), str(error)
    return found, found.flags.writeable


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda each: each.__name__)
def test_views_of_rounds_are_as_read_only_as_numpys(function):
    staged = fx.futurize(function)
    for n in (1, 2, 0, 3, 40, 41, 90):
        (expected, flag), (found, found_flag) = _outcome(function, n), _outcome(staged, n)
        assert flag == found_flag
        if isinstance(flag, bool):
            np.testing.assert_allclose(found, expected)
        else:
            assert expected is found
