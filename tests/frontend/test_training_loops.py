"""Training written out in one function: gradients and optimizers in a loop over batches are one loop of the tree."""

import numpy as np
import pytest

import futurex as fx
from futurex.tree.pytree import flatten

X = np.random.default_rng(0).normal(size=(160, 6)).astype("f4")
Y = np.random.default_rng(1).integers(0, 3, 160)
W = (np.random.default_rng(2).normal(size=(6, 3)) / 3).astype("f4")
OPTIMIZERS = {
    "sgd": fx.optim.sgd(0.1),
    "momentum": fx.optim.sgd(0.1, momentum=0.9, nesterov=True),
    "adam": fx.optim.adam(1e-2),
    "adamw": fx.optim.adamw(1e-2),
    "rmsprop": fx.optim.rmsprop(1e-2),
    "adagrad": fx.optim.adagrad(1e-2),
    "lamb": fx.optim.lamb(1e-2),
    "lars": fx.optim.lars(1e-2),
    "clipped": fx.optim.clipped(fx.optim.adam(1e-2), 0.5),
    "scheduled": fx.optim.scheduled(fx.optim.sgd(0.1), fx.optim.cosine(0.1, 100)),
    "ema": fx.optim.ema(fx.optim.adam(1e-2), 0.9),
}


def loss(params, x, y):
    return fx.nn.softmax_cross_entropy(x @ params["w"] + params["b"], y).mean()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_epoch_is_one_loop(name):
    optimizer = OPTIMIZERS[name]
    value_and_gradient = fx.value_and_grad(loss)

    def epoch(params, state, x, y):
        total = np.float32(0)
        for i in range(0, len(x), 4):
            value, gradient = value_and_gradient(params, x[i : i + 4], y[i : i + 4])
            params, state = optimizer.update(params, gradient, state)
            total = total + value
        return params, state, total / len(x)

    params = {"w": W, "b": np.zeros(3, "f4")}
    f = fx.futurize(epoch)
    found = f(params, optimizer.init(params), X, Y)
    assert "unrolled" not in f.explain()
    assert sum(node.op == "loop" for node in f.graph(params, optimizer.init(params), X, Y).nodes) == 1
    with fx.disable():
        wanted = epoch(params, optimizer.init(params), X, Y)
    for mine, other in ((found[0]["w"], wanted[0]["w"]), (found[0]["b"], wanted[0]["b"]), (found[2], wanted[2])):
        np.testing.assert_allclose(mine, other, rtol=2e-5, atol=2e-6)


def test_what_a_derivative_returns_is_the_loops_own():
    """It may be changed in place, is another one in each round, and may be kept."""

    def descend(params):
        kept = params
        for _ in range(30):
            gradient = fx.grad(lambda p: (p["w"] ** 2).sum() + p["b"] * p["b"])(params)
            gradient["w"] *= 0.5
            kept = gradient
            params = {key: params[key] - 0.1 * gradient[key] for key in params}
        return params, kept

    params = {"w": np.arange(4.0), "b": 2.0}
    f = fx.futurize(descend)
    found, wanted = f(params), None
    with fx.disable():
        wanted = descend(params)
    for mine, other in zip(found, wanted, strict=True):
        for key in params:
            np.testing.assert_allclose(mine[key], other[key], rtol=1e-12)
    assert "unrolled" not in f.explain()
    assert params["w"].tolist() == [0, 1, 2, 3]


def test_jacobians_and_maps_in_loops():
    def rotated(x):
        for _ in range(30):
            turned = fx.jacobian(lambda x: {"a": np.sin(x), "b": [x * 2]})(x)
            many = fx.vmap(lambda row: {"sum": row.sum(), "row": row * 0.5})(turned["a"])
            x = 0.5 * x + 0.1 * many["row"].sum(axis=0) + 0.01 * turned["b"][0].sum(axis=0)
        return x

    f = fx.futurize(rotated)
    x = np.linspace(-1, 1, 3)
    with fx.disable():
        wanted = rotated(x)
    np.testing.assert_allclose(f(x), wanted, rtol=1e-6)
    assert "unrolled" not in f.explain()


HELD = {"w": np.ones(3), "b": [np.zeros(2), 2.0]}


def held_loss(params, x):
    return ((params["w"] * x) ** 2).sum() + params["b"][1] * params["b"][0].sum()


class Model:
    def __init__(self):
        self.params = {"w": np.ones(3), "b": [np.zeros(2), 2.0]}

    def step(self, x):
        gradient = fx.grad(held_loss)(self.params, x)
        self.params["w"] = self.params["w"] - 0.1 * gradient["w"]
        return gradient

    def slope(self, x):
        return fx.jvp(held_loss, (self.params, x), (self.params, x))


def test_derivatives_of_what_objects_and_names_hold():
    """Arrays in a dict that the function was not given are inputs, read at every call."""
    x = np.arange(3.0)
    for function, arguments in (
        (lambda x: fx.grad(held_loss)(HELD, x), ()), (Model.step, (Model(),)), (Model.slope, (Model(),)),
    ):  # fmt: skip
        f = fx.futurize(function)
        other = Model()
        for scale in (1, 2, 3):
            found = f(*arguments, scale * x)
            with fx.disable():
                wanted = function(*(other,)[: len(arguments)], scale * x)
            leaves = [np.asarray(each) for each in flatten(found)[0]]
            for mine, theirs in zip(leaves, flatten(wanted)[0], strict=True):
                np.testing.assert_allclose(mine, theirs)
        assert "plain NumPy" not in f.explain()
        assert "1 trace(s)" in f.explain()
    HELD["w"][:] = 5.0
    assert np.asarray(fx.futurize(lambda x: fx.grad(held_loss)(HELD, x))(x)["w"]).tolist() == [0, 10, 40]
    HELD["w"][:] = 1.0
