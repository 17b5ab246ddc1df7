"""Long one-dimensional convolutions as products of their Fourier transforms.

The algorithm is ``y = C' ((A w) * (B x))`` with the maps of :mod:`futurex.ops.spectra`. That is 1.5 products a position
instead of one for each tap, errors grow with the logarithm of the length only, and both derivatives are the same three
maps in other places: ``dx = B' ((A w) * (C g))``, ``dw = A' ((B x) * (C g))``. What the forward pass transformed is
transformed once.

The sums over channels are matrix products over contiguous memory if positions come first, so the axes are
``(position, batch, channel)`` inside; the pass :mod:`futurex.passes.layout` keeps them so between layers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from futurex.ops.convolution import conv_shape
from futurex.ops.spectra import period_of, rank_of
from futurex.passes.layout import sink, swap
from futurex.passes.rewrite import rewrite, until_stable
from futurex.passes.simplify import simplified
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply

LEAST_WORK = 16e6
"""Multiply-adds of a convolution below which its transforms are not worth their calls."""
LONGEST = 160
"""Positions up to which a transform is worth its code, which grows with them."""
MOST_PATCH = 128
"""Elements of a patch (taps times channels) up to which a convolution over few channels is one product of patches."""


def transform_convolutions(graph: Graph) -> Graph:
    """The graph with float32 convolutions over one axis as matrix products where that saves arithmetic."""
    if not any(found.saves_work for node in graph.nodes if (found := _geometry(node)) is not None):
        return graph
    return until_stable(rewrite(graph, _rule), tidy)


def tidy(node: Node) -> Node | None:
    sunk = sink(node)
    return simplified(node) if sunk is None else sunk


@dataclass(frozen=True)
class _Geometry:
    """``x`` (batch, length, channels) with ``w`` (taps, channels, filters) to (batch, outputs, filters)."""

    batch: int
    length: int
    channels: int
    taps: int
    filters: int
    outputs: int
    low: int
    stride: int

    @property
    def direct(self) -> float:
        """Multiply-adds of each of the three convolutions."""
        return float(self.batch) * self.outputs * self.taps * self.channels * self.filters

    @property
    def saves_work(self) -> bool:
        """Whether the transforms and their products take less arithmetic than the convolution."""
        if self.stride != 1 or self.direct < LEAST_WORK or self.outputs + self.taps > LONGEST:
            return False
        rank = rank_of(period_of(self.outputs, self.taps))
        products = self.batch * self.channels * self.filters
        transforms = (
            self.length * self.batch * self.channels
            + self.taps * self.channels * self.filters
            + self.outputs * self.batch * self.filters
        )
        return rank * (products + transforms) < self.direct

    @property
    def in_patches(self) -> bool:
        """Whether a product with patches beats the library, which works on sixteen channels at a time."""
        return self.channels < 16 and self.taps * self.channels <= MOST_PATCH and self.direct >= LEAST_WORK


def _geometry(node: Node) -> _Geometry | None:
    """The sizes of a float32 convolution over one axis or of one of its gradients."""
    if node.op not in _FORMS or not node.is_static or node.ndim != 3:
        return None
    if any(each.dtype != np.float32 for each in (node, *node.inputs)):
        return None
    attrs = node.attrs
    if attrs["groups"] != 1 or attrs["dilation"] != (1,):
        return None
    first, second = (source.shape for source in node.inputs)
    x = attrs["input_shape"] if node.op == "conv_input_grad" else first
    w = node.shape if node.op == "conv_weight_grad" else second
    geometry = {name: attrs[name] for name in ("stride", "padding", "dilation", "groups")}
    outputs = conv_shape(x, w, **geometry)[1]
    if not math.prod(x) or not math.prod(w):
        return None
    return _Geometry(x[0], x[1], x[2], w[0], w[2], outputs, attrs["padding"][0][0], attrs["stride"][0])


def _rule(node: Node) -> Node | None:
    geometry = _geometry(node)
    if geometry is None:
        return None
    if geometry.saves_work:
        return _FORMS[node.op](geometry, *node.inputs)
    if geometry.in_patches and node.op in _PATCHED and node.attrs["padding"] == ((0, 0),):
        return _PATCHED[node.op](geometry, *node.inputs)
    return None


def _conv(sizes: _Geometry, x: Node, w: Node) -> Node:
    product = apply("matmul", _map(sizes, "positions", swap(x)), _map(sizes, "weights", w))
    return swap(_map(sizes, "results", product, back=True))


def _input_grad(sizes: _Geometry, g: Node, w: Node) -> Node:
    weights = apply("transpose", _map(sizes, "weights", w), axes=(0, 2, 1))
    return swap(_map(sizes, "positions", apply("matmul", _map(sizes, "results", swap(g)), weights), back=True))


def _weight_grad(sizes: _Geometry, x: Node, g: Node) -> Node:
    turned = apply("transpose", _map(sizes, "positions", swap(x)), axes=(0, 2, 1))
    return _map(sizes, "weights", apply("matmul", turned, _map(sizes, "results", swap(g))), back=True)


def _map(sizes: _Geometry, which: str, x: Node, *, back: bool = False) -> Node:
    """One of the maps along the first axis, or its transpose."""
    geometry = {"outputs": sizes.outputs, "taps": sizes.taps, "length": sizes.length, "low": sizes.low}
    return apply("spectral_map", x, which=which, back=back, **geometry)


def _patches(sizes: _Geometry, x: Node) -> Node:
    """(outputs, batch, taps * channels): what each output position sees, a view where ``x`` is dense."""
    frames = apply("frames", swap(x), size=sizes.taps, hop=sizes.stride)
    rows = apply("transpose", frames, axes=(1, 2, 0, 3))
    return apply("reshape", rows, shape=(sizes.outputs, sizes.batch, sizes.taps * sizes.channels))


def _conv_patched(sizes: _Geometry, x: Node, w: Node) -> Node:
    flat = apply("reshape", w, shape=(sizes.taps * sizes.channels, sizes.filters))
    return swap(apply("matmul", _patches(sizes, x), flat))


def _weight_grad_patched(sizes: _Geometry, x: Node, g: Node) -> Node:
    products = apply("matmul", apply("transpose", _patches(sizes, x), axes=(0, 2, 1)), swap(g))
    total = apply("sum", products, axis=(0,), keepdims=False, dtype=None)
    return apply("reshape", total, shape=(sizes.taps, sizes.channels, sizes.filters))


_FORMS = {"conv": _conv, "conv_input_grad": _input_grad, "conv_weight_grad": _weight_grad}
_PATCHED = {"conv": _conv_patched, "conv_weight_grad": _weight_grad_patched}
