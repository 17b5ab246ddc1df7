"""A function that is traced anew at every call goes on as plain NumPy, says what changes, and is tried again rarely."""

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


def shifted(named, x):
    return x + named.k


def test_other_objects_at_every_call_whose_traces_take_long(traced, monkeypatch):
    monkeypatch.setattr(brake, "PATIENCE", 0.0)
    f = fx.futurize(shifted)
    with pytest.warns(UserWarning, match="shifted was traced for 0 seconds, each time for another object"):
        assert [f(Named(k), X).tolist() for k in range(20)] == [[1 + k] * 3 for k in range(20)]
    assert len(traced) == 2
    kept = Named(1)
    for _ in range(2 * REST):
        assert f(kept, X).tolist() == [2] * 3
    assert len(traced) == 3
    other = Named(2)
    for _ in range(3):
        assert f(other, X).tolist() == [3] * 3
    assert len(traced) == 4


@pytest.mark.filterwarnings("ignore:shifted was traced")
def test_several_objects_that_take_turns_are_all_traced(traced, monkeypatch):
    monkeypatch.setattr(brake, "PATIENCE", 0.0)
    f, several = fx.futurize(shifted), [Named(k) for k in range(6)]
    for _ in range(8):
        for each in several:
            assert f(each, X).tolist() == [1 + each.k] * 3
    assert len(traced) == 6


def test_long_traces_of_one_object_for_other_texts_are_no_waste(traced, monkeypatch):
    monkeypatch.setattr(brake, "PATIENCE", 0.0)
    f, kept = fx.futurize(lambda named, x, name: x + named.k * len(name)), Named(1)
    for k in range(20):
        assert f(kept, X, str(10**k)).tolist() == [2 + k] * 3
    assert len(traced) == 20


def test_nobody_compares_sizes_while_it_rests(monkeypatch):
    @fx.futurize
    def tour(distances, places):
        total = 0.0
        for k in range(len(places) - 1):
            total += distances[places[k]][places[k + 1]]
        return total

    rng, looked = np.random.default_rng(0), []
    find = Families.find
    monkeypatch.setattr(Families, "find", lambda *given: looked.append(1) or find(*given))

    def called_often(times):
        for _ in range(times):
            given = rng.random((12, 12)).tolist(), rng.permutation(12).tolist()
            assert tour(*given) == pytest.approx(tour.plain(*given))

    with pytest.warns(UserWarning, match="traced for more than 32 kinds of arguments"):
        called_often(staging.VARIANTS + 4)
    before = len(looked)
    called_often(REST - 5)
    assert len(looked) <= before + 1
