"""Calls without arrays wait for their traces no longer than these may be worth."""

import math

import numpy as np
import pytest

import futurex as fx
from futurex.frontend import fragments, patience, staging
from futurex.frontend.errors import Late
from futurex.frontend.plain import call_for_futures

LOST = "took longer than they are worth"


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
    assert LOST in f.explain()
    assert "0 trace(s)" in f.explain()
    assert "tracing raised" not in f.explain()


def test_a_call_that_takes_long_has_its_trace_later(clock):
    f = fx.futurize(sieve)
    assert f(60) == sieve(60)
    assert LOST in f.explain()
    assert "0 trace(s)" in f.explain()
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
def test_with_arrays_a_trace_takes_the_time_that_it_takes(clock, monkeypatch, call):
    monkeypatch.setattr(patience, "FIRST", 0.03)
    function, *args = call
    f = fx.futurize(function)
    assert np.asarray(f(*args)) == pytest.approx(function(*args))
    assert LOST not in f.explain()
    assert "staged" in f.explain()


def test_arrays_from_outside(clock, monkeypatch):
    monkeypatch.setattr(patience, "FIRST", 0.03)
    f = fx.futurize(over_held)
    assert np.asarray(f(40)) == pytest.approx(over_held(40))
    assert LOST not in f.explain()
    assert "staged" in f.explain()


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


def test_traces_without_arrays_share_their_time(clock):
    shared = patience.Patience()
    made = 0
    while made < 10 and (deadline := shared.deadline([1, "a"])) is not None:
        deadline.look()
        clock[0] += 0.1
        shared.traced(deadline)
        made += 1
    assert 2 <= made <= 3
    assert shared.deadline([np.ones(2)]) is not None
    shared.plain(lambda: clock.__setitem__(0, clock[0] + 10.0))
    assert shared.deadline([1, "a"]) is not None


def test_a_deadline():
    patience.Deadline(1e9).look()
    late = patience.Deadline(-1.0)
    late.look()  # its time begins
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
    assert "more than 100 rounds" in f.explain()
    assert "to see what comes back" not in f.explain()


def call_fib(n):
    return fib(n)


@fx.futurize
def calls_itself(n):
    return n if n < 2 else calls_itself(n - 1) + calls_itself(n - 2)


def test_a_recursion_whose_trace_is_left_is_plain_throughout(clock, monkeypatch):
    calls, call = [], staging.waited_for
    monkeypatch.setattr(staging, "waited_for", lambda *args: calls.append(1) or call(*args))
    assert calls_itself(16) == 987
    assert LOST in calls_itself.explain()
    assert not calls


def test_a_recursion_asks_nobody_how_it_is_to_go(clock, monkeypatch):
    asked, ask = [], staging.is_deep
    monkeypatch.setattr(staging, "is_deep", lambda function: asked.append(1) or ask(function))
    assert calls_itself(16) == 987
    assert len(asked) == 2


@fx.futurize
def replaced(n):
    if n == 3:
        globals()["replaced"] = str
    return n if n < 2 else [n, replaced(n - 1)]


def test_a_recursion_whose_name_is_bound_anew(clock, monkeypatch):
    monkeypatch.setattr(patience, "FIRST", 0.0)
    assert replaced(5) == [5, [4, [3, "2"]]]


class Walker:
    def __init__(self):
        self.steps = 0

    @fx.futurize
    def walk(self, n):
        self.steps += 1
        return 0 if n == 0 else 1 + self.walk(n - 1)


def test_methods_that_call_themselves(clock, monkeypatch):
    monkeypatch.setattr(patience, "FIRST", 0.0)
    walker = Walker()
    assert walker.walk(50) == 50
    assert walker.steps == 51


def test_calls_of_nests_whose_trace_is_left_look_at_types_alone(clock, monkeypatch):
    f = fx.futurize(over_table)
    table = [[k * j for k in range(40)] for j in range(40)]
    assert f(table) == over_table(table)
    assert LOST in f.explain()
    monkeypatch.setattr(staging, "call_key", None)
    assert f(table) == over_table(table)


def over_table(table):
    total = 0
    for row in table:
        for entry in row:
            if entry % 3:
                total += len(str(entry))
    return total


def test_few_of_many_calls_are_looked_at(monkeypatch):
    """What comes later is like what was seen, or a run finds out that it is not."""
    seen, learn = [], fragments.Fragments.learn
    monkeypatch.setattr(fragments.Fragments, "learn", lambda *args: seen.append(1) or learn(*args))
    f = fx.futurize(many_distances)
    assert np.asarray(f(X, 3000)) == pytest.approx(many_distances(X, 3000))
    assert 0 < len(seen) < 2000


X = np.ones(2)


def many_distances(x, n):
    points = [(float(k), 1.0) for k in range(5)]
    total = 0.0
    for k in range(n):
        total += math.dist(points[k % 5], tuple(x))
    return total + x.sum()


@pytest.mark.parametrize("depth", [1, 3, 8, 9, 20])
def test_futures_and_arrays_are_found_at_any_depth(depth):
    def nest(value):
        for k in range(depth):
            value = [1, value] if k % 3 == 0 else (value, "a") if k % 3 == 1 else {"a": value, "b": 2.0}
        return value

    def innermost(value):
        while type(value) in (list, tuple, dict):
            value = value["a"] if type(value) is dict else next(v for v in value if type(v) not in (int, str))
        return value

    made = call_for_futures(lambda: nest(np.float64(2.0)), (), {})
    assert isinstance(innermost(made), fx.Array)
    future = fx.futurize(lambda x: x + 1)(np.float64(1.0))
    assert call_for_futures(lambda value: type(innermost(value)), (nest(future),), {}) is np.float64


def test_a_nest_that_holds_itself_is_its_result():
    held = []
    held += [held] * 1000
    assert call_for_futures(lambda: held, (), {}) is held
