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


def listed(x, n, keeps):
    str(x.tobytes())  # is not staged
    rows = [float(v) for v in x.tolist() * n]
    mixed = tuple(v if v > 1 else int(v) for v in rows)
    if keeps:
        KEPT.append(rows)
    return rows, mixed, list(x.repeat(n)), [["text"] * 30 * n, mixed[0]], [None if v > 2 else v for v in rows]


@pytest.mark.parametrize("n", [3, 500])
def test_long_lists_come_back_as_others_do(n):
    f, x = fx.futurize(listed), np.arange(4.0)
    for _ in range(4):
        f(x, n, False)
    assert f._lane is None or f._lane.plain.call is not call_for_futures
    for other, keeps in ((x, False), (x - 5, True), (x + 7, False), (x, True)):
        found, expected = f(other, n, keeps), call_for_futures(listed, (other, n, keeps), {})
        assert kinds(found) == kinds(expected)
        assert repr(found) == repr(expected)
        assert not keeps or any(found[0] is rows for rows in KEPT)


def test_lists_of_changing_lengths_take_the_short_way():
    def listed(x):
        str(x.tobytes())  # is not staged
        return list(x[x > 0]), x.tolist()[int(x[0]) :]

    f, x = fx.futurize(listed), np.arange(60.0)
    for _ in range(4):
        f(x)
    f._lane.plain.call.__globals__["otherwise"] = None  # the long way
    for k in range(5):
        numbers, floats = f(x + k)
        assert [type(each) for each in numbers] == [fx.Array] * len(numbers)
        assert numbers == listed(x + k)[0]
        assert floats == listed(x + k)[1]


def one_of_several(x):
    str(x.tobytes())  # is not staged
    which = int(x[0])
    if which == 0:
        return x * 2
    if which == 1:
        return None
    if which == 2:
        return [x[1], x, x[1:], (x + 1)[1:]]
    if which == 3:
        return {"a": x.sum(), "b": KEPT}
    if which == 4:
        return 2**70, (x * 2)[:, None].T
    return [float(which)] * which


def test_results_of_several_kinds_take_the_short_way(monkeypatch):
    f, arrays = fx.futurize(one_of_several), [np.arange(4.0) + k for k in range(8)]
    for k in (0, 0, 0, 0, *range(8), *range(8)):
        found, expected = f(arrays[k]), call_for_futures(one_of_several, (arrays[k],), {})
        assert repr(found) == repr(expected)
        assert type(found) is type(expected)
        if k == 2:
            assert kinds(found) == kinds(expected)
            assert found[1] is arrays[2]
            assert found[2].base is arrays[2]
        if k == 3:
            assert found["b"] is KEPT
            assert type(found["a"]) is fx.Array
    monkeypatch.setattr("futurex.frontend.plain.call_and_look", None)  # the long way
    assert [f(array) is None for array in arrays[:4]] == [False, True, False, False]
    with pytest.raises(TypeError):
        f(arrays[7])
