"""Convolutions over one axis as products of transforms: the algorithm, its three forms, and the order of axes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import futurex.ops  # noqa: F401  (registers the records)
from futurex.autodiff import value_and_grad
from futurex.ops.spectra import algorithm, period_of, rank_of
from futurex.passes import spectral
from futurex.passes.layout import swap
from futurex.passes.pipeline import optimise
from futurex.passes.spectral import transform_convolutions
from futurex.tree import Aval, Graph, apply, param

F4 = np.dtype("f4")


def p(*shape, dtype=F4, name="x"):
    return param(Aval(shape, np.dtype(dtype)), name)


def ops_of(graph):
    return [node.op for node in graph.nodes if node.op not in ("param", "const", "item")]


def conv(x, w, padding=((0, 0),), stride=(1,), dilation=(1,), groups=1):
    return apply("conv", x, w, stride=stride, padding=padding, dilation=dilation, groups=groups)


def total(x):
    return apply("sum", x, axis=None, keepdims=False, dtype=None)


@pytest.fixture(autouse=True)
def small_is_worth_it(monkeypatch):
    monkeypatch.setattr(spectral, "LEAST_WORK", 0.0)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 5), st.integers(0, 5), st.integers(0, 99))
def test_the_algorithm_correlates(outputs, taps, low, high, seed):
    length = outputs + taps - 1 - low - high
    if length < 1:
        return
    found = algorithm(outputs, taps, length, low)
    assert len(found.weights) == rank_of(period_of(outputs, taps))
    rng = np.random.default_rng(seed)
    x, w = rng.normal(size=length), rng.normal(size=taps)
    expected = np.correlate(np.pad(x, (low, high)), w, "valid")
    got = found.results.T @ ((found.weights @ w) * (found.positions @ x))
    assert np.abs(got - expected).max() <= 2e-6 * np.linalg.norm(x) * np.linalg.norm(w)


@pytest.mark.parametrize("padding", [((0, 0),), ((4, 5),), ((0, 3),)])
@pytest.mark.parametrize(("x", "w"), [((8, 60, 64), (9, 64, 64)), ((16, 20, 48), (10, 48, 48))])
def test_values_and_both_gradients_are_those_of_the_direct_convolution(x, w, padding):
    a, b = p(*x), p(*w, name="w")
    scale = p(*conv(a, b, padding).shape, name="scale")
    graph = value_and_grad(Graph([a, b, scale], [total(conv(a, b, padding) * scale)]), [0, 1])
    made = optimise(graph)
    assert not {"conv", "conv_input_grad", "conv_weight_grad"} & set(ops_of(made))
    rng = np.random.default_rng(0)
    args = [rng.normal(size=node.shape).astype("f4") for node in graph.params]
    for got, expected in zip(made(*args), graph(*(each.astype(float) for each in args)), strict=True):
        assert np.abs(got - expected).max() <= 2e-6 * np.abs(expected).max()
        assert got.dtype == F4


def network(x, w1, w2, b1, b2):
    x = apply("maximum", conv(x, w1) + b1, 0)
    x = apply("max_pool", x, window=(3,), stride=(3,), padding=((0, 0),))
    x = apply("maximum", conv(x, w2, ((2, 2),)) + b2, 0)
    return apply("sum", x, axis=(1,), keepdims=False, dtype=None)


def test_between_layers_nothing_is_transposed_forward_or_backward():
    params = [p(16, 62, 64), p(10, 64, 64), p(8, 64, 48), p(64), p(48)]
    graph = value_and_grad(Graph(params, [total(network(*params))]), [1, 2, 3, 4])
    made = transform_convolutions(graph)
    swaps = [node for node in made.nodes if node.op == "transpose" and node.attrs["axes"] == (1, 0, 2)]
    assert [node.inputs[0] for node in swaps] == [params[0]]
    rng = np.random.default_rng(1)
    args = [rng.normal(size=node.shape).astype("f4") for node in params]
    for got, expected in zip(made(*args), graph(*(each.astype(float) for each in args)), strict=True):
        assert np.abs(got - expected).max() <= 5e-6 * np.abs(expected).max()


def test_what_was_transformed_forward_is_read_again_backward():
    x, w = p(8, 60, 64), p(9, 64, 64, name="w")
    y = conv(x, w)
    graph = value_and_grad(Graph([x, w], [total(y * y)]), [0, 1])
    made = optimise(graph)
    assert ops_of(made).count("matmul") == 3
    joined = [op for node in made.nodes if node.op == "spectral_region" for op in ops_of(node.attrs["graph"])]
    assert (ops_of(made) + joined).count("spectral_map") == 6  # three in, three back


def test_few_channels_become_products_with_patches():
    x, w, w2 = p(16, 40, 6), p(10, 6, 64, name="w"), p(8, 64, 64, name="w2")
    graph = value_and_grad(Graph([x, w, w2], [total(conv(conv(x, w), w2))]), [1, 2])
    made = optimise(graph)
    assert "frames" in ops_of(made)
    assert "conv" not in ops_of(made)
    rng = np.random.default_rng(2)
    args = [rng.normal(size=node.shape).astype("f4") for node in graph.params]
    for got, expected in zip(made(*args), graph(*(each.astype(float) for each in args)), strict=True):
        assert np.abs(got - expected).max() <= 5e-6 * np.abs(expected).max()


@pytest.mark.parametrize(
    "change", [{"stride": (2,)}, {"dilation": (2,)}, {"groups": 2}, {"dtype": "f8"}, {"taps": 2}, {"length": 400}]
)
def test_what_gains_nothing_stays(change):
    change = dict(change)
    dtype, taps, length = change.pop("dtype", "f4"), change.pop("taps", 9), change.pop("length", 60)
    channels = 64 // change.get("groups", 1)
    x, w = p(8, length, 64, dtype=dtype), p(taps, channels, 64, dtype=dtype, name="w")
    graph = Graph([x, w], [conv(x, w, **change)])
    assert transform_convolutions(graph) is graph


@pytest.mark.parametrize(
    "build",
    {
        "bias": lambda x, b, v: swap(x) + b,
        "of each example": lambda x, b, v: swap(x) * apply("reshape", v, shape=(6, 1, 3)),
        "mask": lambda x, b, v: apply("where", swap(x) > 0, swap(x), 0.0),
        "sum of positions": lambda x, b, v: apply("sum", swap(x), axis=(1,), keepdims=False, dtype=None),
        "sum of all": lambda x, b, v: apply("sum", swap(x), axis=None, keepdims=False, dtype=None),
        "average": lambda x, b, v: apply("avg_pool", swap(x), window=(2,), stride=(2,), padding=((0, 0),)),
    }.values(),
)
def test_a_swap_moves_behind(build):
    x, b, v = p(8, 6, 3), p(3, name="b"), p(6, 3, name="v")
    before = Graph([x, b, v], [build(x, b, v)])
    after = spectral.until_stable(before, spectral.tidy)
    assert [node.op for node in before.nodes if node not in after.nodes]
    assert not any(node.inputs and node.inputs[0].op == "transpose" for node in after.nodes if node.op != "transpose")
    rng = np.random.default_rng(3)
    args = [rng.normal(size=node.shape).astype("f4") for node in before.params]
    np.testing.assert_allclose(after(*args)[0], before(*args)[0], rtol=1e-6, atol=1e-6)
