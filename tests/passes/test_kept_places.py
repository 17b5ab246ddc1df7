"""The gradient of maximum pooling reads where the maxima are, and not the input again."""

import numpy as np
import pytest

import futurex as fx
from futurex.passes.pooling import keep_places
from futurex.tree import Aval, Graph, apply, param

GEOMETRIES = [
    {"window": (3, 3), "stride": (2, 2), "padding": ((0, 1), (1, 1))},
    {"window": (2, 2), "stride": (2, 2), "padding": ((0, 0), (0, 0))},
    {"window": (17, 17), "stride": (1, 1), "padding": ((8, 8), (8, 8))},
]


def pooled(attrs, *, forward):
    """A gradient of maximum pooling, with the forward pass beside it or not."""
    x = param(Aval((2, 17, 18, 5), np.dtype(np.float32)), "x")
    y = apply("max_pool", x, **attrs)
    g = param(y.aval, "g")
    dx = apply("max_pool_grad", g, x, **attrs)
    return Graph([x, g], [y, dx] if forward else [dx])


@pytest.mark.parametrize("attrs", GEOMETRIES, ids=["overlapping", "apart", "large"])
@pytest.mark.parametrize("forward", [True, False])
def test_values_stay(attrs, forward):
    graph = pooled(attrs, forward=forward)
    after = keep_places(graph)
    assert [node.op for node in after.nodes].count("max_pool_places") == 1
    assert not {"max_pool", "max_pool_grad"} & {node.op for node in after.nodes}
    rng = np.random.default_rng(0)
    args = [rng.integers(0, 4, each.shape).astype(np.float32) for each in graph.params]  # with many equal maxima
    args[0][0, 3, 3] = np.nan
    for got, expected in zip(after(*args), graph(*args), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_graph_without_gradients_stays():
    x = param(Aval((2, 8, 3), np.dtype(np.float32)), "x")
    graph = Graph([x], [apply("max_pool", x, window=(2,), stride=(2,), padding=((0, 0),))])
    assert keep_places(graph) is graph


def test_two_geometries_over_one_array_keep_their_own_places():
    x = param(Aval((2, 9, 4), np.dtype(np.float32)), "x")
    grads = []
    for window in (2, 3):
        attrs = {"window": (window,), "stride": (1,), "padding": ((0, 0),)}
        y = apply("max_pool", x, **attrs)
        grads.append(apply("max_pool_grad", y, x, **attrs))
    graph = Graph([x], grads)
    value = np.random.default_rng(1).normal(size=x.shape).astype(np.float32)
    for got, expected in zip(keep_places(graph)(value), graph(value), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_the_derivative_of_a_pooled_sum():
    x = np.random.default_rng(2).permutation(2 * 10 * 12 * 3).reshape(2, 10, 12, 3).astype(np.float32)
    gradient = np.asarray(fx.grad(lambda x: (fx.nn.max_pool(x, 3, 2) ** 2).sum())(x))
    expected = np.zeros_like(x)
    for n, i, j, c in np.ndindex(2, 4, 5, 3):
        part = x[n, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3, c]
        a, b = np.unravel_index(part.argmax(), part.shape)
        expected[n, 2 * i + a, 2 * j + b, c] += 2 * part[a, b]
    np.testing.assert_array_equal(gradient, expected)
