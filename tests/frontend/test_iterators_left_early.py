"""Iterators that a loop leaves before their end: what they did until then, and what they give to whoever asks next."""

import itertools

import numpy as np
import pytest
from compare import same

import futurex as fx
from futurex.frontend import variants
from futurex.frontend.control import paths


class Model:
    """An object with state, which makes one element after the other, as models that write texts do."""

    def __init__(self):
        self.cache, self.steps = np.zeros(9), 0

    def step(self, x, k):
        self.cache[k] = x[k] + 1
        return x[k]

    def made(self, x):
        for k in range(len(x)):
            yield self.step(x, k)

    def counted(self, x):
        for k in range(len(x)):
            self.steps += 1
            yield x[k]


def up_to_large(values):
    y = 0.0
    for value in values:
        if value > 2.5:
            break
        y += value
    return y


def written_by_steps(x, model):
    out = []
    for value in model.made(x):
        if int(value) == 3:
            break
        out.append(int(value))
    return len(out)


def numbered(x, model):
    y = 0.0
    for k, value in enumerate(model.made(x)):
        if value > 2.5:
            break
        y += value * k
    return y


def beside_a_list(x, model):
    y = 0.0
    for k, value in zip([1, 2, 3], model.made(x), strict=False):
        if value > 2.5:
            break
        y += value * k
    return y


def counted(x, model):
    return up_to_large(model.counted(x))


def returned_from(x, model):
    for value in model.made(x):
        if value > 2.5:
            return value
    return -1.0


def with_an_else(x, model):
    y = 0.0
    for value in model.made(x):
        if value > 2.5:
            break
        y += value
    else:
        y = -y
    return y


def asked_again(x, model):
    values, y = model.made(x), 0.0
    for value in values:
        if value > 2.5:
            break
        y += value
    return y + next(values, 100)


def left_in_a_known_round(x, model):
    k = 0
    for _ in model.made(x):
        if k == 1:
            break
        k += 1
    return x + k


def failing_later(x, model):
    def values():
        for k in range(5):
            if k == 4:
                raise ValueError("the last one")
            yield x[k]

    try:
        return up_to_large(values())
    except ValueError:
        return -1.0


@pytest.mark.parametrize(
    "f",
    [
        written_by_steps, numbered, beside_a_list, counted, returned_from, with_an_else, asked_again,
        left_in_a_known_round, failing_later,
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_what_an_iterator_does_is_done_up_to_where_it_is_left(f):
    staged, mine, theirs = fx.futurize(f), Model(), Model()
    for x in np.array([[0, 1, 2, 3, 4], [1, 2, 3, 0, 9], [0, 1, 2, 1, 2], [3, 1, 1, 1, 1], [0, 3, 2, 3, 2.0]]):
        assert same(np.asarray(staged(x, mine)), np.asarray(f(x, theirs)))
        assert same(mine.cache, theirs.cache)
        assert mine.steps == theirs.steps


def listed_by_steps(x, model):
    out = []
    for value in model.made(x):
        if value > 2.5:
            break
        out.append(value)
    return out


def test_ways_out_are_not_traced_one_by_one_where_an_iterator_is_left(monkeypatch):
    """A list whose length data tells would be another result on each of them."""
    forks, traced = [], variants.trace_into

    def counted(variant, trace, *given):
        try:
            return traced(variant, trace, *given)
        finally:
            forks.append(trace.forks)

    monkeypatch.setattr(variants, "trace_into", counted)
    staged, mine, theirs = fx.futurize(listed_by_steps), Model(), Model()
    for x in np.array([[0, 1, 2, 2, 1, 0, 3, 1], [1, 2, 3, 0, 9, 1, 1, 1], [0, 1, 2, 1, 2, 1, 2, 1.0]]):
        assert [float(each) for each in staged(x, mine)] == listed_by_steps(x, theirs)
        assert same(mine.cache, theirs.cache)
    assert max(forks) <= paths.FEW + 1


def rest_of_a_list(x):
    places, y = iter([0, 1, 2, 3, 4]), 0.0
    for k in places:
        if x[k] > 2.5:
            break
        y += x[k]
    for k in places:
        y = y * 10 + k
    return y


def rest_of_numbered_rows(x):
    rows, y = enumerate(x), 0.0
    for _, value in rows:
        if value > 2.5:
            break
        y += value
    for k, _ in rows:
        y = y * 10 + k
    return y


def rest_inside_another(x):
    places, y = iter([0, 1, 2, 3, 4]), 0.0
    for _, k in zip([0, 1, 2, 3, 4], places, strict=False):
        if x[k] > 2.5:
            break
        y += x[k]
    return y + next(places, 100)


def rest_behind_any(x):
    places = iter([0, 1, 2, 3, 4])
    return any(x[k] > 2.5 for k in places) + 10 * next(places, 100)


def rest_behind_all(x):
    rows = zip(range(5), x, strict=False)
    return all(value < 2.5 for _, value in rows) + 10 * next(rows, (100, 0))[0]


def rest_behind_a_shorter_one(x):
    rows, y = enumerate(x), 0.0
    for (_, value), k in zip(rows, range(2), strict=False):
        y = y + value * k
    return y + next(rows, (100, 0))[0]


def rest_in_rounds_of_its_own(x):
    places, y = iter([0, 1, 2, 3, 4]), 0.0
    for k in places:
        y = y * 2 + k
        for j in places:
            y = y * 2 + x[j]
            if x[j] > 1.5:
                break
    return y


def rest_of_a_list_known(x):
    places = iter([0, 1, 2, 3, 4])
    for k in places:
        if k == 1:
            break
    return x + next(places)


def rest_of_rows_known(x):
    rows = enumerate(x)
    for k, _ in rows:
        if k == 1:
            break
    return x + sum(k for k, _ in rows)


@pytest.mark.parametrize(
    "f",
    [
        rest_of_a_list, rest_of_numbered_rows, rest_inside_another, rest_behind_any, rest_behind_all,
        rest_behind_a_shorter_one, rest_in_rounds_of_its_own, rest_of_a_list_known, rest_of_rows_known,
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_an_iterator_goes_on_where_it_was_left(f):
    staged = fx.futurize(f)
    for x in np.array([[0, 1, 2, 3, 4], [1, 2, 3, 0, 9], [0, 1, 2, 1, 2], [3, 1, 1, 1, 1.0]]):
        assert same(np.asarray(staged(x)), np.asarray(f(x)))


def made_of(x):
    def values():
        h = x[0] * 0
        for k in range(5):
            h = np.tanh(h + x[k])
            yield h

    y = 0.0
    for value in values():
        if value > 0.9:
            break
        y += value
    return y


def test_what_only_computes_is_staged_although_it_may_be_left():
    staged = fx.futurize(made_of, escape="error")
    for x in np.array([[0.1, 0.5, 2, 3, 4], [1, 2, 3, 0, 9], [0, 0.1, 0.2, 0.1, 0.0]]):
        assert same(np.asarray(staged(x)), np.asarray(made_of(x)))


def beside_an_exhausted_one(x):
    y = x * 0
    for a, b in itertools.zip_longest(iter((6, 4, 3)), reversed((2,)), fillvalue=-1):
        y += x * a * b
        if a == b:
            break
    return y


def test_iterators_that_a_longest_zip_has_dropped_are_not_looked_at():
    x = np.arange(3.0)  # in the place of each there is no object at all: whoever reads it ends the process
    assert same(np.asarray(fx.futurize(beside_an_exhausted_one)(x)), beside_an_exhausted_one(x))
