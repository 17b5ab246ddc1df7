"""The sizes of a convolution, and how it is cut into convolutions of parts of its arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar, cast

from futurex.kernels.onednn.binding import Handle, Owned
from futurex.kernels.onednn.primitive import (
    FORWARD_TRAINING,
    Shape,
    attributes,
    channels_last,
    contiguous_strides,
    cut,
    describe,
    describe_plain,
    dims,
    primitive_description,
)

_DIRECT = 1
_WIDTHS = (64, 32, 16)
"""Output channels of a part: multiples of the elements of a vector."""
_MOVE = 20
"""Multiply-adds that take as long as moving one number, which does not lie in the caches."""
_EVEN = 0.85  # of the threads' time that images as they are should use; else each is cut by rows


@dataclass(frozen=True)
class Geometry:
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

    @property
    def logical(self) -> Shape:
        """The weights' axes as oneDNN names them: (O, I, *K) or (G, O / G, I / G, *K)."""
        *kernel, per_group, outputs = self.w_shape
        groups = (self.groups,) if self.groups > 1 else ()
        return (*groups, outputs // self.groups, per_group, *kernel)

    def weights(self, plain: bool) -> Owned:
        """As the public array lies, or as oneDNN likes it."""
        *window_strides, input_stride, _ = contiguous_strides(self.w_shape)
        strides: Shape = (1, input_stride, *window_strides)
        if self.groups > 1:
            strides = (self.w_shape[-1] // self.groups, *strides)
        return describe(self.logical, strides if plain else None)

    @property
    def window(self) -> tuple:
        """Strides, dilations (oneDNN counts from zero), low and high padding."""
        return (
            dims(self.stride),
            dims([each - 1 for each in self.dilation]),
            dims([low for low, _ in self.padding]),
            dims([high for _, high in self.padding]),
        )

    @property
    def reach(self) -> int:
        """Rows that a window reaches over."""
        return (self.w_shape[0] - 1) * self.dilation[0] + 1

    @property
    def products(self) -> int:
        """Multiply-adds, of any of the three."""
        return math.prod(self.y_shape) * math.prod(self.w_shape[:-1])

    def forward(self, bias: bool = False, weights: Owned | Handle | None = None) -> Owned:
        """The forward primitive, also the hint that the two gradients need, for weights in a layout or in any."""
        bias_description = describe_plain(self.w_shape[-1:]) if bias else None
        return primitive_description(
            "convolution_forward",
            FORWARD_TRAINING,
            _DIRECT,
            channels_last(self.x_shape),
            weights or self.weights(plain=False),
            bias_description,
            channels_last(self.y_shape),
            *self.window,
            attributes(),
        )

    def input_grad(self, weights: Owned | Handle | None = None) -> Owned:
        """The primitive of the gradient with respect to x."""
        return primitive_description(
            "convolution_backward_data",
            _DIRECT,
            channels_last(self.x_shape),
            weights or self.weights(plain=False),
            channels_last(self.y_shape),
            *self.window,
            self.forward(),
            attributes(),
        )

    def weight_grad(self, weights: Owned | Handle | None = None) -> Owned:
        """The primitive of the gradient with respect to w."""
        return primitive_description(
            "convolution_backward_weights",
            _DIRECT,
            channels_last(self.x_shape),
            weights or self.weights(plain=False),
            None,
            channels_last(self.y_shape),
            *self.window,
            self.forward(),
            attributes(),
        )


class Sized(Protocol):
    """A dataclass of sizes, those of y among them, which follow from those of x."""

    @property
    def x_shape(self) -> Shape: ...

    @property
    def y_shape(self) -> Shape: ...


G = TypeVar("G", bound=Sized)


@dataclass(frozen=True)
class Slice(Generic[G]):
    """The sizes of a part of the arrays, and where in x and y that part begins, in bytes."""

    geometry: G
    x_offset: int
    y_offset: int


def slices(whole: Geometry, threads: int) -> list[Slice[Geometry]]:
    """Convolutions whose results are those of ``whole``, for so many threads: by images; where these are too few, or do
    not come out even, by rows of each, too. Empty where it cannot be cut.

    >>> geometry = Geometry((3, 8, 8, 4), (3, 3, 4, 16), (1, 1), ((1, 1), (1, 1)), (1, 1), 1)
    >>> [each.geometry.y_shape for each in slices(geometry, 2)][:3]
    [(1, 4, 8, 16), (1, 4, 8, 16), (1, 4, 8, 16)]
    """
    return _sliced(whole, threads, whole.y_shape[1], 1, _rows_of_result)


def input_slices(whole: Geometry, threads: int) -> list[Slice[Geometry]]:
    """The same for the gradient with respect to x: parts are those of x."""
    return _sliced(whole, threads, whole.x_shape[1], whole.stride[0], _rows_of_input)


def by_images(whole: G, parts: int) -> list[Slice[G]]:
    """The same of some of the images each."""
    images, *rest = whole.x_shape
    x_image, y_image = (4 * math.prod(shape[1:]) for shape in (whole.x_shape, whole.y_shape))
    return [
        Slice(cast(G, replace(cast(Any, whole), x_shape=(end - begin, *rest))), begin * x_image, begin * y_image)
        for begin, end in cut(images, min(parts, images))
    ]


def by_outputs(whole: Geometry, threads: int) -> list[tuple[int, int]]:
    """Output channels, from where to where, whose weights are a part each of the gradient with respect to w.

    >>> by_outputs(Geometry((8, 7, 7, 64), (3, 3, 64, 100), (1, 1), ((1, 1), (1, 1)), (1, 1), 1), 2)
    [(0, 64), (64, 100)]
    """
    outputs = whole.w_shape[-1]
    if whole.groups > 1:
        return []
    width = max(_WIDTHS, key=lambda width: _evenness(-(-outputs // width), threads))
    return [(begin, min(begin + width, outputs)) for begin in range(0, outputs, width)]


def prefers_outputs(
    whole: Geometry, threads: int, outputs: Sequence[tuple[int, int]], summed: Sequence[Slice[Geometry]]
) -> bool:
    """Is the gradient with respect to w sooner there by output channels, each of which reads all of x and copies its
    part of y's gradient, than by parts of x and y whose gradients are added up?"""
    if len(outputs) < 2 or not summed:
        return len(outputs) > 1
    x, w, y = (math.prod(shape) for shape in (whole.x_shape, whole.w_shape, whole.y_shape))
    widest, largest = max(end - begin for begin, end in outputs), max(each.geometry.products for each in summed)
    wide = -(-len(outputs) // threads) * widest * whole.products // whole.w_shape[-1]
    large = -(-len(summed) // threads) * largest
    return threads * wide + _MOVE * (len(outputs) * x + 2 * y) < threads * large + _MOVE * 3 * len(summed) * w


def _evenness(tickets: int, threads: int) -> float:
    """Which share of the threads' time tickets of equal size use."""
    return tickets / (threads * -(-tickets // threads))


_Rows = tuple[Geometry, int, int]
"""Rows of one image: their convolution, and its first row in x and in y."""


def _sliced(
    whole: Geometry, threads: int, height: int, step: int, rows_of: Callable[[Geometry, int, int], _Rows | None]
) -> list[Slice[Geometry]]:
    """Slices by images, or the same rows of each, which begin at multiples of a step; none where some have no
    convolution of their own."""
    images = whole.x_shape[0]
    if _evenness(images, threads) >= _EVEN:
        return by_images(whole, threads)
    parts = next((parts for parts in range(2, threads + 2) if _evenness(images * parts, threads) >= _EVEN), threads)
    places = [(step * begin, min(step * end, height)) for begin, end in cut(-(-height // step), parts)]
    rows = [rows_of(whole, *each) for each in places]
    x_image, y_image = (4 * math.prod(shape[1:]) for shape in (whole.x_shape, whole.y_shape))
    x_row, y_row = (4 * math.prod(shape[2:]) for shape in (whole.x_shape, whole.y_shape))
    return [
        Slice(geometry, image * x_image + x_begin * x_row, image * y_image + y_begin * y_row)
        for image in range(images)
        for geometry, x_begin, y_begin in filter(None, rows)
    ] if None not in rows else []  # fmt: skip


def _rows_of_result(whole: Geometry, begin: int, end: int) -> _Rows | None:
    """What makes these rows of y."""
    stride, (low, _), reach = whole.stride[0], whole.padding[0], whole.reach
    first, last = begin * stride - low, (end - 1) * stride - low + reach
    start, stop = max(0, first), min(whole.x_shape[1], last)
    if stop <= start:
        return None
    padding = ((start - first, last - stop), *whole.padding[1:])
    return replace(whole, x_shape=(1, stop - start, *whole.x_shape[2:]), padding=padding), start, begin


def _rows_of_input(whole: Geometry, begin: int, end: int) -> _Rows | None:
    """What makes these rows of the gradient with respect to x."""
    stride, (low, _), reach = whole.stride[0], whole.padding[0], whole.reach
    start = max(0, -(-(begin + low - reach + 1) // stride))
    stop = min(whole.y_shape[1], (end - 1 + low) // stride + 1)
    before = begin + low - start * stride
    if stop <= start or before < 0:
        return None
    behind = max(0, (stop - start - 1) * stride + reach - (end - begin) - before)
    padding = ((before, behind), *whole.padding[1:])
    part = replace(whole, x_shape=(1, end - begin, *whole.x_shape[2:]), padding=padding)
    return (part, begin, start) if part.y_shape[1] == stop - start else None
