"""Calls that go as plain NumPy rarely ask what the trace asks of what is outside; they are right whatever is there."""

import time

import numpy as np
import pytest
from choosing import compare_soon, settle

import futurex as fx
from futurex.frontend import choice

X = np.arange(4.0)
FACTORS = {"one": np.full(4, 2.0), "two": 3.0}
STRICT = False


def scaled(x):
    if STRICT:
        raise KeyError("strict")
    return x * FACTORS["one"] + FACTORS["two"]


def summed(x):
    return (x * FACTORS["two"]).sum() if FACTORS["two"] > 10 else x + FACTORS["two"]


@pytest.fixture
def settled(monkeypatch):
    compare_soon(monkeypatch)
    return _settled


def _settled(function):
    f = fx.futurize(function)
    settle(f, X)
    assert f._lane.choice.plain
    return f, f._lane


def test_most_calls_do_not_look(settled):
    f, lane = settled(scaled)
    looks, valid = [], lane.valid
    lane.valid = lambda: looks.append(1) or valid()
    for k in range(4 * choice.UNSEEN):
        np.testing.assert_array_equal(f(X + k), scaled(X + k))
    assert len(looks) == 4


def test_what_has_changed_counts_at_once_and_is_traced_soon(settled, monkeypatch):
    f, lane = settled(scaled)
    monkeypatch.setitem(FACTORS, "two", 5.0)
    for k in range(2 * choice.UNSEEN):
        np.testing.assert_array_equal(f(X + k), scaled(X + k))
    assert f._lane is not lane


def test_results_of_another_kind_come_at_once(settled, monkeypatch):
    f, lane = settled(summed)
    monkeypatch.setitem(FACTORS, "two", 11.0)
    for k in range(2 * choice.UNSEEN):
        found = f(X + k)
        assert isinstance(found, fx.Array)
        assert found.result() == summed(X + k)
    monkeypatch.undo()
    assert lane.choice.open


def test_an_error_that_the_trace_does_not_know_is_raised(settled, monkeypatch):
    f, _ = settled(scaled)
    monkeypatch.setattr(f"{__name__}.STRICT", True)
    for _ in range(2 * choice.UNSEEN):
        with pytest.raises(KeyError, match="strict"):
            np.asarray(f(X))


def test_both_ways_are_compared_again(settled, monkeypatch):
    monkeypatch.setattr(choice, "AGAIN", 2 * choice.UNSEEN)
    f, lane = settled(scaled)
    plain = []
    for _ in range(3 * choice.UNSEEN):
        f(X)
        plain.append(lane.choice.plain)
    assert not all(plain)


def test_looking_counts_as_part_of_a_staged_call(monkeypatch, settled):
    f = fx.futurize(scaled)
    for _ in range(3):
        f(X)
    lane, taken = f._lane, []
    monkeypatch.setattr(choice.Choice, "was_staged", lambda self, began: taken.append(time.perf_counter() - began))
    valid = lane.valid
    lane.valid = lambda: time.sleep(0.01) or valid()
    f(X)
    assert taken[0] > 0.01
