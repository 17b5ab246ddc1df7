"""What tests of plain calls share: functions settle on them after a few calls, and results are compared in full."""

import numpy as np
import pytest

import futurex as fx
from futurex.frontend import choice
from futurex.runtime.whole import Whole
from futurex.tree.pytree import flatten


def compare_soon(monkeypatch):
    """Both ways are compared after a few calls; plain wins."""
    monkeypatch.setattr(choice, "WORTH", 0.0)
    monkeypatch.setattr(choice, "FEWEST", 2)
    monkeypatch.setattr(choice, "_BETTER", 1e9)
    monkeypatch.setattr(Whole, "settled", True)
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")


def settle(f, *args):
    """Call until plain NumPy is taken."""
    for _ in range(200):
        f(*args)
        if "calls run as plain NumPy" in f.explain():
            return
    pytest.fail(f.explain())


def alike(mine, other):
    """Are two results the same nest of the same kinds, which hold the same?"""
    (mine, nest), (other, others) = flatten(mine), flatten(other)
    assert nest == others
    for one, two in zip(mine, other, strict=True):
        assert type(one) is type(two)
        if isinstance(one, fx.Array):
            assert (one.aval, one._is_array) == (two.aval, two._is_array)
            one, two = one.result(), two.result()
        assert type(one) is type(two)
        np.testing.assert_array_equal(one, two)
