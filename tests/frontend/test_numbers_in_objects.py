"""Objects that a step changes, as models and optimizers are written: arrays that are bound anew, counters, rates, sums.

Neither may cost a trace at every call.
"""

import numpy as np
import pytest

import futurex as fx


class Adam:
    def __init__(self):
        self.t, self.rate, self.seen, self.last = 0, 0.1, 0.0, np.float32(0)
        self.m = self.v = None

    def update(self, w, g):
        if self.m is None:
            self.m, self.v = np.zeros_like(w), np.zeros_like(w)
        self.t += 1
        self.rate *= 0.99
        self.m = 0.9 * self.m + 0.1 * g
        self.v = 0.999 * self.v + 0.001 * g**2
        self.seen += g.sum()
        self.last = g.astype(np.float32)[0]
        return w - self.rate * (self.m / (1 - 0.9**self.t)) / (np.sqrt(self.v / (1 - 0.999**self.t)) + 1e-8)


class Model:
    def __init__(self):
        self.w, self.h, self.n, self.best, self.optimizer = np.ones(3), np.zeros(3), 0, None, Adam()


def adam(model, x):
    model.h = model.w * x
    model.w = model.optimizer.update(model.w, model.h)
    model.n += len(x)
    return model.w.sum(), model.n, model.optimizer.t


def gradient_descent(model, x):
    model.h = model.w * x
    model.w = model.w - 0.1 * model.h
    return model.h.sum()


def in_one_branch(model, x):
    if x.sum() > 3:
        model.n += 1
        model.w = model.w * 2
    return model.n * x


def by_the_counter(model, x):
    if model.n % 3 == 2:
        model.w = model.w - 1
        model.n = 0
    model.n += 1
    if model.n % 2:
        model.optimizer.rate *= 0.5
    return model.w * model.n * model.optimizer.rate


def until(model, x):
    while model.n < 7:
        model.n += 2
        x = x + model.n
    model.n = model.n - 6
    return x


def the_best(model, x):
    loss = (x**2).sum()
    if model.best is None or loss < model.best:
        model.best = loss
        model.n += 1
    return model.best


def place(model, x):
    found = x[model.n]
    model.n = (model.n + 1) % len(x)
    return found


def bound_or_written(model, x):
    if x.sum() > 0:
        model.w = model.w + x
        model.h = x[::-1]
    else:
        model.w *= 2
        model.h[1:] -= 1
    return model.w * model.h


def bound_or_written_through_a_view(model, x):
    model.h = model.w[1:]
    if x.sum() > 2:
        model.w *= 2
    elif x.sum() > 0:
        model.h = x[1:] * 2
    return model.h


def held(value):
    if isinstance(value, Model | Adam):
        return {name: held(each) for name, each in vars(value).items()}
    value = value.result() if isinstance(value, fx.Array) else value
    if isinstance(value, tuple | list):
        return tuple(map(held, value))
    if not isinstance(value, np.ndarray | np.generic):
        return type(value), repr(value)
    return type(value), value.dtype, value.shape, value.tobytes()


def batch(round_):
    return np.array([0.5, 1.0, -2.0]) + round_ % 4


@pytest.mark.parametrize(
    "step",
    [
        adam, gradient_descent, in_one_branch, by_the_counter, until, the_best, place, bound_or_written,
        bound_or_written_through_a_view,
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_steps_on_objects_are_those_of_numpy_and_traced_once_for_each_kind(step):
    futurized, plain, staged = fx.futurize(step), Model(), Model()
    for round_ in range(12):
        assert held(step(plain, batch(round_))) == held(futurized(staged, batch(round_)))
        assert held(plain) == held(staged)
    text = str(futurized.explain())
    assert "plain" not in text
    assert text.startswith((f"{step.__name__}: 1 trace(s)", f"{step.__name__}: 2 trace(s)"))


def test_numbers_that_somebody_else_sets_between_calls():
    futurized, plain, staged = fx.futurize(by_the_counter), Model(), Model()
    for value in (5, 6, 2.0, np.int32(2), -7, 1 << 70, True, 3):
        plain.n = staged.n = value
        for round_ in range(2):
            assert held(by_the_counter(plain, batch(round_))) == held(futurized(staged, batch(round_)))
            assert held(plain) == held(staged)


RATE, SCALE = 1.0, np.float32(2)


def decayed(model, x):
    return (x * model.optimizer.rate + RATE) / (model.n + 1) * SCALE


def decayed_and_changed(model, x):
    if x.sum() > 1:
        model.optimizer.rate *= 0.5
    for _ in range(20):
        model.w = model.w * (1 - model.optimizer.rate)
        model.n += 1
    return model.w


def rounds_by_count(model, x):
    for _ in range(model.n):
        x = x * model.optimizer.rate
    return x


def sizes_by_count(model, x):
    return [x[:model.n] * model.optimizer.rate for _ in range(model.n % 3)]


@pytest.mark.parametrize(
    ("step", "most"), [(decayed, 3), (decayed_and_changed, 3), (rounds_by_count, 3), (sizes_by_count, 4)]
)
def test_numbers_that_somebody_else_changes_between_calls_are_traced_no_more(step, most, monkeypatch):
    futurized, plain, staged = fx.futurize(step), Model(), Model()
    for round_ in range(12):
        for each in (plain, staged):
            each.optimizer.rate, each.n = 0.9**round_, round_
        monkeypatch.setitem(globals(), "RATE", 1.0 / (round_ + 1))
        monkeypatch.setitem(globals(), "SCALE", np.float32(round_))
        assert held(step(plain, batch(round_))) == held(futurized(staged, batch(round_)))
        assert held(plain) == held(staged)
        traces = len(futurized._traces())
    assert traces <= most
    assert "plain" not in str(futurized.explain())


def test_counts_that_grow_beyond_what_a_plan_holds():
    def grow(model, x):
        model.n = model.n * 100003 + 7
        return x * (model.n % 10)

    futurized, plain, staged = fx.futurize(grow), Model(), Model()
    for round_ in range(9):
        assert held(grow(plain, batch(round_))) == held(futurized(staged, batch(round_)))
        assert held(plain) == held(staged)


def test_what_a_step_leaves_alone_is_the_very_object():
    model = Model()
    model.best, kept = fx.futurize(lambda x: x + 1)(np.ones(2)), model.w
    future = model.best

    @fx.futurize
    def step(model, x):
        if x.sum() > 0:
            model.n += 1
        return x

    for _ in range(3):
        np.asarray(step(model, batch(1)))
        assert model.best is future
        assert model.w is kept
    assert model.n == 3


def test_arrays_that_no_trace_takes_may_be_left_alone_or_replaced():
    class Labelled(Model):
        def __init__(self):
            super().__init__()
            self.names = np.array(["a", None], object)
            self.seen = np.array([[None]])

    @fx.futurize
    def step(model, x):
        if x.sum() > 0:
            model.n += 1
        model.seen = x * 2
        model.w = model.w * x
        return model.w.sum()

    model = Labelled()
    names = model.names
    for round_ in range(1, 4):
        assert step(model, batch(1)) == (batch(1) ** round_).sum()
        assert model.names is names
        np.testing.assert_array_equal(model.seen, batch(1) * 2)
    assert "plain" not in str(step.explain())
    assert (type(model.w), model.n) == (np.ndarray, 3)


def test_an_object_is_whole_again_where_it_cannot_be_traced():
    def step(model, x):
        model.n += 1
        model.w = model.w * x
        return str(model.w)

    model = Model()
    w = model.w
    with pytest.raises(fx.StagingError):
        fx.futurize(step, escape="error")(model, batch(1))
    assert model.w is w
    assert fx.futurize(step)(model, batch(1)) == str(batch(1))
    assert (type(model.w), model.n) == (np.ndarray, 1)
