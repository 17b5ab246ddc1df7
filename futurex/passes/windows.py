"""Convolutions, pooling and edges of small arrays in terms of slices and products, for code that is one function.

A library's call takes 10 to 40 µs, however little it computes. Here the windows of a convolution are laid side by side
(im2col: Chellapilla, Puri, Simard, High performance convolutional neural networks for document processing, 2006), so
that it is one product of matrices, and so are its gradients. Pooling is what its reference kernel does, view by view.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from futurex.ops.elementwise import where
from futurex.ops.pool import lowest, place_dtype
from futurex.ops.window import Padding, Sizes, Slices, dense, shifts
from futurex.tree.node import Node, apply, const

LARGEST = 1 << 15
"""Elements of windows side by side from which a library's call is worth its time."""


def in_slices(node: Node) -> Node | tuple[Node, ...] | None:
    """The node in simpler terms; None for other operations, large ones, and convolutions in groups."""
    sources = node.inputs
    if node.op not in OPERATIONS or not node.is_static or not all(each.is_static and each.size for each in sources):
        return None
    if node.op == "pad":
        x, value = sources
        return _with_edges(x, value, node.attrs["widths"]) if value.dtype == x.dtype else None
    if sources[0].dtype.char not in "fd" or node.attrs.get("groups", 1) != 1:
        return None
    if node.op == "conv_epilogue":
        return _with_bias(*sources, **node.attrs)
    if node.op in _CONVOLUTIONS and (sources[0].dtype != sources[1].dtype or _unfolded(node) > LARGEST):
        return None
    attrs = {name: value for name, value in node.attrs.items() if name != "groups"}
    return (_CONVOLUTIONS.get(node.op) or _POOLS[node.op])(*sources, **attrs)


def _with_edges(x: Node, value: Node, widths: Padding) -> Node:
    shape = tuple(low + size + high for size, (low, high) in zip(x.shape, widths, strict=True))
    inner = [slice(low, low + size) for size, (low, _) in zip(x.shape, widths, strict=True)]
    whole: Node = apply("full", value, shape=shape, dtype=x.dtype)
    return _stored(whole, x, inner, "set")


def _with_bias(x: Node, w: Node, b: Node, **attrs: Any) -> Node | None:
    made = in_slices(apply("conv", x, w, **attrs))
    return made + b if isinstance(made, Node) else None


def _unfolded(node: Node) -> int:
    """Elements of all windows side by side."""
    x, w, g = node.inputs[0], node.inputs[1], node
    if node.op == "conv_input_grad":
        x, g = node, node.inputs[0]
    elif node.op == "conv_weight_grad":
        w, g = node, node.inputs[1]
    return math.prod(g.shape[:-1]) * math.prod(w.shape[:-2]) * x.shape[-1]


# -- convolutions ----------------------------------------------------------------------------------------------------


def _conv(x: Node, w: Node, stride: Sizes, padding: Padding, dilation: Sizes) -> Node:
    windows = _side_by_side(x, w.shape[:-2], stride, padding, dilation)
    return _reshaped(_rows(windows) @ _rows(w), (*windows.shape[:-1], w.shape[-1]))


def _conv_weight_grad(
    x: Node, g: Node, kernel_shape: Sizes, stride: Sizes, padding: Padding, dilation: Sizes
) -> Node:  # fmt: skip
    windows = _rows(_side_by_side(x, kernel_shape, stride, padding, dilation))
    return _reshaped(_turned(windows) @ _rows(g), (*kernel_shape, x.shape[-1], g.shape[-1]))


def _conv_input_grad(
    g: Node, w: Node, input_shape: Sizes, stride: Sizes, padding: Padding, dilation: Sizes
) -> Node:  # fmt: skip
    depth, window = input_shape[-1], w.shape[:-2]
    windows = _reshaped(_rows(g) @ _turned(_rows(w)), (*g.shape[:-1], math.prod(window) * depth))
    total = _zeros(input_shape, padding, g.dtype)
    for number, (_, view) in enumerate(shifts(window, stride, dilation, g.shape[1:-1])):
        part = _view(windows, (..., slice(number * depth, (number + 1) * depth)))
        total = _stored(total, part, view, "add")
    return _inside(total, input_shape, padding)


def _side_by_side(x: Node, window: Sizes, stride: Sizes, padding: Padding, dilation: Sizes) -> Node:
    """What each window sees, (N, *spatial out, positions * channels)."""
    x = _padded(x, padding)
    views = [_view(x, view) for _, view in _seen(x, window, stride, dilation)]
    return views[0] if len(views) == 1 else apply("concatenate", *views, axis=x.ndim - 1)


def _rows(x: Node) -> Node:
    """A matrix of all that stands before the last axis."""
    return _reshaped(x, (math.prod(x.shape[:-1]), x.shape[-1]))


def _turned(x: Node) -> Node:
    return apply("transpose", x, axes=(1, 0))


# -- pooling ---------------------------------------------------------------------------------------------------------


def _max_pool(x: Node, window: Sizes, stride: Sizes, padding: Padding) -> Node:
    views = _pooled(x, window, stride, padding, lowest(x.dtype))
    return functools.reduce(lambda best, view: apply("maximum", best, view), views)


def _max_pool_places(x: Node, window: Sizes, stride: Sizes, padding: Padding) -> tuple[Node, Node]:
    return _max_pool(x, window, stride, padding), _first_maxima(x, window, stride, padding)


def _first_maxima(x: Node, window: Sizes, stride: Sizes, padding: Padding) -> Node:
    """The number of the position where each window first has its maximum; a NaN beats all before it, and stays."""
    best, *others = _pooled(x, window, stride, padding, lowest(x.dtype))
    kind = place_dtype(window)
    first: Node = apply("full", const(kind.type(0)), shape=best.shape, dtype=kind)
    for number, view in enumerate(others, start=1):
        better = apply("logical_not", apply("less_equal", view, best))
        better = apply("logical_and", better, apply("equal", best, best))
        first, best = where(better, const(kind.type(number)), first), where(better, view, best)
    return first


def _max_pool_spread(
    g: Node, places: Node, input_shape: Sizes, window: Sizes, stride: Sizes, padding: Padding
) -> Node:  # fmt: skip
    total = _zeros(input_shape, padding, g.dtype)
    for number, (_, view) in enumerate(shifts(window, stride, dense(window), g.shape[1:-1])):
        part = where(apply("equal", places, const(places.dtype.type(number))), g, const(g.dtype.type(0)))
        total = _stored(total, part, view, "add")
    return _inside(total, input_shape, padding)


def _max_pool_grad(g: Node, x: Node, window: Sizes, stride: Sizes, padding: Padding) -> Node:
    return _max_pool_spread(g, _first_maxima(x, window, stride, padding), x.shape, window, stride, padding)


def _avg_pool(x: Node, window: Sizes, stride: Sizes, padding: Padding) -> Node:
    zero: Node = const(x.dtype.type(0))  # which makes zeros positive, as it does where sums begin with it
    total = functools.reduce(lambda total, view: total + view, _pooled(x, window, stride, padding, 0), zero)
    return total / const(total.dtype.type(math.prod(window)))


def _avg_pool_grad(g: Node, input_shape: Sizes, window: Sizes, stride: Sizes, padding: Padding) -> Node:
    share = g / const(g.dtype.type(math.prod(window)))
    total = _zeros(input_shape, padding, share.dtype)
    for _, view in shifts(window, stride, dense(window), g.shape[1:-1]):
        total = _stored(total, share, view, "add")
    return _inside(total, input_shape, padding)


def _pooled(x: Node, window: Sizes, stride: Sizes, padding: Padding, outside: Any) -> list[Node]:
    x = _padded(x, padding, outside)
    return [_view(x, view) for _, view in _seen(x, window, stride, dense(window))]


# -- slices ----------------------------------------------------------------------------------------------------------


def _seen(x: Node, window: Sizes, stride: Sizes, dilation: Sizes) -> list[tuple[Sizes, Slices]]:
    """Positions and slices of a window in ``x``, which is padded already."""
    spans = [(extent - 1) * spread + 1 for extent, spread in zip(window, dilation, strict=True)]
    out = [(size - span) // step + 1 for size, span, step in zip(x.shape[1:-1], spans, stride, strict=True)]
    return list(shifts(window, stride, dilation, tuple(out)))


def _padded(x: Node, padding: Padding, value: Any = 0) -> Node:
    if not any(map(any, padding)):
        return x
    return _with_edges(x, const(x.dtype.type(value)), ((0, 0), *padding, (0, 0)))


def _zeros(shape: Sizes, padding: Padding, dtype: np.dtype[Any]) -> Node:
    sides = zip(shape[1:-1], padding, strict=True)
    whole = (shape[0], *(size + low + high for size, (low, high) in sides), shape[-1])
    made: Node = apply("full", const(dtype.type(0)), shape=whole, dtype=dtype)
    return made


def _inside(total: Node, shape: Sizes, padding: Padding) -> Node:
    return _view(total, _inner(shape, padding)) if any(map(any, padding)) else total


def _inner(shape: Sizes, padding: Padding) -> Slices:
    return (slice(None), *(slice(low, low + size) for size, (low, _) in zip(shape[1:-1], padding, strict=True)))


def _view(x: Node, index: Sequence[Any]) -> Node:
    found: Node = apply("load", x, chain=(("index", _entries(x.ndim, index)),))
    return found


def _stored(base: Node, value: Node, index: Sequence[Any], mode: str) -> Node:
    made: Node = apply("store", base, value, chain=(("index", _entries(base.ndim, index)),), mode=mode)
    return made


def _entries(ndim: int, index: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
    """Slices as views encode them, one for each axis."""
    if index[0] is ...:
        index = (*(slice(None),) * (ndim - len(index) + 1), *index[1:])
    whole = (*index, *(slice(None),) * (ndim - len(index)))
    return tuple(("s", each.start, each.stop, each.step) for each in whole)


def _reshaped(x: Node, shape: Sizes) -> Node:
    made: Node = x if x.shape == shape else apply("reshape", x, shape=shape)
    return made


_POOLS: dict[str, Callable[..., Node | tuple[Node, ...]]] = {
    "max_pool": _max_pool,
    "max_pool_places": _max_pool_places,
    "max_pool_spread": _max_pool_spread,
    "max_pool_grad": _max_pool_grad,
    "avg_pool": _avg_pool,
    "avg_pool_grad": _avg_pool_grad,
}
_CONVOLUTIONS: dict[str, Callable[..., Node]] = {
    "conv": _conv, "conv_input_grad": _conv_input_grad, "conv_weight_grad": _conv_weight_grad
}  # fmt: skip
OPERATIONS = frozenset(("pad", "conv_epilogue", *_CONVOLUTIONS, *_POOLS))
