"""Normalisation kernels: batch norm forward and gradient, layer norm forward."""

from __future__ import annotations

import math

from futurex.kernels.onednn.binding import Owned
from futurex.kernels.onednn.primitive import (
    ARG_DIFF_RESULT,
    ARG_DIFF_SCALE,
    ARG_DIFF_SHIFT,
    ARG_DIFF_SOURCE,
    ARG_MEAN,
    ARG_RESULT,
    ARG_SCALE,
    ARG_SHIFT,
    ARG_SOURCE,
    ARG_VARIANCE,
    BACKWARD,
    FORWARD_TRAINING,
    Kernel,
    Program,
    Shape,
    attributes,
    channels_last,
    describe_plain,
    primitive_description,
    unless_unsupported,
)

_SCALE_AND_SHIFT = 2 | 4


def _batch_shape(x_shape: Shape) -> Shape:
    """x_shape as (N, rows, 1, C): the four-dimensional kernels are the vectorised ones."""
    rows = math.prod(x_shape[:-1])
    batch = x_shape[0] if len(x_shape) > 2 else 1
    return (batch, rows // batch, 1, x_shape[-1])


def _batch_forward(shape: Shape, eps: float) -> Owned:
    return primitive_description(
        "batch_normalization_forward",
        FORWARD_TRAINING,
        channels_last(shape),
        channels_last(shape),
        eps,
        _SCALE_AND_SHIFT,
        attributes(),
    )


def batch_norm_forward(x_shape: Shape, eps: float) -> Kernel | None:
    """A kernel((y, mean, var), x, scale, shift) over all axes but the last; None where oneDNN cannot do it.

    x and y (..., C), the others (C,), float32; the variance is biased.
    """
    if len(x_shape) < 2 or not math.prod(x_shape):
        return None
    shape, vector = _batch_shape(x_shape), x_shape[-1:]

    def build() -> Kernel:
        program = Program([x_shape, vector, vector], [x_shape, vector, vector])
        operands = {
            ARG_RESULT: program.public(0, channels_last(shape)),
            ARG_MEAN: program.public(1, describe_plain(vector)),
            ARG_VARIANCE: program.public(2, describe_plain(vector)),
            ARG_SOURCE: program.public(3, channels_last(shape)),
            ARG_SCALE: program.public(4, describe_plain(vector)),
            ARG_SHIFT: program.public(5, describe_plain(vector)),
        }
        program.add(_batch_forward(shape, eps), operands)
        return program.finish()

    return unless_unsupported(build)


def batch_norm_backward(x_shape: Shape, eps: float) -> Kernel | None:
    """A kernel((dx, dscale, dshift), g, x, scale, mean, var); None where oneDNN cannot do it.

    g, x and dx (..., C), the others (C,), float32; mean and var are those that `batch_norm_forward` gave.
    """
    if len(x_shape) < 2 or not math.prod(x_shape):
        return None
    shape, vector = _batch_shape(x_shape), x_shape[-1:]

    def build() -> Kernel:
        program = Program([x_shape, vector, vector], [x_shape, x_shape, vector, vector, vector])
        plain = channels_last(shape)
        description = primitive_description(
            "batch_normalization_backward",
            BACKWARD,
            plain,
            plain,
            plain,
            eps,
            _SCALE_AND_SHIFT,
            _batch_forward(shape, eps),
            attributes(),
        )
        operands = {
            ARG_DIFF_SOURCE: program.public(0, channels_last(shape)),
            ARG_DIFF_SCALE: program.public(1, describe_plain(vector)),
            ARG_DIFF_SHIFT: program.public(2, describe_plain(vector)),
            ARG_DIFF_RESULT: program.public(3, channels_last(shape)),
            ARG_SOURCE: program.public(4, channels_last(shape)),
            ARG_SCALE: program.public(5, describe_plain(vector)),
            ARG_MEAN: program.public(6, describe_plain(vector)),
            ARG_VARIANCE: program.public(7, describe_plain(vector)),
        }
        program.add(description, operands)
        return program.finish()

    return unless_unsupported(build)


def layer_norm_forward(x_shape: Shape, eps: float) -> Kernel | None:
    """A kernel((y, mean, var), x, scale, shift) over the last axis; None where oneDNN cannot do it.

    x and y (..., C), mean and var (...,), scale and shift (C,), float32; the variance is biased.
    """
    if len(x_shape) < 2 or not math.prod(x_shape):
        return None
    shape, vector, rows = (math.prod(x_shape[:-1]), x_shape[-1]), x_shape[-1:], x_shape[:-1]

    def build() -> Kernel:
        program = Program([x_shape, rows, rows], [x_shape, vector, vector])
        plain = describe_plain(shape)
        description = primitive_description(
            "layer_normalization_forward",
            FORWARD_TRAINING,
            plain,
            plain,
            describe_plain(shape[:1]),
            eps,
            _SCALE_AND_SHIFT,
            attributes(),
        )
        operands = {
            ARG_RESULT: program.public(0, describe_plain(shape)),
            ARG_MEAN: program.public(1, describe_plain(shape[:1])),
            ARG_VARIANCE: program.public(2, describe_plain(shape[:1])),
            ARG_SOURCE: program.public(3, describe_plain(shape)),
            ARG_SCALE: program.public(4, describe_plain(vector)),
            ARG_SHIFT: program.public(5, describe_plain(vector)),
        }
        program.add(description, operands)
        return program.finish()

    return unless_unsupported(build)
