"""Convolution kernels on channels-last arrays: forward, input gradient, weight gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from futurex.kernels.onednn.binding import Owned
from futurex.kernels.onednn.primitive import (
    ARG_BIAS,
    ARG_DIFF_RESULT,
    ARG_DIFF_SOURCE,
    ARG_DIFF_WEIGHTS,
    ARG_RESULT,
    ARG_SOURCE,
    ARG_WEIGHTS,
    FORWARD_TRAINING,
    Kernel,
    Program,
    Shape,
    attributes,
    channels_last,
    contiguous_strides,
    describe,
    describe_plain,
    dims,
    primitive_description,
    unless_unsupported,
    zero_kernel,
)

_DIRECT = 1
Padding = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class _Geometry:
    """The sizes of one convolution: x (N, *S, Cin), w (*K, Cin // groups, Cout), y (N, *S', Cout)."""

    x_shape: Shape
    w_shape: Shape
    stride: Shape
    padding: tuple[tuple[int, int], ...]
    dilation: Shape
    groups: int

    @property
    def y_shape(self) -> Shape:
        spatial = (
            (size + low + high - (window - 1) * dilation - 1) // stride + 1
            for size, (low, high), window, dilation, stride in zip(
                self.x_shape[1:-1], self.padding, self.w_shape[:-2], self.dilation, self.stride, strict=True
            )
        )
        return (self.x_shape[0], *spatial, self.w_shape[-1])

    @property
    def supported(self) -> bool:
        """Whether oneDNN can be asked: 1 to 3 spatial dimensions, no cropping, nothing empty but the batch."""
        rank = len(self.x_shape) - 2
        return (
            1 <= rank <= 3
            and len(self.w_shape) == rank + 2
            and min(*self.x_shape[1:], *self.w_shape, *self.y_shape[1:]) > 0
            and min(low for pair in self.padding for low in pair) >= 0
        )

    def weights(self, plain: bool) -> Owned:
        """Logical (O, I, *K) or (G, O / G, I / G, *K): as the public array lies, or as oneDNN likes it."""
        *kernel, per_group, outputs = self.w_shape
        *window_strides, input_stride, _ = contiguous_strides(self.w_shape)
        shape: Shape = (outputs, per_group, *kernel)
        strides: Shape = (1, input_stride, *window_strides)
        if self.groups > 1:
            shape = (self.groups, outputs // self.groups, *shape[1:])
            strides = (outputs // self.groups, *strides)
        return describe(shape, strides if plain else None)

    @property
    def window(self) -> tuple:
        """Strides, dilations (oneDNN counts from zero), low and high padding."""
        return (
            dims(self.stride),
            dims([each - 1 for each in self.dilation]),
            dims([low for low, _ in self.padding]),
            dims([high for _, high in self.padding]),
        )

    def forward(self, bias: bool) -> Owned:
        """The forward primitive, also the hint that the two gradients need."""
        bias_description = describe_plain(self.w_shape[-1:]) if bias else None
        return primitive_description(
            "convolution_forward",
            FORWARD_TRAINING,
            _DIRECT,
            channels_last(self.x_shape),
            self.weights(plain=False),
            bias_description,
            channels_last(self.y_shape),
            *self.window,
            attributes(),
        )


def conv_forward(
    x_shape: Shape,
    w_shape: Shape,
    stride: Shape,
    padding: Padding,
    dilation: Shape,
    groups: int = 1,
    bias: bool = False,
) -> Kernel | None:
    """A kernel(y, x, w[, b]) for y = conv(x, w) + b; None where oneDNN cannot do it.

    x (N, *S, Cin), w (*K, Cin // groups, Cout), b (Cout,), y (N, *S', Cout); all float32.

    >>> conv_forward((8, 80, 6), (10, 6, 100), (1,), ((0, 0),), (1,), bias=True)  # doctest: +SKIP
    """
    geometry = _Geometry(x_shape, w_shape, stride, tuple(padding), dilation, groups)
    inputs = [x_shape, w_shape, *([w_shape[-1:]] if bias else [])]
    if not geometry.supported:
        return None
    if not math.prod(geometry.y_shape):
        return zero_kernel([geometry.y_shape], inputs)

    def build() -> Kernel:
        program = Program([geometry.y_shape], inputs)
        operands = {
            ARG_RESULT: program.public(0, channels_last(geometry.y_shape)),
            ARG_SOURCE: program.public(1, channels_last(x_shape)),
            ARG_WEIGHTS: program.public(2, geometry.weights(plain=True)),
        }
        if bias:
            operands[ARG_BIAS] = program.public(3, describe_plain(w_shape[-1:]))
        program.add(geometry.forward(bias), operands)
        return program.finish()

    return unless_unsupported(build)


def conv_input_grad(
    x_shape: Shape, w_shape: Shape, stride: Shape, padding: Padding, dilation: Shape, groups: int = 1
) -> Kernel | None:
    """A kernel(dx, g, w) for the gradient of conv with respect to x; None where oneDNN cannot do it.

    g (N, *S', Cout) is the gradient of the result, dx has `x_shape`; all float32.
    """
    geometry = _Geometry(x_shape, w_shape, stride, tuple(padding), dilation, groups)
    if not geometry.supported:
        return None
    if not math.prod(geometry.y_shape):
        return zero_kernel([x_shape], [geometry.y_shape, w_shape])

    def build() -> Kernel:
        program = Program([x_shape], [geometry.y_shape, w_shape])
        source, result = channels_last(x_shape), channels_last(geometry.y_shape)
        description = primitive_description(
            "convolution_backward_data",
            _DIRECT,
            source,
            geometry.weights(plain=False),
            result,
            *geometry.window,
            geometry.forward(False),
            attributes(),
        )
        operands = {
            ARG_DIFF_SOURCE: program.public(0, source),
            ARG_DIFF_RESULT: program.public(1, result),
            ARG_WEIGHTS: program.public(2, geometry.weights(plain=True)),
        }
        program.add(description, operands)
        return program.finish()

    return unless_unsupported(build)


def conv_weight_grad(
    x_shape: Shape, w_shape: Shape, stride: Shape, padding: Padding, dilation: Shape, groups: int = 1
) -> Kernel | None:
    """A kernel(dw, x, g) for the gradient of conv with respect to w; None where oneDNN cannot do it.

    g (N, *S', Cout) is the gradient of the result, dw has `w_shape`; all float32. An empty batch gives zeros.
    """
    geometry = _Geometry(x_shape, w_shape, stride, tuple(padding), dilation, groups)
    if not geometry.supported:
        return None
    if not math.prod(geometry.y_shape):
        return zero_kernel([w_shape], [x_shape, geometry.y_shape])

    def build() -> Kernel:
        program = Program([w_shape], [x_shape, geometry.y_shape])
        source, result = channels_last(x_shape), channels_last(geometry.y_shape)
        description = primitive_description(
            "convolution_backward_weights",
            _DIRECT,
            source,
            geometry.weights(plain=False),
            None,
            result,
            *geometry.window,
            geometry.forward(False),
            attributes(),
        )
        operands = {
            ARG_DIFF_WEIGHTS: program.public(0, geometry.weights(plain=True)),
            ARG_SOURCE: program.public(1, source),
            ARG_DIFF_RESULT: program.public(2, result),
        }
        program.add(description, operands)
        return program.finish()

    return unless_unsupported(build)
