"""Convolution, pooling, dense layers and dropout on channels-last arrays."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from futurex.nn.operation import operation, shape_of
from futurex.nn.random import START

Sizes = int | Sequence[int]
Padding = str | int | Sequence[int | tuple[int, int]]


def conv(x: Any, w: Any, stride: Sizes = 1, padding: Padding = "valid", dilation: Sizes = 1, groups: int = 1) -> Any:
    """The convolution (cross-correlation, as everywhere in deep learning) of ``x`` with the filters ``w``.

    ``x`` is (N, *spatial, Cin), ``w`` (*kernel, Cin // groups, Cout) and the result (N, *spatial_out, Cout), for any
    number of spatial axes. ``stride`` and ``dilation`` are numbers or one number per spatial axis; ``padding`` is
    "valid" (none), "same" (with stride 1 the result is as long as ``x``), a number, or one number or pair per spatial
    axis.

    Raises ValueError naming the shapes where they do not fit.

    >>> import numpy as np, futurex as fx
    >>> fx.nn.conv(np.ones((2, 80, 6), np.float32), np.ones((10, 6, 100), np.float32)).shape
    (2, 71, 100)
    """
    x_shape, w_shape = shape_of(x, "x", "conv"), shape_of(w, "w", "conv")
    if len(x_shape) != len(w_shape) or len(x_shape) < 3:
        raise ValueError(
            "conv needs x (N, *spatial, Cin) and w (*kernel, Cin // groups, Cout) with as many axes, at least 3; "
            f"got x {x_shape} and w {w_shape}"
        )
    rank = len(x_shape) - 2
    strides, spread = _sizes(stride, rank, "stride", "conv"), _sizes(dilation, rank, "dilation", "conv")
    reach = tuple((extent - 1) * gap + 1 for extent, gap in zip(w_shape[:-2], spread, strict=True))
    pads = _padding(padding, reach, strides, x_shape[1:-1], "conv")
    return operation("conv", x, w, stride=strides, padding=pads, dilation=spread, groups=operator.index(groups))


def max_pool(x: Any, window: Sizes, stride: Sizes | None = None, padding: Padding = "valid") -> Any:
    """The largest element of each window of ``x`` (N, *spatial, C), for each channel.

    ``stride`` is the window itself unless given. Padding counts as minus infinity. Raises ValueError for a window
    that does not fit, naming the shapes.

    >>> import numpy as np, futurex as fx
    >>> fx.nn.max_pool(np.ones((2, 62, 100)), 3).shape
    (2, 20, 100)
    """
    return _pool("max_pool", x, window, stride, padding)


def avg_pool(x: Any, window: Sizes, stride: Sizes | None = None, padding: Padding = "valid") -> Any:
    """The mean of each window of ``x`` (N, *spatial, C), for each channel; padding counts as zeros.

    >>> import numpy as np, futurex as fx
    >>> np.asarray(fx.nn.avg_pool(np.arange(4.0).reshape(1, 4, 1), 2)).ravel()
    array([0.5, 2.5])
    """
    return _pool("avg_pool", x, window, stride, padding)


def global_average_pool(x: Any) -> Any:
    """The mean of ``x`` (N, *spatial, C) over its spatial axes, (N, C).

    >>> import numpy as np, futurex as fx
    >>> fx.nn.global_average_pool(np.ones((2, 5, 6, 3))).shape
    (2, 3)
    """
    shape = shape_of(x, "x", "global_average_pool")
    if len(shape) < 3:
        raise ValueError(f"global_average_pool needs x (N, *spatial, C), got shape {shape}")
    return x.mean(axis=tuple(range(1, len(shape) - 1)))


def dense(x: Any, w: Any, b: Any = None) -> Any:
    """``x @ w + b`` for ``x`` (..., in), ``w`` (in, out) and ``b`` (out,) or none.

    >>> import numpy as np, futurex as fx
    >>> fx.nn.dense(np.ones((4, 3)), np.ones((3, 2)), np.zeros(2)).shape
    (4, 2)
    """
    x_shape, w_shape = shape_of(x, "x", "dense"), shape_of(w, "w", "dense")
    if len(w_shape) != 2 or not x_shape or x_shape[-1] != w_shape[0]:
        raise ValueError(f"dense needs x (..., in) and w (in, out) of one size `in`; got x {x_shape} and w {w_shape}")
    if b is None:
        return x @ w
    b_shape = shape_of(b, "b", "dense")
    if b_shape != w_shape[1:]:
        raise ValueError(f"dense with w {w_shape} needs b of shape {w_shape[1:]}, got {b_shape}")
    return x @ w + b


def dropout(x: Any, rate: float, key: Any) -> Any:
    """``x`` with a share of ``rate`` of its elements set to zero and the others divided by ``1 - rate``.

    What is dropped depends on ``key`` (a uint64 scalar, see ``fx.random``) and on the position in ``x`` alone, not
    on the number of localities. ``rate`` is a Python number, 0 <= rate < 1. Raises ValueError for another one and
    TypeError for integers in ``x``.

    >>> import numpy as np, futurex as fx
    >>> kept = np.asarray(fx.nn.dropout(np.ones(1000), 0.5, fx.random.key(0)))
    >>> sorted(set(kept.tolist()))
    [0.0, 2.0]
    """
    shape = shape_of(x, "x", "dropout")
    share = float(rate)
    if not 0 <= share < 1:
        raise ValueError(f"dropout drops a share of x {shape}: rate must be at least 0 and below 1, got {share}")
    return operation("dropout", x, key, START, rate=share)


def batch_norm(x: Any, scale: Any, shift: Any, eps: float = 1e-5) -> tuple[Any, Any, Any]:
    """``x`` (..., C) standardised over all axes but the last, times ``scale`` plus ``shift``, both (C,).

    Returns ``(y, mean, variance)``; the variance is the biased one of this batch. On a cluster these are the
    statistics of the whole batch, not of one locality's part.

    >>> import numpy as np, futurex as fx
    >>> y, mean, variance = fx.nn.batch_norm(np.array([[1.0], [3.0]]), np.ones(1), np.zeros(1))
    >>> float(mean[0]), float(variance[0])
    (2.0, 1.0)
    """
    _check_norm("batch_norm", x, scale, shift)
    return operation("batch_norm", x, scale, shift, results=3, eps=float(eps))


def layer_norm(x: Any, scale: Any, shift: Any, eps: float = 1e-5) -> Any:
    """``x`` (..., C) standardised over its last axis, times ``scale`` plus ``shift``, both (C,).

    >>> import numpy as np, futurex as fx
    >>> np.asarray(fx.nn.layer_norm(np.array([[1.0, 3.0]]), np.ones(2), np.zeros(2), eps=0.0))
    array([[-1.,  1.]])
    """
    _check_norm("layer_norm", x, scale, shift)
    return operation("layer_norm", x, scale, shift, eps=float(eps))


def _check_norm(layer: str, x: Any, scale: Any, shift: Any) -> None:
    shapes = [shape_of(value, name, layer) for value, name in ((x, "x"), (scale, "scale"), (shift, "shift"))]
    channels = shapes[0][-1:]
    if not channels or any(shape != channels for shape in shapes[1:]):
        raise ValueError(
            f"{layer} needs x (..., C) with scale and shift (C,); "
            f"got x {shapes[0]}, scale {shapes[1]}, shift {shapes[2]}"
        )


def _pool(name: str, x: Any, window: Sizes, stride: Sizes | None, padding: Padding) -> Any:
    shape = shape_of(x, "x", name)
    rank = len(shape) - 2
    if rank < 1:
        raise ValueError(f"{name} needs x (N, *spatial, C), got shape {shape}")
    extents = _sizes(window, rank, "window", name)
    strides = extents if stride is None else _sizes(stride, rank, "stride", name)
    pads = _padding(padding, extents, strides, shape[1:-1], name)
    return operation(name, x, window=extents, stride=strides, padding=pads)


def _sizes(value: Sizes, rank: int, name: str, layer: str) -> tuple[int, ...]:
    sizes = tuple(map(operator.index, value)) if isinstance(value, Sequence) else (operator.index(value),) * rank
    if len(sizes) != rank or min(sizes) < 1:
        raise ValueError(f"{layer}: {name}={value!r} must be one number of at least 1, or one for each of {rank} axes")
    return sizes


def _padding(
    value: Padding, reach: Sequence[int], strides: Sequence[int], sizes: Sequence[int], layer: str
) -> tuple[tuple[int, int], ...]:
    if value == "valid":
        return ((0, 0),) * len(reach)
    if value == "same":
        missing = [
            max(0, (-(-size // step) - 1) * step + extent - size)
            for extent, step, size in zip(reach, strides, sizes, strict=True)
        ]
        return tuple((each // 2, each - each // 2) for each in missing)
    if isinstance(value, str):
        raise ValueError(f'{layer}: padding={value!r} is none of "valid", "same", a number, or one per spatial axis')
    entries: list[Any] = list(value) if isinstance(value, Sequence) else [value] * len(reach)
    pairs = [entry if isinstance(entry, tuple) else (entry, entry) for entry in entries]
    pads = tuple((operator.index(low), operator.index(high)) for low, high in pairs)
    if len(pads) != len(reach) or any(side < 0 for pair in pads for side in pair):
        raise ValueError(
            f"{layer}: padding={value!r} needs a number or pair of at least 0 for each of {len(reach)} spatial axes"
        )
    return pads
