"""Convolutions of images as products over tiles: the algorithm, its three forms, and when they are taken."""

import numpy as np
import pytest

import futurex.ops  # noqa: F401  (registers the records)
from futurex.autodiff import value_and_grad
from futurex.passes import winograd
from futurex.passes.pipeline import optimise
from futurex.passes.winograd import TILE, algorithm, tile_convolutions
from futurex.tree import Aval, Graph, apply, param

F4 = np.dtype("f4")
CONVOLUTIONS = {"conv", "conv_input_grad", "conv_weight_grad"}


def p(*shape, dtype=F4, name="x"):
    return param(Aval(shape, np.dtype(dtype)), name)


def ops_of(graph):
    return [node.op for node in graph.nodes if node.op not in ("param", "const", "item")]


def conv(x, w, padding=((1, 1), (1, 1)), stride=(1, 1), dilation=(1, 1), groups=1):
    return apply("conv", x, w, stride=stride, padding=padding, dilation=dilation, groups=groups)


@pytest.mark.parametrize(("results", "taps"), [(1, 3), (2, 3), (4, 3), (6, 3), (2, 5), (4, 5), (3, 2)])
def test_the_algorithm_correlates(results, taps):
    weights, positions, back = map(np.array, algorithm(results, taps))
    assert weights.shape == (results + taps - 1, taps)
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=results + taps - 1), rng.normal(size=taps)
    np.testing.assert_allclose(back.T @ ((weights @ w) * (positions @ x)), np.correlate(x, w, "valid"), rtol=1e-10)


@pytest.mark.parametrize("padding", [((1, 1), (1, 1)), ((0, 0), (2, 1))])
@pytest.mark.parametrize(("x", "w"), [((2, 9, 11, 16), (3, 3, 16, 20)), ((3, 10, 6, 5), (5, 5, 5, 16))])
def test_values_and_both_gradients_are_those_of_the_direct_convolution(x, w, padding, monkeypatch):
    monkeypatch.setattr(winograd, "LEAST_WORK", 0.0)
    monkeypatch.setattr(winograd, "GAIN", np.inf)
    a, b = p(*x), p(*w, name="w")
    scale = p(*conv(a, b, padding).shape, name="scale")
    loss = apply("sum", conv(a, b, padding) * scale, axis=None, keepdims=False, dtype=None)
    graph = value_and_grad(Graph([a, b, scale], [loss]), [0, 1])
    made = optimise(graph)
    assert not CONVOLUTIONS & set(ops_of(made))
    assert ops_of(made).count("tile_transform") == 2  # what was transformed forward is read again backward
    rng = np.random.default_rng(0)
    args = [rng.normal(size=node.shape).astype("f4") for node in graph.params]
    for got, expected in zip(made(*args), graph(*(each.astype(float) for each in args)), strict=True):
        error = np.sqrt(np.mean((got - expected) ** 2)) / np.sqrt(np.mean(expected**2))
        assert error < 2e-5
        assert got.dtype == F4


def test_tiles_are_taken_where_they_are_faster():
    for size, channels in ((56, 64), (28, 128), (14, 256)):
        x, w = p(8, size, size, channels), p(3, 3, channels, channels, name="w")
        assert "tile_transform" in ops_of(tile_convolutions(Graph([x, w], [conv(x, w)])))
    assert set(TILE) == {3, 5}


@pytest.mark.parametrize(
    "change",
    [{"stride": (2, 2)}, {"dilation": (2, 2)}, {"groups": 2}, {"dtype": "f8"}, {"size": 7}, {"kernel": (3, 1)},
     {"kernel": (7, 7)}, {"batch": 1, "size": 12}],
)  # fmt: skip
def test_what_gains_nothing_stays(change):
    change = dict(change)
    dtype, size = change.pop("dtype", "f4"), change.pop("size", 28)
    kernel, batch = change.pop("kernel", (3, 3)), change.pop("batch", 8)
    channels = 512 if size == 7 else 128
    x = p(batch, size, size, channels, dtype=dtype)
    w = p(*kernel, channels // change.get("groups", 1), channels, dtype=dtype, name="w")
    graph = Graph([x, w], [conv(x, w, **change)])
    assert tile_convolutions(graph) is graph
