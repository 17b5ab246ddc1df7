"""Iterators of the standard library over objects of the user's classes: a call sees what those hold now."""

import itertools
import re

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


class Counted:
    def __init__(self, counts):
        self.counts = counts

    def __len__(self):
        return self.counts[0]


class Summed(Counted):
    def __len__(self):
        return self.counts.sum() if self.counts[0] > 2 else 4


def lengths(counted, x):
    return len(counted), [len(counted) * 2], isinstance(len(counted), int), x * len(counted)


@pytest.mark.parametrize("kind", [Counted, Summed])
def test_a_length_is_pythons_number(kind, monkeypatch):
    """Whatever integer ``__len__`` returns; others, and negative ones, Python refuses."""
    monkeypatch.setenv("FUTUREX_COMPILE", "wait")
    futurized = fx.futurize(lengths)
    for counts in ([3, 1], [4, 2], [-1, 2], [3.0, 1.0], [5, 5]) * 2:
        counted = kind(np.array(counts))
        try:
            expected = lengths(counted, np.ones(2))
        except (TypeError, ValueError) as error:
            with pytest.raises(type(error), match=re.escape(str(error))):
                np.asarray(futurized(counted, np.ones(2))[0])
            continue
        length, doubled, is_int, product = futurized(counted, np.ones(2))
        assert (length, doubled, is_int) == expected[:3]
        assert [type(each.result() if hasattr(each, "result") else each) for each in (length, *doubled)] == [int, int]
        np.testing.assert_array_equal(product, expected[3])
