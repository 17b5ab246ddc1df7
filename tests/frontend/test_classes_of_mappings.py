"""Classes of the user's that are mappings, sequences or sets by ``collections.abc``: what Python's own methods call of
them is staged, so that a call sees what they hold now."""

from collections.abc import MutableMapping, MutableSequence, Set

import numpy as np
import pytest
from compare import same

import futurex as fx


class Table(MutableMapping):
    def __init__(self, held):
        self.held = held

    def __getitem__(self, key):
        return self.held[key]

    def __setitem__(self, key, value):
        self.held[key] = value

    def __delitem__(self, key):
        del self.held[key]

    def __len__(self):
        return len(self.held)

    def __iter__(self):
        yield from self.held.keys()


class Row(MutableSequence):
    def __init__(self, held):
        self.held = held

    def __getitem__(self, k):
        return self.held[k]

    def __setitem__(self, k, value):
        self.held[k] = value

    def __delitem__(self, k):
        del self.held[k]

    def __len__(self):
        return len(self.held)

    def insert(self, k, value):
        self.held.insert(k, value)


class Group(Set):
    def __init__(self, held):
        self.held = list(held)

    def __contains__(self, each):
        return each in self.held

    def __iter__(self):
        return iter(self.held)

    def __len__(self):
        return len(self.held)


def got(x, t):
    return x * t.get("a")


def got_or_else(x, t):
    return x * t.get("c", 2.0)


def asked(x, t):
    return x * (2 if "c" in t else 3)


def counted(x, t):
    return x * len(t.keys())


def among_keys(x, t):
    return x * (2 if "c" in t.keys() else 3)  # noqa: SIM118  (the view's own method)


def values(x, t):
    for each in t.values():
        x = x + each
    return x


def entries(x, t):
    for key, each in t.items():
        x = x + each * len(key)
    return x


def paired(x, t):
    return x * dict(zip(t.keys(), [2, 3, 4], strict=False))["a"]


def set_by_default(x, t):
    t.setdefault("d", x * 2)
    return x + t["d"]


def updated(x, t):
    t.update({"a": x * 2})
    return x + 1


def found(x, r):
    return x * r.index(3.0)


def how_many(x, r):
    return x * r.count(2.0)


def contained(x, r):
    return x * (2 if 7.0 in r else 3)


def each_of_them(x, r):
    for each in r:
        x = x + each
    return x


def subset(x, s):
    return x * (2 if s <= {1.0, 2.0} else 3)


TABLES = [
    got, got_or_else, asked, counted, among_keys, values, entries, paired, set_by_default, updated,
]  # fmt: skip
CHANGES = [
    lambda held: None, lambda held: None, lambda held: held.update(a=np.arange(3.0) + 5),
    lambda held: held.update(c=3.0), lambda held: held.update(b=9.0), lambda held: held.pop("c"),
]  # fmt: skip
OF_LISTS = [
    lambda held: None, lambda held: None, lambda held: held.insert(0, 3.0), lambda held: held.append(2.0),
    lambda held: held.append(7.0), lambda held: held.pop(0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("f", "make", "changes"),
    [(f, lambda: Table({"a": np.arange(3.0), "b": 2.0}), CHANGES) for f in TABLES]
    + [(f, lambda: Row([1.0, 2.0, 3.0]), OF_LISTS) for f in (found, how_many, contained, each_of_them)]
    + [(subset, lambda: Group([1.0, 2.0]), OF_LISTS[:2] + OF_LISTS[4:])],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_calls_see_what_they_hold_now(f, make, changes):
    staged, mine, theirs = fx.futurize(f), make(), make()
    for k, change in enumerate(changes):
        change(mine.held)
        change(theirs.held)
        x = np.arange(3.0) + k
        assert same(staged(x, mine), f(x, theirs))
        assert list(mine.held) == list(theirs.held)
        assert not isinstance(mine.held, dict) or same(list(mine.held.values()), list(theirs.held.values()))


@pytest.mark.parametrize("f", [got, counted, values, entries, paired], ids=lambda f: f.__name__)
def test_python_s_own_methods_are_staged(f):
    t = Table({"a": np.arange(3.0), "b": 2.0})
    assert same(fx.futurize(f, escape="error")(np.arange(3.0), t), f(np.arange(3.0), t))


RATES = {"a": 2.0}


class Rates:
    def __class_getitem__(cls, key):
        return RATES[key]


def by_class(x):
    return x * Rates["a"] + len(list[int].__args__)


def test_an_item_of_a_class_is_what_its_method_gives_now(monkeypatch):
    staged = fx.futurize(by_class)
    for rate in (2.0, 2.0, 2.0, 3.0):
        monkeypatch.setitem(RATES, "a", rate)
        assert same(staged(np.arange(3.0)), by_class(np.arange(3.0)))


def numbered(x):
    k = 0
    try:
        while True:
            yield x + k
            k += 1
    except IndexError:
        return


def that_notes_its_end(x, seen):
    try:
        for k in range(9):
            yield x + k
    except GeneratorExit:
        seen[0] += 1
        raise


def that_catches_everything(x, seen):
    try:
        for k in range(9):
            yield x + k
    except:
        seen[0] += 1
        raise


def first(x, seen):
    return next(iter(numbered(x))) * 2


def noted(x, seen):
    y = x
    for each in that_notes_its_end(x, seen):
        y = each * 2
        break
    return y


def caught(x, seen):
    y = x
    for each in that_catches_everything(x, seen):
        y = each * 2
        break
    return y


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("f", [first, noted, caught], ids=lambda f: f.__name__)
def test_generators_with_handlers_are_left_as_in_python(f):
    staged = fx.futurize(f)
    for k in range(4):
        mine, theirs = np.zeros(1), np.zeros(1)
        assert same(np.asarray(staged(np.arange(3.0) + k, mine)), f(np.arange(3.0) + k, theirs))
        assert mine == theirs
