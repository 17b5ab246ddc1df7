"""Lists whose length depends on data mean what they mean in Python, in trees and compiled."""

import list_cases
import numpy as np
import pair_cases
import pytest
from compare import check, is_staged, outcome

import futurex as fx
from futurex.frontend.control import carried
from futurex.frontend.control.moved import is_read
from futurex.frontend.entry_kinds import Entry
from futurex.frontend.lists import TracedList
from futurex.frontend.trace import Trace, start
from futurex.frontend.tracer import fresh
from futurex.tree.aval import Aval
from futurex.tree.node import const

cases = [*list_cases.cases, *pair_cases.cases]


@pytest.mark.parametrize("case", cases, ids=lambda case: case.name)
def test_lists(case):
    check(case.function, *case.args, staged=case.staged)


@pytest.mark.parametrize("case", [case for case in cases if case.staged], ids=lambda case: case.name)
def test_compiled(case, at_once):
    futurized = fx.futurize(case.function)
    for _ in range(4):
        assert outcome(futurized, case.args) == outcome(case.function, case.args), futurized.explain()


def test_a_list_is_not_looked_at_because_one_was_that_lay_where_it_lies():
    """What follows from it would depend on the memory that happens to be free."""
    with start(Trace("f")):
        kind = Entry(Aval((), np.dtype(float)), is_array=False, python=False, loose=False)
        for _ in range(100):
            made = TracedList("here", kind, fresh(const(np.zeros(3))))
            assert not is_read(made)
            len(made)
            assert is_read(made)


def compiled(futurized, args):
    """Call it; has it become one compiled function?"""
    outcome(futurized, args)
    return "runs as one compiled function" in futurized.explain()


STAGED = ["a_monotone_stack", "depth_first", "breadth_first", "a_queue_that_grows_while_it_is_read", "chains_of_points",
          "positive_ones", "several_lists", "cleared", "kept_for_the_next_round", "lengths_of_runs",
          "left_early", "flood_fill", "steps_from_a_corner"]  # fmt: skip


@pytest.mark.parametrize("name", STAGED)
def test_is_one_compiled_function(name, at_once):
    case = next(case for case in cases if case.name == name and len(case.args[0]))
    futurized = fx.futurize(case.function)
    assert any(compiled(futurized, case.args) for _ in range(20)), futurized.explain()


@pytest.mark.parametrize("name", ["local_maxima", "lengths_of_runs", "grows_or_shrinks"])
def test_the_loop_is_compiled_from_its_first_round_on(name, monkeypatch):
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")
    case = next(case for case in cases if case.name == name)
    text = fx.futurize(case.function)
    outcome(text, case.args)
    assert "is compiled whole" in text.explain()
    assert "unrolled" not in text.explain()


def test_a_list_may_outgrow_what_compiled_code_sets_aside(at_once):
    def positive(v):
        found = []
        for x in v:
            if x > 0:
                found.append(np.full(20000, x))
        return np.array(found)

    v = np.linspace(-1.0, 1.0, 40)
    futurized = fx.futurize(positive)
    for _ in range(4):
        np.testing.assert_array_equal(np.asarray(futurized(v)), positive(v))


def test_derivatives():
    def smooth(v):
        stack = []
        for x in v:
            while len(stack) > 1 and stack[-1] > x:
                x = x + 0.5 * np.sin(stack.pop())
            stack.append(x * 1.5)
        return (np.array(stack) * np.arange(1.0, 1.0 + len(stack))).sum()

    found = np.asarray(fx.grad(smooth)(list_cases.V))
    step = 1e-6
    for k in range(len(list_cases.V)):
        moved = [list_cases.V.copy() for _ in range(2)]
        moved[0][k] += step
        moved[1][k] -= step
        assert found[k] == pytest.approx((smooth(moved[0]) - smooth(moved[1])) / (2 * step), rel=1e-5)


def nested(roots, limit):
    """How many numbers follow from each root, with the stack and the counts written by both loops."""
    counts = np.zeros(limit)
    for root in roots:
        stack = [root]
        while stack:
            k = stack.pop()
            if k < limit:
                counts[k] += 1
                stack.append(k + root)
                stack.append(2 * k)
    return counts


def test_a_round_that_shows_a_list_shows_its_rows_and_the_arrays_that_it_writes(monkeypatch):
    rounds, trace_round = [], carried.trace_round

    def counted(test, body, objects, *rest):
        rounds.append(len(objects.names))
        return trace_round(test, body, objects, *rest)

    monkeypatch.setattr(carried, "trace_round", counted)
    args = np.array([1, 3, 2]), 9
    fx.futurize(nested).graph(*args)
    assert rounds == [0, 3, 3, 3]  # nothing, then what the list and the array hold: other roots begin with that
    check(nested, *args)


def distances(x):
    return np.array([[np.sum((a - b) ** 2) for a in x] for b in x])


def test_comprehensions_inside_each_other_are_not_unrolled_beyond_any_size():
    futurized, x = fx.futurize(distances), np.random.default_rng(0).normal(size=(70, 3))
    np.testing.assert_array_equal(futurized(x), distances(x))
    assert is_staged(futurized, (x,)) is True
    assert is_staged(futurized, (x[:5],)) is True
