"""Draws in compiled loops: one generator draws on, and the numbers and the state behind them are NumPy's."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from compare import calls_of_loops

import futurex as fx

ROUNDS = 40


def steps(rng):
    total, count = 0.0, 0
    for k in range(ROUNDS):
        if rng.random() < 0.5:
            total += rng.normal(2.0, 0.5) + rng.uniform(-1, k)
        else:
            total -= rng.exponential()
            count += rng.integers(5) - rng.integers(2, 9)
    return total, count


def until_enough(rng):
    total, rounds = 0.0, 0
    while total < 30:
        total += rng.uniform(0.0, 2.0)
        for _ in range(20):
            if rng.standard_normal() > 1:
                break
        rounds += 1
    return total, rounds


def never(rng):
    total = 0.0
    for k in range(ROUNDS):
        if k > ROUNDS:
            total += rng.random()
    return total


def legacy(rng):
    total = 0.0
    for _ in range(ROUNDS):
        total += rng.normal(1.0, 2.0) + rng.rand() - rng.randint(3)
    return total


def arrays(rng):
    total, x = np.zeros(5), np.arange(9.0)
    for _ in range(ROUNDS):
        total = 0.5 * total + rng.permutation(x)[:5] + rng.choice(x, size=5) * rng.normal(size=5)
        total += rng.gamma(2.0, scale=3.0) + rng.random(dtype=np.float32)
    return total


def sized(rng):
    total, x = np.zeros(3), np.arange(9) % 4
    for k in range(ROUNDS):
        size = int(x.max()) + k % 2
        total += rng.normal(k, 2.0, size)[:3] + rng.random((size, 3))[1] + rng.permutation(size)[:3]
        low, high = sorted(rng.integers(0, 3, 2))
        total[low] += high + rng.integers(0, size)
    return total


def read_twice(rng):
    """A copy draws from the state that the generator draws from, too."""
    total = 0.0
    for _ in range(ROUNDS):
        other = copy.deepcopy(rng)
        total = 0.9 * total + other.random() + rng.normal()
    return total


def seeded_in_rounds(rng):
    total = 0.0
    for k in range(ROUNDS):
        own, same = np.random.default_rng(k), np.random.default_rng(7)
        total = 0.9 * total + own.random() * rng.random() + same.random() + same.random()
    return total


def refused(rng):
    for k in range(ROUNDS):
        x = rng.normal(0.0, ROUNDS - 3.0 - k)
    return x


KINDS = {
    "PCG64": lambda: np.random.default_rng(3), "SFC64": lambda: np.random.Generator(np.random.SFC64(1)),
    "legacy": lambda: np.random.RandomState(5),
}  # fmt: skip
FUNCTIONS = [steps, until_enough, never, arrays, sized, read_twice, seeded_in_rounds, refused]
CASES = [(each, kind) for each in FUNCTIONS for kind in ("PCG64", "SFC64")] + [(legacy, "legacy"), (never, "legacy")]


def outcome(function, rng):
    """What a call gives or raises, and what the generator draws next."""
    try:
        found = function(rng)
        found = [np.asarray(each).tolist() for each in (found if isinstance(found, tuple) else (found,))]
    except Exception as error:
        found = repr(error)
    return found, rng.random()


@pytest.mark.parametrize("function, kind", CASES, ids=lambda case: getattr(case, "__name__", case))
def test_numbers_and_states_are_numpys(function, kind, at_once):
    f = fx.futurize(function)
    for _ in range(4):
        assert outcome(f, KINDS[kind]()) == outcome(function, KINDS[kind]()), f.explain()


def test_kinds_take_turns(at_once):
    f = fx.futurize(steps)
    for kind in ("PCG64", "SFC64", "PCG64", "SFC64", "SFC64"):
        assert outcome(f, KINDS[kind]()) == outcome(steps, KINDS[kind]())


@pytest.mark.parametrize("function", [steps, until_enough])
def test_single_numbers_are_drawn_by_the_code_itself(function, at_once):
    assert calls_of_loops(fx.futurize(function), [KINDS["PCG64"]()]) == []


def test_loops_that_draw_are_compiled(at_once):
    for function in (steps, arrays, sized):
        f = fx.futurize(function)
        f(KINDS["PCG64"]())
        assert "is compiled whole" in f.explain()


def test_sizes_that_the_run_tells_are_drawn_by_the_code(at_once, monkeypatch):
    def gave_up(self):
        pytest.fail("the compiled function gave up")

    monkeypatch.setattr("futurex.runtime.whole.Whole._failed", gave_up)

    def layer(x, places):
        rng = np.random.default_rng(3)
        weights = rng.standard_normal((x.shape[1], int(places.max()) + 1))
        return (x @ weights).sum(0) + rng.random(int(places.max()) + 1)

    x, places = np.random.default_rng(0).normal(size=(30, 7)), np.arange(12) % 5
    f, expected = fx.futurize(layer), layer(x, places)
    for _ in range(12):
        np.testing.assert_array_equal(f(x, places), expected)
    assert "compiled function" in f.explain()
