"""Names that are a number of one type or another, None or a text in some runs, and an array or tuple in others."""

import numpy as np
import pytest

import futurex as fx


def _number(x):
    return 0.25 if x[3] > 0 else x[1]


def _number_or_none(x):
    return None if x[4] > 0 else x[1]


def largest(x):
    u = x[1]
    if x[3] > 0:
        u = 0.25
    return max(np.where(x[2] > 0, 1.5, x[4]), u)


def in_a_branch(x):
    u, t = _number(x), np.where(x[2] > 0, 1.5, x[4])
    if t < u:
        r = u
    else:
        r = t
    return r


def returned(x):
    return _number(x) if x[2] > 0 else x[:1] * 2


def three_of_them(x):
    r = None if x[4] > 0 else _number(x)
    return r if x[2] > 0 else x[:1] * 2


def is_none(x):
    s = x[:1] * 2
    if x[2] > 0:
        s = _number_or_none(x)
    if s is None:
        return -1.0
    return s


def said(x):
    s = (x[:1] * 2, 1)
    if x[2] > 0:
        s = _number_or_none(x)
    return s, s is None, s is not None


def none_in_both(x):
    s = x[:2] if x[0] > 0 else None
    if x[2] > 0:
        s = _number_or_none(x)
    return s, s is None


def a_text(x):
    s = x[:1] * 2
    if x[2] > 0:
        s = "nothing" if x[4] > 0 else x[1]
    return s


def in_rounds(x):
    s = x[:1] * 2
    for v in x:
        if v > 0.5:
            s = _number_or_none(x)
        elif v < -0.5:
            s = x[:1] * v
    return s is None, s


def kinds(value):
    value = value.result() if isinstance(value, fx.Array) else value
    if isinstance(value, tuple):
        return tuple(map(kinds, value))
    return (value.dtype, value.shape, value.tolist()) if isinstance(value, np.ndarray) else (type(value), repr(value))


@pytest.mark.parametrize(
    "program",
    [largest, in_a_branch, returned, three_of_them, is_none, said, none_in_both, a_text, in_rounds],
)
def test_each_is_what_the_run_says(program):
    f, rng = fx.futurize(program), np.random.default_rng(0)
    for _ in range(24):
        x = rng.normal(size=6)
        assert kinds(f(x)) == kinds(program(x)), f.explain()
    if program not in (in_rounds, a_text):
        assert "plain NumPy" not in f.explain(), f.explain()
