"""Iterators of the standard library over objects of the user's classes: a call sees what those hold now."""

import itertools

import numpy as np
import pytest
from compare import same

import futurex as fx


class Held:
    """Iterated by a method of its own."""

    def __init__(self, entries):
        self.entries = entries

    def __iter__(self):
        return iter(self.entries)


class Yielded(Held):
    def __iter__(self):
        for entry in self.entries:  # noqa: UP028  (on purpose)
            yield entry


class ByPosition:
    """Iterated as Python iterates what has positions alone."""

    def __init__(self, entries):
        self.entries = entries

    def __getitem__(self, k):
        return self.entries[k]


def added(x, entries):
    for entry in entries:
        x = x + (np.sum(entry) if isinstance(entry, tuple) else entry)
    return x


FUNCTIONS = {
    "islice": lambda x, p: added(x, itertools.islice(p, 1)),
    "takewhile": lambda x, p: added(x, itertools.takewhile(lambda v: v < 6, p)),
    "dropwhile": lambda x, p: added(x, itertools.dropwhile(lambda v: v < 1, p)),
    "filterfalse": lambda x, p: added(x, itertools.filterfalse(lambda v: v > 4, p)),
    "compress": lambda x, p: added(x, itertools.compress(data=p, selectors=[1, 1])),
    "accumulate": lambda x, p: added(x, itertools.accumulate(p)),
    "product": lambda x, p: added(x, itertools.product(p, [1.0])),
    "pairwise": lambda x, p: added(x, itertools.pairwise(p)),
    "combinations": lambda x, p: added(x, itertools.combinations(p, 2)),
    "permutations": lambda x, p: added(x, itertools.permutations(p, 2)),
    "zip_longest": lambda x, p: added(x, itertools.zip_longest(p, [1.0], fillvalue=2.0)),
    "cycle": lambda x, p: added(x, itertools.islice(itertools.cycle(p), 5)),
    "groupby": lambda x, p: x * sum(key for key, _ in itertools.groupby(p)),
    "repeat": lambda x, p: x * sum(sum(each) for each in itertools.repeat(p, 2)),
    "for": lambda x, p: added(x, p),
    "list": lambda x, p: x * len(list(p)),
    "sum": lambda x, p: x * sum(p),
    "star": lambda x, p: x * max(*p),
    "zip": lambda x, p: x * dict(zip("ab", p, strict=False))["a"],
}


@pytest.mark.parametrize("kind", [Held, Yielded, ByPosition])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_calls_see_what_they_give_now(name, kind):
    f = FUNCTIONS[name]
    staged, mine, theirs = fx.futurize(f), kind([2.0, 1.0]), kind([2.0, 1.0])
    for k, change in enumerate([None, None, None, 3.0, 5.0, 0.0]):
        for held in (mine, theirs):
            if change is not None:
                held.entries[0] = change
            if k == 4:
                held.entries.append(4.0)
        x = np.arange(3.0) + k
        assert same(staged(x, mine), f(x, theirs))


def products(x, p):
    for a, b in itertools.product(itertools.islice(p, 2), [1.0, 2.0]):
        x = x * a + b
    return x


def groups(x, p):
    for key, _ in itertools.groupby(p):
        x = x * key
    return x


@pytest.mark.parametrize("f", [products, groups])
def test_iterators_over_them_are_staged(f):
    assert same(fx.futurize(f, escape="error")(np.arange(3.0), Yielded([2.0, 1.0])), f(np.arange(3.0), [2.0, 1.0]))
