"""Lists that loops make shorter and longer, as stacks: in compiled loops a round copies none of their entries."""

from __future__ import annotations

import numpy as np
import pytest
from compare import calls_of_loops, outcome

import futurex as fx
from futurex.kernels.loops.emit import Emitter

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


STACKS = [
    (flood, GRID, 12, 12), (flood_of_neighbours, GRID, 12, 12), (descents, VALUES), (of_rows, VALUES),
]  # fmt: skip


@pytest.mark.parametrize("case", STACKS, ids=lambda case: case[0].__name__)
def test_no_round_copies_the_entries(case, at_once, monkeypatch):
    function, *args = case
    copied, copy = [], Emitter.copied

    def watched(e, source):
        copied.append(source.static)
        return copy(e, source)

    monkeypatch.setattr(Emitter, "copied", watched)
    futurized = fx.futurize(function, escape="error")
    assert calls_of_loops(futurized, args) == [], futurized.explain()
    assert all(copied)
    for _ in range(3):
        assert outcome(futurized, args) == outcome(function, args), futurized.explain()


@pytest.mark.parametrize("values", [VALUES, -VALUES, VALUES[:2], VALUES[:5]], ids=["some", "others", "two", "five"])
def test_what_is_read_before_it_is_overwritten(values, at_once):
    futurized = fx.futurize(read_behind_a_pop, escape="error")
    for _ in range(3):
        assert outcome(futurized, [values]) == outcome(read_behind_a_pop, [values]), futurized.explain()
