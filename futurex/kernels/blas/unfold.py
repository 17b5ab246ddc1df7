"""Convolutions as products of matrices that NumPy's BLAS reads where they lie.

Along the last spatial axis nothing is unfolded: the window of output ``i`` is one run of ``extent * depth`` numbers
that begins ``stride * depth`` numbers after that of output ``i - 1``. Windows overlap, but every ``q``-th of them, for
``q = ceil(extent / stride)``, begins behind the end of the one before: these are the rows of an ordinary matrix whose
row stride is ``q * stride * depth``, and ``q`` products give all outputs. Only the other spatial axes are unfolded (a
copy of a 3 x 3 window's rows is 3 times the input, not 9), and those of a chunk of samples at a time, so that they
stay in the cache. Runs that reach from one line into the next give outputs that are left out.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from futurex.ops.window import Padding, Sizes, out_sizes

CHUNK_BYTES = 4 << 20
"""Unfolded input of the samples that are multiplied at once: what a core's own cache holds, about."""


class _Scratch(threading.local):
    """Memory of the calling thread that kernels use one after the other."""

    def __init__(self) -> None:
        self.buffers: dict[str, np.ndarray] = {}

    def take(self, name: str, shape: Sizes, dtype: np.dtype[Any]) -> np.ndarray:
        """An array with anything in it, valid until the next call with this name."""
        nbytes = math.prod(shape) * dtype.itemsize
        buffer = self.buffers.get(name)
        if buffer is None or buffer.nbytes < nbytes:
            buffer = self.buffers[name] = np.empty(nbytes, np.uint8)
        return buffer[:nbytes].view(dtype).reshape(shape)


scratch = _Scratch()


@dataclass(frozen=True)
class Geometry:
    """The sizes of one convolution: x (N, *S, Cin), w (*K, Cin // groups, Cout), y (N, *S', Cout)."""

    x_shape: Sizes
    w_shape: Sizes
    stride: Sizes
    padding: Padding
    dilation: Sizes
    groups: int
    dtype: np.dtype[Any]

    @property
    def y_shape(self) -> Sizes:
        if min(side for pair in self.padding for side in pair) < 0:  # cropped: what is left is padded by nothing
            sizes = tuple(size + low + high for size, (low, high) in zip(self.x_shape[1:-1], self.padding, strict=True))
            padding: Padding = ((0, 0),) * len(sizes)
        else:
            sizes, padding = self.x_shape[1:-1], self.padding
        spatial = out_sizes(sizes, self.w_shape[:-2], self.stride, padding, self.dilation)
        return (self.x_shape[0], *spatial, self.w_shape[-1])

    @property
    def depth(self) -> int:
        """Channels of a group."""
        return self.w_shape[-2]

    @property
    def extent(self) -> int:
        """Window positions along the last spatial axis that are read in one run."""
        return self.w_shape[-3] if self.dilation[-1] == 1 else 1

    @property
    def apart(self) -> int:
        """Every how many-th window begins behind the end of another: the number of products."""
        return -(-self.extent // self.stride[-1]) if self.extent > 1 else 1

    @property
    def slots(self) -> int:
        """Rows of the product for one line of outputs, those to leave out among them."""
        return self.y_shape[-2] + self.apart - 1

    @property
    def lines(self) -> int:
        """Lines of outputs of one sample."""
        return math.prod(self.y_shape[1:-2])

    @property
    def step(self) -> int:
        """Positions from one run to the next."""
        return self.stride[-1] if self.extent > 1 else 1

    @property
    def run(self) -> int:
        """Numbers at one position of the last axis: the window over the other axes, and the channels."""
        return math.prod(self.w_shape[:-3]) * (1 if self.extent > 1 else self.w_shape[-3]) * self.depth

    @property
    def in_place(self) -> bool:
        """Is the input itself what would be unfolded?"""
        line = self.slots * self.step
        return (
            self.groups == 1
            and not any(side for pair in self.padding for side in pair)
            and math.prod(self.w_shape[:-3]) == math.prod(self.stride[:-1]) == 1
            and (line == self.x_shape[-2] if self.extent > 1 else self.w_shape[-3] == self.stride[-1] == 1)
        )

    def chunks(self) -> Iterator[slice]:
        """The samples that are worked on together."""
        sample = self.lines * self.slots * max(self.step * self.run, self.w_shape[-1]) * self.dtype.itemsize
        count = max(1, CHUNK_BYTES // max(sample, 1))
        return (slice(first, first + count) for first in range(0, self.x_shape[0], count))

    def unfolded(self, x: np.ndarray, group: int) -> np.ndarray:
        """The runs of samples ``x``, one behind the other in one dimension."""
        if self.in_place:
            return x.reshape(-1)
        *kernel, last = self.w_shape[:-2]
        width = self.slots * self.step if self.extent > 1 else self.y_shape[-2]
        gathered = () if self.extent > 1 else (last,)
        shape = (len(x), *self.y_shape[1:-2], width, *kernel, *gathered, self.depth)
        out = scratch.take("unfolded", shape, self.dtype)
        padded = any(side for pair in self.padding for side in pair) or self.extent > 1
        if padded:
            out.fill(0)
        channels = slice(group * self.depth, (group + 1) * self.depth)
        for taps in itertools.product(*map(range, (*kernel, *gathered))):
            places = [self._reads(axis, tap) for axis, tap in enumerate(taps)]
            if self.extent > 1:
                places.append(self._line(width))
            into: list[Any] = [slice(None), *(target for target, _ in places), *taps]
            of: list[Any] = [slice(None), *(source for _, source in places), channels]
            out[tuple(into)] = x[tuple(of)]
        return out.reshape(-1)

    def _reads(self, axis: int, tap: int) -> tuple[slice, slice]:
        """Outputs along an axis whose window reads an element by ``tap``, and the elements that they read."""
        size, stride, low = self.x_shape[1 + axis], self.stride[axis], self.padding[axis][0]
        offset = tap * self.dilation[axis] - low
        first = max(0, -(offset // stride))
        count = min(self.y_shape[1 + axis], (size - 1 - offset) // stride + 1) - first
        if count <= 0:
            return slice(0, 0), slice(0, 0)
        start = first * stride + offset
        return slice(first, first + count), slice(start, start + (count - 1) * stride + 1, stride)

    def _line(self, width: int) -> tuple[slice, slice]:
        """Where the last axis of the input stands in a line of the unfolded one."""
        low = self.padding[-1][0]
        start, skipped = max(0, low), max(0, -low)
        count = max(0, min(self.x_shape[-2] - skipped, width - start))
        return slice(start, start + count), slice(skipped, skipped + count)

    def rows(self, flat: np.ndarray, samples: int) -> Iterator[tuple[np.ndarray, slice]]:
        """The matrices whose rows are windows, and which rows of the product they give."""
        columns, item = self.extent * self.run, flat.itemsize
        wanted = samples * self.lines * self.slots - self.apart + 1  # behind it a run would leave the memory
        for first in range(self.apart):
            count = -(-(wanted - first) // self.apart)
            begin = flat[first * self.step * self.run :]
            strides = (self.apart * self.step * self.run * item, item)
            matrix = np.lib.stride_tricks.as_strided(begin, (max(count, 0), columns), strides)
            yield matrix, slice(first, wanted, self.apart)

    def matrix(self, w: np.ndarray, group: int) -> np.ndarray:
        """The weights (*K, Cin // groups, Cout) of a group as (extent * run, Cout // groups)."""
        outputs = self.w_shape[-1] // self.groups
        w = w[..., group * outputs : (group + 1) * outputs]
        return np.ascontiguousarray(self._run_first(w)).reshape(self.extent * self.run, outputs)

    def weights(self, matrix: np.ndarray) -> np.ndarray:
        """The inverse of :meth:`matrix`."""
        *kernel, last = self.w_shape[:-2]
        rest = (self.depth, self.w_shape[-1] // self.groups)
        if self.extent == 1:
            return matrix.reshape(*kernel, last, *rest)
        return np.moveaxis(matrix.reshape(last, *kernel, *rest), 0, len(kernel))

    def _run_first(self, w: np.ndarray) -> np.ndarray:
        return np.moveaxis(w, w.ndim - 3, 0) if self.extent > 1 else w

    def transposed(self) -> Geometry:
        """The convolution of the result's gradient that gives the input's, for strides of 1."""
        padding = tuple(
            ((size - 1) * gap - low, (size - 1) * gap - high)
            for size, gap, (low, high) in zip(self.w_shape[:-2], self.dilation, self.padding, strict=True)
        )
        w_shape = (*self.w_shape[:-2], self.w_shape[-1] // self.groups, self.x_shape[-1])
        return replace(self, x_shape=self.y_shape, w_shape=w_shape, padding=padding)

    def turned(self, w: np.ndarray) -> np.ndarray:
        """The weights of :meth:`transposed`: every group turned, every window from its end."""
        rank = len(self.w_shape) - 2
        split = w.reshape(*self.w_shape[:-1], self.groups, -1)
        turned = np.swapaxes(split, -3, -1).reshape(*self.w_shape[:-2], -1, self.x_shape[-1])
        return turned[(slice(None, None, -1),) * rank]
