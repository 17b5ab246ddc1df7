"""Calls that return now this and now that, by what no key of a call tells: they are no fragments."""

import time

import numpy as np

import futurex as fx


def in_order(v):
    """Opaque; gives back an array in C order, and copies others."""
    return eval("np.ascontiguousarray(v)")


def column(x):
    u = in_order(x[:, 0])
    return u + x.sum(), u


def test_what_a_call_gives_back_as_its_argument_lies_is_learned_once():
    """Looking on, the column has gaps and is copied; in a run it has none."""
    futurized = fx.futurize(column)
    for k in range(6):
        x = np.arange(12.0).reshape(4, 3) + k
        for got, expected in zip(futurized(x), column(x), strict=True):
            np.testing.assert_array_equal(got, expected)
    assert "runs as plain NumPy" in futurized.explain()  # no trace is made and given up at each call


def factorised(m):
    try:
        np.linalg.cholesky(m)
    except np.linalg.LinAlgError as error:
        return "definite" not in str(error)
    return True


def test_a_compiled_function_hands_first_rows_to_its_fragments():
    f = fx.futurize(lambda a: np.array([factorised(m) for m in a]))
    a, until = np.stack([np.eye(3), -np.eye(3), np.eye(3)]), time.monotonic() + 20
    while "one compiled function" not in f.explain() and "which is faster" not in f.explain():
        for _ in range(100):
            assert np.asarray(f(a)).tolist() == [True, False, True]
        assert time.monotonic() < until, f.explain()
