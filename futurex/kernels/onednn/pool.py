"""Pooling kernels on channels-last arrays: maximum and average, forward and gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import futurex.ops.pool  # noqa: F401 - defines the reference kernels that take over where there are NaNs
from futurex.kernels.onednn.binding import Owned
from futurex.kernels.onednn.primitive import (
    ARG_DIFF_RESULT,
    ARG_DIFF_SOURCE,
    ARG_RESULT,
    ARG_SOURCE,
    ARG_WORKSPACE,
    FORWARD_INFERENCE,
    FORWARD_TRAINING,
    Kernel,
    Program,
    Shape,
    attributes,
    channels_last,
    dims,
    primitive_description,
    unless_unsupported,
    zero_kernel,
)
from futurex.tree.record import record

_MAXIMUM, _AVERAGE = 0x1FF, 0x2FF  # the average counts padding as zeros
_LOWEST = np.finfo(np.float32).min
Padding = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class _Geometry:
    """The sizes of one pooling: x (N, *S, C), y (N, *S', C)."""

    x_shape: Shape
    window: Shape
    stride: Shape
    padding: tuple[tuple[int, int], ...]

    @property
    def y_shape(self) -> Shape:
        spatial = (
            (size + low + high - window) // stride + 1
            for size, (low, high), window, stride in zip(
                self.x_shape[1:-1], self.padding, self.window, self.stride, strict=True
            )
        )
        return (self.x_shape[0], *spatial, self.x_shape[-1])

    @property
    def supported(self) -> bool:
        """Whether oneDNN can be asked: 1 to 3 spatial dimensions and no window that lies in the padding alone."""
        inside = all(
            0 <= low < window and 0 <= high < window
            for (low, high), window in zip(self.padding, self.window, strict=True)
        )
        return inside and 1 <= len(self.window) <= 3 and min(*self.x_shape[1:], *self.y_shape[1:]) > 0

    @property
    def attrs(self) -> dict[str, Any]:
        """The attributes of the ops of this geometry."""
        return {"window": self.window, "stride": self.stride, "padding": self.padding}

    @property
    def sizes(self) -> tuple:
        """Strides, window, dilation (oneDNN counts from zero), low and high padding."""
        return (
            dims(self.stride),
            dims(self.window),
            dims([0] * len(self.window)),
            dims([low for low, _ in self.padding]),
            dims([high for _, high in self.padding]),
        )

    def forward(self, algorithm: int, kind: int) -> Owned:
        """The forward primitive, also the hint that the gradient needs."""
        source, result = channels_last(self.x_shape), channels_last(self.y_shape)
        return primitive_description("pooling_forward", kind, algorithm, source, result, *self.sizes, attributes())

    def backward(self, algorithm: int, forward: Owned) -> Owned:
        """The gradient primitive."""
        source, result = channels_last(self.x_shape), channels_last(self.y_shape)
        return primitive_description("pooling_backward", algorithm, source, result, *self.sizes, forward, attributes())


def max_pool(x_shape: Shape, window: Shape, stride: Shape, padding: Padding) -> Kernel | None:
    """A kernel(y, x) for the maximum of each window; None where oneDNN cannot do it.

    x (N, *S, C), y (N, *S', C), float32; padding counts as minus infinity; a NaN makes its windows NaN.
    """
    geometry = _Geometry(x_shape, window, stride, tuple(padding))
    highest, average = _forward(geometry, _MAXIMUM), _forward(geometry, _AVERAGE)
    if highest is None or average is None or not math.prod(geometry.y_shape):
        return highest
    means = np.empty(geometry.y_shape, np.float32)

    def kernel(out: np.ndarray, x: np.ndarray) -> np.ndarray:
        highest(out, x)
        if _is_special(out, average(means, x)):
            out[...] = record("max_pool").kernel(x, **geometry.attrs)
        return out

    return kernel


def _is_special(maxima: np.ndarray, means: np.ndarray) -> bool:
    """Whether there may be a NaN, which oneDNN's maximum passes over, or a window of minus infinities.

    The mean of a window keeps every NaN of it; oneDNN's maximum starts at the lowest finite number.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        return bool(np.isnan(means.sum()) or maxima.min() <= _LOWEST)


def avg_pool(x_shape: Shape, window: Shape, stride: Shape, padding: Padding) -> Kernel | None:
    """A kernel(y, x) for the mean of each window; None where oneDNN cannot do it.

    x (N, *S, C), y (N, *S', C), float32; padding counts as zeros, the divisor is the full window.
    """
    return _forward(_Geometry(x_shape, window, stride, tuple(padding)), _AVERAGE)


def _forward(geometry: _Geometry, algorithm: int) -> Kernel | None:
    if not geometry.supported:
        return None
    if not math.prod(geometry.y_shape):
        return zero_kernel([geometry.y_shape], [geometry.x_shape])

    def build() -> Kernel:
        program = Program([geometry.y_shape], [geometry.x_shape])
        operands = {
            ARG_RESULT: program.public(0, channels_last(geometry.y_shape)),
            ARG_SOURCE: program.public(1, channels_last(geometry.x_shape)),
        }
        program.add(geometry.forward(algorithm, FORWARD_INFERENCE), operands)
        return program.finish()

    return unless_unsupported(build)


def max_pool_grad(x_shape: Shape, window: Shape, stride: Shape, padding: Padding) -> Kernel | None:
    """A kernel(dx, g, x) that gives each window's gradient to its first maximum, or first NaN, in row-major order.

    g (N, *S', C) is the gradient of the result, dx and x have `x_shape`; float32. None where oneDNN cannot do it.
    The forward pass is repeated inside, because it leaves the positions of the maxima.
    """
    geometry = _Geometry(x_shape, window, stride, tuple(padding))
    if not geometry.supported:
        return None
    if not math.prod(geometry.y_shape):
        return zero_kernel([x_shape], [geometry.y_shape, x_shape])
    fast = unless_unsupported(lambda: _first_maximum_kernel(geometry))
    average = _forward(geometry, _AVERAGE)
    if fast is None or average is None:
        return None
    maxima, means = np.empty(geometry.y_shape, np.float32), np.empty(geometry.y_shape, np.float32)

    def kernel(out: np.ndarray, g: np.ndarray, x: np.ndarray) -> np.ndarray:
        fast((out, maxima), g, x)
        if _is_special(maxima, average(means, x)):
            out[...] = record("max_pool_grad").kernel(g, x, **geometry.attrs)
        return out

    return kernel


def _first_maximum_kernel(geometry: _Geometry) -> Kernel:
    """A kernel((dx, y), g, x): forward, which leaves the positions of the maxima in a workspace, and its gradient."""
    x_shape, y_shape = geometry.x_shape, geometry.y_shape
    program = Program([x_shape, y_shape], [y_shape, x_shape])
    forward = geometry.forward(_MAXIMUM, FORWARD_TRAINING)
    workspace = program.workspace(forward)
    positions = {
        ARG_RESULT: program.public(1, channels_last(y_shape)),
        ARG_SOURCE: program.public(3, channels_last(x_shape)),
        ARG_WORKSPACE: workspace,
    }
    gradients = {
        ARG_DIFF_SOURCE: program.public(0, channels_last(x_shape)),
        ARG_DIFF_RESULT: program.public(2, channels_last(y_shape)),
        ARG_WORKSPACE: workspace,
    }
    program.add(forward, positions)
    program.add(geometry.backward(_MAXIMUM, forward), gradients)
    return program.finish()


def avg_pool_grad(x_shape: Shape, window: Shape, stride: Shape, padding: Padding) -> Kernel | None:
    """A kernel(dx, g) for the gradient of `avg_pool`; None where oneDNN cannot do it.

    g (N, *S', C) is the gradient of the result, dx has `x_shape`; float32.
    """
    geometry = _Geometry(x_shape, window, stride, tuple(padding))
    if not geometry.supported:
        return None
    if not math.prod(geometry.y_shape):
        return zero_kernel([x_shape], [geometry.y_shape])

    def build() -> Kernel:
        program = Program([x_shape], [geometry.y_shape])
        forward = geometry.forward(_AVERAGE, FORWARD_TRAINING)
        operands = {
            ARG_DIFF_SOURCE: program.public(0, channels_last(x_shape)),
            ARG_DIFF_RESULT: program.public(1, channels_last(geometry.y_shape)),
        }
        program.add(geometry.backward(_AVERAGE, forward), operands)
        return program.finish()

    return unless_unsupported(build)
