"""What training by fit refuses before anything runs, and optimizers that return what is not theirs to return."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import futurex as fx

pytestmark = pytest.mark.onednn

WAIT = 60
_X = np.random.default_rng(0).normal(size=(50, 3))
GOOD, DATA = {"w": np.zeros(3), "b": np.zeros(())}, (_X, _X @ np.arange(1.0, 4.0) + 0.5)


def mean_square(params, x, y):
    return ((x @ params["w"] + params["b"] - y) ** 2).mean()


def fit(*args, **options):
    return fx.fit(*args, **{"progress": False, **options})


@pytest.mark.parametrize(
    "options, kind, said",
    [
        ({"batchsize": 3}, TypeError, "fit has no option 'batchsize'; did you mean 'batch_size'?"),
        ({"zzz": 3}, TypeError, "it has optimizer, epochs, batch_size"),
        ({"epochs": 0}, ValueError, "epochs must be at least 1, not 0"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
        ({"seed": -1}, ValueError, "seed must be at least 0"),
        ({"epochs": 1.5}, TypeError, "epochs must be a whole number, not 1.5"),
        ({"data": ()}, ValueError, "data is empty"),
        ({"data": {"x": np.ones(3)}}, TypeError, "data is a tuple of arrays in the order of the loss's parameters"),
        ({"data": (DATA[0], DATA[1][:7])}, ValueError, "(50, 3), (7,)"),
        ({"data": (DATA[0][:0], DATA[1][:0])}, ValueError, "no examples: shapes (0, 3), (0,)"),
        ({"data": (DATA[0], np.array(["a"] * 50))}, TypeError, "data[1]"),
        ({"data": (np.ma.masked_greater(DATA[0], 1.0), DATA[1])}, TypeError, "data[0] is a MaskedArray, not a plain"),
        ({"data": (row for row in DATA)}, TypeError, "not a generator: gather what it yields first"),
        ({"params": {}}, ValueError, "no arrays"),
        ({"params": {"w": np.ma.masked_less(np.ones(3), 0.0), "b": 0.0}}, TypeError, "params/w is a MaskedArray"),
        ({"params": {"w": np.zeros(3, int), "b": np.zeros(())}}, TypeError, "params/w is int64"),
        ({"loss": 3}, TypeError, "not a int"),
        ({"loss": lambda p, x, y: x @ p["w"]}, ValueError, "an array of shape (50,); take its .mean()"),
        ({"loss": lambda p, x, y: (mean_square(p, x, y), 3)}, TypeError, "dict of scalars"),
        ({"loss": lambda p, x, y: (x @ p["w"][:2]).mean()}, ValueError, "matmul"),
        ({"loss": lambda p, x, y: (mean_square(p, x, y), {"loss": y.mean()})}, ValueError, "'loss' is already"),
        ({"loss": lambda p, x, y: (x @ p["w"]).astype(int).sum()}, TypeError, "a real number with a gradient; it ret"),
        ({"loss": lambda p, x, y: (x @ p["w"]).sum() * 1j}, TypeError, "it returns complex128"),
        ({"metrics": {"m": mean_square}}, ValueError, "give validation=(x, y)"),
        ({"validation": DATA, "metrics": {"m": 3}}, TypeError, "the metric 'm' is a function (params, *batch), not 3"),
        ({"min_workers": 2}, ValueError, "min_workers is for runs that workers may leave and join: commit_every=10"),
        ({"max_workers": 2}, ValueError, "max_workers is for runs that workers may leave and join: commit_every=10"),
        ({"stall_seconds": 2.0}, ValueError, "stall_seconds is for runs that"),
        ({"wait_seconds": 2.0}, ValueError, "wait_seconds is for runs that"),
        ({"validation": DATA, "metrics": mean_square}, TypeError, "metrics is a dict of functions by name"),
        ({"validation": (DATA[0],)}, ValueError, "validation must be like data"),
        ({"validation": DATA, "metrics": {"val_loss": mean_square}}, ValueError, "'val_loss' is already"),
        ({"validation": DATA, "metrics": {"m": lambda p, x, y: x}}, ValueError, "'m' must return a scalar"),
        ({"loss": lambda p, x, y, key: mean_square(p, x, y), "validation": DATA}, TypeError, "`key=None`"),
        ({"optimizer": 0.1}, TypeError, "fx.optim.adam"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_before_anything_runs(options, kind, said):
    taken = {"loss": mean_square, "params": GOOD, "data": DATA, "batch_size": 50, **options}
    with pytest.raises(kind, match=re.escape(said)):
        fit(taken.pop("loss"), taken.pop("params"), taken.pop("data"), **taken)


def test_an_optimizer_that_changes_a_dtype_is_refused():
    class Careless:
        def init(self, params):
            return {"lr": np.float64(0.1)}

        def update(self, params, grads, state):
            return {name: params[name] - state["lr"] * grads[name] for name in params}, state

    params = {"w": np.zeros(3, np.float32), "b": np.zeros((), np.float32)}
    with pytest.raises(TypeError, match=re.escape("params/w from float32[3] into float64[3]")):
        fit(mean_square, params, DATA, optimizer=Careless())


def test_an_optimizer_whose_state_cannot_be_traced_is_refused():
    class Counting:
        def init(self, params):
            return {"count": 0}

        def update(self, params, grads, state):
            return params, state

    with pytest.raises(TypeError, match="count is a int"):
        fit(mean_square, GOOD, DATA, optimizer=Counting())


@dataclass(frozen=True)
class Descent:
    """Gradient descent with a state of two alike, and whatever is done to what it returns."""

    returned: Any

    def init(self, params):
        return {"steps": 0.0, "twice": 0.0}

    def update(self, params, grads, state):
        moved = {name: params[name] - 0.1 * grads[name] for name in params}
        return self.returned(moved, {"steps": state["steps"] + 1.0, "twice": state["twice"] + 2.0})


def backwards(nest):
    return {name: nest[name] for name in list(nest)[::-1]}


STRATEGIES = [fx.strategy.all_reduce(), fx.strategy.cross_barrier(), fx.strategy.parameter_server()]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_what_an_optimizer_returns_in_another_order_is_put_in_that_of_the_parameters(strategy):
    params = {"v": np.zeros(3), "w": np.ones(3), "b": np.zeros(())}  # v and w could be mistaken for each other
    x, y = DATA

    def loss(params, x, y):
        return ((x @ params["v"] + (x * x) @ params["w"] + params["b"] - y) ** 2).mean()

    def trained(returned):
        options = {"batch_size": 10, "epochs": 2, "progress": False, "strategy": strategy}
        run = fx.fit(loss, params, (x, y), optimizer=Descent(returned), **options)
        return run.result(WAIT), run.state

    expected, state = trained(lambda params, state: (params, state))
    found, turned = trained(lambda params, state: [backwards(params), backwards(state)])
    assert list(found) == list(params)
    assert turned == state == {"steps": 10.0, "twice": 20.0}
    for name in params:
        np.testing.assert_array_equal(found[name], expected[name])


@pytest.mark.parametrize(
    "returned, said",
    [
        (lambda params, state: params, "update(params, grads, state) returns (params, state), not a dict"),
        (lambda params, state: (params, state, 3), "returns (params, state), not a tuple of 3"),
        (lambda params, state: None, "returns (params, state), not a NoneType"),
        (lambda params, state: ({"w": params["w"]}, state), "its params lacks params/b"),
        (lambda params, state: (params, {"steps": state["steps"]}), "its state lacks state/twice"),
        (lambda params, state: (params, {**state, "third": 1.0}), "its state has state/third besides"),
        (lambda params, state: (params, {"steps": 1.0, "all": 1.0}), "lacks state/twice, has state/all besides"),
    ],
)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_an_optimizer_that_returns_something_else_is_refused(returned, said, strategy):
    with pytest.raises(TypeError, match=re.escape(said)):
        fit(mean_square, GOOD, DATA, optimizer=Descent(returned), strategy=strategy)
