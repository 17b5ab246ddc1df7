"""Updates by products of few rows in one trip through the matrices, with the input gradient beside it."""

import numpy as np
import pytest
from blockwise import close, precisely, spread_alike, trained

import futurex as fx
from futurex.passes.pipeline import optimise
from futurex.runtime.plan import compile_plan

pytestmark = pytest.mark.onednn

TOLERANCE = 1e-5


def momentum(w, m, x, g, rate):
    m = m * np.float32(0.9) + x.T @ g
    return w - m * rate, m


def momentum_and_back(w, m, x, g, rate):
    back = g @ w.T
    return (*momentum(w, m, x, g, rate), back * np.float32(2))


def plain(w, m, x, g, rate):
    return w - (x.T @ g) * rate, g @ w.T, m.sum()


def adam(w, m, x, g, rate):
    d = x.T @ g
    v = np.abs(w) * np.float32(0.99) + d * d * np.float32(0.01)
    m = m * np.float32(0.9) + d * np.float32(0.1)
    return w - rate * m / (np.sqrt(v) + np.float32(1e-6)), m, v, g @ w.T


def data(batch, rows, columns, dtype=np.float32):
    rng = np.random.default_rng(0)
    w, m = rng.normal(size=(2, rows, columns)).astype(dtype)
    return w, m, *(rng.normal(size=(batch, width)).astype(dtype) for width in (rows, columns)), np.float32(0.125)


@pytest.mark.parametrize("shape", [(8, 700, 512), (1, 513, 1001), (16, 4099, 70), (3, 65, 4111)])
@pytest.mark.parametrize("function", [momentum, momentum_and_back, plain, adam])
@pytest.mark.parametrize("threads", [1, 2])
def test_values_are_those_of_double_precision(function, shape, threads):
    arguments = data(*shape)
    wanted = function(*(np.float64(each) for each in arguments))
    precisely("rank_update", function, arguments, wanted, threads, TOLERANCE)


@pytest.mark.parametrize("function", [momentum_and_back, adam])
@pytest.mark.parametrize("threads", [1, 2])
def test_results_in_the_memory_of_operands(function, threads):
    """The weights are read for the product before they are overwritten."""
    arguments = data(8, 700, 512)
    program = fx.lower(function, *arguments)
    plan = compile_plan(program.graph, threads=threads, donate={0: 0, 1: 1})
    given = [np.array(each) for each in program.flatten(*arguments)]
    found = plan.run(given)
    assert found[0] is given[0]
    assert found[1] is given[1]
    close(found, function(*(np.float64(each) for each in arguments)), TOLERANCE)


def test_results_in_the_memory_of_the_other_operand():
    def swapped(w, m, x, g, rate):
        d = x.T @ g
        return m - d * rate, w + d, g @ w.T

    arguments = data(8, 700, 512)
    program = fx.lower(swapped, *arguments)
    given = [np.array(each) for each in program.flatten(*arguments)]
    found = compile_plan(program.graph, threads=2, donate={0: 0, 1: 1}).run(given)
    close(found, swapped(*(np.float64(each) for each in arguments)), TOLERANCE)


def test_nan_and_infinity_pass_through():
    spread_alike(momentum_and_back, data(8, 700, 512))


def test_a_training_step_of_a_dense_layer():
    """The first layer needs no input gradient."""
    rng = np.random.default_rng(1)
    params = [rng.normal(size=shape).astype(np.float32) / 20 for shape in ((700, 512), (512, 640))]
    x, y = rng.normal(size=(8, 700)).astype(np.float32), rng.normal(size=(8, 640)).astype(np.float32)
    optimizer = fx.optim.sgd(1e-4, 0.9)

    def loss(params, x, y):
        error = np.tanh(x @ params[0]) @ params[1] - y
        return (error * error).sum()

    train = trained(loss, params, optimizer, x, y, steps=3, atol=1e-5)
    assert "rank_update" in {row.op for row in train.profile()}


@pytest.mark.parametrize(
    ("function", "shape", "dtype"),
    [
        (lambda w, m, x, g, rate: w - rate * (x.T @ g).cumsum(axis=0), (8, 700, 512), "f4"),
        (lambda w, m, x, g, rate: (x.T @ g, w - rate * (x.T @ g)), (8, 700, 512), "f4"),  # the gradient is a result
        (lambda w, m, x, g, rate: w - rate * (x.T @ g) + g[0], (8, 700, 512), "f4"),  # not whole matrices alone
        (momentum, (513, 700, 512), "f4"),
        (momentum, (8, 70, 512), "f4"),
        (momentum, (8, 700, 512), "f8"),
    ],
)
def test_what_is_left_alone(function, shape, dtype):
    arguments = data(*shape, dtype)
    program = fx.lower(function, *arguments)
    assert all(node.op != "rank_update" for node in optimise(program.graph).nodes)
    wanted = function(*arguments)
    found = compile_plan(program.graph).run(program.flatten(*arguments))
    close(found, wanted if isinstance(wanted, tuple) else (wanted,), TOLERANCE)
