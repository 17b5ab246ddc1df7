"""Average pooling on channels-last arrays, forward and gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from futurex.kernels.numba_.team import BRIEF_BYTES
from futurex.kernels.onednn.binding import Owned
from futurex.kernels.onednn.geometry import by_images
from futurex.kernels.onednn.primitive import (
    ARG_DIFF_RESULT,
    ARG_DIFF_SOURCE,
    ARG_RESULT,
    ARG_SOURCE,
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

_AVERAGE = 0x2FF  # counts padding as zeros
_LEAST_SHARED = 512 * 1024  # bytes from which threads share it
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
    def sizes(self) -> tuple:
        """Strides, window, dilation (oneDNN counts from zero), low and high padding."""
        return (
            dims(self.stride),
            dims(self.window),
            dims([0] * len(self.window)),
            dims([low for low, _ in self.padding]),
            dims([high for _, high in self.padding]),
        )

    @property
    def moved(self) -> int:
        """Bytes of both arrays."""
        return 4 * (math.prod(self.x_shape) + math.prod(self.y_shape))

    def forward(self, kind: int) -> Owned:
        """The forward primitive, also the hint that the gradient needs."""
        source, result = channels_last(self.x_shape), channels_last(self.y_shape)
        return primitive_description("pooling_forward", kind, _AVERAGE, source, result, *self.sizes, attributes())

    def backward(self) -> Owned:
        """The gradient primitive."""
        source, result = channels_last(self.x_shape), channels_last(self.y_shape)
        hint = self.forward(FORWARD_TRAINING)
        return primitive_description("pooling_backward", _AVERAGE, source, result, *self.sizes, hint, attributes())


def avg_pool(
    x_shape: Shape, window: Shape, stride: Shape, padding: Padding, *, threads: int = 1
) -> Kernel | None:
    """A kernel(y, x) for the mean of each window; None where oneDNN cannot do it.

    x (N, *S, C), y (N, *S', C), float32; padding counts as zeros, the divisor is the full window.
    """
    geometry = _Geometry(x_shape, window, stride, tuple(padding))
    if not geometry.supported:
        return None
    if not math.prod(geometry.y_shape):
        return zero_kernel([geometry.y_shape], [geometry.x_shape])

    def build() -> Kernel:
        several = threads if geometry.moved >= _LEAST_SHARED else 1
        program = Program([geometry.y_shape], [geometry.x_shape], several, brief=geometry.moved < BRIEF_BYTES)
        for part in by_images(geometry, program.threads):
            program.ticket()
            operands = {
                ARG_RESULT: program.public(0, channels_last(part.geometry.y_shape), part.y_offset),
                ARG_SOURCE: program.public(1, channels_last(part.geometry.x_shape), part.x_offset),
            }
            program.add(part.geometry.forward(FORWARD_INFERENCE), operands)
        return program.finish()

    return unless_unsupported(build)


def avg_pool_grad(
    x_shape: Shape, window: Shape, stride: Shape, padding: Padding, *, threads: int = 1
) -> Kernel | None:
    """A kernel(dx, g) for the gradient of `avg_pool`; None where oneDNN cannot do it.

    g (N, *S', C) is the gradient of the result, dx has `x_shape`; float32.
    """
    geometry = _Geometry(x_shape, window, stride, tuple(padding))
    if not geometry.supported:
        return None
    if not math.prod(geometry.y_shape):
        return zero_kernel([x_shape], [geometry.y_shape])

    def build() -> Kernel:
        several = threads if geometry.moved >= _LEAST_SHARED else 1
        program = Program([x_shape], [geometry.y_shape], several, brief=geometry.moved < BRIEF_BYTES)
        for part in by_images(geometry, program.threads):
            program.ticket()
            operands = {
                ARG_DIFF_SOURCE: program.public(0, channels_last(part.geometry.x_shape), part.x_offset),
                ARG_DIFF_RESULT: program.public(1, channels_last(part.geometry.y_shape), part.y_offset),
            }
            program.add(part.geometry.backward(), operands)
        return program.finish()

    return unless_unsupported(build)
