"""An array that branches or rounds choose is the very array, once the call has returned: its other names see writes."""

import numpy as np
import pytest
from object_programs import held

import futurex as fx


class Model:
    def __init__(self):
        self.w, self.v, self.u = np.zeros(4), np.ones(4), np.full(4, 2.0)
        self.layers = [np.arange(4.0), np.arange(4.0) + 1]


def argument(m, x, y):
    if x.any():
        return x
    return y


def attribute(m, x, y):
    if x.sum() > 0:
        m.w = x


def entry(m, x, y):
    if x.sum() > 0:
        m.layers[0] = m.layers[1]
    elif x.sum() < -1:
        m.layers[1] = y


def new_under_two_names(m, x, y):
    if x.sum() > 0:
        m.w = x * 2
        m.v = m.w
    return m.v


def view(m, x, y):
    m.w = x[::-1] if x.sum() > 0 else y[:]
    return m.w


def branch_in_a_branch(m, x, y):
    if x.sum() > -1:
        m.w = m.v if x[0] > 0 else m.u
    else:
        m.w = y
    return m.w


def rounds_hand_on(m, x, y):
    for k in range(20):
        m.w, m.v, m.u = m.v, m.u, m.w
        if x[k % 4] > 0.5:
            m.v = x * k
            m.layers[0] = m.v


def rows_of_rounds(m, x, y):
    table = m.table
    for k in range(12):
        m.w = table[k % 3]
        m.v = np.tanh(m.w)
    return m.v


def rounds_that_may_be_none(m, x, y):
    k = 0.0
    while x[0] + k < 1:
        m.w = x
        m.v = m.w * 0.5
        k += 1
    return m.v, m.w


def picked(m, x, y):
    m.w = m.layers[int(x[0] > 0)]
    return [x, y, x + y][int(y[0] > 0)]


def trimmed(m, x, y):
    left = x * 2
    while left.size > 1 and left[0] < 0:
        left = left[1:]
    return left


def a_merger_under_two_names(m, x, y):
    if x.sum() > 0:
        m.w = x * 2
    else:
        m.u = m.v - 1
        if y.sum() > 0:
            m.w = y * 0.5
        else:
            m.v = m.u
        m.layers[0] = m.w
    return m.w


STEPS = [
    argument, attribute, entry, new_under_two_names, view, branch_in_a_branch, rounds_hand_on, rows_of_rounds,
    rounds_that_may_be_none, picked, trimmed, a_merger_under_two_names,
]  # fmt: skip


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_it_is_the_array_that_numpy_leaves(step):
    futurized, plain, staged = fx.futurize(step), Model(), Model()
    plain.table, staged.table = (np.arange(12.0).reshape(3, 4) for _ in range(2))
    for seed in range(10):
        x, y = np.random.default_rng(seed).normal(size=(2, 4)) * (seed != 4)
        mine, theirs = (staged, x.copy(), y.copy()), (plain, x.copy(), y.copy())
        first, second = futurized(*mine), step(*theirs)
        assert held(*mine, first) == held(*theirs, second)
        first = first.result() if isinstance(first, fx.Array) else first
        for model, result in ((staged, first), (plain, second)):
            model.w[1] = seed
            model.layers[0][2] = -seed
            if isinstance(result, np.ndarray):
                result[-1] = 7
        assert held(staged, mine[1]) == held(plain, theirs[1])
    assert "plain" not in str(futurized.explain())


def test_views_that_rounds_make_of_each_other_share_what_numpy_says():
    def step(x):
        whole = left = x * 2
        while left.size > 1 and left[0] < 0:
            left = left[1:]
        return whole, left

    futurized = fx.futurize(step)
    for x in (np.array([-1.0, -2.0, 3.0, 4.0]), np.arange(4.0)):
        whole, left = (np.asarray(each) for each in futurized(x))
        left[-1] = 100
        assert whole[-1] == 100


def test_a_list_that_is_another_names_in_some_runs_only():
    def step(m, x, y):
        if x.sum() > 0:
            return m.layers
        return [x, y]

    futurized, m = fx.futurize(step), Model()
    assert futurized(m, np.ones(4), np.ones(4)) is m.layers
    assert futurized(m, -np.ones(4), np.ones(4)) is not m.layers


def test_a_list_that_branches_in_a_branch_have_merged_is_not_changed_unseen():
    @fx.futurize
    def step(x, y):
        first = [x[0]]
        if x.sum() > 0:
            chosen = first if y.sum() > 0 else [x[1]]
        else:
            chosen = [x[2]]
        chosen[0] = 100.0
        return first[0]

    assert [step(x * np.ones(4), y * np.ones(4)) for x, y in ((1, 1), (1, -1), (-1, 1))] == [100, 1, -1]


def test_what_is_given_away_is_not_handed_back():
    @fx.futurize(donate="w")
    def step(w, g):
        if g.sum() > 10:
            return w
        return w - g

    w = fx.futurize(lambda x: x * 1.0)(np.ones(5))
    for k in (1, 100, 2):
        w = step(w, np.full(5, float(k)))
    assert w.result().tolist() == [-2.0] * 5


def test_a_tuple_that_an_object_holds_keeps_its_list():
    def step(m, x):
        return m.pair, str(x.tolist())

    m = Model()
    m.pair = np.ones(3), [np.zeros(3)]
    assert fx.futurize(step)(m, np.ones(2))[0] is m.pair
