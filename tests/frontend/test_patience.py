"""Calls without arrays wait for their traces no longer than these may be worth."""

import numpy as np
import pytest

import futurex as fx
from futurex.frontend import patience
from futurex.frontend.errors import Late

LOST = "took longer than the calls are worth"


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", "background")


@pytest.fixture
def clock(monkeypatch):
    """Time passes where somebody looks at the clock: a hundredth of a second for each look."""
    now = [0.0]

    class Clock:
        @staticmethod
        def perf_counter():
            now[0] += 0.01
            return now[0]

    monkeypatch.setattr(patience, "time", Clock)
    return now


def sieve(n):
    ok = [True] * (n + 1)
    for i in range(2, n + 1):
        if ok[i]:
            for j in range(i * i, n + 1, i):
                ok[j] = False
    return [i for i in range(2, n + 1) if ok[i]]


def test_a_long_trace_without_arrays_is_left(clock):
    f = fx.futurize(sieve)
    assert f(200) == sieve(200)
    assert LOST in f.explain() and "0 trace(s)" in f.explain()
    assert "tracing raised" not in f.explain()


def test_a_call_that_takes_long_has_its_trace_later(clock):
    f = fx.futurize(sieve)
    assert f(60) == sieve(60)
    assert LOST in f.explain() and "0 trace(s)" in f.explain()
    for _ in range(10):
        assert f(60) == sieve(60)
    assert "0 trace(s)" in f.explain()

    def long(seconds):
        f._brake.patience.plain(lambda: clock.__setitem__(0, clock[0] + seconds))

    long(1000.0)
    assert f(60) == sieve(60)
    assert "1 trace(s)" in f.explain()


def test_what_the_caller_holds_is_as_it_was(clock):
    def fill(memo, n):
        for k in range(n):
            memo[k] = sum(i * i for i in range(k))
        return len(memo)

    held = {}
    f = fx.futurize(fill)
    assert f(held, 70) == 70
    assert held == {k: sum(i * i for i in range(k)) for k in range(70)}
    assert LOST in f.explain()


def weighted(x, n):
    total = 0.0
    for k in range(n):
        total = total + x.sum() * k
        for _ in range(3):
            total = total * 1.0
    return total


def numbers_then_arrays(n):
    first = np.zeros(4)
    total = 0
    for k in range(n):
        for i in range(3):
            total += (k + i) % 3
    return first + total


@pytest.mark.parametrize("call", [(weighted, np.ones(3), 60), (numbers_then_arrays, 60)])
def test_with_arrays_a_trace_takes_the_time_that_it_takes(clock, call):
    function, *args = call
    f = fx.futurize(function)
    assert np.asarray(f(*args)) == pytest.approx(function(*args))
    assert LOST not in f.explain() and "staged" in f.explain()


def test_arrays_from_outside(clock):
    f = fx.futurize(over_held)
    assert np.asarray(f(40)) == pytest.approx(over_held(40))
    assert LOST not in f.explain() and "staged" in f.explain()


HELD = np.arange(3.0)


def over_held(n):
    total = HELD * 0
    for k in range(n):
        for _ in range(3):
            total = total + HELD * k
    return total


def test_who_asks_for_a_trace_or_waits_for_code_gets_one(clock, monkeypatch):
    f = fx.futurize(sieve)
    f.trace(60)
    assert "1 trace(s)" in f.explain()
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")
    g = fx.futurize(sieve)
    assert g(60) == sieve(60)
    assert LOST not in g.explain()


def test_many_traces_without_arrays_share_their_time(clock):
    f = fx.futurize(sieve)
    for n in range(8, 60):
        assert f(n) == sieve(n)
    assert len(f._traces()) < 20


def test_a_deadline():
    patience.Deadline(1e9).look()
    late = patience.Deadline(-1.0)
    with pytest.raises(Late):
        late.look()
    late.lift()
    late.look()


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def test_known_values_are_no_fragments(monkeypatch):
    """What would stand around them, where there are no arrays?"""
    monkeypatch.setattr("futurex.frontend.trace.STEPS", 100)
    f = fx.futurize(call_fib)
    assert f(15) == 610
    assert "more than 100 rounds" in f.explain() and "to see what comes back" not in f.explain()


def call_fib(n):
    return fib(n)

