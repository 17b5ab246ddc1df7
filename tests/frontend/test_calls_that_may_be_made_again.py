"""Calls of which only the run can tell whether plain Python has to make them again go the short way, as others do."""

import numpy as np
import pytest

import futurex as fx


def doubled(x, n):
    total = 1
    for _ in range(20):
        total = total * n
    return x + 1, total


def root(x, a):
    return x + 1, (a * 2.0) ** 0.5


CASES = [(doubled, 7, 10**6), (root, 30.0, -30.0)]


def call(function, *args):
    array, number = function(*args)
    return np.asarray(array).tolist(), number.result() if isinstance(number, fx.Array) else number


@pytest.mark.parametrize("function, usual, odd", CASES)
def test_they_are_right_however_often_they_have_to_be_made_again(function, usual, odd):
    staged, x = fx.futurize(function), np.arange(4.0)
    expected = {value: call(function, x, value) for value in (usual, odd)}
    assert type(expected[odd][1]) is not type(expected[usual][1]) or abs(expected[odd][1]) > 2**63
    for number in range(300):
        value = odd if number % 50 == 49 or 200 < number < 230 else usual
        found = call(staged, x, value)
        assert found == expected[value]
        assert type(found[1]) is type(expected[value][1])


@pytest.mark.parametrize("function, usual, odd", CASES)
def test_they_take_the_short_way(monkeypatch, function, usual, odd):
    staged, x = fx.futurize(function), np.arange(4.0)
    for _ in range(100):
        call(staged, x, usual)
    lane = staged._lane
    assert lane.variant.waits
    assert lane.pack is not None
    lane.choice = None
    monkeypatch.setattr(type(staged), "_finish", None)  # the long way
    for value in (usual, odd, usual) if isinstance(odd, float) else (usual,):  # another int is another kind of call
        assert call(staged, x, value) == call(function, x, value)


def test_one_that_fails_runs_once():
    staged, x = fx.futurize(root), np.arange(4.0)
    for _ in range(100):
        call(staged, x, 30.0)
    staged._lane.choice = None
    plan, runs = staged._lane.variant._plan, []
    replayed = plan.run
    plan.run = lambda *args, **kwargs: runs.append(args) or replayed(*args, **kwargs)
    if plan.whole is not None:
        plan.whole.taken, plan.whole._off = False, True
    assert call(staged, x, -30.0) == call(root, x, -30.0)
    assert len(runs) == 1


def test_one_that_writes_or_prints_does_not(capsys):
    def written(x, n):
        x[0] = n * n
        return x + 1

    def printed(x, n):
        print(n * n)
        return x + 1

    for function in (written, printed):
        staged = fx.futurize(function)
        for k in range(60):
            x = np.arange(4.0)
            assert np.asarray(staged(x, k)).tolist() == function(np.arange(4.0), k).tolist()
            assert x[0] == (k * k if function is written else 0)
        assert staged._lane is None or staged._lane.pack is None
    assert capsys.readouterr().out == "".join(f"{k * k}\n" * 2 for k in range(60))
