"""What is futurized in a call that runs as plain NumPy is staged or plain as well, whichever takes less."""

import numpy as np
import pytest

import futurex as fx
from futurex.frontend import brake, staging, within
from futurex.frontend.within import AGAIN, FEWEST, TRIALS, Within

X = np.linspace(0.5, 2.0, 5)


class Clock:
    """Time that calls take, as they say."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(within.time, "perf_counter", lambda: self.now)


def called(ways, clock, calls, seconds):
    """Which ways these calls go that take as long as ``seconds`` says of each way."""
    gone = []

    def make(way, args, kwargs):
        gone.append(way)
        clock.now += seconds[way]
        return args, kwargs

    for k in range(calls):
        assert ways.call(make, (k,), {"a": 1}) == ((k,), {"a": 1})
    return gone


def test_the_faster_way_stays_until_both_are_compared_again(monkeypatch):
    ways, clock = Within("staged", "plain"), Clock(monkeypatch)
    gone = called(ways, clock, FEWEST, {"staged": 2e-3})
    assert ways.plain is None
    gone = called(ways, clock, 2 * TRIALS, {"staged": 2e-3, "plain": 1e-3})
    assert gone == ["staged", "plain"] * TRIALS
    assert ways.plain
    assert set(called(ways, clock, AGAIN, {"plain": 1e-3})) == {"plain"}
    called(ways, clock, 2 * TRIALS, {"staged": 1e-3, "plain": 2e-3})
    assert ways.plain is False
    assert set(called(ways, clock, 4 * AGAIN, {"staged": 1e-3})) == {"staged"}
    called(ways, clock, 1, {"staged": 1e-3})
    assert ways.plain is None


def test_a_hopeless_way_is_tried_once_and_long_calls_are_not_compared(monkeypatch):
    ways, clock = Within("staged", "plain"), Clock(monkeypatch)
    gone = called(ways, clock, FEWEST + 4, {"staged": 1e-3, "plain": 1e-1})
    assert gone.count("plain") == 1
    assert ways.plain is False
    ways = Within("staged", "plain")
    assert set(called(ways, clock, 2 * FEWEST, {"staged": 1e-1})) == {"staged"}
    assert ways.plain is False


@fx.futurize
def helper(x):
    return x * 2 + 1


class Model:
    def __init__(self, scale):
        self.scale = scale


def unfit(x):
    str(x.tobytes())  # is not staged
    return sum(helper(x + k) for k in range(8))


def of_a_model(model, x):
    return unfit(x * model.scale)


@pytest.mark.parametrize("fresh", [False, True])
def test_helpers_of_few_operations_are_plain_in_a_call_that_is(fresh, monkeypatch):
    monkeypatch.setattr(brake, "PATIENCE", 0.0)
    monkeypatch.setattr(within, "WORTH", 0.0)
    f = fx.futurize(of_a_model if fresh else unfit)
    for k in range(FEWEST + 3 * TRIALS):
        given = (Model(1.0 + k), X) if fresh else (X + k,)
        assert f(*given).tobytes() == f.plain(*given).tobytes()
    ways = f._brake._within if fresh else f._lane.within
    assert ways.plain is not None
    ways.plain = True
    assert fresh or "what is futurized in it is plain as well" in f.explain()
    staged = []
    monkeypatch.setattr(staging, "waited_for", lambda *given: staged.append(given))
    assert f(*given).tobytes() == f.plain(*given).tobytes()
    assert not staged
