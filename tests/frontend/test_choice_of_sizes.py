"""Calls of many sizes, which share a trace, go as plain NumPy where that takes less, and are the same calls."""

import numpy as np
import pytest
from choosing import compare_soon
from compare import same

import futurex as fx
from futurex.frontend import choice


@pytest.fixture
def at_once(monkeypatch):
    compare_soon(monkeypatch)
    monkeypatch.setattr(choice.ChoiceOfSizes, "trials", 2)


def of_sizes(f):
    """The choice of the trace that all sizes share."""
    (variant,) = f._families.variants()
    return variant.lane.choice


class Windows:
    """What is known of the last elements: an array that is written, and a number that is counted."""

    def __init__(self):
        self.last, self.calls = np.zeros(3), 0

    def step(self, x):
        self.last[:] = x[-3:] + self.last
        self.calls += 1
        return x[: len(x) // 2] * self.calls, self.last.sum(), x


def sums(x):
    y = x * 2
    return y.sum(), (y[::-1] + 1, [y]), x


def written(x, y):
    x[1:] += y
    return x[:2], y * 2


def settle(f, calls):
    for args in calls:
        f(*args)
        if (found := [each for each in f._families.variants() if each.lane is not None]) and found[0].lane.choice.plain:
            return
    pytest.fail("calls do not go as plain NumPy")


def line(n):
    return np.linspace(0.5, 1.5, n)


@pytest.mark.parametrize(
    ("f", "arguments"),
    [(sums, lambda n: (line(n),)), (written, lambda n: (line(n), line(n - 1)))],
    ids=["sums", "written"],
)
def test_plain_calls_of_other_sizes_are_those_of_plain_numpy(at_once, f, arguments):
    staged = fx.futurize(f)
    settle(staged, (arguments(n) for n in range(5, 60)))
    for n in range(60, 70):
        mine, theirs = arguments(n), arguments(n)
        found = staged(*mine)
        assert same(found, f(*theirs))
        assert same(mine, theirs)
        assert isinstance(found[f is written], fx.Array)


def test_what_objects_hold_is_changed_once_a_call(at_once):
    step, mine, theirs = fx.futurize(Windows.step), Windows(), Windows()
    for n in range(5, 70):
        x = line(n)
        found = step(mine, x)
        assert same(found, theirs.step(x))
        assert found[2] is x
        assert same(mine.last, theirs.last)
        assert type(mine.calls) is int
        assert mine.calls == theirs.calls
    assert of_sizes(step).plain


def test_errors_are_those_of_the_call(at_once):
    taken = fx.futurize(lambda x, k: x[k] * 2)
    settle(taken, ((line(n), np.arange(2, n)) for n in range(5, 60)))
    failed = taken(line(60), np.array([60]))
    with pytest.raises(IndexError, match="out of bounds for axis 0 with size 60"):
        failed.result()
    assert same(taken(line(61), np.arange(60)), line(61)[:60] * 2)


def test_where_staged_calls_take_less_they_stay(at_once, monkeypatch):
    monkeypatch.setattr(choice, "_BETTER", 0.0)
    f = fx.futurize(sums)
    for n in range(5, 60):
        assert same(f(line(n)), sums(line(n)))
    assert not of_sizes(f).open
    assert not of_sizes(f).plain


def test_calls_that_are_given_futures_have_no_choice(at_once):
    f, double = fx.futurize(sums), fx.futurize(lambda x: x * 2)
    for n in range(5, 40):
        assert same(f(double(line(n))), sums(line(n) * 2))
    assert all(each.lane is None for each in f._families.variants())


def number(x):
    return float(x.max()), x * 2


def parts(x):
    y = x * 2
    return y, y[1:]


def rounds(x):
    return [float(x[k]) for k in range(3)], len(x)


@pytest.mark.parametrize("f", [number, parts, rounds], ids=lambda f: f.__name__)
def test_calls_that_would_return_something_else_as_plain_numpy_have_none(at_once, f):
    """Futures of Python's numbers, and of views, are futures in all calls."""
    staged = fx.futurize(f)
    for n in range(5, 40):
        assert same(staged(line(n)), f(line(n)))
    assert all(each.lane is None for each in staged._families.variants())


def test_one_slow_call_of_four_does_not_count(at_once):
    f = fx.futurize(sums)
    for n in range(5, 15):
        f(line(n))
    assert of_sizes(f).usual([1.0, 9.0, 1.0, 2.0]) == 4 / 3
    assert of_sizes(f).usual([3.0]) == 3.0
