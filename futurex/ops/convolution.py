"""Convolution and its two gradients, channels-last, for any number of spatial dimensions.

``x`` is (N, *spatial, Cin), ``w`` is (*kernel, Cin // groups, Cout), the result (N, *spatial_out, Cout). The three ops
are the three partial derivatives of one trilinear form, so each one's derivative is made of the other two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from futurex.ops.window import Padding, Sizes, out_sizes, padded, padded_zeros, shifts, spatial_names
from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply
from futurex.tree.record import Cost, Sample, op


def conv_shape(x: Sizes, w: Sizes, stride: Sizes, padding: Padding, dilation: Sizes, groups: int) -> Sizes:
    """Shape of a convolution's result. Raises ValueError for shapes that do not fit.

    >>> conv_shape((2, 8, 3), (3, 3, 5), (1,), ((0, 0),), (1,), 1)
    (2, 6, 5)
    """
    if len(x) != len(w) or len(x) < 3:
        raise ValueError(
            "conv needs x (N, *spatial, Cin) and w (*kernel, Cin // groups, Cout) of equal rank, at least 3: "
            f"got shapes {x} and {w}"
        )
    if groups < 1 or x[-1] != w[-2] * groups or w[-1] % groups:
        raise ValueError(
            f"conv: x of shape {x} and weights of shape {w} do not fit {groups} groups; the weights need "
            f"Cin // groups = {x[-1]} // {groups} input channels and a multiple of {groups} output channels"
            + ("; data is channels-last, (N, *spatial, Cin): np.moveaxis(x, 1, -1)" if x[1] == w[-2] * groups else "")
        )
    return (x[0], *out_sizes(x[1:-1], w[:-2], stride, padding, dilation), w[-1])


def _rows(view: Any, groups: int) -> Any:
    """A (N, *spatial, C) view as (groups, rows, C // groups): the left operand of one matrix product per group."""
    rows = math.prod(view.shape[:-1])
    if groups == 1:
        return view.reshape(1, rows, view.shape[-1])
    return view.reshape(rows, groups, view.shape[-1] // groups).transpose(1, 0, 2)


def _unrows(rows: Any, shape: Sizes) -> Any:
    return (rows[0] if rows.shape[0] == 1 else rows.transpose(1, 0, 2)).reshape(shape)


def _by_group(w: Any, groups: int) -> Any:
    """One kernel position's weights (Cin // groups, Cout) as (groups, Cin // groups, Cout // groups)."""
    return w.reshape(w.shape[0], groups, w.shape[1] // groups).transpose(1, 0, 2)


def _conv(x: Any, w: Any, stride: Sizes, padding: Padding, dilation: Sizes, groups: int) -> Any:
    shape = conv_shape(x.shape, w.shape, stride, padding, dilation, groups)
    x = padded(x, padding)
    total: Any = 0
    for position, view in shifts(w.shape[:-2], stride, dilation, shape[1:-1]):
        total = total + _rows(x[view], groups) @ _by_group(w[position], groups)
    return _unrows(total, shape)


def _conv_input_grad(
    g: Any, w: Any, input_shape: Sizes, stride: Sizes, padding: Padding, dilation: Sizes, groups: int
) -> Any:
    _check_g(g.shape, input_shape, w.shape, stride=stride, padding=padding, dilation=dilation, groups=groups)
    buffer, inside = padded_zeros(input_shape, padding, np.result_type(g, w))
    rows = _rows(g, groups)
    for position, view in shifts(w.shape[:-2], stride, dilation, g.shape[1:-1]):
        part = rows @ _by_group(w[position], groups).transpose(0, 2, 1)
        buffer[view] += _unrows(part, (*g.shape[:-1], input_shape[-1]))
    return np.ascontiguousarray(inside)


def _conv_weight_grad(
    x: Any, g: Any, kernel_shape: Sizes, stride: Sizes, padding: Padding, dilation: Sizes, groups: int
) -> Any:
    shape = (*kernel_shape, x.shape[-1] // groups, g.shape[-1])
    _check_g(g.shape, x.shape, shape, stride=stride, padding=padding, dilation=dilation, groups=groups)
    x = padded(x, padding)
    out = np.empty(shape, np.result_type(x, g))
    rows = _rows(g, groups)
    for position, view in shifts(kernel_shape, stride, dilation, g.shape[1:-1]):
        part = _rows(x[view], groups).transpose(0, 2, 1) @ rows
        out[position] = part.transpose(1, 0, 2).reshape(shape[-2:])
    return out


def _check_g(g: Sizes, x: Sizes, w: Sizes, **geometry: Any) -> None:
    expected = conv_shape(x, w, **geometry)
    if g != expected:
        raise ValueError(f"the gradient of a convolution of {x} with {w} has shape {expected}, got {g}")


def _conv_aval(x: Aval, w: Aval, **attrs: Any) -> Aval:
    return Aval(conv_shape(x.shape, w.shape, **attrs), np.result_type(x.dtype, w.dtype))


def _input_grad_aval(g: Aval, w: Aval, input_shape: Sizes, **attrs: Any) -> Aval:
    _check_g(g.shape, input_shape, w.shape, **attrs)
    return Aval(input_shape, np.result_type(g.dtype, w.dtype))


def _weight_grad_aval(x: Aval, g: Aval, kernel_shape: Sizes, **attrs: Any) -> Aval:
    shape = (*kernel_shape, x.shape[-1] // attrs["groups"], g.shape[-1])
    _check_g(g.shape, x.shape, shape, **attrs)
    return Aval(shape, np.result_type(x.dtype, g.dtype))


def _conv_rule(g: Node, out: Node, x: Node, w: Node, **attrs: Any) -> tuple[Node, Node]:
    return (
        apply("conv_input_grad", g, w, input_shape=x.shape, **attrs),
        apply("conv_weight_grad", x, g, kernel_shape=w.shape[:-2], **attrs),
    )


def _input_grad_rule(ct: Node, out: Node, g: Node, w: Node, input_shape: Sizes, **attrs: Any) -> tuple[Node, Node]:
    return apply("conv", ct, w, **attrs), apply("conv_weight_grad", ct, g, kernel_shape=w.shape[:-2], **attrs)


def _weight_grad_rule(ct: Node, out: Node, x: Node, g: Node, kernel_shape: Sizes, **attrs: Any) -> tuple[Node, Node]:
    return apply("conv_input_grad", g, ct, input_shape=x.shape, **attrs), apply("conv", x, ct, **attrs)


def _names(rank: int, groups: int) -> tuple[str, str, str]:
    """Factor names of x, w and the result; the channels of grouped convolutions belong to their group."""
    c, o = ("c", "o") if groups == 1 else ("!c", "!o")
    per_group = "c" if groups == 1 else "!cg"
    spatial = rank - 2
    return (
        f"n {spatial_names('s', spatial)}{c}",
        f"{spatial_names('k', spatial)}{per_group} {o}",
        f"n {spatial_names('p', spatial)}{o}",
    )


def _conv_factors(x: Aval, w: Aval, groups: int, **_: Any) -> str:
    names_x, names_w, names_out = _names(x.ndim, groups)
    return f"{names_x}, {names_w} -> {names_out}"


def _input_grad_factors(g: Aval, w: Aval, groups: int, **_: Any) -> str:
    names_x, names_w, names_out = _names(g.ndim, groups)
    return f"{names_out}, {names_w} -> {names_x}"


def _weight_grad_factors(x: Aval, g: Aval, groups: int, **_: Any) -> str:
    names_x, names_w, names_out = _names(x.ndim, groups)
    return f"{names_x}, {names_out} -> {names_w}"


def _work(x: Sizes, w: Sizes, out: Sizes, itemsize: int) -> Cost:
    """Two operations for every weight that meets an element of the result, the same for all three ops."""
    flops = 2.0 * math.prod(out) * math.prod(w[:-1])
    return Cost(flops, float(itemsize * (math.prod(x) + math.prod(w) + math.prod(out))))


_GEOMETRIES: tuple[tuple[Sizes, Sizes, dict[str, Any]], ...] = (
    ((2, 7, 3), (3, 3, 4), {"stride": (1,), "padding": ((1, 1),), "dilation": (1,), "groups": 1}),
    ((3, 9, 4), (3, 2, 4), {"stride": (2,), "padding": ((0, 2),), "dilation": (2,), "groups": 2}),
    ((2, 5, 6, 2), (3, 2, 2, 3), {"stride": (2, 1), "padding": ((1, 0), (0, 1)), "dilation": (1, 2), "groups": 1}),
    ((2, 4, 4, 3), (3, 3, 1, 3), {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 3}),
    (
        (2, 3, 4, 3, 2), (2, 2, 1, 2, 3),
        {"stride": (1, 2, 1), "padding": ((0, 1), (0, 0), (0, 0)), "dilation": (1, 1, 1), "groups": 1},
    ),
)  # fmt: skip


def _samples(which: str) -> Any:
    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        for x, w, attrs in _GEOMETRIES:
            for dtype in (np.float64, np.float32) if x[0] == 3 else (np.float64,):
                draw = {"x": x, "w": w, "g": conv_shape(x, w, **attrs)}
                inputs = tuple(rng.normal(size=draw[name]).astype(dtype) for name in which)
                extra = {"gw": {"input_shape": x}, "xg": {"kernel_shape": w[:-2]}}.get(which, {})
                yield Sample(inputs, {**extra, **attrs}, order=2 if dtype == np.float64 else 0)

    return samples


def _conv_cost(x: Aval, w: Aval, **attrs: Any) -> Cost:
    return _work(x.shape, w.shape, conv_shape(x.shape, w.shape, **attrs), x.dtype.itemsize)


def _input_grad_cost(g: Aval, w: Aval, input_shape: Sizes, **_: Any) -> Cost:
    return _work(input_shape, w.shape, g.shape, g.dtype.itemsize)


def _weight_grad_cost(x: Aval, g: Aval, kernel_shape: Sizes, groups: int, **_: Any) -> Cost:
    return _work(x.shape, (*kernel_shape, x.shape[-1] // groups, g.shape[-1]), g.shape, x.dtype.itemsize)


op("conv", _conv, aval=_conv_aval, vjp=_conv_rule, factors=_conv_factors, cost=_conv_cost, samples=_samples("xw"))
op(
    "conv_input_grad", _conv_input_grad, aval=_input_grad_aval, vjp=_input_grad_rule, factors=_input_grad_factors,
    shape_attr="input_shape", cost=_input_grad_cost, samples=_samples("gw"),
)  # fmt: skip
op(
    "conv_weight_grad", _conv_weight_grad, aval=_weight_grad_aval, vjp=_weight_grad_rule, factors=_weight_grad_factors,
    cost=_weight_grad_cost, samples=_samples("xg"),
)  # fmt: skip
