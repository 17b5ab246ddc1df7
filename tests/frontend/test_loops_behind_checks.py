"""A check that keeps a program from a loop which would never end comes before the loop."""

import numpy as np
import pytest

import futurex as fx


def submasks(mask):
    assert mask > 0, "no mask"
    found, submask = 0, mask
    while submask:
        found += 1
        submask = (submask - 1) & mask
    return found


def root(x):
    if x <= 0:
        raise ValueError(f"no root of {x}")
    s = x
    while abs(s * s - x) > 1e-9:
        s = 0.5 * (s + x / s)
    return s


def roots(xs):
    total = 0.0
    for x in xs:
        if not x > 0:
            raise ValueError("negative")
        s = x
        while abs(s * s - x) > 1e-9:
            s = 0.5 * (s + x / s)
        total += s
    return total


def remainder(a, b, folded):
    assert b > 0
    if folded:
        while a >= b:
            a = a - b
    return a


def remainder_of_some(a, b):
    assert b > 0
    if a > 10:
        while a >= b:
            a = a - b
    return a


@pytest.mark.parametrize("mode", ["wait", "background"])
@pytest.mark.parametrize(
    ("function", "good", "bad"),
    [
        (submasks, [(15,), (13,), (7,), (6,)], (-7,)),
        (root, [(2.0,), (3.0,), (4.0,)], (-2.0,)),
        (roots, [(np.arange(1.0, 100.0),)] * 3, (np.append(np.arange(1.0, 100.0), -1.0),)),
        (remainder, [(100, 3, True), (101, 4, True), (102, 5, True), (90, 7, True)], (100, -3, True)),
        (remainder_of_some, [(100.0, 3.0), (101.0, 4.0), (5.0, 5.0), (90.0, 7.0)], (100.0, -3.0)),
    ],
)
def test_the_check_comes_first(function, good, bad, mode, monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", mode)
    staged = fx.futurize(function)
    for _ in range(2):
        for args in good:
            assert float(staged(*args)) == pytest.approx(function(*args))
        with pytest.raises((AssertionError, ValueError)):
            staged(*bad).result()
