"""Keywords may be named as what stands between a call and its function names its own: ``function``, ``self``."""

import collections
import dataclasses

import numpy as np
from compare import check

import futurex as fx

V = np.linspace(-1.0, 2.0, 5)


@dataclasses.dataclass
class Setting:
    value: float
    factory: float = 2.0


class Window:
    def __call__(window, x, function=2.0, self=3.0):
        return x * function + self

    def moved(window, x, cls, args, kwargs):
        return x * cls + args - kwargs


WINDOW = Window()


def applied(x, **options):
    return options.pop("function")(x, **options)


def keywords(x):
    y = applied(x, function=WINDOW.moved, cls=2.0, args=x, kwargs=1.0)
    setting = dataclasses.replace(Setting(1.0), value=3.0)
    table = collections.defaultdict(list, factory=x)
    return WINDOW(y, function=x, self=4.0) * setting.value + table["factory"]


def own(x, function=1.0, self=2.0):
    return x * function - self


def test_keywords_of_calls_inside():
    check(keywords, V)


def test_keywords_of_the_function_itself():
    f = fx.futurize(own)
    for factor in (1.0, 2.0, 3.0):
        assert np.array_equal(f(V, function=factor, self=V), own(V, function=factor, self=V))
        assert f.graph(V, function=factor, self=V).params
    assert fx.grad(lambda x, self: (x * self).sum())(V, self=V).tolist() == V.tolist()
    assert fx.vmap(own)(V, function=V, self=V).tolist() == own(V, V, V).tolist()
    assert len(fx.lower(own, V, function=2.0, self=V).flatten(V, function=2.0, self=V)) == 3
