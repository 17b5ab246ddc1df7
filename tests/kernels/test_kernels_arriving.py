"""Kernels become ready one by one, in any order, while calls go on: each call is right, whatever is there by then."""

import random

import numpy as np
import pytest

import futurex as fx
from futurex.kernels import compiling
from futurex.tree.pytree import flatten

pytestmark = pytest.mark.onednn
RNG = np.random.default_rng(0)
CALLS = 24


def some(*shape):
    return RNG.normal(size=shape).astype("f4")


def of_net(params, x, y):
    hidden = np.maximum(x @ params["in"] + params["bias"], 0)
    hidden = np.maximum(fx.nn.batch_norm(hidden, params["scale"], params["shift"])[0], 0)
    return fx.nn.softmax_cross_entropy(hidden @ params["out"], y).mean()


def net(params, x, y):
    return fx.value_and_grad(of_net)(params, x, y)


def normalised(x, scale, shift):
    return fx.grad(lambda x: (fx.nn.layer_norm(x, scale, shift) ** 2).sum())(x)


def shares(x):
    def weighed(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return (e / e.sum(-1, keepdims=True) * x).sum()

    return fx.value_and_grad(weighed)(x)


def regions(x):
    return np.tanh(np.exp(np.sin(x)) * np.cos(x)), x.sum(0), (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)


def plate(u):
    u = u.copy()
    for _ in range(3):
        u[1:-1, 1:-1] = 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2])
    return u


def logistic(w, x, y):
    return w - 0.1 * (x.T @ (1 / (1 + np.exp(-(x @ w))) - y))


def images(x, kernel, scale, shift):
    found = fx.nn.batch_norm(fx.nn.conv(x, kernel), scale, shift)[0]
    return fx.nn.max_pool(np.maximum(found, 0), 2).sum()


def slopes(x, kernel, scale, shift):
    return fx.grad(images, (0, 1))(x, kernel, scale, shift)


PARAMS = {"in": some(64, 128), "bias": some(128), "scale": some(128), "shift": some(128), "out": some(128, 10)}
FUNCTIONS = {
    net: (PARAMS, some(256, 64), RNG.integers(0, 10, 256)),
    normalised: (some(64, 2000), some(2000), some(2000)),
    shares: (some(64, 2000),),
    regions: (some(64, 2000),),
    plate: (some(300, 300),),
    logistic: (some(100), some(5000, 100), some(5000)),
    slopes: (some(4, 16, 16, 16), some(3, 3, 16, 32), some(32), some(32)),
}


class OneByOne:
    """In place of the thread that compiles: jobs wait until the test does one of them."""

    def __init__(self, seed):
        self.jobs, self.rng, self.done = [], random.Random(seed), 0

    def one(self):
        if self.jobs:
            self.jobs.pop(self.rng.randrange(len(self.jobs)))()
            self.done += 1


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_calls_are_right_whatever_is_compiled_by_then(function, seed, nothing_is_compiled, monkeypatch):
    arriving = OneByOne(seed)
    monkeypatch.setattr(compiling.background, "submit", arriving.jobs.append)
    futurized, expected = fx.futurize(function), None
    for _ in range(CALLS):
        leaves = [np.asarray(leaf) for leaf in flatten(futurized(*FUNCTIONS[function]))[0]]
        expected = expected or leaves
        for leaf, first in zip(leaves, expected, strict=True):
            np.testing.assert_allclose(leaf, first, rtol=1e-3, atol=1e-4 * np.abs(first).max())
        arriving.one()
    assert arriving.done
    assert not arriving.jobs
