"""``del`` of what the caller's objects hold: later calls find it gone, as in plain Python."""

import numpy as np
import pytest

import futurex as fx


class Holder:
    def __init__(self):
        self.entries, self.names, self.weights, self.count = {"a": 2.0, "n": 1}, [1.0, 2.0], np.ones(3), 3

    def __delitem__(self, key):
        del self.entries[key]

    def drop(self):
        del self.weights


class Watched(Holder):
    def __delattr__(self, name):
        object.__setattr__(self, "count", self.count + 1)
        object.__delattr__(self, name)

    @property
    def total(self):
        return self.count

    @total.deleter
    def total(self):
        self.count += 5


def an_item(x, holder):
    del holder["n"]
    return x * len(holder.entries)


def a_list(x, holder):
    del holder.names
    return x


def an_array(x, holder):
    del holder.weights
    return x * (1.0 if hasattr(holder, "weights") else 2.0)


def a_number(x, holder):
    del holder.count
    return x


def by_a_method(x, holder):
    holder.drop()
    return x * holder.count


def by_name(x, holder):
    delattr(holder, "weights")
    return x


def a_property(x, holder):
    if isinstance(holder, Watched):
        del holder.total
    return x * holder.count


def and_bound_again(x, holder):
    del holder.count
    holder.count = 4
    return x * holder.count


def what_it_set_itself(x, holder):
    holder.scratch = x * 2
    y = holder.scratch + 1
    del holder.scratch
    return y


DELETIONS = [
    an_item, a_list, an_array, a_number, by_a_method, by_name, a_property, and_bound_again, what_it_set_itself
]  # fmt: skip


def seen(f, holder, shift):
    try:
        result = np.asarray(f(np.arange(3.0) + shift, holder)).tolist()
    except (AttributeError, KeyError) as error:
        result = type(error), str(error)
    return result, {name: np.asarray(value).tolist() for name, value in vars(holder).items()}


@pytest.mark.parametrize("function", DELETIONS)
@pytest.mark.parametrize("kind", [Holder, Watched])
@pytest.mark.parametrize("anew", [False, True])
def test_as_in_python(function, kind, anew):
    f, first, second = fx.futurize(function), kind(), kind()
    for shift in range(5):
        if anew:
            first, second = kind(), kind()
        assert seen(f, second, shift) == seen(function, first, shift)
