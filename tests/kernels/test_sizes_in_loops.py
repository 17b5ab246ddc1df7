"""Arrays whose size a loop sets, made of numbers: ``np.arange(i)`` and ``np.zeros(i)`` in compiled loops."""

from __future__ import annotations

import numpy as np
import pytest
from compare import calls_of_loops, outcome

import futurex as fx

BOUNDS = np.array([0, 1, 5, -3, 9, 2, -1, 4, 7, 3] * 4)


def ranges(starts, stops):
    found = np.zeros(len(starts))
    for k in range(len(starts)):
        found[k] = (np.arange(starts[k], stops[k]) * 1.5).sum() + np.arange(stops[k]).sum()
    return found


def by_steps(starts, steps):
    found = np.zeros((len(starts), 2), int)
    for k in range(len(starts)):
        each = np.arange(starts[k], 20, steps[k])
        found[k, 0] = each.sum()
        found[k, 1] = len(each)
    return found


def filled(sizes):
    found = np.zeros(len(sizes))
    for k in range(len(sizes)):
        row = np.zeros(sizes[k] + 1)
        row[0] = k
        found[k] = row.sum() + np.full(sizes[k], 0.25).sum() + np.ones((2, sizes[k])).sum()
    return found


def filled_both_ways(rows, columns):
    found = np.zeros(len(rows))
    for k in range(len(rows)):
        found[k] = np.full((rows[k], columns[k] + 1), 0.5).sum() + np.zeros((columns[k] + 1, rows[k])).size
    return found


def of_sums(values):
    total = 0.0
    for k in range(len(values)):
        total += values[k].sum() + values[k].max()
    return total


def best_of_counts(x):
    """What a loop only reads may be as long as it likes."""
    counts, rows = np.bincount(x), np.stack([x, 2 * x], axis=1)[x > 2]
    best, place, total = -1, 0, 0
    for k in range(8):
        if counts[k] > best:
            best, place = counts[k], k
        total += (rows[k] + rows[-1 - k : len(rows) - k].sum(axis=0)).max() * rows[:, 0].max()
    for count in counts:
        total = total * 3 % 1001 + count
    return best, place, total


def best_of_few(x):
    best = 0
    kept = x[x > 2]
    for k in range(20):
        best = max(best, kept[k])
    return best


CASES = [
    (best_of_counts, abs(BOUNDS)), (best_of_few, BOUNDS),
    (ranges, BOUNDS, BOUNDS[::-1].copy()), (ranges, BOUNDS, BOUNDS + 2),
    (by_steps, BOUNDS, np.array([1, 2, 3, -1, 7, 19, 30, -2, 1, 5] * 4)), (filled, abs(BOUNDS)),
    (filled_both_ways, abs(BOUNDS), abs(BOUNDS[::-1])),
    (of_sums, np.random.default_rng(0).normal(size=9)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].__name__)
def test_nothing_is_called_and_the_bits_are_numpys(case, at_once):
    function, *args = case
    futurized = fx.futurize(function)
    assert calls_of_loops(futurized, args) == [], futurized.explain()
    for _ in range(3):
        assert outcome(futurized, args) == outcome(function, args), futurized.explain()


@pytest.mark.parametrize(
    "function, args",
    [(by_steps, ([1, 2, 3], [1, 0, 1])), (filled, ([3, 2, -1],)), (filled, ([3, -4, 2],)),
     (ranges, ([0, 1, 2], [4, 40000, 3])), (filled, ([1, 30000, 2],)), (best_of_few, ([1, 7, 2],)),
     (best_of_few, ([1, 0, -2],))],
)  # fmt: skip
def test_what_has_no_room_or_raises_is_numpys(function, args, at_once):
    args = [np.array(each * 5) for each in args]
    futurized = fx.futurize(function)
    for _ in range(3):
        assert outcome(futurized, args) == outcome(function, args)


def one_half(z):
    picked = z[z.real > 0]
    return picked.real if picked.real.sum() > 3 else picked.imag


def test_parts_of_complex_numbers_that_a_branch_returns_are_compiled(at_once, recwarn):
    futurized = fx.futurize(one_half)
    for z in np.array([[1 + 2j, 3 - 1j, -1], [2, -1, 0.5j], [1, 1, 1]]):
        fx.precompile(futurized, z)
        np.testing.assert_array_equal(futurized(z), one_half(z))
    assert not [str(each.message) for each in recwarn if "not compiled" in str(each.message)]
