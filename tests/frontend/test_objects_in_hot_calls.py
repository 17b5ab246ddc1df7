"""Named tuples and dataclasses, as arguments and results: the short way takes them as the long one does."""

import collections
import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest
from choosing import alike, compare_soon, settle

import futurex as fx

X = np.arange(4.0)


@pytest.fixture
def at_once(monkeypatch):
    compare_soon(monkeypatch)


class Pair(NamedTuple):
    a: Any
    b: Any


class Named(Pair):
    """Its objects may hold more than fields."""


class Checked(collections.namedtuple("Checked", "a b")):
    __slots__ = ()

    def __new__(cls, a, b):
        return super().__new__(cls, a, b)


@dataclasses.dataclass
class State:
    a: Any
    b: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Fixed:
    a: Any
    b: Any


@dataclasses.dataclass
class More:
    a: Any
    b: Any

    def __post_init__(self):
        self.more = 3.0


@dataclasses.dataclass
class Empty:
    pass


@dataclasses.dataclass
class Single:
    a: Any


KINDS = [Pair, Named, Checked, State, Fixed, More]


def sum_of(state):
    return state.a.sum() + state.b


@pytest.mark.parametrize("kind", KINDS)
def test_results_are_the_same_each_way(at_once, kind):
    def function(x):
        return {"state": kind(x + 1, float(x[0]) * 2), "sum": x.sum()}

    f = fx.futurize(function)
    staged = f(X)
    again = [f(X) for _ in range(4)]  # the short way
    for each in again:
        alike(each, staged)
    if kind not in (Named, Checked):  # whose constructors are plain Python's alone
        settle(f, X)
    alike(f(X), staged)
    assert type(f(X)["state"]) is kind


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_of_all_kinds_are_told_apart(at_once, kind):
    f = fx.futurize(sum_of)
    for _ in range(20):
        assert f(kind(X, 2.0)) == 8.0
    assert f._lane is not None
    other = Pair if kind is State else State
    assert f(other(X, 3.0)) == 9.0
    assert f(kind(X, 5)) == 11
    assert f(kind(np.ones(7), np.ones(2))).tolist() == [8.0, 8.0]
    if dataclasses.is_dataclass(kind) and kind is not Fixed:
        more = kind(X, 2.0)
        more.weight = 7.0
        assert f(more) == 8.0
        del more.a
        more.a = X
        assert f(more) == 8.0
        del more.b
        with pytest.raises(AttributeError):
            f(more)


def test_what_an_argument_holds_beside_its_fields_counts(at_once):
    def weighted(state):
        return state.a.sum() * getattr(state, "weight", 1.0)

    f, more = fx.futurize(weighted), State(X, 0.0)
    for _ in range(20):
        assert f(State(X, 0.0)) == 6.0
    more.weight = 2.0
    assert f(more) == 12.0
    assert f(State(X, 0.0)) == 6.0


def test_objects_without_fields_and_with_one(at_once):
    f = fx.futurize(lambda x, empty, single: (Single(x + single.a), Empty()))
    for _ in range(80):
        single, empty = f(X, Empty(), Single(1.0))
        assert single.a.tolist() == [1.0, 2.0, 3.0, 4.0]
        assert empty == Empty()
    assert f._lane is not None


def test_results_of_functions_that_change_what_they_are_given():
    def step(state):
        state.a = state.a + 1
        return State(state.a * 2, state.b)

    f, mine, other = fx.futurize(step), State(X, 1.0), State(X, 1.0)
    for _ in range(30):
        result, wanted = f(mine), step(other)
        np.testing.assert_array_equal(mine.a, other.a)
        np.testing.assert_array_equal(result.a, wanted.a)
    assert f._lane is not None


def test_what_a_plain_call_made_is_filled_only_if_all_of_it_is_as_expected(at_once):
    """Dicts and dataclasses that nobody else has are the ones that come back, with futures in them."""

    def function(x, key="a"):
        return {key: x + 1, "inner": State(x * 2, {"b": x.sum(), "t": "text"})}, Fixed(x - 1, None)

    f = fx.futurize(function)
    staged = f(X)
    settle(f, X)
    alike(f(X), staged)
    other = f(X.astype(np.float32))
    alike(other, fx.futurize(function)(X.astype(np.float32)))

    def refused(x):
        vars(np)  # cannot be staged
        return {"inner": State(x * 2, 1.0), "last": x + 1 if x[0] < 5 else np.array(["text"])}

    g = fx.futurize(refused)
    for _ in range(10):
        alike(g(X), {"inner": State(f(X)[0]["inner"].a, 1.0), "last": f(X)[0]["a"]})
    last = g(X + 5)
    assert type(last["inner"].a) is fx.Array
    assert last["last"].tolist() == ["text"]
