"""Convolution kernels on channels-last arrays by NumPy's BLAS: forward, input gradient, weight gradient.

A factory takes shapes and attributes and returns ``kernel(out, *inputs)``; any number of spatial axes, strides,
dilations, groups and paddings, in float32 and float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from futurex.kernels.blas.unfold import Geometry, scratch
from futurex.ops.window import padded_zeros, shifts
from futurex.tree.record import record

Kernel = Callable[..., Any]


def conv_forward(geometry: Geometry) -> Kernel:
    """A kernel(y, x, w[, b]) for y = conv(x, w) + b."""
    outputs = geometry.w_shape[-1] // geometry.groups

    def kernel(out: np.ndarray, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
        with np.errstate(all="ignore"):  # rows that are left out may hold anything
            for group in range(geometry.groups):
                channels = slice(group * outputs, (group + 1) * outputs)
                weights = geometry.matrix(w, group)
                for chunk in geometry.chunks():
                    _forward(geometry, x[chunk], weights, out[chunk][..., channels], group)
        if bias is not None:
            out += bias
        return out

    return kernel


def _forward(geometry: Geometry, x: np.ndarray, weights: np.ndarray, out: np.ndarray, group: int) -> None:
    flat = geometry.unfolded(x, group)
    rows = len(x) * geometry.lines * geometry.slots
    direct = geometry.apart == 1 and out.flags.c_contiguous
    shape = (rows, weights.shape[1])
    result = out.reshape(shape) if direct else scratch.take("product", shape, geometry.dtype)
    for windows, place in geometry.rows(flat, len(x)):
        np.matmul(windows, weights, out=result[place])
    if not direct:
        lines = result.reshape(*out.shape[:-2], geometry.slots, -1)
        np.copyto(out, lines[..., : out.shape[-2], :])


def conv_input_grad(geometry: Geometry) -> Kernel:
    """A kernel(dx, g, w) for the gradient of conv with respect to x."""
    if math.prod(geometry.stride) != 1:
        return _scattered(geometry)
    transposed = geometry.transposed()
    forward = conv_forward(transposed)

    def kernel(out: np.ndarray, g: np.ndarray, w: np.ndarray) -> np.ndarray:
        if not np.isfinite(w).all():  # the padding of g must not meet an infinity: zero times it is no number
            return _reference("conv_input_grad", geometry, out, g, w, input_shape=geometry.x_shape)
        return forward(out, g, geometry.turned(w))

    return kernel


def _scattered(geometry: Geometry) -> Kernel:
    """For strides: the gradients of all windows by one product, each added where it was read."""
    kernel_shape, depth, groups = geometry.w_shape[:-2], geometry.depth, geometry.groups
    outputs = geometry.w_shape[-1] // groups
    sizes = geometry.y_shape[1:-1]
    sample = math.prod(sizes) * math.prod(kernel_shape) * depth * geometry.dtype.itemsize
    count = max(1, (1 << 22) // max(sample, 1))

    def kernel(out: np.ndarray, g: np.ndarray, w: np.ndarray) -> np.ndarray:
        for first in range(0, len(out), count):
            part = g[first : first + count]
            shape = (len(part), *geometry.x_shape[1:])
            buffer, inside = padded_zeros(shape, geometry.padding, geometry.dtype)
            for group in range(groups):
                weights = w[..., group * outputs : (group + 1) * outputs].reshape(-1, outputs)
                rows = part[..., group * outputs : (group + 1) * outputs].reshape(-1, outputs)
                found = scratch.take("unfolded", (len(rows), len(weights)), geometry.dtype)
                np.matmul(rows, weights.T, out=found)
                windows = found.reshape(len(part), *sizes, *kernel_shape, depth)
                channels = slice(group * depth, (group + 1) * depth)
                for tap, view in shifts(kernel_shape, geometry.stride, geometry.dilation, sizes):
                    target = buffer[view][..., channels]
                    place: tuple[Any, ...] = (..., *tap, slice(None))
                    np.add(target, windows[place], out=target)
            np.copyto(out[first : first + count], inside)
        return out

    return kernel


def conv_weight_grad(geometry: Geometry) -> Kernel:
    """A kernel(dw, x, g) for the gradient of conv with respect to w."""
    outputs = geometry.w_shape[-1] // geometry.groups
    shape = (geometry.extent * geometry.run, outputs)

    def kernel(out: np.ndarray, x: np.ndarray, g: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            for group in range(geometry.groups):
                channels = slice(group * outputs, (group + 1) * outputs)
                total = scratch.take("total", shape, geometry.dtype)
                total.fill(0)
                for chunk in geometry.chunks():
                    _add_products(geometry, x[chunk], g[chunk][..., channels], total, group)
                out[..., channels] = geometry.weights(total)
            if geometry.apart > 1 and not np.isfinite(out).all():  # windows between two lines may have met a NaN
                return _reference("conv_weight_grad", geometry, out, x, g, kernel_shape=geometry.w_shape[:-2])
        return out

    return kernel


def _add_products(geometry: Geometry, x: np.ndarray, g: np.ndarray, total: np.ndarray, group: int) -> None:
    flat = geometry.unfolded(x, group)
    if geometry.apart == 1 and g.flags.c_contiguous:
        lines = g
    else:
        lines = scratch.take("product", (*g.shape[:-2], geometry.slots, g.shape[-1]), geometry.dtype)
        np.copyto(lines[..., : g.shape[-2], :], g)
        lines[..., g.shape[-2] :, :] = 0
    rows = lines.reshape(-1, g.shape[-1])
    part = scratch.take("part", total.shape, geometry.dtype)
    for windows, place in geometry.rows(flat, len(x)):
        np.matmul(windows.T, rows[place], out=part)
        np.add(total, part, out=total)


def _reference(name: str, geometry: Geometry, out: np.ndarray, *inputs: np.ndarray, **own: Any) -> np.ndarray:
    found = record(name).kernel(
        *inputs, **own, stride=geometry.stride, padding=geometry.padding, dilation=geometry.dilation,
        groups=geometry.groups,
    )  # fmt: skip
    np.copyto(out, found)
    return out
