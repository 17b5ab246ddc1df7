"""Objects that a program has forgotten are not kept by the traces that were made for them."""

import gc
import weakref

import numpy as np
import pytest

import futurex as fx


class Model:
    def __init__(self, size=100):
        self.weights = np.ones(size)

    def __eq__(self, other):
        return self.weights == other.weights

    __hash__ = None

    @fx.futurize
    def step(self, rate):
        self.weights = self.weights - rate
        return self.weights.sum()

    @fx.futurize
    def predict(self, x):
        return self.weights * x


def alive(references):
    gc.collect()
    return [place for place, each in enumerate(references) if each() is not None]


def used(model, calls):
    for _ in range(calls):
        float(model.step(0.5))
        assert np.array_equal(model.predict(2.0), model.weights * 2.0)


@pytest.mark.parametrize("calls", [1, 2, 8])
def test_a_model_that_is_forgotten_is_gone(calls):
    references, kept = [], []
    for number in range(20):
        model = Model()
        used(model, calls)
        references.append(weakref.ref(model))
        if number % 8 == 3:
            kept.append(model)
    del model
    assert set(alive(references)) - {3, 11} <= {18, 19}
    for model in kept:
        used(model, 3)
        assert model.weights[0] == 1 - 0.5 * (calls + 3)


def test_models_that_are_used_in_turns_and_forgotten_are_gone():
    staged = fx.futurize(lambda model, x: model.weights * x)
    references = []
    for round_ in range(4):
        models = [Model(10 * round_ + size) for size in range(1, 5)]
        for model in models * 8:
            assert np.array_equal(staged(model, 2.0), model.weights * 2)
        references += map(weakref.ref, models)
        del model, models
    for size in range(20):
        staged(Model(100 + size), 2.0)
    assert not alive(references)


@pytest.mark.filterwarnings("ignore:.*more than 32 kinds")
def test_models_whose_kinds_of_calls_many_others_came_behind_are_gone():
    staged = fx.futurize(lambda model, name: len(name) if model is None else model.weights.sum())
    models = [Model(size) for size in range(1, 5)]
    for model in models * 8:
        assert staged(model, "") == model.weights.size
    references = [weakref.ref(model) for model in models]
    for k in range(33):
        assert staged(None, "a" * k) == k
    del model, models
    assert not alive(references)


def test_what_is_used_in_turns_is_traced_once():
    class Own(Model):  # of whose methods no traces were for nothing before
        step, predict = fx.futurize(Model.step.plain), fx.futurize(Model.predict.plain)

    models = [Own(size) for size in range(10, 20)]
    for _ in range(4):
        for model in models:
            used(model, 2)
    assert Own.step.explain().count("staged") >= len(models)


def test_an_object_in_a_list_of_the_programs_keeps_its_trace():
    def f(model, x):
        return model.weights * x

    staged, models = fx.futurize(f), [Model(), Model(), Model(), Model()]
    for _ in range(3):
        for place in range(4):
            assert np.array_equal(staged(models[place], 2.0), np.full(100, 2.0))
    assert staged.explain().count("Model, float") == 4


def test_functions_as_arguments():
    def f(function, x):
        return function(x) * 2

    staged, references = fx.futurize(f), []
    for number in range(12):
        given = (lambda k: lambda x: x + k)(number)
        for _ in range(3):
            assert np.array_equal(staged(given, np.ones(3)), np.full(3, 2.0 * (1 + number)))
        references.append(weakref.ref(given))
        del given
    assert len(alive(references)) <= 2
