"""Calls that are plain NumPy for good take the short way, also where others refer to what they return."""

import numpy as np
import pytest

import futurex as fx
from futurex.frontend.plain import call_for_futures

KEPT = []


def shares(x, keeps):
    str(x.tobytes())  # is not staged
    a = x * 2
    pair = (a + 1, 1)
    alone = x * 3
    if keeps:
        KEPT.append(alone)
    return a, a[:2], [pair, pair], alone, x


def outgrows(x, keeps):
    h = 0xCBF29CE484222325
    for b in x:
        h = (h ^ int(b)) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h, [h % 97, x[:2]]


def kinds(value):
    return [kinds(each) for each in value] if isinstance(value, tuple | list) else type(value)


@pytest.mark.parametrize("function", [shares, outgrows])
def test_they_return_what_other_plain_calls_do(function):
    f, x = fx.futurize(function), np.arange(4.0)
    for _ in range(4):
        f(x, False)
    assert f._lane.plain.call is not call_for_futures
    for keeps in (False, True, False, True):
        found, expected = f(x, keeps), call_for_futures(function, (x, keeps), {})
        assert kinds(found) == kinds(expected)
        assert repr(found) == repr(expected)


def test_who_refers_to_what_stays():
    f, x = fx.futurize(shares), np.arange(4.0)
    for _ in range(4):
        a, view, (one, other), _, argument = f(x, False)
        assert view.base is a
        assert one is other
        assert argument is x


def test_what_raises_goes_plain_the_short_way():
    def fails(x):
        return np.zeros((2, 3)) @ x

    f = fx.futurize(fails)
    for _ in range(4):
        with pytest.raises(ValueError, match="matmul"):
            f(np.ones(4))
    assert f._lane.variant.graph is None
    assert f(np.ones(3)).tolist() == [0, 0]
