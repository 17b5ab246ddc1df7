"""A function that is traced anew at every call goes on as plain NumPy, says what changes, and is tried again rarely."""

import itertools
import types
import warnings

import numpy as np
import pytest

import futurex as fx
from futurex.frontend import brake, staging
from futurex.frontend.brake import IN_VAIN, REST
from futurex.frontend.symbolic import Families

STATE = {"words": ["a"]}
X = np.ones(3)


@pytest.fixture
def traced(monkeypatch):
    """No plain call is tried, however long traces take."""
    monkeypatch.setattr(brake, "TRIED", float("inf"))
    made, make = [], staging.trace_call

    def noted(function, *args):
        made.extend([1] if function.__module__ == __name__ else [])  # not the methods of arrays
        return make(function, *args)

    monkeypatch.setattr(staging, "trace_call", noted)
    return made


def depends(x):
    return x * len(STATE["words"][0])


def called(f, lengths):
    """Calls for states of these lengths."""
    for k in lengths:
        STATE["words"] = ["a" * k]
        assert f(X).tolist() == [k] * 3


def test_what_changes_at_every_call(traced):
    f = fx.futurize(depends)
    with pytest.warns(UserWarning, match="traced 8 times for one call each; what changes: STATE") as seen:
        called(f, range(1, 30))
    assert len(traced) == IN_VAIN
    assert [warning.filename for warning in seen if warning.category is UserWarning] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        called(f, range(30, 30 + 4 * REST))
    assert len(traced) == IN_VAIN + 2


def test_it_is_staged_again_once_that_stays(traced):
    f = fx.futurize(depends)
    with pytest.warns(UserWarning, match="what changes: STATE"):
        called(f, range(1, IN_VAIN + 2))
    called(f, [IN_VAIN + 1] * (REST + 10))
    assert len(traced) == IN_VAIN + 1
    assert f._held(next(iter(f._variants))) is not None


def test_states_that_come_again_are_traced(traced):
    f = fx.futurize(depends)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        called(f, [k // 2 for k in range(60)])
    assert len(traced) == 30


def test_other_arguments_at_every_call(traced):
    f = fx.futurize(lambda x, name: x * len(name))
    with pytest.warns(UserWarning, match="more than 32 kinds of arguments; what changes: name"):
        assert [f(X, str(10**k)).tolist() for k in range(60)] == [[k + 1] * 3 for k in range(60)]
    assert len(traced) == staging.VARIANTS + 1
    assert f(X, str(10**20)).tolist() == [21] * 3
    assert len(traced) == staging.VARIANTS + 1


class Body:
    def __init__(self, mass):
        self.mass = mass


def test_other_objects_at_every_call():
    f = fx.futurize(lambda body: body.mass * X)
    with pytest.warns(UserWarning, match=r"what changes: body\. Objects of Body are told apart.* make it a dataclass"):
        assert [f(Body(k)).tolist() for k in range(60)] == [(k * X).tolist() for k in range(60)]


def test_other_arguments_at_every_call_whose_traces_are_forgotten():
    """The first call of each kind teaches what the opaque function returns, and leaves no trace."""
    f = fx.futurize(lambda x, name: np.linalg.eigvals(x) * len(name))
    with pytest.warns(UserWarning, match="more than 32 kinds of arguments"):
        assert [f(np.eye(2), str(10**k)).tolist() for k in range(60)] == [[k + 1] * 2 for k in range(60)]


def test_who_asks_for_a_trace_gets_one(traced):
    f = fx.futurize(depends)
    with pytest.warns(UserWarning, match="what changes"):
        called(f, range(1, 20))
    assert len(f.graph(X).nodes) > 1
    called(fx.futurize(depends, escape="error"), range(1, 20))
    assert len(traced) == IN_VAIN + 1 + 19


class Named:
    def __init__(self, k):
        self.k, self.name = k, ""


def names(named, x):
    named.name = f"{x.sum()} of {x.flags}"[: named.k]
    return x.base, x + named.k


def test_other_objects_at_every_call_whose_long_traces_end_in_plain_numpy(traced, monkeypatch):
    monkeypatch.setattr(brake, "PATIENCE", 0.0)
    f = fx.futurize(names)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for k in range(20):
            assert f(Named(k), X)[1].tolist() == [1 + k] * 3
    assert len(traced) == 1
    monkeypatch.setattr(brake, "PATIENCE", 1e9)
    g = fx.futurize(names)
    for k in range(20):
        g(Named(k), X)
    assert len(traced) == 21


def test_long_traces_that_can_be_staged_are_no_waste(traced, monkeypatch):
    monkeypatch.setattr(brake, "PATIENCE", 0.0)
    f = fx.futurize(lambda named, x: x + named.k)
    for k in range(20):
        assert f(Named(k), X).tolist() == [1 + k] * 3
    assert len(traced) == 20


@pytest.fixture
def warm(traced):
    """What is called besides, as the methods of results, has been traced before: its traces would take time, too."""
    for k in range(40):
        assert fx.futurize(grown)(Named(k), X).tolist() == [1 + k] * 3
    traced.clear()


@pytest.fixture
def slow(warm, monkeypatch):
    """Traces take a second each, and so does what is between them."""
    seconds = itertools.count()
    monkeypatch.setattr(brake, "time", types.SimpleNamespace(perf_counter=lambda: float(next(seconds))))


def grown(named, x):
    return x + named.k


def test_objects_that_are_used_for_some_calls_and_forgotten(traced, slow):
    f = fx.futurize(grown)
    for k in range(100):
        named = Named(k)
        for _ in range(4):
            assert f(named, X).tolist() == [1 + k] * 3
    assert 4 < len(traced) < 12


def test_objects_that_come_again_are_traced_in_the_end(traced, slow):
    f = fx.futurize(grown)
    layers = [Named(k) for k in range(20)]
    for _ in range(20):
        for k, layer in enumerate(layers):
            assert f(layer, X).tolist() == [1 + k] * 3
    assert len(traced) == len(layers)


def test_what_other_threads_trace_meanwhile_is_no_waste(traced, warm, monkeypatch):
    f = fx.futurize(grown)
    for k in range(20):
        monkeypatch.setattr(brake._Traces, "seconds", 1e6 * k)  # longer than has passed
        named = Named(k)
        assert [f(named, X).tolist() for _ in range(2)] == [[1 + k] * 3] * 2
    assert len(traced) == 20


def test_traces_that_many_calls_follow_are_worth_their_time(traced, warm, monkeypatch):
    seconds = itertools.count()
    clock = types.SimpleNamespace(perf_counter=lambda: 10.0 * next(seconds) - 9.0 * len(traced))
    monkeypatch.setattr(brake, "time", clock)
    f = fx.futurize(grown)
    for k in range(30):
        named = Named(k)
        assert [f(named, X).tolist() for _ in range(2)] == [[1 + k] * 3] * 2
    assert len(traced) == 30


def test_long_traces_that_run_as_plain_numpy_in_the_end_are_waste_also_where_more_may_be_learned(traced, monkeypatch):
    monkeypatch.setattr(brake, "PATIENCE", 0.0)
    f = fx.futurize(lambda x, name: np.linalg.eigvals(x) * len(name))
    for k in range(20):
        assert f(np.eye(2), "a" * k).tolist() == [k] * 2
    assert len(traced) == 1


@pytest.fixture
def clock(warm, traced, monkeypatch):
    """Each trace takes a second, a plain call what the test says, and the rest of time is of no account."""
    shown = types.SimpleNamespace(plain=0.0, passed=0.0)

    def call(self, make, args, kwargs, call=brake.Within.call):
        shown.passed += shown.plain
        return call(self, make, args, kwargs)

    monkeypatch.setattr(brake.Within, "call", call)
    now = types.SimpleNamespace(perf_counter=lambda: len(traced) + shown.passed)
    monkeypatch.setattr(brake, "time", now)
    monkeypatch.setattr(brake, "INVESTMENT", 1e9)
    monkeypatch.setattr(brake, "TRIED", 0.4)
    return shown


def used_and_forgotten(f, objects, calls=6):
    for k in range(objects):
        named = Named(k)
        assert [f(named, X).tolist() for _ in range(calls)] == [[1 + k] * 3] * calls


def test_traces_that_plain_calls_would_have_been_faster_than_are_given_up(traced, clock):
    f = fx.futurize(grown)
    clock.plain = 0.01
    with pytest.warns(UserWarning, match=r"for less than that takes.*what changes: named\. Objects of Named"):
        used_and_forgotten(f, 200)
    assert len(traced) < 12
    assert "other calls run as plain NumPy: traces took longer" in f.explain()


def test_traces_that_plain_calls_would_have_been_slower_than_are_not(traced, clock):
    f = fx.futurize(grown)
    clock.plain = 0.2
    used_and_forgotten(f, 60)
    assert len(traced) == 60
    assert "other calls" not in f.explain()


def test_states_that_are_others_at_every_call_are_named(clock):
    f = fx.futurize(depends)
    with pytest.warns(UserWarning, match="traced 8 times for one call each; what changes: STATE"):
        called(f, range(1, 30))


def test_they_are_worth_their_time_once_plain_calls_take_longer(traced, clock):
    f = fx.futurize(grown)
    clock.plain = 0.01
    used_and_forgotten(f, 100)
    before = len(traced)
    clock.plain = 0.5
    used_and_forgotten(f, 40)
    assert len(traced) > before + 30


def test_what_traces_that_share_a_plan_serve_is_counted_once(traced, clock):
    f = fx.futurize(grown)
    clock.plain = 0.03
    models = [Named(1)]
    for _ in range(60):
        models = [models[-1], Named(1)]  # the last one is there still, with its plan
        for _ in range(6):
            f(models[-1], X)
    assert len(traced) < 20


def test_nobody_compares_sizes_while_it_rests(monkeypatch):
    @fx.futurize
    def tour(names, places):
        length = 0
        for place in places:
            length += len(names[place]) * place
        return length

    rng, looked = np.random.default_rng(0), []
    find = Families.find
    monkeypatch.setattr(Families, "find", lambda *given: looked.append(1) or find(*given))

    def called_often(times):
        for _ in range(times):
            given = ["a" * k for k in range(12)], rng.permutation(12).tolist()
            assert tour(*given) == tour.plain(*given)

    with pytest.warns(UserWarning, match="traced for more than 32 kinds of arguments"):
        called_often(staging.VARIANTS + 4)
    before = len(looked)
    called_often(REST - 5)
    assert len(looked) <= before + 1
