"""Convolution, transposed convolution, dense layers and dropout on channels-last arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from futurex.errors import whole_number
from futurex.nn.operation import operation, shape_of
from futurex.nn.random import START, key_of
from futurex.nn.windows import Padding, Sizes, padding_of, sizes_of


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
    strides, spread = sizes_of(stride, rank, "stride", "conv"), sizes_of(dilation, rank, "dilation", "conv")
    reach = tuple((extent - 1) * gap + 1 for extent, gap in zip(w_shape[:-2], spread, strict=True))
    pads = padding_of(padding, reach, strides, x_shape[1:-1], "conv")
    parts = whole_number("conv: groups", groups, 1)
    return operation("conv", x, w, stride=strides, padding=pads, dilation=spread, groups=parts)


def conv_transpose(
    x: Any,
    w: Any,
    stride: Sizes = 1,
    padding: Padding = "valid",
    dilation: Sizes = 1,
    groups: int = 1,
    output_padding: int | Sequence[int] = 0,
) -> Any:
    """The transposed convolution: what :func:`conv` with the same arguments does to gradients, which enlarges.

    ``x`` is (N, *spatial, Cin) and ``w`` (*kernel, Cout // groups, Cin), the weights of the convolution from Cout to
    Cin channels that it is the transpose of (Keras's order). Along an axis the result has
    ``(size - 1) * stride + reach - padding + output_padding`` elements, where ``reach`` is ``(kernel - 1) * dilation +
    1`` and ``padding`` counts both sides; "same" gives ``size * stride``. ``output_padding``, a number or one per axis,
    is below ``stride`` and chooses among the sizes that a convolution makes ``size`` of.

    Raises ValueError naming the shapes where they do not fit.

    >>> import numpy as np, futurex as fx
    >>> fx.nn.conv_transpose(np.ones((2, 5, 5, 8)), np.ones((3, 3, 4, 8)), stride=2, padding="same").shape
    (2, 10, 10, 4)
    """
    x_shape, w_shape = shape_of(x, "x", "conv_transpose"), shape_of(w, "w", "conv_transpose")
    if len(x_shape) != len(w_shape) or len(x_shape) < 3 or x_shape[-1] != w_shape[-1]:
        raise ValueError(
            "conv_transpose needs x (N, *spatial, Cin) and w (*kernel, Cout // groups, Cin) with as many axes, at "
            f"least 3; got x {x_shape} and w {w_shape}"
        )
    rank, parts = len(x_shape) - 2, whole_number("conv_transpose: groups", groups, 1)
    strides = sizes_of(stride, rank, "stride", "conv_transpose")
    spread = sizes_of(dilation, rank, "dilation", "conv_transpose")
    entries = tuple(output_padding) if isinstance(output_padding, list | tuple) else (output_padding,) * rank
    more = tuple(whole_number("conv_transpose: output_padding", each) for each in entries)
    if len(more) != rank or any(not 0 <= each < step for each, step in zip(more, strides, strict=True)):
        raise ValueError(
            f"conv_transpose: output_padding={output_padding!r} must be at least 0 and below stride {strides}"
        )
    reach = tuple((extent - 1) * gap + 1 for extent, gap in zip(w_shape[:-2], spread, strict=True))
    sizes = x_shape[1:-1]
    if padding == "same":
        out = tuple(size * step for size, step in zip(sizes, strides, strict=True))
        pads = padding_of("same", reach, strides, out, "conv_transpose")
    else:
        pads = padding_of(padding, reach, strides, sizes, "conv_transpose")
        out = tuple(
            (size - 1) * step + extent - low - high + extra
            for size, step, extent, (low, high), extra in zip(sizes, strides, reach, pads, more, strict=True)
        )
    shape = (x_shape[0], *out, w_shape[-2] * parts)
    return operation(
        "conv_input_grad", x, w, input_shape=shape, stride=strides, padding=pads, dilation=spread, groups=parts
    )


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
    return operation("dropout", x, key_of(key, "dropout"), START, rate=share)
