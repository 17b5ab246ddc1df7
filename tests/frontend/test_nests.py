"""Loops inside loops: how often their bodies are traced, what a round keeps for itself, and NumPy's results."""

import ast
import textwrap

import numpy as np
import pytest

import futurex as fx
from futurex.frontend import variants
from futurex.frontend.control import carried
from futurex.frontend.rewrite import lifetimes


def counted(monkeypatch, module, name):
    """The calls of a function, as a list that grows."""
    found, function = [], getattr(module, name)

    def noted(*args):
        found.append(args)
        return function(*args)

    monkeypatch.setattr(module, name, noted)
    return found


@pytest.fixture
def rounds(monkeypatch):
    """How often the rounds of loops are traced."""
    return counted(monkeypatch, carried, "trace_round")


@pytest.fixture
def traces(monkeypatch):
    """How often calls are traced from the beginning."""
    return counted(monkeypatch, variants, "_traced")


def same(function, *args):
    """Check a staged function against the plain one, results and what is written into the arguments."""
    plain = [np.copy(arg) if isinstance(arg, np.ndarray) else arg for arg in args]
    expected, staged = function(*plain), fx.futurize(function)
    for _ in range(2):
        again = [np.copy(arg) if isinstance(arg, np.ndarray) else arg for arg in args]
        np.testing.assert_equal(np.asarray(staged(*again)), np.asarray(expected))
        np.testing.assert_equal(again, plain)
    return staged


def six_deep(x, n):
    out = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            for k in range(n):
                for m in range(n):
                    for p in range(n):
                        for q in range(n):
                            if x[k, p] < x[m, q]:
                                break
                            out[i, j] += x[i, k] * x[m, p]
    return out


def test_bodies_of_a_nest_are_traced_a_few_times_each(rounds):
    fx.futurize(six_deep).graph(np.random.default_rng(0).normal(size=(20, 20)), 20)
    assert len(rounds) <= 27  # once each level has shown what it changes, one for each: not two to the power of six


def test_a_nest_gives_numpys_results():
    same(six_deep, np.random.default_rng(1).normal(size=(5, 5)), 5)


def sums_that_begin_as_ints(x, n):
    total = 0
    for _ in range(n):
        s = 0
        for j in range(n):
            for k in range(n):
                for m in range(n):
                    for p in range(n):
                        s += x[j] * x[k] - x[m] * x[p]
        total += s
    return total


def test_first_rounds_with_types_of_their_own_are_known_the_second_time(rounds):
    fx.futurize(sums_that_begin_as_ints).graph(np.random.default_rng(0).normal(size=20), 20)
    assert len(rounds) <= 50  # three for each level would be hundreds
    same(sums_that_begin_as_ints, np.random.default_rng(1).normal(size=5), 5)


def lists_of_each_round(x, n):
    total = 0
    for i in range(n):
        found = []
        for j in range(n):
            near = []
            for k in range(n):
                if abs(x[j] - x[k]) < 0.3 * i:
                    near.append(k)
            if len(near) > 2:
                found.append(len(near))
        total += len(found)
    return total


def test_lists_that_each_round_makes_are_not_carried(rounds, traces):
    staged = fx.futurize(lists_of_each_round)
    graph = staged.graph(np.random.default_rng(0).normal(size=20), 20)
    assert sum(node.op == "loop" for node in graph.nodes) == 1
    assert len(traces) <= 3
    assert len(rounds) <= 20
    same(lists_of_each_round, np.random.default_rng(1).normal(size=20), 20)


def three_lists(x):
    low, high, total = [0], [len(x)], np.float64(0)
    depth = [0]
    while low:
        a, b, d = low.pop(), high.pop(), depth.pop()
        if b - a > 1 and x[a] > x[b - 1]:
            middle = (a + b) // 2
            low.append(a)
            high.append(middle)
            depth.append(d + 1)
            low.append(middle)
            high.append(b)
            depth.append(d + 1)
        else:
            total += d * x[a]
    return total


def test_lists_that_grow_together_are_found_by_one_trace(traces):
    fx.futurize(three_lists).graph(np.ones(20))
    assert len(traces) == 2
    same(three_lists, np.random.default_rng(0).normal(size=20))


def fill(a, v, write):
    for i in range(len(v)):
        if write:
            a[i % len(a)] += v[i]
    return a.sum()


def one_that_writes_and_one_that_does_not(a, b, v):
    return fill(a, v, True) + fill(b, v, False)


def test_rounds_that_change_less_than_the_last_time_change_no_more():
    a, b, v = np.zeros(5), np.ones(5), np.arange(30.0)
    b.flags.writeable = False
    expected = one_that_writes_and_one_that_does_not(a.copy(), b, v)
    staged = fx.futurize(one_that_writes_and_one_that_does_not)
    assert [place for place, _ in staged.trace(a, b, v).written] == [0]
    assert float(staged(a, b, v)) == expected


class Grid:
    def __init__(self, cells):
        self.cells, self.count, self.seen = cells, 0, []


def walk(grid, x):
    for i in range(len(x)):
        for j in range(len(x)):
            k = 0
            while k < 3 and x[i] * k < x[j]:
                grid.cells[(i + k) % 5] += x[j]
                grid.count += 1
                k += 1
    return grid.cells.sum() + grid.count


def test_what_objects_hold_is_found_again():
    x = np.random.default_rng(3).normal(size=9)
    mine, plain, staged = Grid(np.zeros(5)), Grid(np.zeros(5)), fx.futurize(walk)
    for _ in range(3):
        assert float(staged(mine, x)) == walk(plain, x)
        np.testing.assert_array_equal(np.asarray(mine.cells), plain.cells)
        assert int(mine.count) == plain.count


def owned(source):
    """The loops of a function by line, and the names that are their rounds' own."""
    function = ast.parse(textwrap.dedent(source).strip()).body[0]
    lifetimes.find(function)
    loops = (node for node in ast.walk(function) if isinstance(node, ast.For | ast.While))
    return {loop.lineno: set(lifetimes.own(loop)) for loop in loops}


@pytest.mark.parametrize(
    ("body", "own"),
    [
        ("for i in x:\n  t = i\n  s += t\nreturn s", {"i", "t"}),
        ("for i in x:\n  t = i\nreturn t", {"i"}),  # read behind the loop
        ("for i in x:\n  s += t\n  t = i\nreturn s", {"i"}),  # read before it is bound
        ("for i in x:\n  if i:\n    t = i\n  s += t\nreturn s", {"i"}),  # bound in some rounds only
        ("for i in x:\n  if i:\n    t = 1\n  else:\n    t = 2\n  s += t\nreturn s", {"i", "t"}),
        ("for i in x:\n  t = i\n  if t:\n    break\nelse:\n  s = t\nreturn s", {"i"}),
        ("for i in x:\n  for j in i:\n    t = j\n  s += j\nreturn s", {"i", "t"}),  # the inner loop may have no round
        ("while s:\n  t = s - 1\n  s = t\nreturn s", {"t"}),
        ("while t:\n  t = s - 1\n  s = t\nreturn s", set()),
        ("for i in x:\n  t = i\n  f = lambda: t\n  s += f()\nreturn s", {"i", "f"}),
        ("for i in x:\n  t = i\n  s += t\n  del t\nreturn s", {"i"}),
        ("for i in x:\n  t = i\n  s += len(locals())\nreturn s", set()),
        ("for i in x:\n  t = i\n  if t:\n    return t\nreturn s", set()),  # looked at behind the loop
        ("for i in x:\n  t, (u, v.w) = i\n  s += u\nreturn s", {"i", "t", "u"}),
        ("for i in x:\n  t += i\nreturn s", {"i"}),
        ("for i in x:\n  try:\n    t = i\n  except E:\n    pass\n  s += t\nreturn s", {"i"}),
    ],
)
def test_what_is_a_rounds_own(body, own):
    assert owned("def f(x, s):\n" + textwrap.indent(body, "  "))[2] == own


def test_a_break_leads_past_what_binds_a_name_anew():
    found = owned("""
        def f(x, s):
            for i in x:
                if i:
                    for t in i:
                        s += t
                    break
                t = 0
            return s, t
    """)
    assert found[4] == set()


def test_a_name_of_an_inner_loop_that_the_next_round_reads():
    found = owned("""
        def f(x, s):
            for i in x:
                s += j
                for j in i:
                    s += j
            return s
    """)
    assert (found[2], found[4]) == ({"i"}, set())


def names_of_rounds(x):
    total, last = 0.0, -1
    for i in range(len(x)):
        low = x[i]
        for j in range(i + 1, len(x)):
            step = x[j] - low
            if step < 0:
                low = x[j]
                last = j
            elif step > 2:
                break
            row = [step, low]
            row[0] += 1
            total += row[0] * row[1]
        total += low
    return np.array([total, last, i, j])


def test_names_of_rounds_behind_their_loops():
    same(names_of_rounds, np.random.default_rng(5).normal(size=30))
