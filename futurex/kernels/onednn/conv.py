"""Convolution kernels on channels-last arrays: forward, input gradient, weight gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from futurex.kernels.numba_.team import BRIEF_PRODUCT
from futurex.kernels.onednn.binding import Handle, OneDNNError, Owned
from futurex.kernels.onednn.geometry import (
    Geometry,
    Slice,
    by_images,
    by_outputs,
    input_slices,
    prefers_outputs,
    slices,
)
from futurex.kernels.onednn.primitive import (
    ARG_BIAS,
    ARG_DIFF_RESULT,
    ARG_DIFF_SOURCE,
    ARG_DIFF_WEIGHTS,
    ARG_RESULT,
    ARG_SOURCE,
    ARG_WEIGHTS,
    Kernel,
    Operand,
    Program,
    Shape,
    channels_last,
    cut,
    describe_plain,
    is_quick,
    unless_unsupported,
    zero_kernel,
)

Padding = Sequence[tuple[int, int]]
_LEAST = 1 << 19
"""Multiply-adds from which a convolution is shared among threads."""
_BLOCK, _LEAST_PIECE = 64, 1 << 16
"""Output channels that may lie in one block of weights, and weights from which they are brought in order in pieces."""
_MOST_SUMS = 64 << 20
"""Bytes that the gradients with respect to w of all parts may take, if there are more than two."""


def conv_forward(
    x_shape: Shape,
    w_shape: Shape,
    stride: Shape,
    padding: Padding,
    dilation: Shape,
    groups: int = 1,
    bias: bool = False,
    *,
    threads: int = 1,
) -> Kernel | None:
    """A kernel(y, x, w[, b]) for y = conv(x, w) + b; None where oneDNN cannot do it.

    x (N, *S, Cin), w (*K, Cin // groups, Cout), b (Cout,), y (N, *S', Cout); all float32.

    >>> conv_forward((8, 80, 6), (10, 6, 100), (1,), ((0, 0),), (1,), bias=True)  # doctest: +SKIP
    """
    geometry = Geometry(x_shape, w_shape, stride, tuple(padding), dilation, groups)
    inputs = [x_shape, w_shape, *([w_shape[-1:]] if bias else [])]
    if not geometry.supported:
        return None
    if not math.prod(geometry.y_shape):
        return zero_kernel([geometry.y_shape], inputs)

    def build(parts: Sequence[Slice[Geometry]], threads: int) -> Kernel:
        program = Program([geometry.y_shape], inputs, threads, brief=_is_brief(geometry))
        more = {ARG_BIAS: program.public(3, describe_plain(w_shape[-1:]))} if bias else {}
        made = _Made(lambda each, weights: each.forward(bias, weights))
        _weighted(program, geometry, parts, made, (ARG_SOURCE, 1), (ARG_RESULT, 0), more)
        return program.finish()

    return _in_slices(geometry, threads, slices, build)


def conv_input_grad(
    x_shape: Shape, w_shape: Shape, stride: Shape, padding: Padding, dilation: Shape, groups: int = 1, *,
    threads: int = 1,
) -> Kernel | None:  # fmt: skip
    """A kernel(dx, g, w) for the gradient of conv with respect to x; None where oneDNN cannot do it.

    g (N, *S', Cout) is the gradient of the result, dx has `x_shape`; all float32.
    """
    geometry = Geometry(x_shape, w_shape, stride, tuple(padding), dilation, groups)
    if not geometry.supported:
        return None
    if not math.prod(geometry.y_shape):
        return zero_kernel([x_shape], [geometry.y_shape, w_shape])

    def build(parts: Sequence[Slice[Geometry]], threads: int) -> Kernel:
        program = Program([x_shape], [geometry.y_shape, w_shape], threads, brief=_is_brief(geometry))
        made = _Made(lambda each, weights: each.input_grad(weights))
        _weighted(program, geometry, parts, made, (ARG_DIFF_SOURCE, 0), (ARG_DIFF_RESULT, 1))
        return program.finish()

    return _in_slices(geometry, threads, input_slices, build)


def conv_weight_grad(
    x_shape: Shape, w_shape: Shape, stride: Shape, padding: Padding, dilation: Shape, groups: int = 1, *,
    threads: int = 1,
) -> Kernel | None:  # fmt: skip
    """A kernel(dw, x, g) for the gradient of conv with respect to w; None where oneDNN cannot do it.

    g (N, *S', Cout) is the gradient of the result, dw has `w_shape`; all float32. An empty batch gives zeros.
    """
    geometry = Geometry(x_shape, w_shape, stride, tuple(padding), dilation, groups)
    if not geometry.supported:
        return None
    if not math.prod(geometry.y_shape):
        return zero_kernel([w_shape], [x_shape, geometry.y_shape])

    def build(parts: Sequence[Slice[Geometry]], threads: int) -> Kernel:
        program = Program([w_shape], [x_shape, geometry.y_shape], threads, brief=_is_brief(geometry))
        made = _Made(lambda each, weights: each.weight_grad(weights))
        first = made.of(parts[0].geometry)
        result = program.public(0, geometry.weights(plain=True))
        wanted = program.wanted(first, ARG_DIFF_WEIGHTS)
        direct = len(parts) == 1 and program.lies_as(result, wanted)
        sums = [result] if direct else [program.private(wanted) for _ in parts]
        for each, own in zip(parts, sums, strict=True):
            program.ticket()
            operands = {
                ARG_DIFF_WEIGHTS: own,
                ARG_SOURCE: program.public(1, channels_last(each.geometry.x_shape), each.x_offset),
                ARG_DIFF_RESULT: program.public(2, channels_last(each.geometry.y_shape), each.y_offset),
            }
            program.add(made.of(each.geometry, own.description), operands)
        program.phase()
        program.add_up(sums)
        program.phase()
        for source, target in [] if direct else _pieces(program, geometry, (sums[0], result)):
            program.ticket()
            program.reorder(source, target)
        return program.finish()

    outputs, summed = by_outputs(geometry, threads), _summed(geometry, threads)
    if _is_shared(geometry, threads) and prefers_outputs(geometry, threads, outputs, summed):
        kernel = unless_unsupported(lambda: _of_outputs(geometry, outputs, threads))
        if kernel is not None and is_quick(kernel):
            return kernel
    return _in_slices(geometry, threads, _summed, build)


def _of_outputs(geometry: Geometry, outputs: Sequence[tuple[int, int]], threads: int) -> Kernel:
    """The gradient with respect to w, some output channels for each ticket: nothing is added up behind."""
    program = Program([geometry.w_shape], [geometry.x_shape, geometry.y_shape], threads, brief=_is_brief(geometry))
    result = program.public(0, geometry.weights(plain=True))
    x = program.public(1, channels_last(geometry.x_shape))
    gradient = program.public(2, channels_last(geometry.y_shape))
    images, *places, channels = geometry.y_shape
    for begin, end in outputs:
        program.ticket()
        part = replace(geometry, w_shape=(*geometry.w_shape[:-1], end - begin))
        description = part.weight_grad()
        own = program.private(channels_last(part.y_shape))
        weights = program.private(program.wanted(description, ARG_DIFF_WEIGHTS))
        program.reorder(program.part(gradient, (images, channels, *places), begin, end, axis=1), own)
        program.add(description, {ARG_DIFF_WEIGHTS: weights, ARG_SOURCE: x, ARG_DIFF_RESULT: own})
        program.reorder(weights, program.part(result, geometry.logical, begin, end))
    return program.finish()


def _summed(geometry: Geometry, threads: int) -> list[Slice[Geometry]]:
    """Slices whose gradients with respect to w are summed: each has memory for one of its own."""
    parts = min(threads, max(2, _MOST_SUMS // (4 * math.prod(geometry.w_shape))))
    return by_images(geometry, parts) if geometry.x_shape[0] >= parts else slices(geometry, parts)


def _is_shared(geometry: Geometry, threads: int) -> bool:
    return threads > 1 and geometry.products >= _LEAST


def _is_brief(geometry: Geometry) -> bool:
    return geometry.products < BRIEF_PRODUCT


class _Made:
    """Descriptions of primitives, one for each geometry."""

    def __init__(self, make: Callable[[Geometry, Owned | Handle | None], Owned]) -> None:
        self._make = make
        self._found: dict[Geometry, Owned] = {}

    def of(self, geometry: Geometry, weights: Owned | Handle | None = None) -> Owned:
        """That of one geometry, with weights in this layout."""
        if geometry not in self._found:
            self._found[geometry] = self._make(geometry, weights)
        return self._found[geometry]


def _weighted(
    program: Program, geometry: Geometry, parts: Sequence[Slice[Geometry]], made: _Made, x: tuple[int, int],
    y: tuple[int, int], more: Mapping[int, Operand] = MappingProxyType({}),
) -> None:  # fmt: skip
    """Append one primitive for each part, all with the weights at position 2; of x and y oneDNN's number of the
    argument, and the position of the array."""
    (x_argument, x_position), (y_argument, y_position) = x, y
    first = made.of(parts[0].geometry)
    given = program.public(2, geometry.weights(plain=True))
    weights = _brought_in_order(program, geometry, given, program.wanted(first, ARG_WEIGHTS))
    for each in parts:
        program.ticket()
        operands = {
            x_argument: program.public(x_position, channels_last(each.geometry.x_shape), each.x_offset),
            y_argument: program.public(y_position, channels_last(each.geometry.y_shape), each.y_offset),
            ARG_WEIGHTS: weights, **more,
        }  # fmt: skip
        program.add(made.of(each.geometry, weights.description), operands)


def _in_slices(
    geometry: Geometry,
    threads: int,
    cut_up: Callable[[Geometry, int], list[Slice[Geometry]]],
    build: Callable[[Sequence[Slice[Geometry]], int], Kernel],
) -> Kernel | None:
    """The kernel that is built of slices; whole, for one thread, where that is small or cannot be cut.

    None where oneDNN is missing or cannot do it.
    """
    parts = cut_up(geometry, threads) if _is_shared(geometry, threads) else []
    kernel = unless_unsupported(lambda: build(parts, threads)) if len(parts) > 1 else None
    if kernel is not None and is_quick(kernel):
        return kernel
    whole = unless_unsupported(lambda: build([Slice(geometry, 0, 0)], 1))
    return whole if kernel is None or (whole is not None and is_quick(whole)) else kernel


def _pieces(program: Program, geometry: Geometry, operands: Sequence[Operand]) -> list[list[Operand]]:
    """Weights cut by output channels, for threads to bring them in order; all of them, where that is little work."""
    shape = geometry.logical
    blocks = -(-shape[0] // _BLOCK)
    if program.threads > 1 and blocks > 1 and math.prod(shape) >= _LEAST_PIECE:
        places = [(_BLOCK * begin, min(_BLOCK * end, shape[0])) for begin, end in cut(blocks, program.threads)]
        try:
            return [[program.part(each, shape, *place) for each in operands] for place in places]
        except OneDNNError:
            pass
    return [list(operands)]


def _brought_in_order(program: Program, geometry: Geometry, given: Operand, wanted: Handle) -> Operand:
    """Weights as primitives want them; they are there when the next phase begins."""
    if program.lies_as(given, wanted):
        return given
    inner = program.private(wanted)
    for source, target in _pieces(program, geometry, (given, inner)):
        program.ticket()
        program.reorder(source, target)
    program.phase()
    return inner
