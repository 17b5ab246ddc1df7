"""Dataclasses and named tuples hold more than their fields: what was assigned to them goes with them."""

import dataclasses
import functools
from collections import namedtuple

import numpy as np
import pytest

import futurex as fx
from futurex.tree.pytree import flatten, unflatten


@dataclasses.dataclass
class Scaled:
    """Its ``__post_init__`` assigns what is no field, and hides an attribute of the class."""

    w: np.ndarray
    unset: float = dataclasses.field(init=False)
    factor = 3.0

    def __post_init__(self):
        self.factor = 9.0
        self.norm = (self.w * self.w).sum()


class Doubled(namedtuple("Doubled", "x y")):
    """Its ``__new__`` does more than assign."""

    def __new__(cls, x, y):
        self = super().__new__(cls, x * 2, y)
        self.label = 0.5
        return self


def times_factor(scaled):
    return scaled.w * scaled.factor


def changed(scaled):
    scaled.w = scaled.w + 1
    return scaled.w.sum() + scaled.norm


def made(x):
    return Scaled(x * 2)


def passed_on(pair):
    return pair._replace(y=pair.x + pair.y), pair.label * pair.x, pair


@pytest.mark.parametrize("calls", [1, 4])
def test_attributes_that_are_no_fields(calls):
    x = np.arange(3.0)
    futurized = [fx.futurize(each) for each in (times_factor, changed, made)]
    for _ in range(calls):
        np.testing.assert_array_equal(futurized[0](Scaled(x)), x * 9)
        mine, theirs = Scaled(x.copy()), Scaled(x.copy())
        assert futurized[1](mine) == changed(theirs)
        assert vars(mine).keys() == vars(theirs).keys()
        result = futurized[2](x)
        assert (result.factor, result.norm) == (9.0, 20.0)


def test_named_tuples_are_not_made_again():
    pair = Doubled(np.arange(3.0), 1.0)
    futurized = fx.futurize(passed_on)
    for _ in range(4):
        for mine, theirs in zip(flatten(futurized(pair))[0], flatten(passed_on(pair))[0], strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_nests_are_put_together_with_all_that_they_hold():
    value = Scaled(np.ones(2))
    value.later = [1, Doubled(2, 3)]
    leaves, structure = flatten(value)
    again = unflatten(structure, leaves)
    assert again.later == [1, (4, 3)]
    assert again.later[1].label == 0.5
    assert not hasattr(again, "unset")


def with_defaults(x, memo={"rate": 2.0, "name": "a"}, row=[1.0, 2.0], deep=({"k": [3.0]},)):  # noqa: B006
    return x * memo["rate"] * len(memo["name"]) + row[-1] + len(row) + deep[0]["k"][0]


def test_what_defaults_hold_is_looked_at_at_every_call():
    x, futurized = np.arange(3.0), fx.futurize(with_defaults)
    memo, row, deep = with_defaults.__defaults__
    changes = [
        lambda: None, lambda: memo.update(rate=5.0), lambda: row.append(7.0), lambda: memo.update(name="long"),
        lambda: deep[0]["k"].__setitem__(0, 9.0), lambda: row.__setitem__(2, 8.0), lambda: memo.update(new=1),
        lambda: memo.pop("new"), lambda: deep[0].update(k=[4.0]), lambda: memo.update(rate=np.float32(0.5)),
    ]  # fmt: skip
    for change in changes:
        change()
        for _ in range(4):
            np.testing.assert_array_equal(np.asarray(futurized(x)), with_defaults(x))
            assert np.asarray(futurized(x)).dtype == with_defaults(x).dtype


class Total:
    """A descriptor that computes at every look."""

    def __get__(self, instance, owner=None):
        return instance.w.sum()


@fx.futurize
def halved(w):
    return w / 2


class Weighted:
    total = Total()
    thrice = property(functools.partial(lambda factor, self: self.w * factor, 3))

    def __init__(self, w):
        self.w = w

    @functools.cached_property
    def norm(self):
        return np.sqrt((self.w**2).sum())

    @functools.cached_property
    def halves(self):
        return {"halves": halved(self.w), "of": 2}

    @property
    def positive(self):
        if self.w.sum() < 0:
            raise AttributeError("negative")
        return self.w.sum()

    def __getattr__(self, name):
        if name.startswith("_") or name == "positive":
            raise AttributeError(name)
        return self.w * len(name)


def binds(weighted, x):
    weighted.w = weighted.w + x
    return weighted.norm, weighted.total, weighted.abc


def writes(weighted, x):
    weighted.w += x
    return weighted.norm, weighted.total, weighted.abc


def writes_an_argument(weighted, x):
    before = weighted.total
    x += 1
    return before, weighted.norm, weighted.w is x


def writes_for_a_property(weighted, x):
    weighted.w[1] = x[0]
    return (weighted.thrice,)


def asks(weighted, x):
    weighted.w += x
    return hasattr(weighted, "norm"), getattr(weighted, "norm", 0) * x


def asks_a_property(weighted, x):
    weighted.w -= 9 * x
    return (x * (1 if hasattr(weighted, "positive") else 2),)


def matches(weighted, x):
    weighted.w += x
    match weighted:
        case Weighted(norm=norm):
            return (norm + x,)


def reads(weighted, x):
    return weighted.norm + x, weighted.total, weighted.abc


CHANGES = [binds, writes, writes_an_argument, writes_for_a_property, asks, asks_a_property, matches, reads]


@pytest.mark.parametrize("function", CHANGES)
@pytest.mark.parametrize("shared", [False, True])
def test_what_classes_compute_is_computed_of_what_the_call_has_changed(function, shared):
    """And kept, where Python keeps it: later calls find that."""
    futurized = fx.futurize(function)
    mine, theirs = Weighted(np.arange(3.0)), Weighted(np.arange(3.0))
    for k in range(5):
        if k == 3:
            mine, theirs = Weighted(np.arange(3.0) + 7), Weighted(np.arange(3.0) + 7)
        x, same = (mine.w, theirs.w) if shared else (np.ones(3) * k, np.ones(3) * k)
        for one, two in zip(futurized(mine, x), function(theirs, same), strict=True):
            np.testing.assert_array_equal(np.asarray(one), two)
        assert vars(mine).keys() == vars(theirs).keys()
        for name, value in vars(theirs).items():
            np.testing.assert_array_equal(np.asarray(vars(mine)[name]), value)


def test_what_objects_keep_is_staged_from_the_second_call_on():
    norms, weighted = fx.futurize(lambda weighted, x: binds(weighted, x)[0]), Weighted(np.arange(3.0))
    kept = fx.futurize(lambda weighted, x: weighted.norm * x)
    for k in range(3):
        assert float(norms(weighted, np.ones(3))) == np.sqrt(14.0), k
        assert kept(weighted, np.ones(3)).tolist() == [np.sqrt(14.0)] * 3
    assert "staged" in kept.explain()
    assert "plain" not in kept.explain()


def test_what_objects_keep_is_not_traced():
    used, weighted = fx.futurize(lambda weighted, x: weighted.halves["halves"] * x), Weighted(np.arange(3.0))
    for _ in range(3):
        assert used(weighted, np.ones(3)).tolist() == [0.0, 0.5, 1.0]
        assert weighted.halves["halves"].tolist() == [0.0, 0.5, 1.0]
        assert weighted.halves["of"] == 2
    assert "staged" in used.explain()


class Module:
    """Finds its parameters in a dict, as the layers of some libraries do."""

    def __init__(self, **params):
        self.__dict__["params"] = params

    def __getattr__(self, name):
        if name in self.__dict__["params"]:
            return self.params[name]
        raise AttributeError(name)


def test_what_is_only_found_is_staged_after_changes():
    def step(module, x):
        module.w[...] = module.w + x
        module.b[...] = module.b + module.w.sum()
        return module.w * module.b, hasattr(module, "c")

    futurized = fx.futurize(step)
    mine, theirs = (Module(w=np.ones(3), b=np.zeros(3)) for _ in range(2))
    for k in range(4):
        for one, two in zip(futurized(mine, np.ones(3) * k), step(theirs, np.ones(3) * k), strict=True):
            np.testing.assert_array_equal(np.asarray(one), two)
        np.testing.assert_array_equal(mine.b, theirs.b)
    assert "staged" in futurized.explain()
