"""Classes that a function makes: their methods are staged as functions inside it are, and are called at every call."""

from __future__ import annotations

import numpy as np
import pytest

import futurex as fx

calls: list[int] = []


def drawn_by_a_method(x):
    class Walk:
        def __init__(self):
            self.start = np.random.rand()

        def step(self):
            return np.random.standard_normal(3)

    return x + Walk().step() + Walk().start


def drawn_by_what_is_called(x):
    class Noise:
        def __call__(self):
            return np.random.rand()

        @property
        def level(self):
            return np.random.rand()

        @staticmethod
        def other():
            return np.random.rand()

        @classmethod
        def last(cls):
            return np.random.rand()

    noise = Noise()
    return x * noise() + noise.level - Noise.other() * Noise.last()


def printed(x):
    class Said:
        def say(self, y):
            print("said", len(y))
            return y * 2

    return Said().say(x)


def noted_outside(x):
    class Noted:
        def note(self, y):
            calls.append(1)
            return y * 2

    return Noted().note(x)


def decided_by_data(x):
    class Halved:
        def __init__(self, v):
            self.__v = v
            self.rounds = 0

        def run(self):
            while np.abs(self.__v).sum() > 1:
                self.__v = self.__v / 2
                self.rounds += 1
            if self.__v[0] > 0:
                return -self.__v
            return self.__v

    halved = Halved(x)
    return halved.run(), halved.rounds


def counted_further_out(x):
    count, total = 0, 0.0

    class Counter:
        def hit(self, v):
            nonlocal count, total
            count += 1
            if v > 0:
                total += v

    counter = Counter()
    for v in x:
        counter.hit(v)
    return count, total


def derived(x):
    class One:
        factor = 3

        def of(self, y):
            return y * self.factor

    class Two(One):
        def of(self, y):
            return super().of(y) + __class__.factor

    return Two().of(x)


def kept_in_an_object(x):
    class Kept:
        def __init__(self):
            self.drawn = np.zeros(3, int)

        def draw(self):
            for _ in range(2):
                self.drawn += np.random.randint(-5, 5, 3)

    kept = Kept()
    kept.draw()
    return {"kept": kept}


class Closed:
    def __init__(self, x):
        self.x = x

    def __del__(self):
        calls.append(1)


def closed_by_python(x):
    closed = Closed(x)
    return closed.x * 2


def closed_inside(x):
    class Inside:
        def __del__(self):
            print("gone")
            calls.append(1)

    inside = Inside()
    del inside
    return x * 2


FUNCTIONS = [
    drawn_by_a_method, drawn_by_what_is_called, printed, noted_outside, decided_by_data, counted_further_out, derived,
    kept_in_an_object, closed_by_python, closed_inside,
]  # fmt: skip


def _plain(result):
    if isinstance(result, dict):
        return vars(result["kept"])["drawn"].tolist()
    return [np.asarray(each).tolist() for each in (result if isinstance(result, tuple) else (result,))]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_methods_are_called_at_every_call(function, capsys):
    staged = fx.futurize(function)
    for k in range(4):
        x = np.random.default_rng(k).standard_normal(3)
        found = []
        for called in (function, staged):
            np.random.seed(k)
            calls.clear()
            result = _plain(called(x.copy()))
            found.append((result, len(calls), capsys.readouterr().out, np.random.rand()))
        assert found[0] == found[1]


@pytest.mark.parametrize("function", [drawn_by_a_method, decided_by_data, counted_further_out, derived])
def test_they_are_staged(function):
    staged = fx.futurize(function)
    for k in range(3):
        staged(np.random.default_rng(k).standard_normal(3))
    assert "plain NumPy" not in staged.explain()


def test_the_class_itself_is_not_looked_up_outside():
    staged = fx.futurize(derived)
    for k in range(6):
        staged(np.full(3, float(k)))
    assert staged.explain().startswith("derived: 1 trace")


def named(x):
    class A:
        def f(self):
            return type(self).__qualname__

    def g():
        def h():
            return 1

        return h

    names = []
    if x.sum() > 0:

        class B:
            pass

        names.append(B.__qualname__)
    return A.__qualname__, A().f(), A.f.__qualname__, str(A), g.__qualname__, g().__qualname__, *names


def test_what_a_function_makes_has_the_name_that_python_gives_it():
    x = np.ones(3)
    assert fx.futurize(named)(x) == named(x)
