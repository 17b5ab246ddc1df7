"""Reductions in a free order: sums over all rows beside work along them, passes one behind the other, and their results
whatever the number of threads."""

import numpy as np
import pytest

from futurex.autodiff import pullback
from futurex.kernels.numba_ import NumbaBackend, compiler, past, staggered
from futurex.kernels.numba_.sweep import Sweep
from futurex.passes.pipeline import DEVICE_PASSES, optimise
from futurex.tree import Aval, Graph, apply, param

SHAPES = [(8, 16), (9, 64), (8, 65), (33, 100), (64, 128), (70, 333), (1024, 96), (1027, 65), (5, 7, 80), (16, 3000)]
SHAPES += [(3, 16384)]
SHAPES += [(7, 450), (40, 1000)]  # two rows of two operands are what the nearest cache holds, of doubles and of singles
EXACT = {"f4": 2e-5, "f8": 1e-12}


def p(shape, dtype="f4", name="x"):
    return param(Aval(shape, np.dtype(dtype)), name)


def free(x, axis, op="free_sum", keepdims=True):
    return apply(op, x, axis=axis, keepdims=keepdims)


def softmax(x, last):
    e = apply("exp", x - free(x, last, "free_max"))
    return e * (1.0 / free(e, last))


def crossed(x, g, last, rows):
    """Work along rows that ends in sums over all of them, of values of the first and of the last pass."""
    centred = x - free(x, last) / float(x.shape[-1])
    power = free(centred * centred, last)
    back = (g - centred * (free(g * centred, last) / (power + 1.0))) * 0.5
    return back, free(g * centred, rows, keepdims=False), free(g, rows, keepdims=False), power


def kept(q, last):
    """Costly values that all three passes need."""
    centred = q - free(q, last) / float(q.shape[-1])
    return centred / (free(centred * q, last) + 1.0), free(q, last)


GRAPHS = {
    "softmax": lambda x, g, last, rows: (softmax(x, last),),
    "crossed": crossed,
    "kept": lambda x, g, last, rows: kept(x / (g * g + 1.0), last),
    "product": lambda x, g, last, rows: (g * free(x, last), free(x * g, rows, keepdims=False)),
    "function and sums": lambda x, g, last, rows: (
        softmax(x, last) * g, free(softmax(x, last) * g, rows, keepdims=False), free(x, last, "free_max"),
    ),
    "over rows alone": lambda x, g, last, rows: (
        free(x * g, rows, keepdims=False), free(x, rows, keepdims=False), x - g,
    ),
    "one pass": lambda x, g, last, rows: (x + g, free(x + g, last), free(x - g, rows, keepdims=False)),
}  # fmt: skip


def made(name, shape, dtype):
    x, g = p(shape, dtype), p(shape, dtype, "g")
    outs = GRAPHS[name](x, g, (len(shape) - 1,), tuple(range(len(shape) - 1)))
    return Graph([x, g], outs, "region")


def run(graph, inputs, threads):
    node = apply("fused_reduction", *(param(each.aval) for each in graph.params), graph=graph)
    kernel = NumbaBackend().claim(node, threads)
    assert kernel is not None
    outs = [np.full(out.shape, 77, out.dtype) for out in graph.outs]
    for _ in range(2):  # scratch memory begins anew
        kernel.call(tuple(outs) if len(outs) > 1 else outs[0], *inputs)
    assert kernel.late.interpreted == 0
    return outs


@pytest.fixture(params=["usual", "past the caches"], autouse=True)
def stores(request, monkeypatch):
    monkeypatch.setattr(past, "last_cache", lambda: 0 if request.param == "past the caches" else 1 << 62)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", GRAPHS)
def test_results_are_those_of_double_precision_on_any_number_of_threads(name, dtype, monkeypatch):
    monkeypatch.setattr("futurex.kernels.numba_.program.PARALLEL_BYTES", 0)
    rng = np.random.default_rng(0)
    for shape in SHAPES:
        graph = made(name, shape, dtype)
        inputs = [rng.normal(size=shape).astype(dtype) + 0.5 for _ in graph.params]
        expected = made(name, shape, "f8")(*(each.astype("f8") for each in inputs))
        first = run(graph, inputs, 1)
        for actual, exact in zip(first, expected, strict=True):
            assert np.abs(actual - exact).max() <= EXACT[dtype] * max(1.0, np.abs(exact).max()), (shape, name)
        for threads in (2, 3, 5):
            for actual, other in zip(run(graph, inputs, threads), first, strict=True):
                assert np.array_equal(actual, other), (shape, threads)


def test_nan_and_infinity_stay_in_their_rows():
    graph = made("softmax", (40, 200), "f4")
    values = np.random.default_rng(1).normal(size=(40, 200)).astype("f4")
    values[3, 7], values[5, 199], values[8, 0], values[11] = np.nan, np.inf, -np.inf, -np.inf
    values[20, 64:128] = np.nan
    (actual,) = run(graph, [values, values], 2)
    with np.errstate(all="ignore"):
        e = np.exp(values - values.max(1, keepdims=True))
        expected = e / e.sum(1, keepdims=True)
    assert np.array_equal(np.isnan(actual), np.isnan(expected))
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-7)


def test_the_largest_number_is_one_of_the_elements():
    x = p((30, 100))
    values = np.random.default_rng(2).normal(size=(30, 100)).astype("f4")
    (actual,) = run(Graph([x], [free(x, (1,), "free_max")], "top"), [values], 1)
    assert np.array_equal(actual, values.max(1, keepdims=True))


def test_integers_are_added_up_exactly():
    x = p((300, 50), "i8")
    values = np.random.default_rng(3).integers(-(10**6), 10**6, (300, 50))
    outs = [free(x, (1,)), free(x, (0,), keepdims=False)]
    rows, columns = run(Graph([x], outs, "totals"), [values], 3)
    assert np.array_equal(rows, values.sum(1, keepdims=True))
    assert np.array_equal(columns, values.sum(0))


@pytest.mark.skipif(not compiler.has_fma(), reason="the processor has no fused multiply-add")
@pytest.mark.parametrize("axis", [0, 1])
def test_products_are_added_in_one_rounding(axis):
    """Of two products that nearly cancel the difference is left, which a product that was rounded does not have."""
    a = np.float32(1 + 2.0**-12)
    x, g = np.zeros((2, 40, 128), "f4")
    second = (1, 0) if axis == 0 else (0, 64)  # added to the same total as the first element
    x[0, 0], g[0, 0] = -(a * a), 1
    x[second] = g[second] = a
    nodes = p((40, 128)), p((40, 128), name="g")
    (sums,) = run(Graph(nodes, [free(nodes[0] * nodes[1], (axis,), keepdims=False)], "sums"), [x, g], 1)
    assert sums[0] == float(a) * float(a) - float(a * a) != 0


def test_which_kernels_run_their_passes_one_behind_the_other():
    apart, folded = [{0: 0, 1: 1, 2: 2}], [{0: 0, 2: 1}, {1: 0}]
    found = {}
    for name in GRAPHS:
        sweep = Sweep(made(name, (512, 1024), "f4"))
        found[name] = staggered.trips(sweep, 1024) if staggered.suits(sweep, 1024) else None
    assert found == {
        "softmax": apart, "crossed": folded, "kept": folded, "product": [{0: 0, 1: 1}], "function and sums": apart,
        "one pass": None, "over rows alone": None,
    }  # fmt: skip
    assert staggered.trips(Sweep(made("crossed", (512, 512), "f4")), 512) == apart
    assert not staggered.suits(Sweep(made("crossed", (512, 1040), "f4")), 1040)
    x = p((512, 100))
    light = Graph([x], [x * free(x, (1,))], "light")
    assert staggered.suits(Sweep(light), 100)
    assert not staggered.suits(Sweep(light), 3000)
    of_numpy = Graph([x], [x * apply("sum", x, axis=(1,), keepdims=True, dtype=None)], "ordered")
    assert not staggered.suits(Sweep(of_numpy), 100)


@pytest.mark.parametrize("shape", [(640, 96), (12, 50, 128)])
def test_backward_layer_normalisation_is_one_kernel(shape):
    x, scale, shift = p(shape), p(shape[-1:], name="scale"), p(shape[-1:], name="shift")
    slopes = pullback(Graph([x, scale, shift], [apply("layer_norm", x, scale, shift, eps=1e-5)], "norm"), [0, 1, 2])
    found = optimise(slopes)
    assert [node.op for node in found.nodes if node.inputs and node.op != "item"] == ["fused_reduction"]
    rng = np.random.default_rng(4)
    inputs = [rng.normal(size=each.shape).astype("f4") for each in slopes.params]
    for actual, exact in zip(found(*inputs), slopes(*(each.astype("f8") for each in inputs)), strict=True):
        np.testing.assert_allclose(actual, exact, rtol=1e-4, atol=1e-4)
    assert not any(node.op == "free_sum" for node in optimise(slopes, passes=DEVICE_PASSES).nodes)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("count", [24, 31, 40, 63, 64, 75, 90])
@pytest.mark.parametrize("name", ["softmax", "one pass"])
def test_rows_that_are_no_whole_number_of_vectors(name, count, dtype, monkeypatch):
    """Rows of a stack beside those of one matrix, as they lie: sixteen elements, eight, and the rest one by one."""
    monkeypatch.setattr("futurex.kernels.numba_.program.PARALLEL_BYTES", 0)
    rng = np.random.default_rng(count)
    x, g = p((5, 6, 7, count), dtype), p((6, 1, count), dtype, "g")
    value = x * g
    total = free(value, (3,))
    outs = (free(value, (3,), "free_max"), total) if name == "one pass" else (softmax(value, (3,)),)
    graph = Graph([x, g], outs, "region")
    inputs = [rng.normal(size=each.shape).astype(dtype) for each in graph.params]
    products = (inputs[0] * inputs[1]).astype("f8")
    powers = np.exp(products - products.max(-1, keepdims=True))
    expected = {"one pass": (products.max(-1, keepdims=True), products.sum(-1, keepdims=True)),
                "softmax": (powers / powers.sum(-1, keepdims=True),)}[name]  # fmt: skip
    for threads in (1, 3):
        for actual, exact in zip(run(graph, inputs, threads), expected, strict=True):
            assert np.abs(actual - exact).max() <= EXACT[dtype] * max(1.0, np.abs(exact).max())
