"""What is registered for a class after a trace was made counts at the next call."""

import abc
import functools
import typing

import numpy as np

import futurex as fx

X = np.arange(3.0)


def fresh_names():
    class Sized(abc.ABC):  # noqa: B024
        pass

    class Answers(type):
        answer = False

        def __instancecheck__(cls, value):
            return Answers.answer

    class Asked(metaclass=Answers):
        pass

    @typing.runtime_checkable
    class Steps(typing.Protocol):
        def step(self): ...

    class Plain:
        pass

    @functools.singledispatch
    def scaled(x):
        return x * 2

    return Sized, Answers, Asked, Steps, Plain, scaled


def test_what_is_registered_later():
    sized, answers, asked, steps, plain, scaled = fresh_names()

    def f(x, given):
        y = scaled(x) + (10 if isinstance(given, sized) else 20) + (100 if isinstance(x, int | sized) else 200)
        y = y + (1000 if isinstance(given, (int, (asked, str))) else 2000)
        return y + (1e4 if isinstance(given, steps) else 2e4) + (1e5 if issubclass(plain, sized) else 2e5)

    staged, given = fx.futurize(f), plain()
    changes = [
        lambda: None,
        lambda: scaled.register(np.ndarray, lambda x: x * 3),
        lambda: sized.register(plain),
        lambda: sized.register(np.ndarray),
        lambda: setattr(answers, "answer", True),
        lambda: setattr(plain, "step", lambda self: None),
    ]
    for change in changes:
        change()
        for _ in range(10):
            assert np.array_equal(staged(X, given), f(X, given))
    assert "plain NumPy" not in staged.explain().partition("staged")[0]


def test_of_what_the_function_makes_itself():
    sized, *_, plain, _ = fresh_names()

    def f(x):
        return x * 2 if isinstance(plain(), sized) else x

    staged = fx.futurize(f)
    assert np.array_equal(staged(X), f(X))
