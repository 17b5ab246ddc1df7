"""What a descriptor or ``__getattr__`` computes, and keeps in its object, is no part of a trace, nor is anything traced
kept there: also where a futurized function computes it."""

import functools

import numpy as np
import pytest

import futurex as fx


@fx.futurize
def doubled(x):
    return x * 2.0


class Once:
    """Keeps what its method returns under the method's name."""

    def __init__(self, method):
        self.method, self.name = method, method.__name__

    def __get__(self, instance, kind=None):
        if instance is None:
            return self
        instance.__dict__[self.name] = self.method(instance)
        return instance.__dict__[self.name]


class Time:
    def __init__(self, start):
        self.start = start

    @Once
    def turned(self):
        return doubled(self.start).T

    @Once
    def turned_twice(self):
        return doubled(self.turned)

    @functools.cached_property
    def cached(self):
        return self.turned + doubled(self.start)

    @property
    def lazy(self):
        if "kept" not in self.__dict__:
            self.__dict__["kept"] = doubled(self.start)
        return self.__dict__["kept"]

    def __getattr__(self, name):
        if name != "late":
            raise AttributeError(name)
        self.late = doubled(self.start)
        return self.late


class New(Time):
    def added(self, x):
        self.start = self.start + x
        return self.turned_twice + x


PROGRAMS = [
    lambda time, x: time.turned + x,
    lambda time, x: time.turned_twice + x,
    lambda time, x: time.cached * x,
    lambda time, x: time.late * x,
    lambda time, x: (x + 1).sum() * time.turned_twice + time.late,
    lambda time, x: time.added(x),
    lambda time, x: x + 1 if hasattr(time, "lazy") else x,
    lambda time, x: x + 1 if hasattr(time, "late") and not hasattr(time, "later") else x,
]


def states(program):
    for k in range(3):
        time = New(np.arange(4.0).reshape(2, 2) + k)
        for each in range(4):
            yield np.asarray(program(time, np.full((2, 2), float(each)))).tolist()
            assert {type(value) for value in vars(time).values()} <= {np.ndarray, fx.Array}
            yield {name: np.asarray(value).tolist() for name, value in vars(time).items()}


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_kept_is_not_traced(program):
    assert list(states(fx.futurize(program))) == list(states(program))
