"""Pooling against its definition; ties, NaN and padding."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from futurex import ops
from futurex.tree import Aval, apply, param

Case = tuple[Any, dict[str, Any]]


@st.composite
def pools(draw: st.DrawFn) -> Case:
    """An array with many equal elements and a pooling that fits it."""
    rank = draw(st.integers(1, 3))
    window = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    stride = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    padding = tuple((draw(st.integers(0, w - 1)), draw(st.integers(0, w - 1))) for w in window)
    sizes = tuple(draw(st.integers(w, w + 2)) for w in window)
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x = rng.integers(-3, 3, (draw(st.integers(1, 2)), *sizes, 2)).astype(float)
    return x, {"window": window, "stride": stride, "padding": padding}


def windows(shape: tuple[int, ...], window: Any, stride: Any, padding: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Every output position (n, *at, c) with the input positions that its window sees, in row-major order."""
    sizes = [
        (size + lo + hi - w) // s + 1 for size, w, s, (lo, hi) in zip(shape[1:-1], window, stride, padding, strict=True)
    ]
    for n, *at, c in itertools.product(range(shape[0]), *map(range, sizes), range(shape[-1])):
        seen = []
        for position in itertools.product(*map(range, window)):
            place = [a * s + p - lo for a, s, p, (lo, _) in zip(at, stride, position, padding, strict=True)]
            if all(0 <= k < size for k, size in zip(place, shape[1:-1], strict=True)):
                seen.append((n, *place, c))
        yield (n, *at, c), seen


@given(pools())
def test_max_pool_and_its_gradient_are_their_definition(case: Case) -> None:
    x, attrs = case
    y = ops.max_pool(x, **attrs)
    g = np.random.default_rng(1).normal(size=y.shape)
    t = np.random.default_rng(2).normal(size=x.shape)
    dx, picked = np.zeros(x.shape), np.zeros(y.shape)
    for out, seen in windows(x.shape, **attrs):
        first = max(seen, key=lambda place: x[place])  # max gives the first of equals
        assert y[out] == x[first]
        dx[first] += g[out]
        picked[out] = t[first]
    np.testing.assert_allclose(ops.max_pool_grad(g, x, **attrs), dx, atol=1e-12)
    np.testing.assert_array_equal(ops.max_pool_pick(t, x, **attrs), picked)


@given(pools())
def test_avg_pool_and_its_gradient_are_their_definition(case: Case) -> None:
    x, attrs = case
    y = ops.avg_pool(x, **attrs)
    g = np.random.default_rng(1).normal(size=y.shape)
    dx, count = np.zeros(x.shape), np.prod(attrs["window"])
    for out, seen in windows(x.shape, **attrs):
        np.testing.assert_allclose(y[out], sum(x[place] for place in seen) / count, atol=1e-12)
        for place in seen:
            dx[place] += g[out] / count
    np.testing.assert_allclose(ops.avg_pool_grad(g, input_shape=x.shape, **attrs), dx, atol=1e-12)


TWO: dict[str, Any] = {"window": (2,), "stride": (2,), "padding": ((0, 0),)}


def test_nan_wins_and_takes_the_gradient() -> None:
    x = np.array([1.0, np.nan, np.nan, 5.0]).reshape(1, 4, 1)
    np.testing.assert_array_equal(ops.max_pool(x, **TWO).ravel(), [np.nan, np.nan])
    np.testing.assert_array_equal(ops.max_pool_grad(np.ones((1, 2, 1)), x, **TWO).ravel(), [0, 1, 1, 0])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.bool_, np.float16, np.float32])
def test_max_pool_of_any_dtype_ignores_padding(dtype: Any) -> None:
    x = np.array([0, 1, 0]).astype(dtype).reshape(1, 3, 1)
    y = ops.max_pool(x, window=(2,), stride=(2,), padding=((1, 0),))
    assert y.dtype == dtype
    np.testing.assert_array_equal(y.ravel(), np.array([0, 1], dtype))


def test_avg_pool_of_integers_is_floating() -> None:
    y = ops.avg_pool(np.array([1, 2, 3, 5]).reshape(1, 4, 1), **TWO)
    assert y.dtype == np.float64
    np.testing.assert_array_equal(y.ravel(), [1.5, 4.0])


def test_a_window_of_nothing_but_padding_is_refused() -> None:
    with pytest.raises(ValueError, match="must be smaller than the window"):
        apply("max_pool", param(Aval((1, 4, 1), np.dtype(float))), window=(2,), stride=(1,), padding=((2, 0),))


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="does not fit into spatial sizes"):
        ops.max_pool(np.zeros((1, 1, 1)), **TWO)
    with pytest.raises(ValueError, match=r"pooling needs \(N, \*spatial, C\)"):
        ops.avg_pool(np.zeros((4, 1)), window=(), stride=(), padding=())
    with pytest.raises(ValueError, match="has shape"):
        ops.avg_pool_grad(np.zeros((1, 3, 1)), input_shape=(1, 4, 1), **TWO)
