"""Regions with reductions in compiled loops: the kernels of plans, called where the code is."""

import numpy as np
import pytest
from compare import calls_of_loops

import futurex as fx

RNG = np.random.default_rng(43)


def forwards(a, moves, seen):
    out = np.zeros((len(seen), len(a)), a.dtype)
    for t in range(len(seen)):
        s = a[:, None] + moves
        top = s.max(axis=0)
        a = top + np.log(np.exp(s - top).sum(axis=0)) + seen[t]
        out[t] = a
    return out


def backwards(a, moves, seen):
    out = np.zeros((len(seen), len(a)), a.dtype)
    for t in range(len(seen) - 1, -1, -1):
        s = moves + seen[t] + a
        top = s.max(axis=1)
        a = top + np.log(np.exp(s - top[:, None]).sum(axis=1))
        out[t] = a
    return out


def of_views(a, moves, seen):
    """Operands with gaps between their elements, numbers that rounds compute, and such that are known."""
    for t in range(len(seen)):
        scale = seen[t].mean() * 0.5 + 1.25
        x = np.exp(moves[:, ::-1].T * scale - 0.5 * abs(a))
        a = (x * 0.25).sum(axis=1) - x[::-1].max(axis=1) + seen[t, ::-1]
        a = a / (1.0 + abs(a).max())
    return a


def in_branches(a, moves, seen):
    total = a * 0
    for t in range(len(seen)):
        if seen[t, 0] > 0:
            x = np.exp(moves - abs(seen[t]))
            a = x.sum(axis=1) / x.max()
        else:
            a = np.tanh(moves + a).mean(axis=0)
        total = total + a
    return total, a


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("states", [16, 17, 40, 129])
@pytest.mark.parametrize("function", [forwards, backwards, of_views, in_branches])
def test_rounds_with_sums_of_exponentials(function, states, dtype):
    args = tuple(RNG.normal(size=shape).astype(dtype) for shape in ((states,), (states, states), (30, states)))
    f, wanted = fx.futurize(function), function(*args)
    several = isinstance(wanted, tuple)
    for _ in range(3):
        found = f(*args)
        for got, exact in zip(found if several else [found], wanted if several else [wanted], strict=True):
            assert np.asarray(got).dtype == exact.dtype
            np.testing.assert_allclose(got, exact, rtol=2e-4 if dtype == "f4" else 1e-11, atol=1e-5)
    assert not calls_of_loops(f, args)
    assert regions_of(f, args)


def regions_of(f, args):
    """The kernels that the compiled loops of a function call."""
    programs = [each.kernel.late for each in f.trace(*args).plan.instructions if each.kernel.backend == "loops"]
    return [region for program in programs for region in program.regions]


def test_not_a_number_stays_in_its_row():
    a, moves, seen = RNG.normal(size=20), RNG.normal(size=(20, 20)), RNG.normal(size=(5, 20))
    moves[3, 4], moves[7, 2] = np.nan, -np.inf
    for function in (forwards, backwards):
        f = fx.futurize(function)
        for _ in range(3):
            np.testing.assert_allclose(f(a, moves, seen), function(a, moves, seen), rtol=1e-11)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_functions_that_end_at_a_bound(dtype):
    """Sines of large numbers are those of C's library, in a region that looks for such."""

    def turning(x, seen):
        total = x[:, 0] * 0
        for t in range(len(seen)):
            total = total + np.sin(x * seen[t]).sum(axis=1)
        return total

    x, seen = RNG.normal(size=(20, 30)).astype(dtype), np.logspace(0, 10, 50).astype(dtype)
    f, wanted = fx.futurize(turning), turning(x, seen)
    near = {"f4": 1e-3, "f8": 1e-10}[dtype]
    for _ in range(4):
        np.testing.assert_allclose(f(x, seen), wanted, rtol=near, atol=near)


def test_derivatives_of_rounds():
    a, moves, seen = RNG.normal(size=18), RNG.normal(size=(18, 18)), RNG.normal(size=(7, 18))
    slope = np.asarray(fx.grad(lambda moves: forwards(a, moves, seen)[-1].sum())(moves))
    apart = np.zeros((18, 18))
    apart[3, 5] = 1e-6
    wanted = (forwards(a, moves + apart, seen)[-1].sum() - forwards(a, moves - apart, seen)[-1].sum()) / 2e-6
    np.testing.assert_allclose(slope[3, 5], wanted, rtol=1e-6)
