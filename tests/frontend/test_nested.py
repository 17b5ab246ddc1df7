"""A call that runs as plain NumPy means the same where it calls futurized functions: it gets NumPy's arrays."""

import numpy as np
import pytest
from choosing import alike, compare_soon, settle
from compare import bits, plain
from nested_programs import PROGRAMS, Tree, Walker, doubled, written

import futurex as fx
from futurex.frontend import variants


@pytest.mark.parametrize("program", PROGRAMS)
def test_plain_calls_of_functions_that_call_futurized_ones(program):
    function = fx.futurize(program)
    for k in range(6):
        x, same = np.arange(1.0, 4.0) + k, np.arange(1.0, 4.0) + k
        got = bits(plain(function(x)))
        with fx.disable():
            assert got == bits(program(same))
        assert x.tolist() == same.tolist()


def test_methods():
    mine, theirs = Walker(), Walker()
    for k in range(5):
        got = bits(plain(mine.walk(np.ones(3) * k)))
        with fx.disable():
            assert got == bits(theirs.walk(np.ones(3) * k))
        assert {float(key): n for key, n in mine.seen.items()} == theirs.seen


def test_outside_results_stay_futures():
    fx.futurize(written)(np.ones(3))
    assert isinstance(doubled(np.ones(3)), fx.Array)


def test_a_method_is_the_same_one_in_each_trace(monkeypatch):
    """As another one in each trace it could become a fragment 64 times, each of which is one more trace."""
    traced, trace = [], variants._traced

    def noted(function, *args):
        traced.extend([function.__qualname__] * (function.__module__ == Tree.__module__))
        return trace(function, *args)

    monkeypatch.setattr(variants, "_traced", noted)
    mine, theirs, x = Tree(), Tree(), np.array([3.0, 1.0, 4.0, 1.0, 5.0, 9.0])
    mine.fit(x)
    with fx.disable():
        theirs.fit(x)
    assert bits(plain(mine.root)) == bits(theirs.root)
    assert traced.count("Tree.fit") < 8


@fx.futurize
def halved(x):
    return x / 2


@fx.futurize(memory_limit=2**30)
def within_limits(x):
    return x * 3


@fx.futurize
def moved(x, rng):
    if x[0] > 50:
        raise ValueError("too far")
    x += rng.random(3)
    return within_limits(x) + halved(x)


def test_calls_that_are_faster_as_plain_numpy_are_that_throughout(monkeypatch):
    """What is futurized in them is plain, too: a run of each of its parts would take longer than the whole."""
    compare_soon(monkeypatch)
    mine, theirs, staged = (np.random.default_rng(3) for _ in range(3))
    first = moved(np.ones(3), staged)
    settle(moved, np.ones(3), mine)
    mine = np.random.default_rng(3)
    alike(moved(np.ones(3), mine), first)
    with fx.disable():
        moved(np.ones(3), theirs)
    for k in range(5):
        x, same = np.arange(3.0) + k, np.arange(3.0) + k
        got = plain(moved(x, mine))
        with fx.disable():
            assert bits(got) == bits(moved(same, theirs))
        assert bits(x) == bits(same)
        with pytest.raises(ValueError, match="too far"):
            moved(np.full(3, 99.0), mine)
    assert "0 trace(s)" in halved.explain()
    assert "1 trace(s)" in within_limits.explain()
    assert isinstance(halved(np.ones(3)), fx.Array)
