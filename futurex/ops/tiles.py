"""Linear maps of the tiles of an image, and their transposes: what surrounds the products of a fast convolution.

A tile is a square window of an image (N, height, width, C), one every ``hop`` positions from ``-low`` on; outside of
the image is zero. ``tile_transform`` multiplies each tile by a matrix from both sides, ``P d P'``, and gives element
``(i, j)`` of all results as plane ``i * rows + j`` of (rows * rows, N, tiles, C). ``tile_assemble`` is its transpose:
it adds ``P' m P`` of each tile to where the tile lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from futurex.ops.window import Sizes
from futurex.tree.aval import Aval
from futurex.tree.node import Node, apply
from futurex.tree.record import Cost, Sample, op

Matrix = tuple[tuple[float, ...], ...]


def _spans(window: int, hop: int, low: Sizes, tiles: Sizes, sizes: Sizes) -> Iterator[tuple[int, Any, Any]]:
    """For each tile its number, where it lies in the image, and which part of the tile that is."""
    for number in range(tiles[0] * tiles[1]):
        at = number // tiles[1], number % tiles[1]
        starts = [place * hop - before for place, before in zip(at, low, strict=True)]
        inside = [(max(start, 0), min(start + window, size)) for start, size in zip(starts, sizes, strict=True)]
        if all(first < last for first, last in inside):
            image = tuple(slice(*span) for span in inside)
            part = tuple(slice(a - start, b - start) for (a, b), start in zip(inside, starts, strict=True))
            yield number, (slice(None), *image), (slice(None), *part)


def _transform(x: Any, matrix: Matrix, hop: int, low: Sizes, tiles: Sizes) -> Any:
    p = np.array(matrix, x.dtype)
    rows, window = p.shape
    out = np.zeros((rows * rows, x.shape[0], tiles[0] * tiles[1], x.shape[-1]), x.dtype)
    for number, image, part in _spans(window, hop, low, tiles, x.shape[1:3]):
        tile = np.zeros((x.shape[0], window, window, x.shape[-1]), x.dtype)
        tile[part] = x[image]
        found = np.einsum("ip,jq,npqc->ijnc", p, p, tile, optimize=True)
        out[:, :, number] = found.reshape(rows * rows, *found.shape[2:])
    return out


def _assemble(m: Any, matrix: Matrix, hop: int, low: Sizes, tiles: Sizes, sizes: Sizes) -> Any:
    p = np.array(matrix, m.dtype)
    rows, window = p.shape
    out = np.zeros((m.shape[1], *sizes, m.shape[-1]), m.dtype)
    planes = m.reshape(rows, rows, *m.shape[1:])
    for number, image, part in _spans(window, hop, low, tiles, sizes):
        out[image] += np.einsum("ip,jq,ijnc->npqc", p, p, planes[:, :, :, number], optimize=True)[part]
    return out


def _transform_aval(x: Aval, matrix: Matrix, hop: int, low: Sizes, tiles: Sizes) -> Aval:
    if x.ndim != 4 or len(low) != 2 or len(tiles) != 2:
        raise ValueError(f"tile_transform works on images (N, height, width, C), not on {x!r}")
    return Aval((len(matrix) ** 2, x.shape[0], tiles[0] * tiles[1], x.shape[-1]), x.dtype)


def _assemble_aval(m: Aval, matrix: Matrix, hop: int, low: Sizes, tiles: Sizes, sizes: Sizes) -> Aval:
    if m.ndim != 4 or m.shape[0] != len(matrix) ** 2 or m.shape[2] != tiles[0] * tiles[1]:
        raise ValueError(f"tile_assemble: {m!r} is not (planes, N, tiles, C) of {len(matrix)} rows and {tiles} tiles")
    return Aval((m.shape[1], *sizes, m.shape[-1]), m.dtype)


def _transform_rule(g: Node, out: Node, x: Node, **attrs: Any) -> tuple[Node]:
    return (apply("tile_assemble", g, sizes=x.shape[1:3], **attrs),)


def _assemble_rule(g: Node, out: Node, m: Node, sizes: Sizes, **attrs: Any) -> tuple[Node]:
    return (apply("tile_transform", g, **attrs),)


def _transform_cost(x: Aval, matrix: Matrix, tiles: Sizes, **_: Any) -> Cost:
    rows, window = len(matrix), len(matrix[0])
    work = 2.0 * (rows * window * window + rows * rows * window) * tiles[0] * tiles[1] * x.shape[0] * x.shape[-1]
    made = rows * rows * x.shape[0] * tiles[0] * tiles[1] * x.shape[-1] * x.dtype.itemsize
    return Cost(work, float(x.nbytes + made))


def _assemble_cost(m: Aval, matrix: Matrix, tiles: Sizes, sizes: Sizes, **_: Any) -> Cost:
    image = Aval((m.shape[1], *sizes, m.shape[-1]), m.dtype)
    return _transform_cost(image, matrix, tiles)


_MATRICES: tuple[Matrix, ...] = (((1.0, 0.0, -2.0), (0.5, 1.0, 1.0)), ((1.0, 0.0), (1.0, -1.0), (0.0, 0.25)))
_TILINGS = tuple(
    {"matrix": matrix, "hop": 2, "low": low, "tiles": tiles}
    for matrix, low, tiles in zip(_MATRICES, ((1, 0), (0, 0)), ((3, 2), (2, 3)), strict=True)
)


def _samples(assemble: bool) -> Any:
    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        for attrs in _TILINGS:
            rows, tiles = len(attrs["matrix"]), attrs["tiles"]  # type: ignore[arg-type]
            shape = (rows * rows, 2, tiles[0] * tiles[1], 3) if assemble else (2, 4, 5, 3)  # type: ignore[index]
            extra = {"sizes": (4, 5)} if assemble else {}
            yield Sample((rng.normal(size=shape),), {**attrs, **extra})

    return samples


op(
    "tile_transform", _transform, aval=_transform_aval, vjp=_transform_rule, cost=_transform_cost,
    factors=lambda x, **_: "n !h !w c -> !r n !t c", samples=_samples(False),
)  # fmt: skip
op(
    "tile_assemble", _assemble, aval=_assemble_aval, vjp=_assemble_rule, cost=_assemble_cost,
    factors=lambda m, **_: "!r n !t c -> n !h !w c", samples=_samples(True),
)  # fmt: skip
