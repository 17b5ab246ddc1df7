"""Whether a trace holds is asked at every call: quickly whatever it depends on, not where it makes no difference."""

import collections

import numpy as np
import pytest

import futurex as fx
from futurex.frontend import variants
from futurex.frontend.variants import Variant

X = np.arange(4.0)


class Holder:
    def __init__(self):
        self.names = {"bias", "gamma"}
        self.layers = collections.OrderedDict(one=Layer(2.0), two=Layer(3.0))
        self.many = [Layer(float(k)) for k in range(300)]
        self.losses = []


class Layer:
    def __init__(self, rate):
        self.rate = rate


def of_a_set(holder, x):
    return x * 2 if "bias" in holder.names else x * 3


def of_an_ordered_dict(holder, x):
    for layer in holder.layers.values():
        x = x * layer.rate
    return x


def of_what_is_not_there(holder, x):
    return x * 2 if hasattr(holder, "cache") else x * 3


def of_many_objects(holder, x):
    for layer in holder.many:
        x = x + layer.rate
    return x


def with_draws(holder, x):
    return x + np.random.random() * len(holder.names)


CHANGES = {
    of_a_set: lambda holder: holder.names.discard("bias"),
    of_an_ordered_dict: lambda holder: holder.layers.update(two=Layer(5.0)),
    of_what_is_not_there: lambda holder: setattr(holder, "cache", None),
    of_many_objects: lambda holder: setattr(holder.many[-1], "rate", 7.0),
    with_draws: lambda holder: holder.names.discard("bias"),
}


@pytest.mark.parametrize("function", CHANGES)
def test_what_a_trace_depends_on_is_asked_in_one_expression(function, monkeypatch):
    holder, futurized, asked, valid = Holder(), fx.futurize(function), [], Variant.valid
    monkeypatch.setattr(Variant, "valid", lambda self: asked.append(self) or valid(self))

    def check(k):
        np.random.seed(k)
        expected = function(holder, X + k)
        np.random.seed(k)
        assert futurized(holder, X + k).tolist() == expected.tolist()

    for k in range(5):
        check(k)
    asked.clear()
    check(5)
    assert not any(variant is futurized._lane.variant for variant in asked)
    CHANGES[function](holder)
    for k in range(6, 10):
        check(k)


def keeps(holder, x):
    loss = (x * x).sum()
    holder.losses.append(float(loss))
    return loss


def test_a_list_that_grows_with_every_call_is_not_gone_through_at_every_call(monkeypatch):
    """A trainer's history: calls are plain NumPy, and would take longer and longer."""
    holder, futurized = Holder(), fx.futurize(keeps)
    for k in range(10):
        assert futurized(holder, X + k) == ((X + k) ** 2).sum()
    monkeypatch.setattr(variants, "fingerprint", lambda *args, **more: pytest.fail("a list is gone through"))
    for k in range(10, 13):
        assert futurized(holder, X + k) == ((X + k) ** 2).sum()
    assert holder.losses == [((X + k) ** 2).sum() for k in range(13)]


def test_a_list_of_another_length_is_not_gone_through(monkeypatch):
    """As long as a function is not given up, too."""
    holder, futurized = Holder(), fx.futurize(lambda holder, x: x * len(holder.losses))
    for _ in range(3):
        futurized(holder, X)
    variant = futurized._lane.variant
    holder.losses.append(1.0)
    looked = []
    monkeypatch.setattr(variants, "fingerprint", lambda value, **more: looked.append(value))
    assert not variant.valid()
    assert not any(value is holder.losses for value in looked)
