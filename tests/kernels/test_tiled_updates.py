"""Updates by products of many rows: each tile goes from the product into the update, and is never written by itself."""

import re

import numpy as np
import pytest
from blockwise import close, planned, spread_alike, trained

import futurex as fx
from futurex.kernels.backends import default_backends
from futurex.kernels.numba_ import panels
from futurex.kernels.numpy_ import NumpyBackend
from futurex.runtime.plan import compile_plan

pytestmark = [
    pytest.mark.onednn,
    pytest.mark.skipif(all(each.name != "gemm" for each in default_backends()), reason="FUTUREX_BACKENDS has no gemm"),
]

TOLERANCE = 2e-5
SHAPES = [(128, 784, 512), (17, 701, 515), (300, 1003, 333), (512, 600, 520)]


def descent(w, m, x, g, rate):
    return w - (x.T @ g) * rate, m * 2


def adam(w, m, x, g, rate):
    d = x.T @ g
    v = np.abs(w) * np.float32(0.99) + d * d * np.float32(0.01)
    m = m * np.float32(0.9) + d * np.float32(0.1)
    return w - rate * m / (np.sqrt(v) + np.float32(1e-3)), m, v


def swapped(w, m, x, g, rate):
    d = x.T @ g
    return m - d * rate, w + d


def data(batch, rows, columns):
    rng = np.random.default_rng(0)
    w, m = rng.normal(size=(2, rows, columns)).astype(np.float32)
    return w, m, *(rng.normal(size=(batch, width)).astype(np.float32) for width in (rows, columns)), np.float32(0.125)


def precise(function, arguments):
    return function(*(np.float64(each) for each in arguments))


class _UnderWay:
    """Code that is not there yet."""

    ready = False


def test_numpy_computes_updates_until_their_code_is_there(monkeypatch):
    arguments = data(*SHAPES[0])
    program, plan, made = planned("rank_update", adam, arguments)
    monkeypatch.setattr(type(made.kernel.late), "entry_for", lambda loop, addresses: _UnderWay)
    close(plan.run(program.flatten(*arguments)), precise(adam, arguments), TOLERANCE)
    assert made.kernel.late.interpreted == 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("function", [descent, adam])
def test_values_are_those_of_double_precision_on_any_number_of_threads(function, shape):
    arguments = data(*shape)
    found = []
    for threads in (1, 2, 3):
        program, plan, made = planned("rank_update", function, arguments, threads=threads)
        assert made.kernel.backend == "gemm"
        found.append(plan.run(program.flatten(*arguments)))
        assert made.kernel.late.interpreted == 0
    close(found[0], precise(function, arguments), TOLERANCE)
    for other in found[1:]:
        for first, second in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("function", [adam, swapped])
def test_no_row_is_updated_twice_in_the_memory_of_operands(function, shape):
    arguments = data(*shape)
    program = fx.lower(function, *arguments)
    plan = compile_plan(program.graph, threads=2, donate={0: 0, 1: 1})
    given = [np.array(each) for each in program.flatten(*arguments)]
    found = plan.run(given)
    assert found[0] is given[0]
    assert found[1] is given[1]
    close(found, precise(function, arguments), TOLERANCE)


def test_states_do_not_add_to_the_lines_that_are_asked_for_at_once():
    def asked(function, donate):
        arguments = data(*SHAPES[0])
        program = fx.lower(function, *arguments)
        plan = compile_plan(program.graph, threads=2, donate=donate)
        (made,) = (each for each in plan.instructions if each.node.op == "rank_update")
        aliases = -1, -1, *range(len(donate))  # the factors, and matrices that results lie on
        text = made.kernel.late.program.text(aliases)
        rows = [int(each) for each in re.findall(r"select i1 \S+, i64 1, i64 (\d+)", text)]  # of a tile, which may be
        return [each * text.count(", i32 1, i32 3, i32 1)") // len(rows) for each in rows]  # several times in the code

    def momentum(w, m, x, g, rate):
        m = m * np.float32(0.9) + x.T @ g
        return w - m * rate, m

    plain = asked(lambda w, m, x, g, rate: w - (x.T @ g) * rate, {0: 0})
    assert plain == ([6] if panels.is_narrow() else [6 * 4, 6 * 4])
    assert asked(momentum, {0: 0, 1: 1}) == plain


def test_a_factor_is_not_written_over():
    """It may have the shape of a result, but all tiles read it."""

    def square(w, x, g):
        return w - x.T @ g

    rng = np.random.default_rng(2)
    w, x, g = rng.normal(size=(3, 512, 512)).astype(np.float32)
    program = fx.lower(lambda w, x, g: square(w * 2, x * 2, g * 2), w, x, g)
    found = compile_plan(program.graph, threads=2).run(program.flatten(w, x, g))
    close(found, [square(*(2 * np.float64(each) for each in (w, x, g)))], TOLERANCE)


def test_numbers_that_the_run_computes_and_states_of_other_dtypes():
    def function(w, m, x, g, rate):
        m = m * 0.5 + x.T @ g
        return w - (m * (rate * np.abs(g).max())).astype(w.dtype), m, m > 0

    w, m, x, g, rate = data(64, 700, 400)
    arguments = w, np.float64(m), x, g, rate
    program, plan, _ = planned("rank_update", function, arguments, threads=2)
    for _ in range(2):
        found = plan.run(program.flatten(*arguments))
    assert [each.dtype for each in found] == [np.float32, np.float64, np.bool_]
    wanted = precise(function, arguments)
    close(found[:2], wanted[:2], TOLERANCE)
    assert np.mean(found[2] == wanted[2]) > 0.999


def test_nan_and_infinity_pass_through():
    spread_alike(adam, data(128, 784, 512))


def test_without_a_kernel_there_are_a_product_and_a_region():
    """A processor without wide vectors runs what it ran before the two were joined."""
    arguments = data(128, 784, 512)
    program = fx.lower(adam, *arguments)
    others = [each for each in default_backends() if each.name != "gemm"]
    for backends in (others, [NumpyBackend()]):
        plan = compile_plan(program.graph, backends=backends)
        assert {"matmul", "fused"} <= {each.node.op for each in plan.instructions}
        close(plan.run(program.flatten(*arguments)), precise(adam, arguments), TOLERANCE)


@pytest.mark.parametrize("optimizer", [fx.optim.sgd(1e-3), fx.optim.adam(1e-3, eps=1e-2)])
def test_training_steps_of_dense_layers(optimizer):
    rng = np.random.default_rng(1)
    params = [rng.normal(size=shape).astype(np.float32) / 20 for shape in ((784, 512), (512, 512), (512, 10))]
    x, y = rng.normal(size=(128, 784)).astype(np.float32), rng.integers(0, 10, 128)

    def loss(params, x, y):
        h = np.maximum(np.maximum(x @ params[0], 0) @ params[1], 0)
        return fx.nn.softmax_cross_entropy(h @ params[2], y).mean()

    train = trained(loss, params, optimizer, x, y, steps=12, atol=2e-4)
    assert "rank_update" in {row.op for row in train.profile()}
