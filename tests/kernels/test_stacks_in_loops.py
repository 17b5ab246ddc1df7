"""Lists that loops make shorter and longer, as stacks: in compiled loops a round copies none of their entries."""

from __future__ import annotations

import numpy as np
import pytest
from compare import calls_of_loops, outcome

import futurex as fx
from futurex.kernels.loops import control, elementwise
from futurex.kernels.loops.arrays import Array

GRID = np.random.default_rng(0).random((24, 24)) < 0.3
VALUES = np.random.default_rng(1).standard_normal(60)


def flood(grid, i, j):
    rows, columns = grid.shape
    seen, stack, count = np.zeros(grid.shape, bool), [(i, j)], 0
    while stack:
        i, j = stack.pop()
        if i < 0 or j < 0 or i >= rows or j >= columns or seen[i, j] or grid[i, j]:
            continue
        seen[i, j] = True
        count += 1
        stack.append((i + 1, j))
        stack.append((i - 1, j))
        stack.append((i, j + 1))
        stack.append((i, j - 1))
    return count, seen


def flood_of_neighbours(grid, i, j):
    rows, columns = grid.shape
    seen, lines, places, count = np.zeros(grid.shape, bool), [i], [j], 0
    while lines:
        i, j = lines.pop(), places.pop()
        count += 1
        for a, b in ((i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)):
            if 0 <= a < rows and 0 <= b < columns and not grid[a, b] and not seen[a, b]:
                seen[a, b] = True
                lines.append(a)
                places.append(b)
    return count, seen


def descents(values):
    """A monotone stack: how many earlier values stand until a larger one comes."""
    stack, found = [], np.zeros(len(values))
    for k in range(len(values)):
        while stack and stack[-1] < values[k]:
            stack.pop()
        stack.append(values[k])
        found[k] = len(stack)
    return found


def of_rows(values):
    stack, total = [values[:3] * 1.0], 0.0
    for k in range(3, len(values)):
        if values[k] > 0 and len(stack) > 1:
            total += stack.pop().sum()
        else:
            stack.append(values[k - 3 : k] * 2)
    return total, len(stack)


def read_behind_a_pop(values):
    """What a pop has left is read, with what stood there before, and then overwritten."""
    stack, total = [0.5], 0.0
    for k in range(len(values)):
        stack.append(values[k])
        if len(stack) > 3:
            before = stack[:-1]
            last = stack.pop()
            stack.pop()
            stack.append(last * 0.5)
            total = total * 0.9 + before[-1] + sum(before) * 0.1 + stack[-1] + len(before)
    return total


def read_where_it_lies(values):
    """All but the last entry, which nobody overwrites, of a list that grows behind that."""
    stack, total = [0.5, 0.25], 0.0
    for k in range(len(values)):
        earlier = np.array(stack)[:-1]
        total = total * 0.5 + earlier[-1] + earlier.max()
        if values[k] > 0:
            stack.append(values[k])
    return total


def read_between_pop_and_append(values):
    stack, total = [values[:3] * 1.0, values[3:6] * 1.0], 0.0
    for k in range(3, len(values)):
        stack.pop()
        total = total * 0.5 + np.array(stack).reshape(-1).max()
        stack.append(values[k - 3 : k] * 2)
        if values[k] > 0:
            stack.append(values[k - 2 : k + 1] * 2)
    return total


def appended_to_a_part(values):
    """The same list in every round, of which each makes another one."""
    stack, total = [0.5], 0.0
    for k in range(len(values)):
        if values[k] > 0:
            stack.append(values[k])
    for k in range(len(values)):
        part = np.append(np.array(stack)[:-1], values[k])
        total = total * 0.5 + part[-1] + stack[-1]
    return total


def appended_to_a_column(rows):
    kept, total = rows[rows[:, 0] > 0], 0.0
    while len(kept) > 2:
        total = total * 0.5 + np.append(kept[:-1, 0], kept[0, 1])[1:].sum()
        kept = kept[1:]
    return total


STACKS = [
    (flood, GRID, 12, 12), (flood_of_neighbours, GRID, 12, 12), (descents, VALUES), (of_rows, VALUES),
    (read_where_it_lies, VALUES), (read_between_pop_and_append, VALUES),
]  # fmt: skip


@pytest.mark.parametrize("case", STACKS, ids=lambda case: case[0].__name__)
def test_no_round_copies_the_entries(case, at_once, monkeypatch):
    function, *args = case
    copied, assign, begin = [], elementwise.assign, control._Rounds.__init__

    def watched(e, target, value, **how):
        copied.append(isinstance(value, Array) and not value.static)
        return assign(e, target, value, **how)

    def begun(*args):
        begin(*args)
        copied.clear()  # what was emitted until now is before all rounds, or had too little room for a list

    monkeypatch.setattr(elementwise, "assign", watched)
    monkeypatch.setattr(control._Rounds, "__init__", begun)
    futurized = fx.futurize(function, escape="error")
    assert calls_of_loops(futurized, args) == [], futurized.explain()
    assert copied
    assert not any(copied)
    for _ in range(3):
        assert outcome(futurized, args) == outcome(function, args), futurized.explain()


@pytest.mark.parametrize(
    "case",
    [*((read_behind_a_pop, values) for values in (VALUES, -VALUES, VALUES[:2], VALUES[:5])),
     (appended_to_a_part, VALUES), (appended_to_a_part, -VALUES), (appended_to_a_column, VALUES.reshape(20, 3))],
    ids=lambda case: f"{case[0].__name__}-{len(case[1])}",
)  # fmt: skip
def test_what_is_read_is_not_overwritten(case, at_once):
    function, *args = case
    futurized = fx.futurize(function, escape="error")
    for _ in range(3):
        assert outcome(futurized, args) == outcome(function, args), futurized.explain()
