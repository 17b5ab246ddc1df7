"""Normalisation: what it makes of data, and gradients through the statistics too."""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from futurex import ops
from futurex.autodiff import grad
from futurex.tree import Aval, Graph, apply, item, param

F8 = np.dtype(float)


@given(st.integers(0, 99), st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_batch_norm_is_its_definition(seed: int, batch: list[int]) -> None:
    rng = np.random.default_rng(seed)
    x, scale, shift = rng.normal(3, 2, (*batch, 5)), rng.normal(size=5), rng.normal(size=5)
    y, mean, var = ops.batch_norm(x, scale, shift, eps=1e-3)
    flat = x.reshape(-1, 5)
    np.testing.assert_allclose(mean, flat.mean(0), rtol=1e-12)
    np.testing.assert_allclose(var, flat.var(0), rtol=1e-9, atol=1e-12)
    expected = (flat - flat.mean(0)) / np.sqrt(flat.var(0) + 1e-3) * scale + shift
    np.testing.assert_allclose(y.reshape(-1, 5), expected, atol=1e-10)


@given(st.integers(0, 99), st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_layer_norm_is_its_definition(seed: int, rows: list[int]) -> None:
    rng = np.random.default_rng(seed)
    x, scale, shift = rng.normal(3, 2, (*rows, 5)), rng.normal(size=5), rng.normal(size=5)
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3) * scale + shift
    np.testing.assert_allclose(ops.layer_norm(x, scale, shift, eps=1e-3), expected, atol=1e-10)


def test_variance_survives_a_large_mean() -> None:
    x = 1e8 + np.array([[0.0], [1.0], [2.0], [3.0]])
    y, _, var = ops.batch_norm(x, np.ones(1), np.zeros(1), eps=0.0)
    np.testing.assert_allclose(var, 1.25)
    np.testing.assert_allclose(y.ravel(), np.array([-1.5, -0.5, 0.5, 1.5]) / np.sqrt(1.25))


@pytest.mark.parametrize("reads", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)])
def test_gradient_through_any_of_the_results(reads: tuple[int, ...]) -> None:
    """A loss may read the mean and the variance (running statistics, penalties), with or without y."""
    rng = np.random.default_rng(0)
    x, scale, shift = param(Aval((4, 3), F8), "x"), param(Aval((3,), F8), "scale"), param(Aval((3,), F8), "shift")
    norm = apply("batch_norm", x, scale, shift, eps=1e-3)
    weights = [rng.normal(size=(4, 3)), rng.normal(size=3), rng.normal(size=3)]
    weighted = [item(norm, k) * item(norm, k) * weights[k] for k in reads]
    terms = [apply("sum", term, axis=None, keepdims=False, dtype=None) for term in weighted]
    total = functools.reduce(operator.add, terms)
    graph = Graph([x, scale, shift], [total], "loss")
    inputs = [rng.normal(size=(4, 3)), rng.uniform(0.5, 1.5, 3), rng.normal(size=3)]
    for k, result in enumerate(grad(graph, [0, 1, 2])(*inputs)):
        direction = rng.normal(size=inputs[k].shape)
        expected = central(graph, inputs, k, direction)
        np.testing.assert_allclose(np.sum(result * direction), expected, rtol=1e-6, atol=1e-7)


def central(graph: Graph, inputs: list[Any], k: int, direction: Any) -> float:
    ahead, behind = ([x + s * 1e-6 * direction if j == k else x for j, x in enumerate(inputs)] for s in (1, -1))
    return float((graph(*ahead)[0] - graph(*behind)[0]) / 2e-6)


@pytest.mark.parametrize("x, vector", [((4,), (4,)), ((2, 3), (2,)), ((2, 3), (3, 1))])
@pytest.mark.parametrize("name", ["batch_norm", "layer_norm"])
def test_shapes_that_do_not_fit_are_refused(name: str, x: Any, vector: Any) -> None:
    with pytest.raises(ValueError, match="normalisation needs"):
        apply(name, param(Aval(x, F8)), param(Aval(vector, F8)), param(Aval(vector, F8)), eps=1e-5)


def test_integers_are_refused() -> None:
    vector = param(Aval((3,), F8))
    with pytest.raises(TypeError, match="floating-point x, got int64"):
        apply("batch_norm", param(Aval((2, 3), np.dtype(np.int64))), vector, vector, eps=1e-5)
