# ruff: noqa: B023
"""``fx.grad(lambda w: loss(w, x, y))(w)`` in a loop: another function in every round, traced once; and what the loop
had is gone when its frame is."""

import gc
import threading
import weakref

import numpy as np
import pytest

import futurex as fx
from futurex.frontend import staging

X = np.linspace(-1.0, 2.0, 12).reshape(4, 3)


@pytest.fixture
def traced(monkeypatch):
    """A list that grows by one for each trace."""
    made, make = [], staging.trace_call
    monkeypatch.setattr(staging, "trace_call", lambda *args: made.append(1) or make(*args))
    return made


def loss(w, x):
    return (np.tanh(x @ w) ** 2).sum()




def rounds(kind, n):
    w = np.ones(3)
    for k in range(n):
        x = X * (k + 1)
        if kind == "lambda":
            g = fx.grad(lambda w: loss(w, x))(w)
        elif kind == "def":

            def of_this_batch(w):
                return loss(w, x)

            _, g = fx.value_and_grad(of_this_batch)(w)
        elif kind == "vjp":
            (g,) = fx.vjp(lambda w: loss(w, x), w)[1](1.0)
        else:
            g = fx.jacobian(lambda w: loss(w, x))(w)
        w = np.asarray(w - 0.1 * g)
        yield w


@pytest.mark.parametrize("kind", ["lambda", "def", "vjp", "jacobian"])
def test_a_loop_traces_what_it_makes_anew_once(kind, traced):
    expected = np.ones(3)
    slope = fx.grad(loss)
    for k, w in enumerate(rounds(kind, 6)):
        expected = np.asarray(expected - 0.1 * slope(expected, X * (k + 1)))
        np.testing.assert_allclose(w, expected, rtol=1e-12)
        if k == 0:
            traced.clear()
    assert not traced


def test_nothing_of_a_frame_is_held_that_is_gone():
    def caller():
        x = X.copy()
        for _ in range(3):
            np.asarray(fx.grad(lambda w: loss(w, x))(np.ones(3)))
        return weakref.ref(x)

    gone = caller()
    gc.collect()
    assert gone() is None


def test_a_function_that_somebody_has_goes_on_being_traced_once(traced):
    def of(x):
        def function(w):
            return loss(w, x)

        return function

    first, w = of(X), np.ones(3)
    for k in range(4):
        np.asarray(fx.grad(first)(w))
        np.asarray(fx.grad(of(X * k))(w))
        gc.collect()
    assert len(traced) <= 1 + 4


def test_other_variables_defaults_or_attributes_are_another_function():
    def times(factor):
        return lambda w: w * factor

    assert [float(fx.grad(times(k))(1.0)) for k in (1.0, 2.0, 3.0)] == [1, 2, 3]
    found = []
    for k in range(4):

        def scaled(w, by=1.0):
            return w * by * getattr(scaled, "factor", 1.0)

        if k == 1:
            scaled.__defaults__ = (5.0,)
        if k == 2:
            scaled.factor = 7.0
        found.append(float(fx.grad(scaled)(1.0)))
    assert found == [1, 5, 7, 1]
    kept = []
    for k in range(3):
        kept.append(fx.grad(lambda w, k=k: w * k))
    assert [float(each(1.0)) for each in kept] == [0, 1, 2]


def test_what_the_variables_are_may_change():
    def model(k):
        class Model:
            def scaled(self, w):
                return w * k

        return Model()

    found = []
    for k in range(5):
        m, table = model(k), {"a": float(k), "b": [np.ones(3) * k]}
        table["a"] = np.float64(k) if k == 3 else table["a"]
        found.append(np.asarray(fx.grad(lambda w: (m.scaled(w) * table["a"] + w * table["b"][0]).sum())(np.ones(3))))
    np.testing.assert_array_equal(found, [np.full(3, k * k + k) for k in range(5)])


def test_threads_have_variables_of_their_own():
    found = {}

    def work(i):
        total = 0.0
        for k in range(20):
            c = float(i * k)
            total += float(fx.grad(lambda w: w * c)(1.0))
        found[i] = total

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == {i: float(sum(i * k for k in range(20))) for i in range(6)}
