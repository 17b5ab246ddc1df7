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


class Trainer:
    def __init__(self):
        self.w, self.seen = np.ones(3), 0

    def loss(self, w, x):
        self.seen += 1
        return loss(w, x)

    def step(self, x):
        self.w = np.asarray(self.w - 0.1 * fx.grad(lambda w: self.loss(w, x))(self.w))


def test_a_method_that_is_called_again_has_the_derivative_that_it_had(traced):
    trainer, expected, slope = Trainer(), np.ones(3), fx.grad(loss)
    for k in range(12):
        trainer.step(X * (k + 1))
        expected = np.asarray(expected - 0.1 * slope(expected, X * (k + 1)))
        np.testing.assert_allclose(trainer.w, expected, rtol=1e-12)
        if k == 5:
            traced.clear()
    assert not traced
    assert trainer.seen == 12


def test_derivatives_of_derivatives_in_a_method(traced):
    def products(k, v):
        x = X * k
        _, moved = fx.jvp(fx.grad(lambda w: loss(w, x)), (np.ones(3),), (v,))
        twice = fx.grad(lambda w: (fx.grad(lambda u: loss(u, x))(w) ** 2).sum())(np.ones(3))
        return np.asarray(moved), np.asarray(twice), np.asarray(fx.jacobian(fx.grad(lambda w: loss(w, x)))(np.ones(3)))

    for k in range(1, 10):
        if k == 6:
            traced.clear()
        moved, twice, hessian = products(k, np.arange(3.0))
        expected = np.asarray(fx.hessian(loss)(np.ones(3), X * k))
        np.testing.assert_allclose(moved, expected @ np.arange(3.0), rtol=1e-9)
        np.testing.assert_allclose(twice, 2 * expected @ np.asarray(fx.grad(loss)(np.ones(3), X * k)), rtol=1e-9)
        np.testing.assert_allclose(hessian, expected, rtol=1e-9)
    assert not traced


def of_numbers(k):
    c = float(k)
    return lambda w: (w * c).sum(), np.full(3, k), None


def of_kinds(k):
    a = [np.arange(3.0), np.arange(3), np.float32(2), 5, True, np.array(3.0), np.ones(3, np.float32)][k % 7]
    return lambda w: (w * a).sum(), np.zeros(3) + a, None


def of_dicts(k):
    d = {"a": k, "b": [np.ones(3) * k, k]} if k % 3 else {"b": [np.ones(3) * k, k], "a": float(k), "c": 1}
    return lambda w: (w * d["a"] * d["b"][0]).sum() + d["b"][1], np.full(3, k * k), None


def of_functions(k):
    function, slope = [(np.sin, np.cos), (np.exp, np.exp)][k % 2]
    return lambda w: function(w).sum(), slope(np.ones(3)), None


def of_none(k):
    mask = None if k % 2 else np.ones(3) * k
    return lambda w: w.sum() if mask is None else (w * mask).sum(), np.full(3, 1 if k % 2 else k), None


def of_sizes(k):
    x = np.ones((k + 1, 3)) * k
    return lambda w: (x @ w).sum(), x.sum(0), None


def of_what_it_writes(k):
    log = {"n": 0, "last": None}

    def function(w):
        log["n"] = log["n"] + 1
        log["last"] = w * k
        return (w * k).sum()

    return function, np.full(3, k), lambda: (log["n"], np.asarray(log["last"]).tolist()) == (1, [k] * 3)


def of_inner_functions(k):
    c = float(k)

    def scaled(v):
        return v * c

    return lambda w: scaled(scaled(w)).sum(), np.full(3, k * k), None


@pytest.mark.parametrize(
    "of",
    [of_numbers, of_kinds, of_dicts, of_functions, of_none, of_sizes, of_what_it_writes, of_inner_functions],
    ids=lambda f: f.__name__,
)
def test_functions_of_one_text_have_their_own_variables(of):
    for k in range(16):
        function, expected, holds = of(k)
        np.testing.assert_allclose(np.asarray(fx.grad(function)(np.ones(3))), expected)
        assert holds is None or holds()


def test_a_result_is_that_of_the_variables_at_its_call():
    def slope(k):
        x = np.full(100_000, float(k))
        return x, fx.grad(lambda w: (w * x * w).sum())(np.ones(100_000))

    for k in range(5):
        x, g = slope(k)
        x[:] = -1.0
        assert np.asarray(g)[0] == 2 * k
    kept = [fx.grad(of_numbers(k)[0]) for k in range(5)]
    for each in (kept, kept[::-1]):
        assert sorted(float(np.asarray(slope(np.ones(3)))[0]) for slope in each) == [0, 1, 2, 3, 4]
    assert "staged" in kept[4].explain()


def test_variables_of_many_frames_are_not_held():
    def caller(k):
        x = X * k
        np.asarray(fx.grad(lambda w: loss(w, x))(np.ones(3)))
        return weakref.ref(x)

    gone = [caller(k) for k in range(6)]
    for _ in range(3):
        gc.collect()
    assert [each() for each in gone] == [None] * 6
