"""Convolution against SciPy and against its definition; refusals of geometry that does not fit."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import correlate

from futurex import ops
from futurex.tree import Aval, apply, param


def by_definition(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """The sum over kernel positions and input channels, one output element at a time."""
    x = np.pad(x, ((0, 0), *padding, (0, 0)))
    kernel, per_group, per_out = w.shape[:-2], w.shape[-2], w.shape[-1] // groups
    sizes = [
        (x.shape[1 + k] - (kernel[k] - 1) * dilation[k] - 1) // stride[k] + 1 for k in range(len(kernel))
    ]
    out = np.zeros((x.shape[0], *sizes, w.shape[-1]))
    for n, *at, o in itertools.product(range(x.shape[0]), *map(range, sizes), range(w.shape[-1])):
        group = o // per_out
        for position in itertools.product(*map(range, kernel)):
            place = tuple(a * s + p * d for a, s, p, d in zip(at, stride, position, dilation, strict=True))
            out[(n, *at, o)] += x[(n, *place)][group * per_group : (group + 1) * per_group] @ w[position][:, o]
    return out


@st.composite
def geometries(draw: st.DrawFn) -> tuple[Any, Any, dict[str, Any]]:
    """Inputs and attributes of any convolution that fits."""
    rank, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    kernel, stride, dilation, extra = each(1, 3), each(1, 3), each(1, 2), each(0, 3)
    padding = tuple(zip(each(0, 2), each(0, 2), strict=True))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    sizes = tuple(max(r + e - lo - hi, 0) for r, e, (lo, hi) in zip(reach, extra, padding, strict=True))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x = rng.normal(size=(draw(st.integers(0, 2)), *sizes, groups * draw(st.integers(1, 2))))
    w = rng.normal(size=(*kernel, x.shape[-1] // groups, groups * draw(st.integers(1, 2))))
    return x, w, {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}


@given(geometries())
def test_conv_is_its_definition(case: tuple[Any, Any, dict[str, Any]]) -> None:
    x, w, attrs = case
    np.testing.assert_allclose(ops.conv(x, w, **attrs), by_definition(x, w, **attrs), atol=1e-12)


@given(geometries())
def test_gradients_are_the_adjoints(case: tuple[Any, Any, dict[str, Any]]) -> None:
    """<g, conv(x, w)> = <conv_input_grad(g, w), x> = <conv_weight_grad(x, g), w> for all g."""
    x, w, attrs = case
    y = ops.conv(x, w, **attrs)
    g = np.random.default_rng(1).normal(size=y.shape)
    dx = ops.conv_input_grad(g, w, input_shape=x.shape, **attrs)
    dw = ops.conv_weight_grad(x, g, kernel_shape=w.shape[:-2], **attrs)
    assert dx.shape == x.shape
    assert dw.shape == w.shape
    np.testing.assert_allclose(np.vdot(dx, x), np.vdot(g, y), atol=1e-10)
    np.testing.assert_allclose(np.vdot(dw, w), np.vdot(g, y), atol=1e-10)


@pytest.mark.parametrize("sizes, kernel", [((12,), (5,)), ((7, 8), (3, 2)), ((5, 4, 6), (2, 3, 2))])
def test_dense_conv_is_scipys_correlation(sizes: tuple[int, ...], kernel: tuple[int, ...]) -> None:
    rng, rank = np.random.default_rng(0), len(sizes)
    x, w = rng.normal(size=(2, *sizes, 3)), rng.normal(size=(*kernel, 3, 4))
    y = ops.conv(x, w, stride=(1,) * rank, padding=((0, 0),) * rank, dilation=(1,) * rank, groups=1)
    for n, o in itertools.product(range(2), range(4)):
        expected = sum(correlate(x[n, ..., c], w[..., c, o], "valid", "direct") for c in range(3))
        np.testing.assert_allclose(y[n, ..., o], expected, atol=1e-12)


def test_dtypes_promote() -> None:
    x, w = np.ones((1, 4, 1), np.float32), np.ones((2, 1, 1), np.float64)
    attrs: dict[str, Any] = {"stride": (1,), "padding": ((0, 0),), "dilation": (1,), "groups": 1}
    assert ops.conv(x, w, **attrs).dtype == np.float64
    assert ops.conv(x, w.astype(np.float16), **attrs).dtype == np.float32


DENSE: dict[str, Any] = {"stride": (1,), "padding": ((0, 0),), "dilation": (1,), "groups": 1}


@pytest.mark.parametrize(
    "x, w, change, message",
    [
        ((2, 8, 3), (3, 4, 5), {}, "do not fit 1 groups"),
        ((2, 8, 4), (3, 2, 5), {"groups": 2}, "do not fit 2 groups"),
        ((2, 4, 8), (3, 4, 5), {}, r"channels-last, .*np\.moveaxis\(x, 1, -1\)"),
        ((2, 8, 3), (3, 3, 3, 5), {}, "equal rank"),
        ((2, 8), (3, 5), {}, "rank, at least 3"),
        ((2, 2, 3), (3, 3, 5), {}, "does not fit into spatial sizes"),
        ((2, 4, 3), (3, 3, 5), {"dilation": (2,)}, "does not fit into spatial sizes"),
        ((2, 8, 3), (3, 3, 5), {"stride": (1, 1)}, "one entry for each"),
        ((2, 8, 3), (3, 3, 5), {"stride": (0,)}, "at least 1"),
        ((2, 8, 3), (3, 3, 5), {"padding": ((-1, 0),)}, "at least 0"),
    ],
)
def test_geometry_that_does_not_fit_is_refused(x: Any, w: Any, change: dict[str, Any], message: str) -> None:
    attrs = {**DENSE, **change}
    with pytest.raises(ValueError, match=message):
        ops.conv(np.zeros(x), np.zeros(w), **attrs)
    with pytest.raises(ValueError, match=message):
        apply("conv", param(Aval(x, np.dtype(float))), param(Aval(w, np.dtype(float))), **attrs)


def test_gradient_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"has shape \(2, 6, 5\), got \(2, 5, 5\)"):
        ops.conv_input_grad(np.zeros((2, 5, 5)), np.zeros((3, 3, 5)), input_shape=(2, 8, 3), **DENSE)
