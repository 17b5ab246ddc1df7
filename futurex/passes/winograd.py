"""Convolutions of images with small square kernels as products over tiles, by Winograd's minimal algorithms.

``y = C' ((A w A') * (B x B')) C`` for each tile of ``m`` by ``m`` results takes ``(m + k - 1)**2`` products for the
``(m * k)**2`` of a direct convolution with a kernel of ``k`` by ``k`` (Winograd 1980; Lavin and Gray, arXiv
1509.09308). Both derivatives are the same three matrices in other places: ``dx = B' ((A w A') * (C g C')) B`` and
``dw = A' ((B x B') * (C g C')) A``. The matrices are Toom's and Cook's: evaluation at points and at infinity, and the
transpose of interpolation. The points are those of Barabasz et al. (arXiv 1803.10986), which err least.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from futurex.ops.convolution import conv_shape
from futurex.ops.tiles import Matrix
from futurex.ops.window import Sizes
from futurex.passes.rewrite import rewrite
from futurex.tree.graph import Graph
from futurex.tree.node import Node, apply, const

POINTS = (0.0, 1.0, -1.0, 0.5, -2.0, 2.0, -0.5)
TILE = {3: 4, 5: 4}
"""Results along one side of a tile, by the size of the kernel."""
LEAST_WORK = 100e6
"""Multiply-adds of a convolution from which it is worth more than its calls."""
GAIN = 0.9
"""Share of a direct convolution's time below which tiles are taken."""
_FLOPS, _DIRECT_FLOPS = 380e9, 400e9  # a second, measured: batched products and direct convolutions ...
_SPREAD, _GATHER, _PLAIN = 9e9, 19e9, 25e9  # ... and bytes written to planes, gathered from planes, and of weights


def tile_convolutions(graph: Graph) -> Graph:
    """The graph with float32 convolutions of images as products over tiles where that is estimated to be faster."""
    return rewrite(graph, _rule)


@dataclass(frozen=True)
class _Geometry:
    """``x`` (N, height, width, C) with ``w`` (k, k, C, O) to (N, *out, O)."""

    x: Sizes
    w: Sizes
    out: Sizes
    low: Sizes

    @property
    def hop(self) -> int:
        return TILE[self.w[0]]

    @property
    def tiles(self) -> Sizes:
        return tuple(-(-size // self.hop) for size in self.out)

    @property
    def saves_time(self) -> bool:
        """Whether the three convolutions of a training step take less time in tiles, by what was measured."""
        taps, channels, filters = self.w[0] ** 2, *self.w[2:]
        direct = float(self.x[0]) * math.prod(self.out) * taps * channels * filters
        if direct < LEAST_WORK:
            return False
        planes, places = (self.hop + self.w[0] - 1) ** 2, self.x[0] * math.prod(self.tiles)
        products = float(planes) * places * channels * filters
        before = 4.0 * channels * (math.prod(self.x[:3]) + planes * places)
        behind = 4.0 * filters * (self.x[0] * math.prod(self.out) + planes * places)
        weights = 4.0 * channels * filters * (taps + 2 * planes)
        moved = (before + behind) * (1 / _SPREAD + 1 / _GATHER) + 3 * weights / _PLAIN
        return 6 * products / _FLOPS + moved < GAIN * 6 * direct / _DIRECT_FLOPS


def _geometry(node: Node) -> _Geometry | None:
    """The sizes of a float32 convolution of images or of one of its gradients."""
    if node.op not in _FORMS or not node.is_static or node.ndim != 4:
        return None
    if any(each.dtype != np.float32 for each in (node, *node.inputs)):
        return None
    attrs = node.attrs
    first, second = (source.shape for source in node.inputs)
    x = attrs["input_shape"] if node.op == "conv_input_grad" else first
    w = node.shape if node.op == "conv_weight_grad" else second
    plain = attrs["groups"] == 1 and attrs["dilation"] == attrs["stride"] == (1, 1)
    if not plain or w[0] != w[1] or w[0] not in TILE:
        return None
    geometry = {name: attrs[name] for name in ("stride", "padding", "dilation", "groups")}
    return _Geometry(x, w, conv_shape(x, w, **geometry)[1:3], tuple(low for low, _ in attrs["padding"]))


def _rule(node: Node) -> Node | None:
    geometry = _geometry(node)
    if geometry is None or not geometry.saves_time:
        return None
    return _FORMS[node.op](geometry, *node.inputs)


def _conv(sizes: _Geometry, x: Node, w: Node) -> Node:
    product = apply("matmul", _positions(sizes, x), _weights(sizes, w))
    _, _, results = algorithm(sizes.hop, sizes.w[0])
    return apply(
        "tile_assemble", _by_example(sizes, product), matrix=results, hop=sizes.hop, low=(0, 0), tiles=sizes.tiles,
        sizes=sizes.out,
    )  # fmt: skip


def _input_grad(sizes: _Geometry, g: Node, w: Node) -> Node:
    turned = apply("transpose", _weights(sizes, w), axes=(0, 2, 1))
    product = apply("matmul", _results(sizes, g), turned)
    _, positions, _ = algorithm(sizes.hop, sizes.w[0])
    return apply(
        "tile_assemble", _by_example(sizes, product), matrix=positions, hop=sizes.hop, low=sizes.low,
        tiles=sizes.tiles, sizes=sizes.x[1:3],
    )  # fmt: skip


def _weight_grad(sizes: _Geometry, x: Node, g: Node) -> Node:
    turned = apply("transpose", _positions(sizes, x), axes=(0, 2, 1))
    product = apply("matmul", turned, _results(sizes, g))
    flat = apply("reshape", product, shape=(product.shape[0], math.prod(product.shape[1:])))
    return apply("reshape", apply("matmul", const(_both_sides(sizes).T), flat), shape=sizes.w)


def _positions(sizes: _Geometry, x: Node) -> Node:
    """B x B' of every tile: (planes, tiles of all examples, channels)."""
    _, positions, _ = algorithm(sizes.hop, sizes.w[0])
    return _planes(apply("tile_transform", x, matrix=positions, hop=sizes.hop, low=sizes.low, tiles=sizes.tiles))


def _results(sizes: _Geometry, g: Node) -> Node:
    """C g C' of every tile: (planes, tiles of all examples, filters)."""
    _, _, results = algorithm(sizes.hop, sizes.w[0])
    return _planes(apply("tile_transform", g, matrix=results, hop=sizes.hop, low=(0, 0), tiles=sizes.tiles))


def _planes(x: Node) -> Node:
    planes, examples, tiles, channels = x.shape
    return apply("reshape", x, shape=(planes, examples * tiles, channels))


def _by_example(sizes: _Geometry, product: Node) -> Node:
    shape = (product.shape[0], sizes.x[0], math.prod(sizes.tiles), product.shape[-1])
    return apply("reshape", product, shape=shape)


def _weights(sizes: _Geometry, w: Node) -> Node:
    """A w A': (planes, channels, filters)."""
    taps, _, channels, filters = sizes.w
    flat = apply("reshape", w, shape=(taps * taps, channels * filters))
    matrix = _both_sides(sizes)
    return apply("reshape", apply("matmul", const(matrix), flat), shape=(len(matrix), channels, filters))


def _both_sides(sizes: _Geometry) -> np.ndarray[Any, Any]:
    """What multiplies a kernel, as a column, by A from both sides."""
    weights, _, _ = algorithm(sizes.hop, sizes.w[0])
    return np.kron(weights, weights).astype(np.float32)


_FORMS = {"conv": _conv, "conv_input_grad": _input_grad, "conv_weight_grad": _weight_grad}


@functools.cache
def algorithm(results: int, taps: int) -> tuple[Matrix, Matrix, Matrix]:
    """The matrices A (of weights), B (of positions) and C (of results), with one row for each product.

    >>> A, B, C = map(np.array, algorithm(2, 3))
    >>> x, w = np.array([1.0, 2.0, 4.0, 8.0]), np.array([3.0, 1.0, 2.0])
    >>> (C.T @ ((A @ w) * (B @ x))).round(10)
    array([13., 26.])
    """
    rank = results + taps - 1
    points = POINTS[: rank - 1]

    def evaluation(terms: int) -> np.ndarray[Any, Any]:
        at_points = np.vander(points, terms, increasing=True)
        return np.vstack([at_points, np.eye(terms)[-1:]])  # at infinity the leading coefficient

    scale = [math.prod(p - q for q in points if q != p) for p in points] + [1.0]
    weights = evaluation(taps) / np.reshape(scale, (-1, 1))
    positions = np.linalg.inv(evaluation(rank)).T * np.reshape(scale, (-1, 1))
    positions = np.round(positions * 2**20) / 2**20  # they are sums of products of the points
    return _rows(weights), _rows(positions), _rows(evaluation(results))


def _rows(matrix: np.ndarray[Any, Any]) -> Matrix:
    return tuple(tuple(float(value) + 0.0 for value in row) for row in matrix)
